"""Remove statements without effect.

    for i in T.serial(8):              ->      B[0] = 1.0
        A[i] = A[i]
    B[0] = 1.0
"""

from __future__ import annotations

from typing import Final

from tilewright.base.errors import OptionError
from tilewright.base.settings import nearest
from tilewright.ir.transform import PassContext
from tilewright.scalar.arith.bounds import bounds
from tilewright.scalar.arith.ranges import Ranges
from tilewright.scalar.expr import Load, Not, as_expr
from tilewright.scalar.walk import has_effect, walk
from tilewright.tir.stmt import (
    Allocate,
    Evaluate,
    For,
    IfThenElse,
    Let,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    expressions,
    map_bodies,
    seq,
    walk_stmt,
)
from tilewright.tir.transform.loop_facts import inside

FIELDS: Final = ("use_dataflow_analysis", "max_simplification_steps")
"""The fields of the option `tir.RemoveNoOp`, which have no effect: stores that later ones overwrite are kept."""


def remove_no_op(func: PrimFunc) -> PrimFunc:
    """Remove stores of unchanged values, calls without effect, unused memory and bindings, and loops that are empty or
    never run. A function without statements evaluates 0."""
    for name in PassContext.current().get("tir.RemoveNoOp"):
        if name not in FIELDS:
            raise OptionError(
                f"tir.RemoveNoOp has no field '{name}'{nearest(name, FIELDS)}; the fields are {', '.join(FIELDS)}",
                code="TW0207")
    return func.with_body(_stmt(func.body, Ranges()) or Evaluate(as_expr(0)))


def _stmt(s: Stmt, ranges: Ranges) -> Stmt | None:
    if isinstance(s, Store):
        same = isinstance(s.value, Load) and s.value.buffer is s.buffer and s.value.indices == s.indices
        return None if same else s
    if isinstance(s, Evaluate):
        return s if has_effect(s.value) else None
    if isinstance(s, Seq) and not s.stmts:
        return None
    if isinstance(s, For):
        most = bounds(s.extent, ranges)[1]
        if most is not None and most <= 0:
            return None
        ranges = inside(s, ranges)
    if isinstance(s, IfThenElse):
        return _if(s, ranges)
    left = map_bodies(s, lambda b: _stmt(b, ranges))
    if isinstance(s, Let):
        return _let(s, left if isinstance(left, Let) else None)
    if isinstance(left, Allocate):
        return left if _uses(left) else left.body
    return left


def _if(s: IfThenElse, ranges: Ranges) -> Stmt | None:
    """Remove a branch without statements. A branch that is left alone comes first, under the negated condition."""
    then, other = _stmt(s.then_case, ranges), None if s.else_case is None else _stmt(s.else_case, ranges)
    if then is not None:
        return s if then is s.then_case and other is s.else_case else IfThenElse(s.condition, then, other)
    if other is not None:
        return IfThenElse(Not(s.condition), other)
    return Evaluate(s.condition) if has_effect(s.condition) else None


def _let(s: Let, left: Let | None) -> Stmt | None:
    """Remove a binding without uses; a value with an effect is kept as a statement."""
    if left is not None and any(e is s.var for x in walk_stmt(left.body) for top in expressions(x) for e in walk(top)):
        return left
    effect = Evaluate(s.value) if has_effect(s.value) else None
    body = None if left is None else left.body
    return seq(effect, body) if effect is not None else body


def _uses(s: Allocate) -> bool:
    return any(
        (isinstance(x, Store) and x.buffer is s.buffer)
        or any(isinstance(e, Load) and e.buffer is s.buffer for top in expressions(x) for e in walk(top))
        for x in walk_stmt(s.body))
