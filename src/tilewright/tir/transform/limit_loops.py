"""Shorten and cut loops at values that are computed before them, as `Schedule.limit` and `Schedule.cut` ask.

    allocate n[1]: { n[0] = …; for i in range(8) [limit n, 2]: A[i] = … }
      ->
    allocate n[1]: { n[0] = …; for i in range(min(8, (n[0] + 1) // 2)): A[i] = … }

    allocate n[1]: { n[0] = …; for i in range(8) [cut n, 2]: for j in range(2): A[i * 2 + j] = f(i * 2 + j < n[0]) }
      ->
    allocate n[1]: { n[0] = …; for i in range(min(8, n[0] // 2)): for j in range(2): A[i * 2 + j] = f(true)
                               for i in range(min(8, n[0] // 2), 8): for j in range(2): A[i * 2 + j] = f(false) }
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tilewright.base.errors import ScheduleError
from tilewright.base.types import BOOL, INT64
from tilewright.scalar.expr import LT, Buffer, Load, PrimExpr, add, cast, const, floordiv, minimum, sub
from tilewright.scalar.walk import rewrite
from tilewright.tir.stmt import Allocate, For, PrimFunc, Stmt, map_bodies, map_expressions, seq

LIMIT: Final = "limit"
"""Annotation of a loop: the name of a buffer with one value, and the steps of that value that one iteration makes."""
CUT: Final = "cut"
"""The same, for the value that comparisons inside the loop read."""


def limit_loops(func: PrimFunc) -> PrimFunc:
    """Shorten and cut the annotated loops, and remove the annotations. Needs lowered blocks and unflattened buffers."""

    def visit(s: Stmt, around: Mapping[str, Buffer]) -> Stmt:
        if isinstance(s, Allocate):
            around = {**around, s.buffer.name: s.buffer}
        s = map_bodies(s, lambda b: visit(b, around)) or s
        if isinstance(s, For) and LIMIT in s.annotations:
            s = _limited(s, around)
        return _cut(s, around) if isinstance(s, For) and CUT in s.annotations else s

    return func.with_body(visit(func.body, {}))


def _limited(loop: For, around: Mapping[str, Buffer]) -> For:
    loop, value, step = _taken(loop, LIMIT, around)
    end = floordiv(add(cast(INT64, value), step - 1), step)
    return replace(loop, extent=minimum(loop.extent, end))


def _cut(loop: For, around: Mapping[str, Buffer]) -> Stmt:
    loop, value, step = _taken(loop, CUT, around)
    first = minimum(loop.extent, floordiv(cast(INT64, value), step))
    return seq(
        replace(loop, extent=first, body=_decided(loop.body, value, True)),
        replace(loop, min=add(loop.min, first), extent=sub(loop.extent, first), body=_decided(loop.body, value, False)))


def _taken(loop: For, key: str, around: Mapping[str, Buffer]) -> tuple[For, Load, int]:
    """Return the loop without an annotation, and the value and the step that it names."""
    name, step = loop.annotations[key]
    buffer = around.get(name)
    if buffer is None or any(d != 1 for d in buffer.shape):
        raise ScheduleError(
            f"loop '{loop.var.name}' is limited by '{name}', which must be one value computed around the loop")
    value = Load(buffer, tuple(const(0, INT64) for _ in buffer.shape))
    return replace(loop, annotations={k: v for k, v in loop.annotations.items() if k != key}), value, step


def _decided(s: Stmt, value: Load, result: bool) -> Stmt:
    """Replace the comparisons `… < value` in a statement by their result."""
    memo: dict[PrimExpr, PrimExpr] = {}

    def decide(e: PrimExpr) -> PrimExpr | None:
        below = isinstance(e, LT) and isinstance(e.b, Load) and e.b.buffer is value.buffer
        return const(result, BOOL) if below else None

    return map_expressions(s, lambda e: rewrite(e, decide, memo))
