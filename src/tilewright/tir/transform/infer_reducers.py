"""Annotate blocks that are sums, products, maxima or minima with their reducer.

    with T.init(): C[v] = 0.0                     T.reducer("sum", lambda x, y: (x + y,), (0.0,))
    C[v] = C[v] + A[v, r]                   ->    with T.init(): …
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tilewright.scalar import expr as E
from tilewright.scalar.expr import Binary, Load, PrimExpr, Var
from tilewright.scalar.intrinsics import ACCUMULATING
from tilewright.te.tensor import MAX, MIN, PROD, SUM, Combiner
from tilewright.tir.stmt import Block, PrimFunc, Reducer, Stmt, Store, map_bodies

_KINDS: Final[dict[type[PrimExpr], Combiner]] = {E.Add: SUM, E.Mul: PROD, E.Max: MAX, E.Min: MIN}


def infer_reducers(func: PrimFunc) -> PrimFunc:
    """Find the reducers of blocks. Needs a schedulable program. A block with an initial value other than the identity
    stays unchanged."""
    return func.with_body(_visit(func.body))


def _visit(s: Stmt) -> Stmt:
    if isinstance(s, Block):
        reducer = None if "combiner" in s.annotations else _reducer(s)
        return s if reducer is None else replace(s, annotations={**s.annotations, "combiner": reducer})
    return map_bodies(s, _visit) or s


def _reducer(block: Block) -> Reducer | None:
    init, step = block.init, block.body
    if (
        not (isinstance(init, Store) and isinstance(step, Store)) or init.buffer is not step.buffer
        or _differ(init.indices, step.indices)
    ):
        return None
    combiner = _combiner(step.value, Load(step.buffer, step.indices))
    if combiner is None:
        return None
    neutral = combiner.identity((step.buffer.dtype,))
    if init.value is not neutral[0]:
        return None
    x, y = Var("x", step.buffer.dtype), Var("y", step.buffer.dtype)
    return Reducer(combiner.name, (x, y), combiner.combine((x,), (y,)), neutral)


def _differ(a: Sequence[PrimExpr], b: Sequence[PrimExpr]) -> bool:
    return len(a) != len(b) or any(x is not y for x, y in zip(a, b, strict=True))


def _combiner(value: PrimExpr, old: PrimExpr) -> Combiner | None:
    """Return the combiner by which `value` updates `old`, or None."""
    if isinstance(value, E.Call):
        return SUM if value.op in ACCUMULATING and value.args[2] is old else None
    return _KINDS.get(type(value)) if isinstance(value, Binary) and (value.a is old) != (value.b is old) else None
