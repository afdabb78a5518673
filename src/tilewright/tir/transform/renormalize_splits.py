"""Rewrite quotients, remainders and limits of split indices, so that the inner part of a split can be simplified away.

    (i * 32 + t) % 128 // 32                     (i + t // 32) % 4
    (i * 128 + t * 4) // 256             ->      (i + t * 4 // 128) // 2
    128 <= i * 32 + t                            1 <= (i + t // 32) // 4
    i * 32 + t < 640                             (i + t // 32) // 20 < 1

With 0 <= t < 32, `t // 32` is 0, and a simplification leaves `i % 4`, `i // 2`, `4 <= i` and `i < 20`.
"""

from __future__ import annotations

from tilewright.scalar.expr import (
    LE,
    LT,
    Add,
    FloorDiv,
    FloorMod,
    IntImm,
    Mul,
    PrimExpr,
    add,
    compare,
    const,
    floordiv,
    floormod,
    integer,
    mul,
)
from tilewright.scalar.walk import rewrite
from tilewright.tir.stmt import PrimFunc, map_expressions


def renormalize_splits(func: PrimFunc) -> PrimFunc:
    """Rewrite all expressions of `func`."""
    memo: dict[PrimExpr, PrimExpr] = {}
    return func.with_body(map_expressions(func.body, lambda e: rewrite(e, _renormalized, memo)))


def _renormalized(e: PrimExpr) -> PrimExpr | None:
    """Return an expression, whose operands have the new form, in the new form; None to keep it."""
    if isinstance(e, FloorDiv) and _factor(e.b) is not None:
        return _quotient(e.a, integer(e.b))
    if isinstance(e, LT) and isinstance(e.a, Add) and (_factor(e.b) or 0) > 1:
        return compare(LT, _quotient(e.a, integer(e.b)), const(1, e.a.dtype))
    if isinstance(e, LE) and isinstance(e.b, Add) and (_factor(e.a) or 0) > 1:
        return compare(LE, const(1, e.b.dtype), _quotient(e.b, integer(e.a)))
    return None


def _quotient(e: PrimExpr, by: int) -> PrimExpr:
    """Return `e // by`, for an expression in the new form."""
    if by == 1:
        return e
    divisor = const(by, e.dtype)
    if isinstance(e, FloorMod) and (period := _factor(e.b)) is not None and period % by == 0:
        return floormod(_quotient(e.a, by), const(period // by, e.dtype))
    if isinstance(e, Add):
        for outer, inner in ((e.a, e.b), (e.b, e.a)):
            scale = _factor(outer.b) if isinstance(outer, Mul) else None
            if scale is None or not isinstance(outer, Mul):
                continue
            if by % scale == 0:
                return floordiv(add(outer.a, _quotient(inner, scale)), const(by // scale, e.dtype))
            if scale % by == 0:
                return add(mul(outer.a, const(scale // by, e.dtype)), floordiv(inner, divisor))
    return floordiv(e, divisor)


def _factor(e: PrimExpr) -> int | None:
    """Return a positive constant, None for other expressions."""
    return e.value if isinstance(e, IntImm) and e.value > 0 and e.dtype.code == "int" else None
