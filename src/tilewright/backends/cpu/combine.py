"""Joins object files into one object file (`.o`) or one archive (`.a`), for programs that are linked with a C library
later.

Both contain the plain C entry functions (`<name>_run`) and their code. A program can link one model in this form, but
any number of models as shared libraries.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tilewright.backends.cpu import processors
from tilewright.backends.cpu.link import NO_LINKER_NEEDED, ZIG, Linker, emulation, find_linkers, has_zig, run_first
from tilewright.backends.cpu.link_wasm import find_wasm_linkers
from tilewright.base.errors import ArtifactError
from tilewright.runtime.host import host_arch

_NEEDS_NONE = "`pip install ziglang`, or save as .tar, which needs none"


def combine_object(objects: Sequence[Path], out: Path, triple: str, linker: Linker | None = None) -> None:
    """Join `objects` for `triple` into the object file `out`. Raises `ArtifactError` if no linker succeeds."""
    form, arch = processors.object_format(triple), triple.split("-", maxsplit=1)[0]
    if form == "coff":
        raise ArtifactError(
            f"{out.name}: object files of Windows cannot be joined into one; save as .a, which has them all, as .dll, "
            "or as .tar", code="TW0802")
    if linker is not None:
        linkers = [linker]
    elif form == "macho":
        system = f"{'aarch64' if arch == 'arm64' else arch}-macos"
        linkers = [Linker("ziglang", (*ZIG, "cc", "-target", system), True)] if has_zig() else []
    else:
        linkers = find_wasm_linkers() if form == "wasm" else find_linkers(arch)

    def command(tool: Linker) -> list[str]:
        words = ["-r", "-nostdlib"] if tool.driver else ["-r", *(["-m", emulation(arch)] if form == "elf" else [])]
        return [*tool.command, *words, "-o", str(out), *map(str, objects)]

    missing = f"no linker for {triple} was found (cc, ld.lld, wasm-ld, the Python package ziglang); {_NEEDS_NONE}"
    run_first(linkers, command, missing, f"{out.name} could not be made; {NO_LINKER_NEEDED}")


def combine_archive(objects: Sequence[Path], out: Path, triple: str, linker: Linker | None = None) -> None:
    """Write `objects` for `triple` as the archive `out`, without times or owners, and with an index.

    Raises `ArtifactError` if no archiver succeeds.
    """
    arch, form = triple.split("-", maxsplit=1)[0], processors.object_format(triple)
    found = []
    if linker is not None and linker.driver:
        found.append(Linker(f"ar of {linker.name}", (_archiver_of(linker),), False))
    names = ("llvm-ar", *(("ar",) if arch == host_arch() and form == "elf" else (f"{arch}-linux-gnu-ar",)))
    found += [Linker(name, (path,), False) for name in names if (path := shutil.which(name))]
    if has_zig():
        found.append(Linker("ziglang", (*ZIG, "ar"), False))
    out.unlink(missing_ok=True)
    run_first(
        found, lambda tool: [*tool.command, "rcsD", str(out), *map(str, objects)],
        f"no archiver for {triple} was found (llvm-ar, ar, the Python package ziglang); {_NEEDS_NONE}",
        f"{out.name} could not be made; {NO_LINKER_NEEDED}")


def _archiver_of(compiler: Linker) -> str:
    """Return the archiver that comes with a compiler driver."""
    done = subprocess.run(
        [*compiler.command, "-print-prog-name=ar"], capture_output=True, text=True, stdin=subprocess.DEVNULL,
        timeout=60, check=False)
    return done.stdout.strip() or "ar"
