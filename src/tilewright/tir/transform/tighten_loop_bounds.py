"""Turn conditions on a loop variable into the bounds of the loop.

    for kh in T.serial(3):                     for kh in T.serial(max(0, 1 - oh), min(3, 8 - oh)):
        if 1 <= oh + kh:               ->          A[oh] = A[oh] + B[oh + kh - 1]
            if oh + kh < 8:
                A[oh] = A[oh] + B[oh + kh - 1]

The pass performs three steps in one walk. A reduction step that is neutral if a condition fails becomes conditional,
`A[i] = A[i] + if_then_else(c, v, 0) -> if c: A[i] = A[i] + v` (add, max and min with their identities; a product with
zero counts as zero, so that padding is never multiplied with infinite weights). Conditions move outward as far as their
variables permit. A condition that reaches the serial loop of a variable in which it is linear becomes a bound of the
loop. A condition may read memory if it reads single values that were allocated and stored outside of the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Final

from tilewright.base.types import DataType
from tilewright.scalar.arith.ranges import Ranges
from tilewright.scalar.arith.simplify import simplify
from tilewright.scalar.arith.solve import conjuncts, solve
from tilewright.scalar.expr import (
    Add,
    And,
    Binary,
    Buffer,
    Call,
    Cast,
    Load,
    Max,
    Min,
    Mul,
    PrimExpr,
    Select,
    Sub,
    Var,
    add,
    all_of,
    const,
    if_then_else,
    maximum,
    minimum,
    number_of,
    sub,
)
from tilewright.scalar.intrinsics import fma
from tilewright.scalar.walk import walk
from tilewright.tir.stmt import (
    SERIAL,
    VECTORIZED,
    Allocate,
    For,
    IfThenElse,
    Let,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    map_bodies,
    walk_stmt,
)
from tilewright.tir.transform.loop_facts import inside

Guarded = tuple[list[PrimExpr], Stmt]
"""Conditions, and the statement that runs if all of them are true."""


def tighten_loop_bounds(func: PrimFunc) -> PrimFunc:
    """Turn conditions of `func` into loop bounds if possible, and move the others outward."""
    return func.with_body(_wrap(*_guarded(func.body, Ranges(), frozenset())))


def _wrap(conditions: list[PrimExpr], s: Stmt) -> Stmt:
    return IfThenElse(all_of(*conditions), s) if conditions else s


def _guarded(s: Stmt, ranges: Ranges, lanes: frozenset[Var]) -> Guarded:
    match s:
        case Store():
            return _guard_reduction(s, lanes)
        case For():
            return _loop(s, ranges, lanes)
        case IfThenElse() if s.else_case is None:
            inner, body = _guarded(s.then_case, ranges, lanes)
            return _movable([*conjuncts(s.condition), *inner], body, ())
        case Seq() if s.stmts:
            return _sequence(s, [_guarded(x, ranges, lanes) for x in s.stmts])
        case Allocate():
            inner, body = _guarded(s.body, ranges, lanes)
            own = [c for c in inner if s.buffer in _read_buffers(c)]
            return [c for c in inner if c not in own], replace(s, body=_wrap(own, body))
        case Let():
            inner, body = _guarded(s.body, ranges, lanes)
            outer, body = _movable(inner, body, (s.var,))
            return outer, replace(s, body=body)
        case _:
            return [], map_bodies(s, lambda x: _wrap(*_guarded(x, ranges, lanes))) or s


def _movable(conditions: list[PrimExpr], s: Stmt, bound: tuple[Var, ...]) -> Guarded:
    """Keep conditions that use a variable of `bound` or read changing memory around `s`; return the others separately.
    """
    stay: list[PrimExpr] = []
    move: list[PrimExpr] = []
    for c in dict.fromkeys(conditions):
        (stay if not _is_movable(c) or any(x in bound for x in walk(c)) else move).append(c)
    return move, _wrap(stay, s)


def _is_movable(condition: PrimExpr) -> bool:
    """Return whether all that a condition reads of memory are single values in registers."""
    return all(
        b.scope == "local" and all(isinstance(d, int) and d == 1 for d in b.shape) for b in _read_buffers(condition))


def _read_buffers(condition: PrimExpr) -> set[Buffer]:
    return {x.buffer for x in walk(condition) if isinstance(x, Load)}


def _changes(s: Stmt, condition: PrimExpr) -> bool:
    """Return whether `s` stores to memory that the condition reads."""
    read = _read_buffers(condition)
    return bool(read) and any(isinstance(x, Store) and x.buffer in read for x in walk_stmt(s))


def _sequence(s: Seq, parts: list[Guarded]) -> Guarded:
    shared = [c for c in parts[0][0] if all(c in p[0] for p in parts[1:]) and not _changes(s, c)]
    return shared, Seq(tuple(_wrap([c for c in conditions if c not in shared], s) for conditions, s in parts))


def _loop(s: For, ranges: Ranges, lanes: frozenset[Var]) -> Guarded:
    within = inside(s, ranges)
    conditions, body = _guarded(s.body, within, lanes | {s.var} if s.kind == VECTORIZED else lanes)
    outward = [c for c in conditions if s.var not in walk(c) and not _changes(body, c)]
    here = [c for c in conditions if c not in outward]
    if s.kind != SERIAL:
        return outward, replace(s, body=_wrap(here, body))
    low, end = s.min, add(s.min, s.extent)
    stay = []
    for c in here:
        solved = None if _changes(body, c) else solve(c, s.var, within)
        if solved is None:
            stay.append(c)
            continue
        low = low if solved[0] is None else maximum(low, solved[0])
        end = end if solved[1] is None else minimum(end, solved[1])
    if len(stay) == len(here):
        return outward, replace(s, body=_wrap(stay, body))
    low = simplify(low, ranges)
    return outward, replace(s, min=low, extent=simplify(sub(end, low), ranges), body=_wrap(stay, body))


def _guard_reduction(s: Store, lanes: frozenset[Var]) -> Guarded:
    rest, term, combine = _reduction(s)
    if rest is None or term is None:
        return [], s
    found = _where_not(term, _IDENTITIES[combine])
    if found is None:
        return [], s
    condition, value = found
    parts = conjuncts(condition)
    moving = [c for c in parts if _is_movable(c) and s.buffer not in _read_buffers(c) and not lanes & set(walk(c))]
    if not moving:
        return [], s
    staying = [c for c in parts if c not in moving]
    if staying:
        value = if_then_else(all_of(*staying), value, _identity_value(combine, value.dtype))
    return moving, replace(s, value=_BUILD[combine](rest, value))


def _reduction(s: Store) -> tuple[PrimExpr | None, PrimExpr | None, type]:
    """Return `(load, term, kind)` if `s` stores `load kind term`, where `load` is the element stored to."""
    place = Load(s.buffer, s.indices)
    value = s.value
    if isinstance(value, Call) and value.op is fma and value.args[2] is place:
        return place, Mul(value.args[0], value.args[1]), Call
    if isinstance(value, (Add, Max, Min)):
        if value.a is place:
            return place, value.b, type(value)
        if value.b is place:
            return place, value.a, type(value)
    return None, None, Add


def _multiply_add(rest: PrimExpr, term: PrimExpr) -> PrimExpr:
    return fma(term.a, term.b, rest) if isinstance(term, Mul) else add(rest, term)


def _identity_value(kind: type, dtype: DataType) -> PrimExpr:
    if kind in (Add, Call):
        return const(0, dtype)
    if dtype.is_float:
        return const(-inf if kind is Max else inf, dtype)
    low = 0 if dtype.code == "uint" else -(1 << (dtype.bits - 1))
    return const(low if kind is Max else low + (1 << dtype.bits) - 1, dtype)


def _is_identity(kind: type) -> Callable[[PrimExpr], bool]:
    return lambda e: number_of(e) is not None and number_of(e) == number_of(_identity_value(kind, e.dtype))


_BUILD: Final[dict[type, Callable[[PrimExpr, PrimExpr], PrimExpr]]] = {
    Add: add, Max: maximum, Min: minimum, Call: _multiply_add
}
_IDENTITIES: Final[dict[type, Callable[[PrimExpr], bool]]] = {kind: _is_identity(kind) for kind in _BUILD}


def _where_not(e: PrimExpr, neutral: Callable[[PrimExpr], bool]) -> tuple[PrimExpr, PrimExpr] | None:
    """Return `(c, v)` such that `e` is `v` if `c` is true, and neutral otherwise; None if there is no such form."""
    if isinstance(e, Select) and neutral(e.false_value):
        inner = _where_not(e.true_value, neutral)
        return (e.condition, e.true_value) if inner is None else (And(e.condition, inner[0]), inner[1])
    if isinstance(e, Cast) and number_of(e.value) is None:
        inner = _where_not(e.value, neutral)
        return None if inner is None or not _keeps(e, neutral) else (inner[0], e.with_operands([inner[1]]))
    if isinstance(e, (Mul, Sub)):
        return _where_zero(e, neutral)
    return None


def _keeps(e: Cast, neutral: Callable[[PrimExpr], bool]) -> bool:
    """Return whether the cast preserves the neutral element; this is certain only for zero."""
    return neutral(const(0, e.value.dtype)) and neutral(const(0, e.dtype))


def _where_zero(e: Binary, neutral: Callable[[PrimExpr], bool]) -> tuple[PrimExpr, PrimExpr] | None:
    if not neutral(const(0, e.dtype)):
        return None
    if isinstance(e, Sub):  # if_then_else(c, v, z) - z, as the padding of a quantized tensor
        chosen = e.a.value if isinstance(e.a, Cast) else e.a
        if not isinstance(chosen, Select) or number_of(e.b) is None or number_of(chosen.false_value) != number_of(e.b):
            return None
        value = chosen.true_value if chosen is e.a else e.a.with_operands([chosen.true_value])
        return chosen.condition, sub(value, e.b)
    for x, other in ((e.a, e.b), (e.b, e.a)):
        inner = _where_not(x, neutral)
        if inner is not None:
            operands = [inner[1], other] if x is e.a else [other, inner[1]]
            return inner[0], e.with_operands(operands)
    return None
