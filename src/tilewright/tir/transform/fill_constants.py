"""Replace constant memory by memory that is filled where it is allocated.

    K = T.allocate_const([1, 2], "int32", [2])      ->      K = T.allocate((2,), "int32")
    A[0] = K[i]                                             K[0] = 1
                                                            K[1] = 2
                                                            A[0] = K[i]
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tilewright.base.errors import CompileError
from tilewright.scalar.expr import as_expr, const
from tilewright.tir.stmt import Allocate, AllocateConst, PrimFunc, Stmt, Store, map_bodies, seq, walk_stmt

MOST: Final = 4096
"""Largest number of elements of one constant; each of them is a store."""


def fill_constants(func: PrimFunc) -> PrimFunc:
    """Replace the constants of a function. Raises `CompileError` for one of more than `MOST` elements."""
    if not any(isinstance(s, AllocateConst) for s in walk_stmt(func.body)):
        return func
    return func.with_body(_filled(func.body))


def _filled(s: Stmt) -> Stmt:
    inner = map_bodies(s, _filled) or s
    if not isinstance(inner, AllocateConst):
        return inner
    b, data = inner.buffer, inner.elements()
    if data.size > MOST:
        raise CompileError(
            f"the constant '{b.name}' has {data.size} elements, and constants in a function have at most {MOST}; give "
            "it as a parameter", code="TW0611")
    stores = [Store(b, const(data[at].item(), b.dtype), tuple(map(as_expr, at))) for at in np.ndindex(data.shape)]
    return Allocate(b, seq(*stores, inner.body), inner.annotations)


__all__ = ["MOST", "fill_constants"]
