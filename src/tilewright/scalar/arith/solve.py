"""Solves conditions: the interval of a variable given by a comparison, and the ranges implied by a true condition."""

from __future__ import annotations

from typing import Any

from tilewright.scalar.arith.bounds import bounds_of_form
from tilewright.scalar.arith.linear import LinearForm, expression
from tilewright.scalar.arith.ranges import Ranges
from tilewright.scalar.arith.simplify import difference, is_index
from tilewright.scalar.expr import EQ, GE, LT, And, Comparison, Not, Or, PrimExpr, Var, floordiv, logical_not
from tilewright.scalar.walk import free_vars


def conjuncts(condition: PrimExpr) -> list[PrimExpr]:
    """Return the operands of the conjunction `condition`, left to right."""
    found, stack = [], [condition]
    while stack:
        x = stack.pop()
        if isinstance(x, And):
            stack += (x.b, x.a)
        elif isinstance(x, Not) and isinstance(x.a, Or):
            stack += (logical_not(x.a.b), logical_not(x.a.a))
        else:
            found.append(x)
    return found


def solve(condition: PrimExpr, var: Var, ranges: Ranges) -> tuple[PrimExpr | None, PrimExpr | None] | None:
    """Return `(low, end)` such that `condition` is equivalent to `low <= var < end`; None if there is no such form."""
    if not isinstance(condition, Comparison) or not is_index(condition.a.dtype):
        return None
    kind, d = difference(condition, ranges)
    k, rest = d.without(var)
    if k == 0 or any(var in free_vars(a) for a in rest.coefs if type(a) is not Var):
        return None
    dtype = var.dtype
    if kind is EQ and abs(k) == 1:
        value = rest.times(-k)
        return expression(value, dtype), expression(value.plus(LinearForm({}, 1)), dtype)
    if kind is not LT and kind is not GE:
        return None
    if k > 0:  # k*v + rest < 0  <=>  v < ceil(-rest / k)
        bound = floordiv(expression(rest.times(-1).plus(LinearForm({}, k - 1)), dtype), k)
        return (None, bound) if kind is LT else (bound, None)
    bound = floordiv(expression(rest, dtype), -k) + 1  # |k|*v > rest
    return (bound, None) if kind is LT else (None, bound)


def assume(condition: PrimExpr, ranges: Ranges) -> Ranges:
    """Return `ranges` under the assumption that `condition` holds."""
    known, facts = dict(ranges.known), dict(ranges.facts)
    for c in conjuncts(condition):
        if not isinstance(c, Comparison) or not is_index(c.a.dtype):
            continue
        kind, d = difference(c, ranges)
        for atom in d.coefs:
            if isinstance(atom, Var):
                _tighten(known, atom, kind, d, ranges)
            elif len(d.coefs) == 1:  # a bound of an expression, such as `(w + 1) // 2 >= 7`
                _tighten(facts, atom, kind, d, ranges)
    return Ranges(known, ranges.ends, facts) if known != ranges.known or facts != ranges.facts else ranges


def _tighten(
    known: dict[Any, tuple[int | None, int | None]], var: PrimExpr, kind: type[Comparison], d: LinearForm,
    ranges: Ranges
) -> None:
    k, rest = d.without(var)
    least, most = bounds_of_form(rest, ranges)
    lo, hi = known.get(var, (None, None))
    # k*v <= -least - 1 where LT (or v's side of EQ), k*v >= -most where GE
    upper = -least - 1 if kind is LT and least is not None else -least if kind is EQ and least is not None else None
    lower = -most if kind in (GE, EQ) and most is not None else None
    if k < 0:
        k, upper, lower = -k, None if lower is None else -lower, None if upper is None else -upper
    if upper is not None:
        hi = upper // k if hi is None else min(hi, upper // k)
    if lower is not None:
        lo = -(-lower // k) if lo is None else max(lo, -(-lower // k))
    known[var] = (lo, hi)
