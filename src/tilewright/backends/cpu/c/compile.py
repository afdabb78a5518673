"""Compiles C text to an object file with the first installed C compiler.

The order is: the variable `CC`, `cc`, `gcc` or `clang` (this architecture only), the cross compiler
`<arch>-linux-gnu-gcc`, and the Python package `ziglang`, which compiles for every architecture.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tilewright.backends.cpu import processors
from tilewright.backends.targets.target import Target
from tilewright.base.errors import InternalError, TargetError
from tilewright.runtime.host import host_arch

STANDARD: Final = ("-std=c99", "-Wall", "-Wextra", "-Wconversion", "-pedantic")
"""The language, and the warnings that generated text does not cause."""
EXACT: Final = ("-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fno-strict-aliasing")
"""Options for fast code with the results of the loop language: products and sums are rounded separately, and one
workspace holds values of several types."""
_LONGEST: Final = 600


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C compiler as a command; `name` is for messages."""

    name: str
    command: tuple[str, ...]

    def run(self, arguments: Sequence[str], folder: Path) -> str | None:
        """Run the compiler in `folder`; return its message if it fails."""
        try:
            done = subprocess.run(
                [*self.command, *arguments], cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                timeout=_LONGEST, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        return (
            None if done.returncode == 0
            else (done.stderr or done.stdout).strip()[-3000:] or f"it ended with status {done.returncode}"
        )

    @property
    def is_zig(self) -> bool:
        return self.command[-2:] == ("ziglang", "cc")


def find_compilers(arch: str) -> list[Compiler]:
    """Return the installed C compilers for `arch`, the preferred one first."""
    found = []
    if arch == host_arch():
        if chosen := shlex.split(os.environ.get("CC", "")):
            found.append(Compiler(" ".join(chosen), tuple(chosen)))
        names: tuple[str, ...] = ("cc", "gcc", "clang")
    else:
        names = (f"{arch}-linux-gnu-gcc",)
    if path := next(filter(None, map(shutil.which, names)), None):
        found.append(Compiler(Path(path).name, (path,)))
    if importlib.util.find_spec("ziglang") is not None:
        found.append(Compiler("ziglang", (sys.executable, "-m", "ziglang", "cc")))
    return found


def identity_of(target: Target) -> str:
    """Return the compilers that may make objects of C text, identified by their files, and the options, for the key of
    the cache."""
    found = []
    for compiler in find_compilers(target.mtriple.split("-")[0]):
        program = shutil.which(compiler.command[0])
        state = Path(program).stat() if program else None
        version = importlib.metadata.version("ziglang") if compiler.is_zig else ""
        found.append([
            *compiler.command, *machine_options(target, compiler), version,
            *([str(state.st_size), str(state.st_mtime_ns)] if state else [])
        ])
    return json.dumps([*EXACT, found])


def named_compiler(command: str) -> Compiler:
    """Return the compiler of a command, which may have options. Raises `TargetError` if it is not installed."""
    words = shlex.split(command)
    path = shutil.which(words[0]) if words else None
    if path is None:
        raise TargetError(
            f"the C compiler '{command}' is not installed; name an installed one, such as gcc or clang, or omit cc= "
            "for the first one found", code="TW0507")
    return Compiler(command, (path, *words[1:]))


def sanitizer_of(compiler: Compiler) -> Path:
    """Return the library of a compiler's AddressSanitizer, which a process loads first.

    Raises `TargetError` if there is none.
    """
    done = subprocess.run(
        [*compiler.command, "-print-file-name=libasan.so"], capture_output=True, text=True, stdin=subprocess.DEVNULL,
        timeout=_LONGEST, check=False)
    path = Path(done.stdout.strip())
    if done.returncode or not path.is_absolute():
        raise TargetError(
            f"'{compiler.name}' has no libasan.so, the AddressSanitizer of gcc; install gcc and its libasan, and name "
            "it: cc='gcc', or the variable CC", code="TW0507")
    return path


def compile_c(
    text: str, target: Target, compiler: Compiler | None = None, options: Sequence[str] = (), source: Path | None = None
) -> bytes:
    """Return the object file of `text` for `target`, position-independent; `options` follow the fixed ones.

    `source` is a permanent file with the text, if any. Raises `TargetError` without a compiler, and `InternalError`
    with the compiler's message if it refuses the text.
    """
    arch = target.mtriple.split("-")[0]
    compilers = [compiler] if compiler else find_compilers(arch)
    if not compilers:
        raise TargetError(
            f"no C compiler for {arch} was found (the variable CC, cc, gcc, clang, the Python package ziglang); `pip "
            "install ziglang`, or build for 'llvm'", code="TW0507")
    failures = []
    with tempfile.TemporaryDirectory(prefix="tilewright-c-") as name:
        folder = Path(name)
        given = source or folder / "code.c"
        if source is None:
            given.write_text(text)
        for candidate in compilers:
            failure = candidate.run(
                [
                    *STANDARD[:1], *EXACT, "-w", *machine_options(target, candidate), *options, "-fPIC", "-c",
                    str(given), "-o", "code.o"
                ],
                folder)
            if failure is None:
                return (folder / "code.o").read_bytes()
            failures.append(f"{candidate.name}: {failure}")
    raise InternalError("generated C could not be compiled. " + "\n".join(failures))


def machine_options(target: Target, compiler: Compiler) -> list[str]:
    """Return the options that choose the processor."""
    arch, cpu = target.mtriple.split("-")[0], processors.compilable(target.mcpu)
    options = (
        [] if not compiler.is_zig or arch == host_arch()
        else [
            "-target",
            f"{'arm' if arch.startswith('arm') else arch}-linux-gnu{'eabihf' if arch.startswith('arm') else ''}"
        ]
    )
    if compiler.is_zig:
        named = (
            cpu.replace("-", "_") if cpu not in ("generic", "native") else "baseline" if cpu == "generic" else "native"
        )
        return [*options, f"-mcpu={named}", "-fno-sanitize=undefined"]
    if cpu == "native":
        return [*options, "-march=native"]
    if target.family == "x86":
        return [*options, f"-march={'x86-64' if cpu == 'generic' else cpu}"]
    return options if cpu == "generic" else [*options, f"-mcpu={cpu}"]
