"""Ask a question once, outside of the loops that do not change the answer.

    for i in T.serial(8):              ->      if n < 4:
        if n < 4:                                  for i in T.serial(8):
            A[i] = B[i]                                A[i] = B[i]

Both sides of a question get the loop. A condition that reads memory which the loop writes stays.
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
    """`func` with conditions that are all of a loop's body moved out of it. Leaves variables bound once."""
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
