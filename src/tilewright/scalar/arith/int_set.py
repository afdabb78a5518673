"""Intervals of integers with symbolic ends, under TVM's names, and the interval of an expression over intervals.

    evaluator = SetEvaluator(Analyzer(), {x: IntervalSet(0, 10)})
    evaluator.of(x + y)                     # [y, y + 10]
    evaluator.of(x * 2 - 1)                 # [-1, 19]

`bounds.py` computes with numbers; here an end may be any expression.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from tilewright.scalar.expr import (
    Add,
    Broadcast,
    Cast,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    PrimExpr,
    Ramp,
    Select,
    Sub,
    TruncDiv,
    TruncMod,
    Value,
    Var,
    add,
    cast,
    floordiv,
    literal,
    maximum,
    minimum,
    mul,
    sub,
    truncdiv,
)
from tilewright.scalar.range import Range
from tilewright.scalar.walk import free_vars

if TYPE_CHECKING:
    from tilewright.scalar.arith.analyzer import Analyzer

NEG_INF: Final = Var("neg_inf", "handle")
POS_INF: Final = Var("pos_inf", "handle")
_MOST_STEPS: Final = 8
"""Largest number of times that the ends of intervals are replaced by those of their variables."""


def neg_inf() -> Var:
    """Return the symbol of an interval without a least value."""
    return NEG_INF


def pos_inf() -> Var:
    """Return the symbol of an interval without a greatest value."""
    return POS_INF


class IntSet:
    """Base of sets of integers."""

    def is_nothing(self) -> bool:
        """Return whether the set is known to be empty."""
        return False

    def is_everything(self) -> bool:
        """Return whether the set is known to contain all integers."""
        return False

    @staticmethod
    def vector(vec: PrimExpr) -> IntervalSet:
        """Return the interval of the lanes of a vector."""
        from tilewright.scalar.arith.analyzer import Analyzer

        return SetEvaluator(Analyzer(), {}).of(vec)

    @staticmethod
    def single_point(point: Value) -> IntervalSet:
        """Return the set of one value."""
        return IntervalSet(point, point)


class IntervalSet(IntSet):
    """The integers from `min_value` to `max_value`, both included; `neg_inf` and `pos_inf` for unlimited ends."""

    __slots__ = ("max_value", "min_value")

    def __init__(self, min_value: Value, max_value: Value) -> None:
        self.min_value, self.max_value = literal(min_value), literal(max_value)

    def is_nothing(self) -> bool:
        return self.min_value is POS_INF or self.max_value is NEG_INF

    def is_everything(self) -> bool:
        return self.min_value is NEG_INF and self.max_value is POS_INF

    @property
    def point(self) -> PrimExpr | None:
        """The value of a set of one value, else None."""
        return self.min_value if self.min_value is self.max_value else None

    def __repr__(self) -> str:
        return f"IntervalSet[{self.min_value}, {self.max_value}]"


class PresburgerSet(IntSet):
    """Sets of Presburger formulas are not supported; the class tells that no set is one of them."""


EVERYTHING: Final = IntervalSet(NEG_INF, POS_INF)
NOTHING: Final = IntervalSet(POS_INF, NEG_INF)


def of_range(r: Range) -> IntervalSet:
    """Return the values of a range."""
    return IntervalSet(r.min, sub(add(r.min, r.extent), 1))


def _is_infinite(e: PrimExpr) -> bool:
    return e is NEG_INF or e is POS_INF


def _plus(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    return a if _is_infinite(a) else b if _is_infinite(b) else add(a, b)


def _minus(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    return a if _is_infinite(a) else NEG_INF if b is POS_INF else POS_INF if b is NEG_INF else sub(a, b)


def least(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """Return the smaller end."""
    if a is NEG_INF or b is NEG_INF:
        return NEG_INF
    return b if a is POS_INF else a if b is POS_INF else minimum(a, b)


def greatest(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """Return the larger end."""
    if a is POS_INF or b is POS_INF:
        return POS_INF
    return b if a is NEG_INF else a if b is NEG_INF else maximum(a, b)


class SetEvaluator:
    """Computes intervals of expressions; `dom` has those of variables, and other variables stand for themselves."""

    def __init__(self, analyzer: Analyzer, dom: Mapping[Var, IntSet]) -> None:
        self.analyzer, self.dom = analyzer, dom

    def of(self, e: PrimExpr, steps: int = _MOST_STEPS) -> IntervalSet:
        """Return an interval that contains all values of `e`, in every lane."""
        if e.dtype.lanes == 1 and not any(v in self.dom for v in free_vars(e)):
            return IntervalSet(e, e)
        rule = _RULES.get(type(e))
        return self._simple(rule(self, e, steps) if rule is not None and steps else EVERYTHING)

    def _simple(self, s: IntervalSet) -> IntervalSet:
        if s.is_everything():
            return EVERYTHING
        low, high = (e if _is_infinite(e) else self.analyzer.simplify(e) for e in (s.min_value, s.max_value))
        return IntervalSet(low, high)

    def var(self, e: Var, steps: int) -> IntervalSet:
        found = self.dom[e]
        if not isinstance(found, IntervalSet):
            return EVERYTHING
        if found.point is e:
            return found
        ends = [n if _is_infinite(n) else self.of(n, steps - 1) for n in (found.min_value, found.max_value)]
        low, high = ends
        return IntervalSet(low.min_value if isinstance(low, IntervalSet) else low,
                           high.max_value if isinstance(high, IntervalSet) else high)

    def sum(self, e: Add | Sub, steps: int) -> IntervalSet:
        a, b = self.of(e.a, steps), self.of(e.b, steps)
        if isinstance(e, Add):
            return IntervalSet(_plus(a.min_value, b.min_value), _plus(a.max_value, b.max_value))
        return IntervalSet(_minus(a.min_value, b.max_value), _minus(a.max_value, b.min_value))

    def sign(self, e: PrimExpr) -> int:
        """Return 1 for a positive expression or 0, -1 for a negative one, and 0 if neither is proved."""
        if self.analyzer.can_prove_greater_equal(e, 0):
            return 1
        return -1 if self.analyzer.can_prove_less(e, 1) else 0

    def product(self, e: Mul, steps: int) -> IntervalSet:
        a, b = self.of(e.a, steps), self.of(e.b, steps)
        if b.point is None:
            a, b = b, a
        factor = b.point
        if factor is None:
            ends = (a.min_value, a.max_value, b.min_value, b.max_value)
            if not all(isinstance(x, IntImm) for x in ends):
                return EVERYTHING
            corners = [mul(x, y) for x in ends[:2] for y in ends[2:]]
            values = sorted(corners, key=lambda x: x.value if isinstance(x, IntImm) else 0)
            return IntervalSet(values[0], values[-1])
        return self.scaled(a, self.sign(factor), lambda x: mul(x, factor))

    def scaled(self, a: IntervalSet, sign: int, f: Callable[[PrimExpr], PrimExpr]) -> IntervalSet:
        """Return the interval of `f`, which rises if `sign` is 1 and falls if it is -1."""
        if not sign:
            return EVERYTHING
        low, high = (a.min_value, a.max_value) if sign > 0 else (a.max_value, a.min_value)
        return IntervalSet(NEG_INF if _is_infinite(low) else f(low), POS_INF if _is_infinite(high) else f(high))

    def quotient(self, e: FloorDiv | TruncDiv, steps: int) -> IntervalSet:
        a, divisor = self.of(e.a, steps), self.of(e.b, steps).point
        if divisor is None or divisor is IntImm(divisor.dtype, 0):
            return EVERYTHING
        divide = floordiv if isinstance(e, FloorDiv) else truncdiv
        return self.scaled(a, self.sign(divisor), lambda x: divide(x, divisor))

    def remainder(self, e: FloorMod | TruncMod, steps: int) -> IntervalSet:
        a, divisor = self.of(e.a, steps), self.of(e.b, steps).point
        if divisor is None or self.sign(divisor) <= 0:
            return EVERYTHING
        low, high = a.min_value, a.max_value
        positive = not _is_infinite(low) and self.analyzer.can_prove_greater_equal(low, 0)
        if (isinstance(e, FloorMod) or positive) and not _is_infinite(low) and not _is_infinite(high):
            first = self.analyzer.simplify(floordiv(low, divisor))
            if self.analyzer.can_prove_equal(floordiv(high, divisor), first):
                skipped = mul(divisor, first)
                return IntervalSet(sub(low, skipped), sub(high, skipped))
        most = sub(divisor, 1)
        return IntervalSet(literal(0, e.dtype) if isinstance(e, FloorMod) or positive else sub(0, most), most)

    def extreme(self, e: Min | Max, steps: int) -> IntervalSet:
        a, b = self.of(e.a, steps), self.of(e.b, steps)
        choose = least if isinstance(e, Min) else greatest
        return IntervalSet(choose(a.min_value, b.min_value), choose(a.max_value, b.max_value))

    def either(self, e: Select, steps: int) -> IntervalSet:
        return self.union((self.of(e.true_value, steps), self.of(e.false_value, steps)))

    def union(self, sets: Iterable[IntervalSet]) -> IntervalSet:
        """Return the least interval that contains all sets."""
        low: PrimExpr = POS_INF
        high: PrimExpr = NEG_INF
        for s in sets:
            low, high = least(low, s.min_value), greatest(high, s.max_value)
        return self._simple(IntervalSet(low, high)) if low is not POS_INF else NOTHING

    def converted(self, e: Cast, steps: int) -> IntervalSet:
        if not (e.dtype.is_integer and e.value.dtype.is_integer) or e.dtype.bits < e.value.dtype.bits:
            return EVERYTHING
        return self.scaled(self.of(e.value, steps), 1, lambda x: cast(e.dtype.element, x))

    def lanes(self, e: Ramp, steps: int) -> IntervalSet:
        base, step = self.of(e.base, steps), self.of(e.stride, steps).point
        if step is None or not (sign := self.sign(step)):
            return EVERYTHING
        last = mul(step, e.dtype.lanes - 1)
        zero = literal(0, last.dtype)
        low, high = (zero, last) if sign > 0 else (last, zero)
        return IntervalSet(_plus(base.min_value, low), _plus(base.max_value, high))

    def spread(self, e: Broadcast, steps: int) -> IntervalSet:
        return self.of(e.value, steps)


_RULES: Final[dict[type[PrimExpr], Callable[..., IntervalSet]]] = {
    Var: SetEvaluator.var, Add: SetEvaluator.sum, Sub: SetEvaluator.sum, Mul: SetEvaluator.product,
    FloorDiv: SetEvaluator.quotient, TruncDiv: SetEvaluator.quotient, FloorMod: SetEvaluator.remainder,
    TruncMod: SetEvaluator.remainder, Min: SetEvaluator.extreme, Max: SetEvaluator.extreme,
    Select: SetEvaluator.either, Cast: SetEvaluator.converted, Ramp: SetEvaluator.lanes,
    Broadcast: SetEvaluator.spread,
}


def union_lower_bound(sets: Iterable[IntervalSet]) -> IntervalSet:
    """Return an interval without gaps that is contained in the union of the sets: the sets that meet the first one."""
    from tilewright.scalar.arith.analyzer import Analyzer

    analyzer = Analyzer()
    left = [s for s in sets if not s.is_nothing()]
    if not left:
        return NOTHING
    found, changed = left.pop(0), True
    while changed:
        changed = False
        for s in left:
            if _meets(found, s, analyzer) and _meets(s, found, analyzer):
                low, high = least(found.min_value, s.min_value), greatest(found.max_value, s.max_value)
                found, changed = IntervalSet(low, high), True
                left.remove(s)
                break
    return SetEvaluator(analyzer, {})._simple(found)


def _meets(a: IntervalSet, b: IntervalSet, analyzer: Analyzer) -> bool:
    """Return whether `b` is proved to begin at most one after the end of `a`."""
    if a.max_value is POS_INF or b.min_value is NEG_INF:
        return True
    return analyzer.can_prove(b.min_value <= add(a.max_value, 1))


__all__ = [
    "EVERYTHING", "NOTHING", "IntSet", "IntervalSet", "PresburgerSet", "SetEvaluator", "neg_inf",
    "of_range", "pos_inf", "union_lower_bound",
]
