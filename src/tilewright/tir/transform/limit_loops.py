"""Shorten the loops that `Schedule.limit` names to the iterations that a value computed before them asks for.

    allocate n[1]: { n[0] = …; for i in range(8) [limit n, 2]: A[i] = … }
      ->
    allocate n[1]: { n[0] = …; for i in range(min(8, (n[0] + 1) // 2)): A[i] = … }
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tilewright.base.errors import ScheduleError
from tilewright.base.types import INT64
from tilewright.scalar.expr import Buffer, Load, add, cast, const, floordiv, minimum
from tilewright.tir.stmt import Allocate, For, PrimFunc, Stmt, map_bodies

LIMIT: Final = "limit"
"""Annotation of a loop: the name of a buffer with one value, and the steps of that value that one iteration makes."""


def limit_loops(func: PrimFunc) -> PrimFunc:
    """Shorten the loops with a limit, and remove the annotations. Needs lowered blocks and unflattened buffers."""

    def visit(s: Stmt, around: Mapping[str, Buffer]) -> Stmt:
        if isinstance(s, Allocate):
            around = {**around, s.buffer.name: s.buffer}
        elif isinstance(s, For) and LIMIT in s.annotations:
            s = _limited(s, around)
        return map_bodies(s, lambda b: visit(b, around)) or s

    return func.with_body(visit(func.body, {}))


def _limited(loop: For, around: Mapping[str, Buffer]) -> For:
    name, step = loop.annotations[LIMIT]
    buffer = around.get(name)
    if buffer is None or any(d != 1 for d in buffer.shape):
        raise ScheduleError(
            f"loop '{loop.var.name}' is limited by '{name}', which must be one value computed around the loop")
    value = cast(INT64, Load(buffer, tuple(const(0, INT64) for _ in buffer.shape)))
    extent = minimum(loop.extent, floordiv(add(value, step - 1), step))
    return replace(loop, extent=extent, annotations={k: v for k, v in loop.annotations.items() if k != LIMIT})
