"""Move loop-invariant conditions out of loops.

    for i in T.serial(8):              ->      if n < 4:
        if n < 4:                                  for i in T.serial(8):
            A[i] = B[i]                                A[i] = B[i]

Both branches get a copy of the loop. A condition that reads memory written by the loop stays.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.scalar.expr import Load, Var
from tilewright.scalar.walk import walk
from tilewright.tir.stmt import (
    PARALLEL,
    SERIAL,
    For,
    IfThenElse,
    PrimFunc,
    Stmt,
    map_bodies,
    stored_buffers,
    substitute_stmt,
)
from tilewright.tir.transform.convert_ssa import convert_ssa


def hoist_conditions(func: PrimFunc) -> PrimFunc:
    """Move conditions that enclose a loop's whole body out of the loop. Variables are bound once afterwards."""
    return convert_ssa(func.with_body(_stmt(func.body)))


def _stmt(s: Stmt) -> Stmt:
    s = map_bodies(s, _stmt) or s
    if not isinstance(s, For) or s.kind not in (SERIAL, PARALLEL) or not isinstance(s.body, IfThenElse):
        return s
    question, written = s.body, stored_buffers(s.body)
    if any(e is s.var or (isinstance(e, Load) and e.buffer in written) for e in walk(question.condition)):
        return s
    other = None
    if question.else_case is not None:
        own = Var(s.var.name, s.var.dtype)
        other = replace(s, var=own, body=substitute_stmt(question.else_case, {s.var: own}))
    return IfThenElse(question.condition, replace(s, body=question.then_case), other)
