"""Links object files into a shared library of Linux or Windows, with the first installed linker.

The order is: the system's C compiler driver (for this architecture), `ld.lld`, and the linker inside the Python package
`ziglang`. The latter two do not know a C library, so they get empty libraries with its names.
"""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tilewright.backends.targets.target import Target
from tilewright.base.errors import ArtifactError, OptionError
from tilewright.runtime.host import host_arch

ZIG: Final = (sys.executable, "-m", "ziglang")
"""The command of the Python package `ziglang`."""
_FLAGS: Final = ("-Bsymbolic", "--build-id=none", "--hash-style=gnu")
_KEYWORDS: Final = ("noexecstack", "now")
_LIBRARIES: Final = ("libc.so.6", "libm.so.6")
_ARM: Final = ("arm", "armv7", "armv7a", "armv7l")
_EMULATIONS: Final = {
    "x86_64": "elf_x86_64", "aarch64": "aarch64linux", "riscv64": "elf64lriscv",
    **dict.fromkeys(_ARM, "armelf_linux_eabi"),
}
_COMPILERS: Final = dict.fromkeys(_ARM, "arm-linux-gnueabihf-gcc")
"""Cross compilers whose name is not `<arch>-linux-gnu-gcc`."""
_LONGEST_LINK: Final = 3600
"""Time limit in seconds. On its first use for a system, zig builds that system's C library, which may take minutes."""
NO_LINKER_NEEDED: Final = "save as .tar, which needs no linker"


@dataclass(frozen=True, slots=True)
class Linker:
    """A linker; `driver` is true for a compiler driver, which knows the C library."""

    name: str
    command: tuple[str, ...]
    driver: bool

    def arguments(self, arch: str, objects: Sequence[Path], out: Path, version_script: Path) -> list[str]:
        """Return the command that links a shared library of Linux."""
        files = [str(o) for o in objects]
        if self.driver:
            options = [
                f"-Wl,{flag}" for flag in (*_FLAGS, f"--version-script={version_script}", "--as-needed", "-z,defs")]
            options += [f"-Wl,-z,{word}" for word in _KEYWORDS]
            return [*self.command, "-shared", "-nostartfiles", "-o", str(out), *files, *options, "-lm", "-lpthread"]
        options = [*_FLAGS, f"--version-script={version_script}", "-m", emulation(arch)]
        options += [part for word in _KEYWORDS for part in ("-z", word)]
        return [*self.command, "-shared", "-o", str(out), *files, *options]


def has_zig() -> bool:
    """Return whether the Python package `ziglang`, which links for every system, is installed."""
    return importlib.util.find_spec("ziglang") is not None


def find_linkers(arch: str) -> list[Linker]:
    """Return the installed linkers for libraries of Linux for `arch`, the preferred one first."""
    found = []
    for name in ("cc", "gcc", "clang") if arch == host_arch() else (_COMPILERS.get(arch, f"{arch}-linux-gnu-gcc"),):
        if path := shutil.which(name):
            found.append(Linker(name, (path,), True))
            break
    if arch in _EMULATIONS:
        if path := shutil.which("ld.lld"):
            found.append(Linker("ld.lld", (path,), False))
        if has_zig():
            found.append(Linker("ziglang", (*ZIG, "ld.lld"), False))
    return found


def emulation(arch: str) -> str:
    """Return the emulation name of bare linkers for libraries of Linux for `arch`.

    Raises `ArtifactError` if there is none.
    """
    if arch not in _EMULATIONS:
        raise ArtifactError(f"libraries for {arch} cannot be linked here; {NO_LINKER_NEEDED}", code="TW0507")
    return _EMULATIONS[arch]


def user_linker(compiler: str, options: str = "") -> Linker:
    """Return the user's compiler driver with options, which are split as in a shell.

    Raises `OptionError` if the compiler is not found, or the options cannot be split.
    """
    path = shutil.which(compiler)
    if path is None:
        raise OptionError(
            f"there is no compiler '{compiler}' on the search path; install it, or give its path", code="TW0507")
    try:
        words = shlex.split(options)
    except ValueError as error:
        raise OptionError(f"the options of {compiler}, '{options}', cannot be read: {error}", code="TW0202") from None
    return Linker(compiler, (path, *words), True)


def link_shared(
    objects: Sequence[Path], out: Path, exports: Sequence[str], triple: str, linker: Linker | None = None
) -> None:
    """Link `objects` for a Linux `triple` into the shared library `out`, exporting only `exports`.

    Temporary files go into the folder of `out`. Raises `ArtifactError` if no linker is installed or succeeds.
    """
    arch = triple.split("-", maxsplit=1)[0]
    script = out.with_suffix(".map")
    script.write_text(f"{{ global: {' '.join(f'{name};' for name in exports)} local: *; }};\n")

    def command(tool: Linker) -> Sequence[str]:
        return tool.arguments(
            arch, [*objects, *([] if tool.driver else _empty_libraries(tool, triple, out.parent))], out, script)

    run_first(
        [linker] if linker else find_linkers(arch), command,
        f"no linker for {arch} was found (cc, ld.lld, the Python package ziglang); `pip install ziglang`, or save as "
        ".tar, which needs none",
        f"the library could not be linked; {NO_LINKER_NEEDED}")


def link_dll(
    objects: Sequence[Path], out: Path, exports: Sequence[str], triple: str, linker: Linker | None = None
) -> None:
    """Link `objects` into the Windows library `out`, with MinGW's compiler or that of the Python package `ziglang`.

    Raises `ArtifactError` if no linker is installed or succeeds.
    """
    arch = triple.split("-", maxsplit=1)[0]
    mingw = f"{arch}-w64-mingw32-gcc"
    linkers = [linker] if linker else []
    if not linkers and (path := shutil.which(mingw)):
        linkers.append(Linker("mingw32-gcc", (path,), True))
    if not linker and has_zig():
        linkers.append(Linker("ziglang", (*ZIG, "cc", "-target", f"{arch}-windows-gnu"), True))
    # required by code with floats; Microsoft's C library defines it, MinGW's does not
    mark = out.with_name("mark.o")
    mark.write_bytes(_compiled("@_fltused = global i32 1", triple))
    marked = objects if triple.endswith("gnu") else [*objects, mark]
    definitions = out.with_suffix(".def")
    definitions.write_text("".join([f"LIBRARY {out.name}\nEXPORTS\n", *(f"  {name}\n" for name in exports)]))
    run_first(
        linkers, lambda tool: [*tool.command, "-shared", "-o", str(out), *map(str, marked), str(definitions), "-s"],
        f"no linker for {triple} was found ({mingw}, the Python package ziglang); `pip install ziglang`, or save as "
        ".tar, which needs none",
        f"the library could not be linked; {NO_LINKER_NEEDED}")
    _clear_time(out)


def _clear_time(library: Path) -> None:
    """Clear the link time in the header of a Windows library, so that equal models give equal files."""
    with library.open("r+b") as file:
        file.seek(0x3C)
        header = int.from_bytes(file.read(4), "little")
        file.seek(header + 8)  # after the signature `PE`, the machine and the number of sections
        file.write(bytes(4))


def _compiled(text: str, triple: str) -> bytes:
    """Return the object file of LLVM text."""
    from tilewright.backends.cpu.llvm.compile import compile_text

    return compile_text(text, Target(f"llvm -mtriple={triple}"))


def _empty_libraries(linker: Linker, triple: str, folder: Path) -> list[Path]:
    """Make empty libraries with the names of the C library's, so that the result requests them from the loader."""
    made = []
    nothing, arch = folder / "nothing.o", triple.split("-", maxsplit=1)[0]
    nothing.write_bytes(_compiled("", triple))
    for name in _LIBRARIES:
        path = folder / name
        failure = _run([
            *linker.command, "-shared", "-m", emulation(arch), "-soname", name, "-o", str(path), str(nothing)
        ])
        if failure is not None:
            raise ArtifactError(f"{linker.name} could not make a library: {failure}", code="TW0508")
        made.append(path)
    return made


def run_first(linkers: Sequence[Linker], command: Callable[[Linker], Sequence[str]], missing: str, failed: str) -> None:
    """Run the command of each linker until one succeeds.

    Raises `ArtifactError` with the message `missing` without linkers, or with `failed` and all reasons if none
    succeeds.
    """
    if not linkers:
        raise ArtifactError(missing, code="TW0507")
    failures = []
    for tool in linkers:
        failure = _run(command(tool))
        if failure is None:
            return
        failures.append(f"{tool.name}: {failure}")
    raise ArtifactError(f"{failed}. " + "; ".join(failures), code="TW0508")


def _run(command: Sequence[str]) -> str | None:
    """Run a command; return the reason if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST_LINK, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if done.returncode == 0 else "; ".join((done.stderr or done.stdout).strip()[-2000:].splitlines())
