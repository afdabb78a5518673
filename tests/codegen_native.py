"""Compile a flat function for a target, load it, and call it on numpy arrays."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from tilewright.backends.cpu.llvm.codegen import emit
from tilewright.backends.cpu.llvm.compile import compile_text
from tilewright.backends.cpu.llvm.jit import LoadedCode
from tilewright.backends.cpu.llvm.pool import pool_object
from tilewright.compat.target import Target
from tilewright.runtime.host import host_arch, host_features
from tilewright.tir.stmt import PrimFunc

NATIVE = Target("llvm")
LEVELS = ("x86-64-v2", "x86-64-v3") if host_arch() == "x86_64" else ()
TARGETS = [
    NATIVE,
    *(Target(f"llvm -mcpu={level}") for level in LEVELS if Target(f"llvm -mcpu={level}").features <= host_features())
]

on_every_target = pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.mcpu)


def doubles_between_halves() -> np.ndarray[Any, Any]:
    """All numbers in the middle of two neighbours of float16, what is a little more and a little less, and special
    values; a multiple of 8."""
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64)
    middles = (halves[:-1] + halves[1:]) / 2
    near = np.concatenate(
        [
            middles, np.nextafter(middles, np.inf), np.nextafter(middles, 0), middles * (1 + 2.0**-30),
            middles * (1 - 2.0**-30)
        ]
    )
    special = [
        0.0, np.inf, np.nan, 65504, 65519.999999999, 65520, 65536, 1e39, 1e300, 5e-324, 1e-46, 2.0**-25,
        2.0**-25 * (1 + 2.0**-50), 2.0**-24
    ]
    both = np.concatenate([near, special])
    both = np.concatenate([both, -both])
    return np.concatenate([both, np.ones(-both.size % 8)])


class Native:
    """A compiled function; `threads` workers run its parallel loops."""

    def __init__(self, func: PrimFunc, target: Target = NATIVE, threads: int = 1) -> None:
        self.text = emit(func, target)
        self._code = LoadedCode(
            [compile_text(self.text, target), pool_object(target)], [func.name, "tw_pool_create", "tw_pool_destroy"]
        )
        self._run = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(func.params) + 1))(self._code.address(func.name))
        self._destroy = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._code.address("tw_pool_destroy"))
        self.context = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(self._code.address("tw_pool_create"))(threads)

    def __call__(self, *arrays: np.ndarray[Any, Any]) -> None:
        self._run(self.context, *(a.ctypes.data for a in arrays))

    def close(self) -> None:
        self._destroy(self.context)


def run(func: PrimFunc, *arrays: np.ndarray[Any, Any], target: Target = NATIVE, threads: int = 1) -> str:
    """Call `func` once; returns its LLVM text."""
    native = Native(func, target, threads)
    native(*arrays)
    native.close()
    return native.text
