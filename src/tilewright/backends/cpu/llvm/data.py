"""Object files of data, by LLVM, for the formats that `backends/cpu/elf.py` does not write (COFF, Mach-O, WebAssembly,
32-bit ELF).

LLVM takes 60 ns per byte, so a model of 100 MB takes six seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tilewright.backends.cpu.llvm.compile import compile_text
from tilewright.backends.targets.target import Target

_ALIGNMENT: Final = 64
_ESCAPES: Final = tuple(f"\\{byte:02X}" for byte in range(256))


def data_object(target: Target, contents: Sequence[tuple[str, np.ndarray[Any, Any]]]) -> bytes:
    """Return an object file for `target` that defines one read-only global symbol per `(name, bytes)`."""
    return compile_text("".join(_constant(name, data) for name, data in contents), target)


def _constant(name: str, data: np.ndarray[Any, Any]) -> str:
    text = "".join(map(_ESCAPES.__getitem__, data.tobytes()))
    return f'@{name} = constant [{data.nbytes} x i8] c"{text}", align {_ALIGNMENT}\n'
