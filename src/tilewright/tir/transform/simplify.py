"""Simplify a TIR function under the ranges of its loops.

    for i in T.serial(8):                      for i in T.serial(8):
        for j in T.parallel(1):        ->          A[i] = B[i]
            if i * 4 + j < 32:
                A[(i * 4 + j) // 4] = B[i]

Expressions become canonical. Decided conditions, unreachable code, loops that never run, and constant lets are removed.
Loops that run once are replaced by their bodies, unless they are annotated with `preserve_unit_loop`, and nested
conditions are merged. Lets for the addresses and shapes of memory stay.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tilewright.scalar.arith.bounds import bounds
from tilewright.scalar.arith.ranges import Ranges
from tilewright.scalar.arith.simplify import is_index
from tilewright.scalar.arith.simplify import simplify as simplify_expr
from tilewright.scalar.arith.solve import assume
from tilewright.scalar.expr import FloatImm, IntImm, Var, logical_and, logical_not, number_of
from tilewright.tir.placed_memory import variables_of_memory
from tilewright.tir.stmt import Evaluate, For, IfThenElse, Let, PrimFunc, Seq, Stmt, Store, map_bodies, substitute_stmt
from tilewright.tir.transform.loop_facts import inside, lasting, runs_once

PRESERVED: Final = "preserve_unit_loop"
"""Annotation of a loop that stays although it runs once."""


def simplify(func: PrimFunc) -> PrimFunc:
    """Simplify `func` as far as the ranges of its loop variables permit."""
    return func.with_body(simplify_stmt(func.body, Ranges()))


def simplify_stmt(s: Stmt, ranges: Ranges) -> Stmt:
    """Simplify `s`; return an empty sequence if nothing is left."""
    return _stmt(s, ranges) or Seq(())


def _stmt(s: Stmt, ranges: Ranges) -> Stmt | None:
    match s:
        case Store():
            return _store(s, ranges)
        case For():
            return _loop(s, ranges)
        case IfThenElse():
            return _if(s, ranges)
        case Seq():
            return map_bodies(s, lambda x: _stmt(x, ranges)) if s.stmts else None
        case Let():
            return _let(s, ranges)
        case _:
            return _other(s, ranges)


def _store(s: Store, ranges: Ranges) -> Stmt | None:
    mask = None if s.mask is None else simplify_expr(s.mask, ranges)
    known = None if mask is None else number_of(mask)
    if known == 0:
        return None
    indices = tuple(simplify_expr(i, ranges) for i in s.indices)
    return Store(s.buffer, simplify_expr(s.value, ranges), indices, None if known == 1 else mask)


def _loop(s: For, ranges: Ranges) -> Stmt | None:
    low, extent = simplify_expr(s.min, ranges), simplify_expr(s.extent, ranges)
    if isinstance(extent, IntImm) and extent.value <= 0:
        return None
    loop = replace(s, min=low, extent=extent)
    if runs_once(loop) and not loop.annotations.get(PRESERVED):
        if isinstance(low, IntImm):
            return _stmt(s.body, ranges.bind(s.var, low.value, low.value))
        return _stmt(substitute_stmt(s.body, {s.var: low}), ranges)
    body = _stmt(s.body, inside(loop, ranges))
    return None if body is None else replace(loop, body=body)


def _if(s: IfThenElse, ranges: Ranges) -> Stmt | None:
    condition = simplify_expr(s.condition, ranges)
    known = number_of(condition)
    if known is not None:
        return _stmt(s.then_case, ranges) if known else None if s.else_case is None else _stmt(s.else_case, ranges)
    opposite = logical_not(condition)
    then = _stmt(s.then_case, assume(lasting(condition, s.then_case), ranges))
    other = None if s.else_case is None else _stmt(s.else_case, assume(lasting(opposite, s.else_case), ranges))
    if then is None:
        return None if other is None else IfThenElse(simplify_expr(opposite, ranges), other)
    if other is None and isinstance(then, IfThenElse) and then.else_case is None:
        return IfThenElse(logical_and(condition, then.condition), then.then_case)
    return IfThenElse(condition, then, other)


def _let(s: Let, ranges: Ranges) -> Stmt | None:
    value = simplify_expr(s.value, ranges)
    if isinstance(value, (IntImm, FloatImm, Var)) and s.var not in variables_of_memory(s.body):
        return _stmt(substitute_stmt(s.body, {s.var: value}), ranges)
    body = _stmt(s.body, ranges.bind(s.var, *bounds(value, ranges)) if is_index(value.dtype) else ranges)
    return None if body is None else Let(s.var, value, body)


def _other(s: Stmt, ranges: Ranges) -> Stmt | None:
    if isinstance(s, Evaluate):
        return Evaluate(simplify_expr(s.value, ranges))
    return map_bodies(s, lambda x: _stmt(x, ranges))
