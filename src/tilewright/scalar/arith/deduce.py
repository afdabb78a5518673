"""Bounds of variables that follow from conditions, and conditions without some of their variables.

    deduce_bound(a, a * 4 + b < c, {b: IntervalSet(2, 3), c: IntervalSet(10, 15)}, {})     # a <= (c - 1 - b) // 4
    detect_clip_bound(tir.all(a * 1 < b * 6, a - 1 > 0), [a])                              # [2, b * 6 - 1]
    narrow_predicate_expression(i < n, {n: Range(0, 8)})                                   # i < 0
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from tilewright.base.types import BOOL
from tilewright.scalar.arith.analyzer import Analyzer
from tilewright.scalar.arith.int_set import NEG_INF, NOTHING, POS_INF, IntervalSet, IntSet, SetEvaluator
from tilewright.scalar.arith.linear import linear
from tilewright.scalar.arith.ranges import Ranges
from tilewright.scalar.arith.simplify import prove, simplify
from tilewright.scalar.arith.solve import conjuncts, solve
from tilewright.scalar.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Call,
    Comparison,
    FloorDiv,
    FloorMod,
    IntImm,
    Load,
    Max,
    Min,
    Mul,
    Not,
    Or,
    PrimExpr,
    Sub,
    TruncDiv,
    TruncMod,
    Var,
    add,
    all_of,
    any_of,
    cast,
    compare,
    floordiv,
    floormod,
    mul,
    sub,
)
from tilewright.scalar.range import Range
from tilewright.scalar.walk import free_vars, walk

_FLIPPED: Final[dict[type[Comparison], type[Comparison]]] = {LT: GT, GT: LT, LE: GE, GE: LE, EQ: EQ, NE: NE}


def _count(var: Var, e: PrimExpr) -> int:
    """Return how often a variable occurs in an expression, at most 2."""
    return 1 if e is var else min(2, sum(_count(var, o) for o in e.operands()))


class _Solver:
    """Solves `left kind right` for a variable that occurs once, on the left side."""

    def __init__(self, var: Var, hints: Mapping[Var, IntSet]) -> None:
        self.var = var
        self.analyzer = Analyzer()
        self.signs = SetEvaluator(self.analyzer, hints)

    def sign(self, e: PrimExpr) -> int:
        """Return 1 or -1 for an expression that is positive or negative for all hints, else 0."""
        found = self.signs.of(e)
        low, high = found.min_value, found.max_value
        if low is not NEG_INF and low is not POS_INF and self.analyzer.can_prove_greater_equal(low, 1):
            return 1
        return -1 if high is not POS_INF and high is not NEG_INF and self.analyzer.can_prove_less(high, 0) else 0

    def solved(self, left: PrimExpr, kind: type[Comparison], right: PrimExpr) -> IntervalSet:
        """Return the interval of the variable; empty if the form is not supported. `kind` is LE, GE or EQ."""
        while left is not self.var:
            step = self.step(left, kind, right)
            if step is None:
                return NOTHING
            left, kind, right = step
        value = self.analyzer.simplify(right)
        return IntervalSet(NEG_INF if kind is LE else value, POS_INF if kind is GE else value)

    def step(
        self, left: PrimExpr, kind: type[Comparison], right: PrimExpr
    ) -> tuple[PrimExpr, type[Comparison], PrimExpr] | None:
        """Move the outermost operation of the left side to the right one; None if it cannot be moved."""
        if isinstance(left, Add):
            inner, other = (left.a, left.b) if _count(self.var, left.a) else (left.b, left.a)
            return inner, kind, sub(right, other)
        if isinstance(left, Sub):
            if _count(self.var, left.a):
                return left.a, kind, add(right, left.b)
            return left.b, _FLIPPED[kind], sub(left.a, right)
        if isinstance(left, Mul):
            return self.divided(left, kind, right)
        if isinstance(left, FloorDiv) and _count(self.var, left.a) and kind is not EQ:
            return self.multiplied(left, kind, right)
        return None

    def divided(
        self, left: Mul, kind: type[Comparison], right: PrimExpr
    ) -> tuple[PrimExpr, type[Comparison], PrimExpr] | None:
        inner, factor = (left.a, left.b) if _count(self.var, left.a) else (left.b, left.a)
        sign = self.sign(factor)
        if not sign:
            return None
        exact = self.quotient(right, factor)
        if exact is not None:
            return inner, (kind if sign > 0 else _FLIPPED[kind]), exact
        if kind is EQ:
            return None
        kind = kind if sign > 0 else _FLIPPED[kind]
        whole = floordiv(right, factor)
        return inner, kind, (add(whole, 1) if kind is GE else whole)

    def quotient(self, right: PrimExpr, factor: PrimExpr) -> PrimExpr | None:
        """Return `right / factor` if the division is proved to leave no remainder."""
        a, b = linear(self.analyzer.simplify(right)), linear(self.analyzer.simplify(factor))
        if b.coefs and (times := next((a.coefs.get(atom, 0) // k for atom, k in b.coefs.items()), 0)):
            left = a.plus(b, -times)
            return IntImm(right.dtype, times) if not left.coefs and not left.const else None
        if not a.coefs and not a.const:
            return IntImm(right.dtype, 0)
        rest = self.analyzer.simplify(floormod(right, factor))
        return floordiv(right, factor) if isinstance(rest, IntImm) and rest.value == 0 else None

    def multiplied(
        self, left: FloorDiv, kind: type[Comparison], right: PrimExpr
    ) -> tuple[PrimExpr, type[Comparison], PrimExpr] | None:
        """floor(x / d) >= r  ->  x >= r * d;  floor(x / d) <= r  ->  x <= (r + 1) * d - 1;  reversed for d < 0."""
        sign = self.sign(left.b)
        if not sign:
            return None
        if kind is GE:
            return left.a, (GE if sign > 0 else LE), mul(right, left.b)
        edge = mul(add(right, 1), left.b)
        return left.a, (LE if sign > 0 else GE), (sub(edge, 1) if sign > 0 else add(edge, 1))


def deduce_bound(
    var: Var, cond: PrimExpr, hint_map: Mapping[Var, IntSet], relax_map: Mapping[Var, IntSet]
) -> IntervalSet:
    """Return an interval of `var` whose values all satisfy a comparison; empty if none is found.

    The signs of factors follow from the intervals of `hint_map`. The condition holds for all values of the variables
    of `relax_map`.
    """
    if not isinstance(cond, Comparison) or isinstance(cond, (And, Or, NE)) or cond.a.dtype.code != "int":
        return NOTHING
    left, right, kind = cond.a, cond.b, type(cond)
    if _count(var, left) + _count(var, right) != 1:
        return NOTHING
    if _count(var, right):
        left, right, kind = right, left, _FLIPPED[kind]
    if kind is LT or kind is GT:
        kind, right = (LE, sub(right, 1)) if kind is LT else (GE, add(right, 1))
    relaxed = SetEvaluator(Analyzer(), {v: s for v, s in relax_map.items() if v is not var})
    low, high = relaxed.of(left), relaxed.of(right)
    if kind is EQ:
        sides = (low.point, high.point)
    elif kind is LE:
        sides = (low.max_value, high.min_value)
    else:
        sides = (low.min_value, high.max_value)
    a, b = sides
    if a is None or b is None or any(e is end for e in sides for end in (NEG_INF, POS_INF)) or _count(var, a) != 1:
        return NOTHING
    return _Solver(var, {**hint_map, **relax_map}).solved(a, kind, b)


def detect_clip_bound(expr: PrimExpr, var_list: Sequence[Var]) -> list[PrimExpr | None]:
    """Return the least and the greatest value of each variable under a condition, `[min, max, …]`; None for an
    unlimited end. Returns an empty list if a part of the condition has no such form."""
    found: dict[Var, list[PrimExpr | None]] = {v: [None, None] for v in var_list}
    for part in (p for c in conjuncts(expr) for p in _parts(c)):
        concerned = [v for v in var_list if v in free_vars(part)]
        if not concerned:
            continue
        interval = solve(part, concerned[0], Ranges()) if len(concerned) == 1 else None
        if interval is None:
            return []
        ends, (low, end) = found[concerned[0]], interval
        if low is not None:
            ends[0] = low if ends[0] is None else simplify(Max(ends[0], low), Ranges())
        if end is not None:
            last = simplify(sub(end, 1), Ranges())
            ends[1] = last if ends[1] is None else simplify(Min(ends[1], last), Ranges())
    return [e for ends in found.values() for e in ends]


def _parts(c: PrimExpr) -> list[PrimExpr]:
    """Return comparisons with the operands of a minimum or maximum that are equivalent to one with it."""
    if isinstance(c, Not) and isinstance(c.a, Comparison) and type(c.a) in _FLIPPED:
        opposite = {LT: GE, GE: LT, LE: GT, GT: LE, EQ: NE, NE: EQ}
        return _parts(opposite[type(c.a)](c.a.a, c.a.b))
    if (isinstance(c, (GT, GE)) and isinstance(c.a, Min)) or (isinstance(c, (LT, LE)) and isinstance(c.a, Max)):
        return [*_parts(type(c)(c.a.a, c.b)), *_parts(type(c)(c.a.b, c.b))]
    if (isinstance(c, (LT, LE)) and isinstance(c.b, Min)) or (isinstance(c, (GT, GE)) and isinstance(c.b, Max)):
        return [*_parts(type(c)(c.a, c.b.a)), *_parts(type(c)(c.a, c.b.b))]
    return [c]


def detect_common_subexpr(expr: PrimExpr, threshold: int) -> dict[PrimExpr, int]:
    """Return the subexpressions that occur at least `threshold` times, with their numbers of occurrences; the parts of
    one that occurs several times count once."""
    counts: Counter[PrimExpr] = Counter()
    for e in walk(expr):
        counts.update(o for o in e.operands() if o.operands())
    return {e: n for e, n in counts.items() if n >= threshold}


def narrow_predicate_expression(expr: PrimExpr, free_parameters: Mapping[Var, Range]) -> PrimExpr:
    """Return a condition without the given variables that implies `expr` for all their values.

    Where no such condition is found, as for memory, remainders and divisions by one of the variables, that part is
    False.
    """
    ends = {v: (simplify(cast(v.dtype, r.min), Ranges()),
                simplify(cast(v.dtype, sub(add(r.min, r.extent), 1)), Ranges()))
            for v, r in free_parameters.items()}
    return _Narrowing(ends).condition(expr, True)


_UNORDERED: Final = (Load, Call, FloorMod, TruncMod)
"""Expressions whose values do not follow from the ends of ranges."""


class _Narrowing:
    """Replaces variables by the ends of their ranges such that a condition only becomes stronger."""

    def __init__(self, ends: Mapping[Var, tuple[PrimExpr, PrimExpr]]) -> None:
        self.ends = ends

    def condition(self, e: PrimExpr, wanted: bool) -> PrimExpr:
        """Return a condition that implies `e`, or with `wanted=False` one that `e` implies."""
        if isinstance(e, (And, Or)):
            return type(e)(self.condition(e.a, wanted), self.condition(e.b, wanted))
        if isinstance(e, Not):
            inner = self.condition(e.a, not wanted)
            return IntImm(BOOL, not inner.value) if isinstance(inner, IntImm) else Not(inner)
        if isinstance(e, (EQ, NE)) and self._has_ends(e):
            pair = (LE(e.a, e.b), LE(e.b, e.a)) if isinstance(e, EQ) else (LT(e.a, e.b), LT(e.b, e.a))
            return (all_of if isinstance(e, EQ) else any_of)(*(self.condition(c, wanted) for c in pair))
        if isinstance(e, (LT, LE, GT, GE)):
            greater = isinstance(e, (GT, GE)) == wanted
            a, b = self.value(e.a, not greater), self.value(e.b, greater)
            if a is None or b is None:
                return IntImm(BOOL, not wanted)
            return type(e)(a, b)
        return IntImm(BOOL, not wanted) if self._is_unknown(e) or self._has_ends(e) else e

    def _has_ends(self, e: PrimExpr) -> bool:
        return any(v in self.ends for v in free_vars(e)) or self._is_unknown(e)

    def _is_unknown(self, e: PrimExpr) -> bool:
        return any(isinstance(x, _UNORDERED) for x in walk(e))

    def value(self, e: PrimExpr, largest: bool) -> PrimExpr | None:
        """Return the greatest or the least value of an expression over the ranges; None if it is not monotonic."""
        if isinstance(e, Var):
            return self.ends[e][largest] if e in self.ends else e
        if not self._has_ends(e):
            return e
        if isinstance(e, (Add, Sub, Min, Max)):
            a, b = self.value(e.a, largest), self.value(e.b, largest != isinstance(e, Sub))
            return None if a is None or b is None else type(e)(a, b)
        if isinstance(e, (FloorDiv, TruncDiv, Mul)) and not self._has_ends(e.b):
            positive = prove(compare(GT, e.b, IntImm(e.b.dtype, 0)), Ranges())
            inner = None if positive is None else self.value(e.a, largest == positive)
            return None if inner is None else type(e)(inner, e.b)
        return None


__all__ = ["deduce_bound", "detect_clip_bound", "detect_common_subexpr", "narrow_predicate_expression"]
