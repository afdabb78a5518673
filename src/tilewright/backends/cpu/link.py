"""Objects -> one shared library, by the first linker that is there.

Tried in order: the system's C compiler driver (this architecture only), `ld.lld`, and the linker inside the Python package
`ziglang`. The two bare linkers know no C library, so they are given empty stand-ins that carry its name.
"""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tilewright.backends.cpu.llvm.compile import compile_text
from tilewright.backends.target import Target
from tilewright.base.errors import ArtifactError, OptionError
from tilewright.runtime.host import host_arch

_FLAGS: Final = ("-Bsymbolic", "--build-id=none", "--hash-style=gnu")
_KEYWORDS: Final = ("noexecstack", "now")
_LIBRARIES: Final = ("libc.so.6", "libm.so.6")
_EMULATIONS: Final = {"x86_64": "elf_x86_64", "aarch64": "aarch64linux", "riscv64": "elf64lriscv", **dict.fromkeys(("arm", "armv7", "armv7a", "armv7l"), "armelf_linux_eabi")}
_COMPILERS: Final = dict.fromkeys(("arm", "armv7", "armv7a", "armv7l"), "arm-linux-gnueabihf-gcc")
"""Cross compilers whose name is not `<arch>-linux-gnu-gcc`."""
_LONGEST_LINK: Final = 3600
"""Seconds. On its first use for a system, zig builds that system's C library, which takes minutes on a busy machine."""


@dataclass(frozen=True, slots=True)
class Linker:
    """A program that links; `driver` is true for a compiler driver, which knows the C library."""

    name: str
    command: tuple[str, ...]
    driver: bool

    def arguments(self, arch: str, objects: Sequence[Path], out: Path, version_script: Path) -> list[str]:
        files = [str(o) for o in objects]
        if self.driver:
            options = [f"-Wl,{flag}" for flag in (*_FLAGS, f"--version-script={version_script}", "--as-needed", "-z,defs")]
            options += [f"-Wl,-z,{word}" for word in _KEYWORDS]
            return [*self.command, "-shared", "-nostartfiles", "-o", str(out), *files, *options, "-lm", "-lpthread"]
        options = [*_FLAGS, f"--version-script={version_script}", "-m", emulation(arch)]
        options += [part for word in _KEYWORDS for part in ("-z", word)]
        return [*self.command, "-shared", "-o", str(out), *files, *options]


def find_linkers(arch: str) -> list[Linker]:
    """The linkers of this machine that can link for `arch`, the preferred one first."""
    found = []
    for name in ("cc", "gcc", "clang") if arch == host_arch() else (_COMPILERS.get(arch, f"{arch}-linux-gnu-gcc"),):
        if path := shutil.which(name):
            found.append(Linker(name, (path,), True))
            break
    if arch in _EMULATIONS:
        if path := shutil.which("ld.lld"):
            found.append(Linker("ld.lld", (path,), False))
        if importlib.util.find_spec("ziglang") is not None:
            found.append(Linker("ziglang", (sys.executable, "-m", "ziglang", "ld.lld"), False))
    return found


def emulation(arch: str) -> str:
    """What bare linkers call the format of libraries of Linux for `arch`. Raises `ArtifactError` where they have none."""
    if arch not in _EMULATIONS:
        raise ArtifactError(f"libraries for {arch} cannot be linked here; save as .tar, which needs no linker", code="TW0507")
    return _EMULATIONS[arch]


def user_linker(compiler: str, options: str = "") -> Linker:
    """The user's compiler driver, with options as a shell would split them. Raises `OptionError` where it is not found, or they cannot be split."""
    path = shutil.which(compiler)
    if path is None:
        raise OptionError(f"there is no compiler '{compiler}' on the search path; install it, or give its path", code="TW0507")
    try:
        words = shlex.split(options)
    except ValueError as error:
        raise OptionError(f"the options of {compiler}, '{options}', cannot be read: {error}", code="TW0202") from None
    return Linker(compiler, (path, *words), True)


def link_shared(objects: Sequence[Path], out: Path, exports: Sequence[str], triple: str, linker: Linker | None = None) -> None:
    """Link `objects` for `triple`, one of Linux, into the shared library `out` that shows only `exports`.

    Temporary files go into the folder of `out`. Raises `ArtifactError` when there is no linker, or when all of them fail.
    """
    arch = triple.split("-", maxsplit=1)[0]
    linkers = [linker] if linker else find_linkers(arch)
    if not linkers:
        raise ArtifactError(
            f"no linker for {arch} was found (cc, ld.lld, the Python package ziglang); `pip install ziglang`, or save as .tar, which needs none", code="TW0507"
        )
    script = out.with_suffix(".map")
    script.write_text(f"{{ global: {' '.join(f'{name};' for name in exports)} local: *; }};\n")
    failures = []
    for candidate in linkers:
        inputs = [*objects, *([] if candidate.driver else _stand_ins(candidate, triple, out.parent))]
        failure = run_tool(candidate.arguments(arch, inputs, out, script))
        if failure is None:
            return
        failures.append(f"{candidate.name}: {failure}")
    raise ArtifactError("the library could not be linked; save as .tar, which needs no linker. " + "; ".join(failures), code="TW0508")


def link_dll(objects: Sequence[Path], out: Path, exports: Sequence[str], triple: str, linker: Linker | None = None) -> None:
    """Link `objects` into the library of Windows `out`, by MinGW's compiler or that of the Python package `ziglang`. Raises `ArtifactError`."""
    arch = triple.split("-", maxsplit=1)[0]
    linkers = [linker] if linker else []
    if not linkers and (path := shutil.which(f"{arch}-w64-mingw32-gcc")):
        linkers.append(Linker("mingw32-gcc", (path,), True))
    if not linker and importlib.util.find_spec("ziglang") is not None:
        linkers.append(Linker("ziglang", (sys.executable, "-m", "ziglang", "cc", "-target", f"{arch}-windows-gnu"), True))
    if not linkers:
        raise ArtifactError(f"no linker for {triple} was found ({arch}-w64-mingw32-gcc, the Python package ziglang); `pip install ziglang`, or save as .tar, which needs none", code="TW0507")
    mark = out.with_name("mark.o")  # of a program that computes with floats, which Microsoft's C library brings and MinGW's does not
    mark.write_bytes(compile_text("@_fltused = global i32 1", Target(f"llvm -mtriple={triple}")))
    marked = objects if triple.endswith("gnu") else [*objects, mark]
    definitions = out.with_suffix(".def")
    definitions.write_text("".join([f"LIBRARY {out.name}\nEXPORTS\n", *(f"  {name}\n" for name in exports)]))
    failures = []
    for candidate in linkers:
        failure = run_tool([*candidate.command, "-shared", "-o", str(out), *map(str, marked), str(definitions), "-s"])
        if failure is None:
            _without_time(out)
            return
        failures.append(f"{candidate.name}: {failure}")
    raise ArtifactError("the library could not be linked; save as .tar, which needs no linker. " + "; ".join(failures), code="TW0508")


def _without_time(library: Path) -> None:
    """Clear the time of the link in the header of a library of Windows, so that equal models are equal files."""
    with library.open("r+b") as file:
        file.seek(0x3C)
        header = int.from_bytes(file.read(4), "little")
        file.seek(header + 8)  # behind the mark `PE`, the machine and the number of sections
        file.write(bytes(4))


def _stand_ins(linker: Linker, triple: str, folder: Path) -> list[Path]:
    """Empty libraries with the names of the C library's, so that the result asks the loader for the real ones."""
    made = []
    nothing, arch = folder / "nothing.o", triple.split("-", maxsplit=1)[0]
    nothing.write_bytes(compile_text("", Target(f"llvm -mtriple={triple}")))
    for name in _LIBRARIES:
        path = folder / name
        failure = run_tool([*linker.command, "-shared", "-m", emulation(arch), "-soname", name, "-o", str(path), str(nothing)])
        if failure is not None:
            raise ArtifactError(f"{linker.name} could not make a library: {failure}", code="TW0508")
        made.append(path)
    return made


def run_tool(command: Sequence[str]) -> str | None:
    """Run it; the reason when it failed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST_LINK, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if done.returncode == 0 else "; ".join((done.stderr or done.stdout).strip()[-2000:].splitlines())
