"""A shared library in this process, loaded from a file that was verified before."""

from __future__ import annotations

import _ctypes
import ctypes
import os
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from tilewright.base.errors import ArtifactError
from tilewright.runtime import kept_values
from tilewright.runtime.symbols import symbol_values

_ANCHOR: Final = "tw_pool_create"
"""A symbol that every library exports and defines."""


def _identity(found: os.stat_result) -> tuple[int, int, int, int]:
    """Return the identity of a file and of its contents: device, inode, size, time of change."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _close(handle: int, leave: Callable[[], None] | None) -> None:
    if leave is not None:
        leave()
    _ctypes.dlclose(handle)


class SharedLibrary:
    """`address(symbol)` is valid while this object lives; the library is unloaded with it."""

    _hidden: dict[str, int] | None = None

    def __init__(self, descriptor: int, path: Path, *, stays: bool = False) -> None:
        """Load the open file `descriptor`. `path` is for messages; if the library `stays` until the process ends, it is
        loaded from there, so that debuggers find it.

        The system's loader returns a library that it has loaded under the same name, even if the file has changed.
        Therefore the name is a new one that leads to the verified file.
        """
        self._path, self._file = path.resolve(), _identity(os.fstat(descriptor))
        try:
            if stays:
                self._library = ctypes.CDLL(str(path))
                return
            with tempfile.TemporaryDirectory(prefix="tilewright-load-") as folder:
                name = Path(folder) / path.name
                # not /proc/self, which for a debugger means its own process
                of_process = Path(f"/proc/{os.getpid()}/fd/{descriptor}")
                name.symlink_to(of_process if of_process.exists() else path.resolve())
                self._library = ctypes.CDLL(str(name))
        except OSError as error:
            raise ArtifactError(f"{path}: the system cannot load this library: {error}", code="TW0803") from error
        weakref.finalize(self, _close, self._library._handle, self._use_kept_values()).atexit = False

    def _use_kept_values(self) -> Callable[[], None] | None:
        """Count this object as a user of the library's kept values; return a function that ends the use, if the library
        keeps any."""
        try:
            return kept_values.use(self.address(kept_values.USERS))
        except KeyError:
            return None

    def address(self, symbol: str) -> int:
        """Return the address of `symbol`. Raises `KeyError` for an unknown symbol."""
        try:
            return ctypes.addressof(ctypes.c_char.in_dll(self._library, symbol))
        except ValueError as error:
            raise KeyError(symbol) from error

    def hidden_address(self, symbol: str) -> int:
        """Return the address of an internal symbol, such as a kernel that is timed. Raises `KeyError` if the file does
        not list it."""
        if self._hidden is None:
            with self._path.open("rb") as file:
                if _identity(os.fstat(file.fileno())) != self._file:
                    raise KeyError(symbol)
                self._hidden = symbol_values(file.read())
        return self.address(_ANCHOR) + self._hidden[symbol] - self._hidden[_ANCHOR]

    def bytes_at(self, symbol: str, count: int) -> np.ndarray[Any, Any]:
        """Return the `count` bytes at `symbol`, read-only; valid while this object lives."""
        memory = (ctypes.c_uint8 * count).from_address(self.address(symbol))
        view = np.frombuffer(memoryview(memory), np.uint8)
        view.flags.writeable = False
        return view
