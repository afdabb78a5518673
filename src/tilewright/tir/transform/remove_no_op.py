"""Remove statements without effect.

    for i in T.serial(8):              ->      B[0] = 1.0
        A[i] = A[i]
    B[0] = 1.0
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tilewright.base.errors import OptionError
from tilewright.base.settings import nearest
from tilewright.ir.transform import PassContext
from tilewright.scalar.arith.bounds import bounds
from tilewright.scalar.arith.ranges import Ranges
from tilewright.scalar.arith.simplify import simplify
from tilewright.scalar.arith.solve import assume
from tilewright.scalar.expr import Load, Not, PrimExpr, as_expr, logical_not, number_of, sub
from tilewright.scalar.walk import has_effect, substitute, walk
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
from tilewright.tir.transform.known_values import remove_redundant_stores
from tilewright.tir.transform.loop_facts import inside, lasting

Lets = Mapping[PrimExpr, PrimExpr]
"""Variables and their values, where these do not read memory."""
FIELDS: Final = ("use_dataflow_analysis", "max_simplification_steps")
"""The fields of the option `tir.RemoveNoOp`; the second one has no effect."""


def remove_no_op(func: PrimFunc) -> PrimFunc:
    """Remove stores of unchanged values, calls without effect, unused memory and bindings, and loops that are empty or
    never run. A function without statements evaluates 0.

    With the field `use_dataflow_analysis` of the option `tir.RemoveNoOp`, also remove stores that later ones overwrite,
    and stores of values that memory is known to have.
    """
    for name in PassContext.current().get("tir.RemoveNoOp"):
        if name not in FIELDS:
            raise OptionError(
                f"tir.RemoveNoOp has no field '{name}'{nearest(name, FIELDS)}; the fields are {', '.join(FIELDS)}",
                code="TW0207")
    body = without_effect_removed(func.body)
    if body is not None and PassContext.current().get("tir.RemoveNoOp").get("use_dataflow_analysis"):
        used = remove_redundant_stores(body)
        body = used if used is body or used is None else without_effect_removed(used)
    return func.with_body(body or Evaluate(as_expr(0)))


def without_effect_removed(s: Stmt) -> Stmt | None:
    """Return a statement without parts that have no effect; None if nothing is left."""
    return _stmt(s, Ranges(), {})


def _stmt(s: Stmt, ranges: Ranges, lets: Lets) -> Stmt | None:
    if isinstance(s, Store):
        return None if _keeps(s, ranges, lets) else s
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
        return _if(s, ranges, lets)
    if isinstance(s, Let) and not any(isinstance(e, Load) for e in walk(s.value)):
        lets = {**lets, s.var: substitute(s.value, lets)}
    left = map_bodies(s, lambda b: _stmt(b, ranges, lets))
    if isinstance(s, Let):
        return _let(s, left if isinstance(left, Let) else None)
    if isinstance(left, Allocate):
        return left if _uses(left) else left.body
    return left


def _keeps(s: Store, ranges: Ranges, lets: Lets) -> bool:
    """Return whether a store writes the value that its place has."""
    return isinstance(s.value, Load) and s.value.buffer is s.buffer and all(
        a is b or number_of(simplify(substitute(sub(a, b), lets), ranges)) == 0
        for a, b in zip(s.value.indices, s.indices, strict=True))


def _if(s: IfThenElse, ranges: Ranges, lets: Lets) -> Stmt | None:
    """Remove a branch without statements. A branch that is left alone comes first, under the negated condition."""
    then = _stmt(s.then_case, assume(lasting(s.condition, s.then_case), ranges), lets)
    opposite = logical_not(s.condition)
    other = None if s.else_case is None else _stmt(s.else_case, assume(lasting(opposite, s.else_case), ranges), lets)
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
