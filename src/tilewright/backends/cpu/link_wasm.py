"""Links object files into one WebAssembly module, with `wasm-ld` from the search path or the Python package `ziglang`.

The module needs no C library: it has its own allocator (`llvm/wasm_memory.py`). Mathematical functions without a
WebAssembly instruction are imported from the loader under their C names, `env.sinf`.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tilewright.backends.cpu.link import ZIG, Linker, has_zig, run_first

_FUNCTIONS: Final = (
    "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "exp", "exp2",
    "log", "log2", "pow", "fmod",
)
IMPORTS: Final = (*_FUNCTIONS, *(f"{name}f" for name in _FUNCTIONS))
"""The functions of float64 and of float32 that the loader provides."""
_MORE_STACK: Final = 256 << 10
"""Bytes of stack in addition to the memory of a kernel."""


def find_wasm_linkers() -> list[Linker]:
    """Return the installed linkers for WebAssembly, the preferred one first."""
    path = shutil.which("wasm-ld")
    found = [Linker("wasm-ld", (path,), False)] if path else []
    return [*found, Linker("ziglang", (*ZIG, "wasm-ld"), False)] if has_zig() else found


def link_wasm(
    objects: Sequence[Path], out: Path, exports: Sequence[str], stack: int, linker: Linker | None = None
) -> None:
    """Link `objects` into the module `out`, exporting its memory and the functions `exports`; a kernel takes `stack`
    bytes of the stack.

    Temporary files go into the folder of `out`. Raises `ArtifactError` if no linker is installed or succeeds.
    """
    imports = out.with_suffix(".imports")
    imports.write_text("".join(f"{name}\n" for name in IMPORTS))
    size = -(-(stack + _MORE_STACK) // 16) * 16
    exported = [f"--export={name}" for name in exports]
    options = [
        "--no-entry", "--stack-first", "--strip-debug", "--gc-sections", f"--allow-undefined-file={imports}", *exported
    ]

    def command(tool: Linker) -> list[str]:
        flags = ["-nostdlib", *(f"-Wl,{o}" for o in options), f"-Wl,-z,stack-size={size}"]
        return [
            *tool.command, "-o", str(out), *map(str, objects),
            *(flags if tool.driver else [*options, "-z", f"stack-size={size}"])
        ]

    run_first(
        [linker] if linker else find_wasm_linkers(), command,
        "no linker for WebAssembly was found (wasm-ld, the Python package ziglang); `pip install ziglang`, or save as "
        ".tar, which needs none",
        "the WebAssembly module could not be linked")
