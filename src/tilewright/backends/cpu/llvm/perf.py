"""Reports for `perf` of code that exists only in memory.

    TILEWRIGHT_PERF=map        names, in /tmp/perf-<process>.map, where perf looks for them while the process lives
    TILEWRIGHT_PERF=jitdump    names and code, in jit-<process>.dump, which `perf inject --jit` adds to a recording

The second form keeps the instructions, so that `perf annotate` shows them later. Its format is version 1 of perf's
jitdump (`tools/perf/Documentation/jitdump-specification.txt` of Linux): a header, and a record of each loaded function.
perf finds the file because a page of it is mapped as code.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final

from tilewright.backends.cpu.elf import code_symbols
from tilewright.base.errors import OptionError
from tilewright.base.forks import new_lock
from tilewright.runtime.artifact import PERF

FOLDER: Final = "JITDUMPDIR"
"""The environment variable of the folder of jitdump files; without it, the folder for temporary files is used."""
_KINDS: Final = ("map", "jitdump")
_MAGIC, _VERSION, _HEADER = 0x4A695444, 1, 40
_LOAD: Final = 0
_MACHINE_AT: Final = 18

Functions = Mapping[str, tuple[int, int]]
"""Name -> address, bytes."""


def kind_wanted() -> str:
    """Return the requested form: `map`, `jitdump`, or empty. Raises `OptionError` for other values."""
    asked = os.environ.get(PERF, "")
    if asked and asked not in _KINDS:
        raise OptionError(
            f"{PERF} is '{asked}'; set it to map or jitdump, so that perf knows the functions of loaded code, or unset "
            "it", code="TW0208")
    return asked


def tell(kind: str, objects: Sequence[bytes], address_of: Callable[[str], int]) -> None:
    """Report all functions of loaded objects to perf; `address_of` returns the addresses of global functions.

    Sections are loaded unchanged, so a local function has the same distance from the others of its section as in the
    object.
    """
    for image in objects:
        symbols = code_symbols(image)
        begins = {f.section: address_of(f.name) - f.offset for f in symbols if f.shown}
        functions = {f.name: (begins[f.section] + f.offset, f.nbytes) for f in symbols if f.section in begins}
        if kind == "map":
            _write_map(functions)
        else:
            _dump(struct.unpack_from("<H", image, _MACHINE_AT)[0]).write(functions)


def _write_map(functions: Functions) -> None:
    lines = "".join(f"{address:x} {nbytes:x} {name}\n" for name, (address, nbytes) in functions.items())
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(f"/tmp/perf-{os.getpid()}.map", flags, 0o600), "a") as file:  # perf determines the path
        if os.fstat(file.fileno()).st_uid != os.getuid():
            raise OSError(f"{file.name} belongs to another user")
        file.write(lines)


class _JitDump:
    """The file of one process, open and mapped until the process ends."""

    def __init__(self, machine: int) -> None:
        self.process = os.getpid()
        self._lock = new_lock()
        self._count = 0
        path = Path(os.environ.get(FOLDER) or tempfile.gettempdir()) / f"jit-{self.process}.dump"
        path.unlink(missing_ok=True)  # left by an earlier process with this id
        self._file: BinaryIO = path.open("x+b")
        self._file.write(
            struct.pack(
                "<IIIIIIQQ", _MAGIC, _VERSION, _HEADER, machine, 0, self.process,
                time.clock_gettime_ns(time.CLOCK_MONOTONIC), 0))
        self._file.flush()
        self._marker = mmap.mmap(
            self._file.fileno(), _HEADER, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC)

    def write(self, functions: Functions) -> None:
        """Write records of functions, with their instructions in memory."""
        with self._lock:
            for name, (address, nbytes) in functions.items():
                code, text = ctypes.string_at(address, nbytes), name.encode() + b"\0"
                body = struct.pack(
                    "<IIQQQQ", self.process, threading.get_native_id(), address, address, nbytes, self._count
                ) + text + code
                self._file.write(
                    struct.pack("<IIQ", _LOAD, 16 + len(body), time.clock_gettime_ns(time.CLOCK_MONOTONIC)) + body)
                self._count += 1
            self._file.flush()


_dumps: dict[int, _JitDump] = {}
_dumps_lock = new_lock()


def _dump(machine: int) -> _JitDump:
    """Return the file of this process; a forked process begins its own."""
    with _dumps_lock:
        return _dumps.get(os.getpid()) or _dumps.setdefault(os.getpid(), _JitDump(machine))
