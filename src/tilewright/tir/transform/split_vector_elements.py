"""Turn the lanes of vector elements into a dimension: a buffer of `float32x2` becomes one of `float32` with a last
dimension of 2.

    A: T.Buffer((8,), "float32x2")         A: T.Buffer((8, 2), "float32")
    B[i] = A[i] + A[i]                 ->  for lane in T.vectorized(2):
                                               B[i, lane] = A[i, lane] + A[i, lane]

Values that are computed and not used are removed.
"""

from __future__ import annotations

from tilewright.base.errors import ScheduleError
from tilewright.base.types import INT64
from tilewright.scalar.expr import Broadcast, Buffer, IntImm, Load, PrimExpr, Ramp, Var, add, as_expr, mul
from tilewright.scalar.walk import has_effect, rewrite, walk
from tilewright.tir.stmt import (
    VECTORIZED,
    Allocate,
    Evaluate,
    For,
    PrimFunc,
    Stmt,
    Store,
    expressions,
    map_bodies,
    walk_stmt,
)


def split_vector_elements(func: PrimFunc) -> PrimFunc:
    """Return `func` over buffers of scalars. Raises `ScheduleError` if vectors are mixed with scalars, or with vectors
    of other lanes."""
    used = [*func.buffers, *(s.buffer for s in walk_stmt(func.body) if isinstance(s, Allocate))]
    split = {b: _split(b) for b in used if b.dtype.lanes > 1}
    if not split:
        return func

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, Store):
            return _store(s, split)
        if isinstance(s, Evaluate) and not has_effect(s.value):
            return Evaluate(as_expr(0))
        for e in expressions(s):
            _refuse_vectors(e, 1, f"a condition, a bound or a variable in '{func.name}'")
        inner = map_bodies(s, visit) or s
        return (
            Allocate(split[inner.buffer], inner.body) if isinstance(inner, Allocate) and inner.buffer in split
            else inner
        )

    params = tuple(split[p] if isinstance(p, Buffer) and p in split else p for p in func.params)
    return PrimFunc(func.name, params, visit(func.body), func.attrs, func.origin)


def _split(buffer: Buffer) -> Buffer:
    lanes = buffer.dtype.lanes
    strides = (*(mul(as_expr(d), lanes) for d in buffer.strides), 1) if buffer.strides else ()
    return Buffer(buffer.name, (*buffer.shape, lanes), buffer.dtype.element, buffer.scope, strides)


def _store(s: Store, split: dict[Buffer, Buffer]) -> Stmt:
    """Return the store of a vector element as a loop over its lanes."""
    lanes = s.buffer.dtype.lanes
    for e in (*s.indices, *(() if s.mask is None else (s.mask,))):
        _refuse_vectors(e, 1, f"an index or a mask of '{s.buffer.name}'")
    _refuse_vectors(s.value, lanes, f"'{s.buffer.name}', {s.buffer.dtype}")
    if lanes == 1:
        return s
    if any(i.dtype.lanes > 1 for i in s.indices):
        raise ScheduleError(
            f"'{s.buffer.name}' holds {s.buffer.dtype}, but its index is a vector; index one element at a time")
    lane = Var("lane")
    memo: dict[PrimExpr, PrimExpr] = {}

    def rule(e: PrimExpr) -> PrimExpr | None:
        if isinstance(e, Load):
            return Load(split[e.buffer], (*e.indices, lane)) if e.buffer in split else None
        if isinstance(e, Ramp):
            return add(e.base, mul(e.stride, lane))
        return e.value if isinstance(e, Broadcast) else None

    store = Store(split[s.buffer], rewrite(s.value, rule, memo), (*s.indices, lane), s.mask)
    return For(lane, IntImm(INT64, 0), IntImm(INT64, lanes), VECTORIZED, store)


def _refuse_vectors(e: PrimExpr, lanes: int, where: str) -> None:
    """Raise `ScheduleError` if `e` reads elements that have neither one nor `lanes` lanes."""
    for x in walk(e):
        if isinstance(x, Load) and x.buffer.dtype.lanes not in (1, lanes):
            raise ScheduleError(
                f"'{x.buffer.name}' holds {x.buffer.dtype}, which cannot be used in {where}; read scalars, or vectors "
                "with the same number of lanes")
