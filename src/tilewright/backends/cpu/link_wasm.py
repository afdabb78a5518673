"""Objects -> one WebAssembly module, by `wasm-ld`: the one on the search path, or the one inside the Python package `ziglang`.

The module needs no C library: memory is its own (`llvm/wasm_memory.py`), and functions of mathematics that WebAssembly has no instruction
for are imported from whoever loads it, under the names of C, `env.sinf`.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tilewright.backends.cpu.link import Linker, run_tool
from tilewright.base.errors import ArtifactError

_FUNCTIONS: Final = ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "exp", "exp2", "log", "log2", "pow", "fmod")
IMPORTS: Final = (*_FUNCTIONS, *(f"{name}f" for name in _FUNCTIONS))
"""What the loader brings: functions of float64, and of float32."""
_BESIDE: Final = 256 << 10
"""Bytes of stack beside what a kernel takes for itself."""


def find_wasm_linkers() -> list[Linker]:
    """The linkers of this machine for WebAssembly, the preferred one first."""
    found = []
    if path := shutil.which("wasm-ld"):
        found.append(Linker("wasm-ld", (path,), False))
    if importlib.util.find_spec("ziglang") is not None:
        found.append(Linker("ziglang", (sys.executable, "-m", "ziglang", "wasm-ld"), False))
    return found


def link_wasm(objects: Sequence[Path], out: Path, exports: Sequence[str], stack: int, linker: Linker | None = None) -> None:
    """Link `objects` into the module `out`, which shows its memory and the functions `exports`; a kernel takes `stack` bytes of the stack.

    Temporary files go into the folder of `out`. Raises `ArtifactError` when there is no linker, or when all of them fail.
    """
    linkers = [linker] if linker else find_wasm_linkers()
    if not linkers:
        raise ArtifactError("no linker for WebAssembly was found (wasm-ld, the Python package ziglang); `pip install ziglang`, or save as .tar, which needs none", code="TW0507")
    imports = out.with_suffix(".imports")
    imports.write_text("".join(f"{name}\n" for name in IMPORTS))
    size = -(-(stack + _BESIDE) // 16) * 16
    options = ["--no-entry", "--stack-first", "--strip-debug", "--gc-sections", f"--allow-undefined-file={imports}", *(f"--export={name}" for name in exports)]
    failures = []
    for candidate in linkers:
        flags = ["-nostdlib", *(f"-Wl,{o}" for o in options), f"-Wl,-z,stack-size={size}"] if candidate.driver else [*options, "-z", f"stack-size={size}"]
        failure = run_tool([*candidate.command, "-o", str(out), *map(str, objects), *flags])
        if failure is None:
            return
        failures.append(f"{candidate.name}: {failure}")
    raise ArtifactError("the WebAssembly module could not be linked. " + "; ".join(failures), code="TW0508")
