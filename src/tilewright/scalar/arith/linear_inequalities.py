"""Solves systems of linear inequalities over the integers: TVM's `arith.solve_linear_inequalities`.

    x + y <= 20, x - y >= 10, 0 <= y < 10        y + 10 <= x <= 20 - y, 0 <= y <= 5

Variables are eliminated one after the other (Fourier and Motzkin): each lower bound of a variable is at most each upper
one. The bounds of a variable depend on later variables only. All bounds together hold for the solutions and for no
other numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd
from typing import Literal, overload

from tilewright.base.types import BOOL
from tilewright.scalar.arith.bounds import bounds
from tilewright.scalar.arith.linear import LinearForm, expression
from tilewright.scalar.arith.linear_equations import IntConstraints, IntConstraintsTransform
from tilewright.scalar.arith.ranges import Ranges
from tilewright.scalar.arith.simplify import form_of, is_index, prove, simplify
from tilewright.scalar.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    Comparison,
    IntImm,
    PrimExpr,
    Var,
    add,
    compare,
    const,
    floordiv,
    number_of,
    sub,
)
from tilewright.scalar.range import Range
from tilewright.scalar.walk import free_vars, substitute

_ONE = LinearForm({}, 1)


class _NoSolution(Exception):
    """The inequalities contradict each other."""


@dataclass(slots=True)
class _Bounds:
    """Expressions of later variables: `low <= variable` for all `lows`, and `variable <= high` for all `highs`."""

    variable: Var
    lows: list[PrimExpr] = field(default_factory=list)
    highs: list[PrimExpr] = field(default_factory=list)

    def conditions(self) -> Iterator[PrimExpr]:
        """Yield the bounds as conditions; a lower and an upper bound that are the same make an equation."""
        lows, highs = dict.fromkeys(self.lows), dict.fromkeys(self.highs)  # by identity
        yield from (compare(EQ, self.variable, e) for e in lows if e in highs)
        yield from (compare(GE, self.variable, e) for e in lows if e not in highs)
        yield from (compare(LE, self.variable, e) for e in highs if e not in lows)


def solve_as_conditions(
    variables: Sequence[Var], ranges: Mapping[Var, Range], inequalities: Sequence[PrimExpr]
) -> list[PrimExpr]:
    """Return conditions that hold for the solutions of inequalities within ranges: bounds of each variable that depend
    on later variables only, then the conditions that are not linear. The result is False if there is no solution."""
    try:
        solved, rest = _solve(IntConstraints(tuple(variables), dict(ranges), tuple(inequalities)))
    except _NoSolution:
        return [IntImm(BOOL, 0)]
    return [*(c for b in solved for c in b.conditions()), *rest]


@overload
def solve_linear_inequalities(
    equations: Sequence[PrimExpr] | IntConstraints, variables: Sequence[Var] | None = None,
    ranges: Mapping[Var, Range] | None = None, deskew_range: Literal[False] = False
) -> IntConstraints: ...
@overload
def solve_linear_inequalities(
    equations: Sequence[PrimExpr] | IntConstraints, variables: Sequence[Var] | None = None,
    ranges: Mapping[Var, Range] | None = None, deskew_range: bool = False
) -> IntConstraints | IntConstraintsTransform: ...
def solve_linear_inequalities(
    equations: Sequence[PrimExpr] | IntConstraints, variables: Sequence[Var] | None = None,
    ranges: Mapping[Var, Range] | None = None, deskew_range: bool = False
) -> IntConstraints | IntConstraintsTransform:
    """Return the constraints with ranges that contain the solutions, and the conditions that do not follow from these.

    The range of a variable may depend on later variables. With `deskew_range`, return the transformation to new
    variables whose ranges begin at 0; variables with one value have no new variable. If the inequalities contradict
    each other, the only relation of the result is False.
    """
    src = equations if isinstance(equations, IntConstraints) else IntConstraints(
        tuple(variables or ()), dict(ranges or {}), tuple(equations))
    try:
        solved, rest = _solve(src)
        return _deskewed(src, solved, rest) if deskew_range else _within_ranges(src, solved, rest)
    except _NoSolution:
        none = IntConstraints((), {}, (IntImm(BOOL, 0),))
        return IntConstraintsTransform(src, none, {}, {}) if deskew_range else none


def _solve(src: IntConstraints) -> tuple[list[_Bounds], list[PrimExpr]]:
    """Return the bounds of the variables, and the other conditions. Raises `_NoSolution`."""
    forms, others = list[LinearForm](), list[PrimExpr]()
    for e in src.relations:
        found = _not_positive(e)
        forms += found
        others += [] if found else [e]
    for v, r in src.ranges.items():
        if v in src.variables:
            forms += [*_not_positive(compare(GE, v, r.min)), *_not_positive(compare(LT, v, add(r.min, r.extent)))]
    known = _known(src.ranges)
    left, solved = _tightest(forms), list[_Bounds]()
    for k, v in enumerate(src.variables):
        found_bounds, left = _eliminated(v, left, known, src.variables[: k + 1])
        solved.append(found_bounds)
    return solved, [*(compare(LE, expression(f, src.variables[0].dtype), 0) for f in left), *others]


def _not_positive(e: PrimExpr) -> list[LinearForm]:
    """Return linear forms that are at most 0 where a comparison of integers holds; none for other conditions."""
    if not isinstance(e, Comparison) or not isinstance(e, (LT, LE, GT, GE, EQ)) or not is_index(e.a.dtype):
        return []
    form = form_of(e.a, Ranges()).plus(form_of(e.b, Ranges()), -1)
    if isinstance(e, EQ):
        return [form, form.times(-1)]
    form = form if isinstance(e, (LT, LE)) else form.times(-1)
    return [form.plus(_ONE) if isinstance(e, (LT, GT)) else form]


def _tightest(forms: Sequence[LinearForm]) -> list[LinearForm]:
    """Return forms without common divisors; of several that differ in their constants, the one with the largest. Raises
    `_NoSolution` for a positive constant."""
    found: dict[frozenset[tuple[PrimExpr, int]], LinearForm] = {}
    for f in forms:
        if not f.coefs:
            if f.const > 0:
                raise _NoSolution
            continue
        g = gcd(*f.coefs.values())
        form = LinearForm({a: k // g for a, k in f.coefs.items()}, -(-f.const // g))
        key = frozenset(form.coefs.items())
        if key not in found or found[key].const < form.const:
            found[key] = form
    for key, form in found.items():
        opposite = found.get(frozenset((a, -k) for a, k in key))
        if opposite is not None and form.const + opposite.const > 0:
            raise _NoSolution
    return list(found.values())


def _eliminated(
    v: Var, forms: Sequence[LinearForm], known: Ranges, done: Sequence[Var]
) -> tuple[_Bounds, list[LinearForm]]:
    """Return the bounds of a variable, and the forms without it. Forms that are not linear in it, or in those `done`,
    are kept."""
    lows, highs, rest = list[LinearForm](), list[LinearForm](), list[LinearForm]()
    for f in forms:
        k, other = f.without(v)
        linear = not any(x in free_vars(a) for a in other.coefs for x in done)
        (rest if not k or not linear else highs if k > 0 else lows).append(f)
    for low in lows:
        for high in highs:
            rest.append(low.times(high.coefs[v]).plus(high, -low.coefs[v]))
    found = _Bounds(v)
    for f in highs:  # k * v + other <= 0
        k, other = f.without(v)
        found.highs.append(_quotient(other.times(-1), k, v))
    for f in lows:  # other <= k * v
        k, other = f.without(v)
        found.lows.append(_quotient(other.plus(LinearForm({}, -k - 1)), -k, v))
    found.lows = _needed(found.lows, known, is_lower=True)
    found.highs = _needed(found.highs, known, is_lower=False)
    return found, _tightest(rest)


def _quotient(form: LinearForm, k: int, v: Var) -> PrimExpr:
    e = expression(form, v.dtype)
    return e if k == 1 else floordiv(e, k)


def _needed(ends: Sequence[PrimExpr], known: Ranges, *, is_lower: bool) -> list[PrimExpr]:
    """Return the bounds that do not follow from other ones."""
    left = list(dict.fromkeys(ends))
    for e in list(left):
        others = [o for o in left if o is not e]
        if any(prove(compare(GE if is_lower else LE, o, e), known) is True for o in others):
            left = others
    return left


def _known(ranges: Mapping[Var, Range]) -> Ranges:
    found = Ranges()
    for v, r in ranges.items():
        found = found.bind_loop(v, r.min, r.extent)
    return found


def _best_range(b: _Bounds, values: Mapping[PrimExpr, PrimExpr], known: Ranges) -> Range | None:
    """Return the range of fewest numbers from a lower bound on, or None. Raises `_NoSolution` if it is empty."""
    best: tuple[int, PrimExpr] | None = None
    for e in b.lows:
        low = simplify(substitute(e, values), known)
        for high in b.highs:
            extent = sub(simplify(substitute(high, values), known), low)
            _, most = bounds(simplify(add(extent, const(1, extent.dtype)), known), known)
            if most is not None and (best is None or most < best[0]):
                best = most, low
    if best is None:
        return None
    if best[0] <= 0:
        raise _NoSolution
    return Range.from_min_extent(best[1], const(best[0], b.variable.dtype))


def _within_ranges(src: IntConstraints, solved: Sequence[_Bounds], rest: Sequence[PrimExpr]) -> IntConstraints:
    made, values, known = dict[Var, Range](), dict[PrimExpr, PrimExpr](), _parameters(src)
    for b in reversed(solved):
        found = _best_range(b, values, known)
        if found is not None:
            made[b.variable] = found
            known = known.bind_loop(b.variable, found.min, found.extent)
            if number_of(found.extent) == 1:
                values[b.variable] = found.min
    ranges = {v: made[v] for v in src.variables if v in made}
    conditions = [*(c for b in solved for c in b.conditions()), *rest]
    # a condition that the range of a variable states follows from it; its ends may be symbolic
    stated = {
        c for v, r in ranges.items() for c in (compare(GE, v, r.min), compare(LE, v, sub(add(r.min, r.extent), 1)))}
    left = [c for c in conditions if c not in stated and prove(substitute(c, values), known) is not True]
    return IntConstraints(src.variables, {**_of_parameters(src), **ranges}, tuple(left))


def _deskewed(src: IntConstraints, solved: Sequence[_Bounds], rest: Sequence[PrimExpr]) -> IntConstraintsTransform:
    values, back = dict[PrimExpr, PrimExpr](), dict[Var, PrimExpr]()
    ranges, known = dict[Var, Range](), _parameters(src)
    for b in reversed(solved):
        v, found = b.variable, _best_range(b, values, known)
        if found is None:
            values[v], back[v] = v, v
        elif number_of(found.extent) == 1:
            values[v] = found.min
        else:
            new = Var(f"{v.name}.shifted", v.dtype)
            values[v] = add(new, found.min)
            back[new] = v  # completed below, once all variables are known
            ranges[new] = Range.from_min_extent(const(0, v.dtype), found.extent)
            known = known.bind_loop(new, ranges[new].min, found.extent)
    inverse = {new: old for new, old in back.items() if new is not old}
    for new, old in inverse.items():
        start = substitute(sub(values[old], new), {n: back[n] for n in back if n is not new})
        back[new] = simplify(sub(old, start), Ranges())
    order = [n for v in src.variables for n in back if n is v or inverse.get(n) is v]
    left = list[PrimExpr]()
    for c in (*(c for b in solved for c in b.conditions()), *rest):
        moved = _without_negative_terms(substitute(c, values))
        decided = prove(moved, known)
        if decided is False:
            raise _NoSolution
        left += [] if decided else [moved]
    made = {**_of_parameters(src), **{n: ranges[n] for n in order if n in ranges}}
    dst = IntConstraints(tuple(order), made, tuple(left))
    found_values = {v: values[v] for v in src.variables}
    return IntConstraintsTransform(src, dst, found_values, {n: back[n] for n in order})


def _without_negative_terms(c: PrimExpr) -> PrimExpr:
    """Return an inequality with its terms on the sides where their coefficients are positive."""
    forms = _not_positive(c)
    if len(forms) != 1 or not isinstance(c, Comparison):
        return c
    (form,) = forms
    left = LinearForm({a: k for a, k in form.coefs.items() if k > 0})
    right = LinearForm({a: -k for a, k in form.coefs.items() if k < 0}, -form.const)
    return compare(LE, expression(left, c.a.dtype), expression(right, c.a.dtype))


def _of_parameters(src: IntConstraints) -> dict[Var, Range]:
    return {v: r for v, r in src.ranges.items() if v not in src.variables}


def _parameters(src: IntConstraints) -> Ranges:
    """Return the ranges of the variables that are not solved for."""
    return _known(_of_parameters(src))


__all__ = ["solve_as_conditions", "solve_linear_inequalities"]
