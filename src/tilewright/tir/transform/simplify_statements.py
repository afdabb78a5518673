"""The public pass `Simplify`, which keeps the form of statements and expressions where nothing is known about them.

    for i in T.serial(16):                     for i in T.serial(16):
        if i == n:                                 if i == n:
            if i != n:                 ->              A[i] = 1
                A[i] = 0
            else:
                A[i] = 1

The compiler's own pipeline uses `simplify.py`, which brings expressions into one canonical form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tilewright.base.errors import OptionError
from tilewright.base.settings import nearest
from tilewright.ir.transform import PassContext
from tilewright.scalar.arith.ranges import Ranges
from tilewright.scalar.arith.rewrite import Rewriter
from tilewright.scalar.expr import IntImm, Load, PrimExpr, Var, as_expr, logical_not, number_of
from tilewright.scalar.walk import substitute
from tilewright.tir.placed_memory import variables_of_memory
from tilewright.tir.stmt import (
    Block,
    Evaluate,
    For,
    IfThenElse,
    Let,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    map_bodies,
    seq,
    substitute_stmt,
)
from tilewright.tir.transform.known_values import use_known_values
from tilewright.tir.transform.loop_facts import inside, lasting

FIELDS: Final = (
    "transitively_prove_inequalities", "propagate_knowns_to_prove_conditional",
    "propagate_knowns_to_simplify_expressions", "convert_boolean_to_and_of_ors",
    "apply_constraints_to_boolean_branches",
)
"""The fields of the option `tir.Simplify`."""
NOTHING: Final = Evaluate(as_expr(0))


def simplify_statements(func: PrimFunc) -> PrimFunc:
    """Simplify a function under the ranges of its loops and the conditions around each statement."""
    given = PassContext.current().get("tir.Simplify")
    for name in given:
        if name not in FIELDS:
            raise OptionError(
                f"tir.Simplify has no field '{name}'{nearest(name, FIELDS)}; the fields are {', '.join(FIELDS)}",
                code="TW0207")
    branches = bool(given.get("apply_constraints_to_boolean_branches"))
    transitive = bool(given.get("transitively_prove_inequalities"))
    conditions = bool(given.get("propagate_knowns_to_prove_conditional"))
    values = bool(given.get("propagate_knowns_to_simplify_expressions"))
    if conditions or values:
        func = use_known_values(func, conditions=conditions, expressions=values)
    known = Rewriter(
        Ranges(), branches=branches, transitive=transitive,
        conjunctive=bool(given.get("convert_boolean_to_and_of_ors")))
    return func.with_body(_stmt(func.body, known, {}))


def _stmt(s: Stmt, known: Rewriter, lets: Mapping[Var, PrimExpr]) -> Stmt:
    match s:
        case Store():
            return _store(s, known)
        case For():
            low, extent = known.of(s.min), known.of(s.extent)
            loop = replace(s, min=low, extent=extent)
            return replace(loop, body=_stmt(s.body, known.over(inside(loop, known.ranges)), lets))
        case IfThenElse():
            return _if(s, known, lets)
        case Seq():
            return _seq(s, known, lets)
        case Let():
            value = known.of(s.value)
            trivial = isinstance(value, Var) or number_of(value) is not None
            if trivial and s.var not in variables_of_memory(s.body):
                return _stmt(substitute_stmt(s.body, {s.var: value}), known, lets)
            return Let(s.var, value, _stmt(s.body, known, {**lets, s.var: value}))
        case Block():
            return _block(s, known, lets)
        case Evaluate():
            return Evaluate(known.of(s.value))
        case _:
            return map_bodies(s, lambda b: _stmt(b, known, lets)) or NOTHING


def _store(s: Store, known: Rewriter) -> Stmt:
    value, indices = known.of(s.value), tuple(known.of(i) for i in s.indices)
    if isinstance(value, Load) and value.buffer is s.buffer and value.indices == indices and s.mask is None:
        return NOTHING
    return Store(s.buffer, value, indices, None if s.mask is None else known.of(s.mask))


def _is_nothing(s: Stmt) -> bool:
    return (isinstance(s, Evaluate) and number_of(s.value) == 0) or (isinstance(s, Seq) and not s.stmts)


def _seq(s: Seq, known: Rewriter, lets: Mapping[Var, PrimExpr]) -> Stmt:
    found = [_stmt(x, known, lets) for x in s.stmts]
    kept = [x for x in found if not _is_nothing(x)]
    return seq(*kept) if kept else NOTHING


def _if(s: IfThenElse, known: Rewriter, lets: Mapping[Var, PrimExpr]) -> Stmt:
    condition = known.of(s.condition)
    value = number_of(condition)
    if value is None:
        value = number_of(known.of(substitute(condition, lets)))
    if value is not None:
        chosen = s.then_case if value else s.else_case
        return NOTHING if chosen is None else _stmt(chosen, known, lets)
    opposite = known.of(logical_not(condition))
    then = _stmt(s.then_case, known.within(lasting(condition, s.then_case)), lets)
    other = None if s.else_case is None else _stmt(s.else_case, known.within(lasting(opposite, s.else_case)), lets)
    if other is not None and _is_nothing(other):
        other = None
    if other is None and _is_nothing(then):
        return NOTHING
    return IfThenElse(condition, then, other)


def _block(s: Block, known: Rewriter, lets: Mapping[Var, PrimExpr]) -> Stmt:
    ranges = known.ranges
    for v in s.iters:
        ranges = ranges.bind_loop(v.var, IntImm(v.var.dtype, 0), v.extent)
    within = known.over(ranges)
    return replace(
        s, bindings=tuple(map(known.of, s.bindings)), predicate=known.of(s.predicate),
        init=None if s.init is None else _stmt(s.init, within, lets), body=_stmt(s.body, within, lets))
