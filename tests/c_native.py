"""Compile many flat functions as one C file, load it, and call them on numpy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.backends.cpu.c.codegen import emit_module
from tilewright.backends.cpu.c.compile import Compiler, compile_c
from tilewright.backends.cpu.llvm.jit import LoadedCode
from tilewright.backends.cpu.llvm.pool import pool_object
from tilewright.base.types import MINIFLOATS
from tilewright.compat.target import Target
from tilewright.tir.stmt import PrimFunc

C = Target("c")


class CFunctions:
    """The compiled functions, by name; parallel loops run on one thread."""

    def __init__(self, funcs: Sequence[PrimFunc], compiler: Compiler | None = None) -> None:
        self.text = emit_module(funcs)
        self._code = LoadedCode(
            [compile_c(self.text, C, compiler), pool_object(C)],
            [*(f.name for f in funcs), "tw_pool_create", "tw_pool_destroy"]
        )
        self._destroy = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._code.address("tw_pool_destroy"))
        self._context = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(self._code.address("tw_pool_create"))(1)

    def __call__(self, name: str, *arrays: np.ndarray[Any, Any]) -> None:
        run = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(arrays) + 1))(self._code.address(name))
        run(self._context, *(a.ctypes.data for a in arrays))

    def close(self) -> None:
        self._destroy(self._context)


def refused_types(func: PrimFunc) -> list[str]:
    """The types of a function that C does not have: 4 bits, 8-bit floats."""
    kinds = {b.dtype.element for b in func.params}
    return [str(d) for d in kinds if (d.bits < 8 and d.code != "bool") or d.code in MINIFLOATS]
