"""Objects -> one object file (`.o`) or one archive (`.a`) that a linker takes later, for programs that bring their own C library.

Both hold the plain C entry functions (`<name>_run`) and everything behind them; a program can have one model in this form, as many as it likes as libraries.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tilewright.backends.cpu import processors
from tilewright.backends.cpu.link import Linker, emulation, find_linkers, run_tool
from tilewright.backends.cpu.link_wasm import find_wasm_linkers
from tilewright.base.errors import ArtifactError
from tilewright.runtime.host import host_arch

_ZIG = (sys.executable, "-m", "ziglang")


def combine_object(objects: Sequence[Path], out: Path, triple: str, linker: Linker | None = None) -> None:
    """Join `objects` for `triple` into the object file `out`. Raises `ArtifactError` when no linker can."""
    form, arch = processors.object_format(triple), triple.split("-", maxsplit=1)[0]
    if form == "coff":
        raise ArtifactError(f"{out.name}: object files of Windows cannot be joined into one; save as .a, which has them all, as .dll, or as .tar", code="TW0802")
    if linker is not None:
        linkers = [linker]
    elif form == "macho":
        linkers = [Linker("ziglang", (*_ZIG, "cc", "-target", f"{'aarch64' if arch == 'arm64' else arch}-macos"), True)] if has_zig() else []
    else:
        linkers = find_wasm_linkers() if form == "wasm" else find_linkers(arch)
    files = ["-o", str(out), *map(str, objects)]
    commands = {}
    for tool in linkers:
        words = ["-r", "-nostdlib"] if tool.driver else ["-r", *(["-m", emulation(arch)] if form == "elf" else [])]
        commands[tool.name] = [*tool.command, *words, *files]
    _first(commands, f"no linker for {triple} was found (cc, ld.lld, wasm-ld, the Python package ziglang)", out)


def combine_archive(objects: Sequence[Path], out: Path, triple: str, linker: Linker | None = None) -> None:
    """Write `objects` for `triple` as the archive `out`, without times or owners, and with an index. Raises `ArtifactError` when no archiver can."""
    arch, form = triple.split("-", maxsplit=1)[0], processors.object_format(triple)
    found: dict[str, tuple[str, ...]] = {}
    if linker is not None and linker.driver:
        found[f"ar of {linker.name}"] = (_archiver_of(linker),)
    names = ("llvm-ar", *(("ar",) if arch == host_arch() and form == "elf" else (f"{arch}-linux-gnu-ar",)))
    found |= {name: (path,) for name in names if (path := shutil.which(name))}
    if has_zig():
        found["ziglang"] = (*_ZIG, "ar")
    files = [str(out), *map(str, objects)]
    out.unlink(missing_ok=True)
    _first({name: [*command, "rcsD", *files] for name, command in found.items()}, f"no archiver for {triple} was found (llvm-ar, ar, the Python package ziglang)", out)


def _archiver_of(compiler: Linker) -> str:
    """The archiver that comes with a compiler driver."""
    done = subprocess.run([*compiler.command, "-print-prog-name=ar"], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60, check=False)
    return done.stdout.strip() or "ar"


def _first(commands: dict[str, list[str]], missing: str, out: Path) -> None:
    """Run the commands until one succeeds."""
    if not commands:
        raise ArtifactError(f"{missing}; `pip install ziglang`, or save as .tar, which needs none", code="TW0507")
    failures = []
    for name, command in commands.items():
        failure = run_tool(command)
        if failure is None:
            return
        failures.append(f"{name}: {failure}")
    raise ArtifactError(f"{out.name} could not be made; save as .tar, which needs no linker. " + "; ".join(failures), code="TW0508")


def has_zig() -> bool:
    """Whether the Python package `ziglang` is there, which links for everything."""
    return importlib.util.find_spec("ziglang") is not None
