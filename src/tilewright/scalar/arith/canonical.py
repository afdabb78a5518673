"""`canonical_simplify`: integers as sums of parts of divisions, in one order, as TVM's simplifier of that name.

    canonical_simplify(y + x * 3 - x * 5 + 1, Ranges())             # y + 1 - x * 2
    canonical_simplify(x // 6 * 6 + x // 3 % 2 * 3 + x % 3)         # x

A part is `scale * ((index mod upper) div lower)`. The order of a sum is that of its scales, from the largest on, then
that of `lower` and `upper`; a positive constant precedes the negative parts. The compiler itself uses `simplify`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from math import gcd, inf
from typing import Final

from tilewright.base.types import DataType
from tilewright.scalar import expr as E
from tilewright.scalar.arith.bounds import bounds
from tilewright.scalar.arith.linear import LinearForm, expression
from tilewright.scalar.arith.ranges import Ranges
from tilewright.scalar.arith.rewrite import Rewriter
from tilewright.scalar.arith.simplify import difference, is_index
from tilewright.scalar.arith.solve import conjuncts
from tilewright.scalar.expr import GE, LT, IntImm, PrimExpr

_ARITHMETIC: Final = (E.Add, E.Sub, E.Mul, E.FloorDiv, E.FloorMod, E.TruncDiv, E.TruncMod, E.Cast)


@dataclass(frozen=True, slots=True)
class Part:
    """`scale * ((index mod upper) div lower)`, where `lower` divides `upper`; without `upper`, there is no remainder.

    The divisions round down, or towards zero if `truncated`.
    """

    index: PrimExpr
    lower: int = 1
    upper: int | None = None
    scale: int = 1
    truncated: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether the part has no division."""
        return self.lower == 1 and self.upper is None

    def rounds_as(self, truncated: bool) -> bool:
        return self.is_plain or self.truncated == truncated

    def joins(self, other: Part) -> bool:
        """Return whether both differ in their scales only."""
        return self.index is other.index and (self.lower, self.upper) == (other.lower, other.upper) and other.rounds_as(
            self.truncated)

    def text(self, scale: int) -> PrimExpr:
        """Return the part as an expression, with another scale."""
        e = self.index
        if self.upper is not None:
            e = (E.truncmod if self.truncated else E.floormod)(e, E.const(self.upper, e.dtype))
        if self.lower != 1:
            e = (E.truncdiv if self.truncated else E.floordiv)(e, E.const(self.lower, e.dtype))
        return e if scale == 1 else E.mul(e, E.const(scale, e.dtype))


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of parts and a constant. Parts of one index follow each other, those with the largest `lower` first."""

    parts: tuple[Part, ...] = ()
    const: int = 0
    is_part: bool = False
    """Whether the sum is a single part that is no result of an addition."""

    def plus(self, other: Sum, scale: int = 1) -> Sum:
        parts = list(self.parts)
        for p in other.parts:
            _insert(parts, replace(p, scale=p.scale * scale))
        return Sum(tuple(p for p in parts if p.scale), self.const + scale * other.const)

    def times(self, k: int) -> Sum:
        if not k:
            return Sum()
        return Sum(tuple(replace(p, scale=p.scale * k) for p in self.parts), self.const * k, self.is_part)

    def separated(self, c: int) -> tuple[Sum, Sum]:
        """Return the part of the sum whose scales and constant are multiples of `c`, and the rest."""
        exact, rest = ([p for p in self.parts if (p.scale % c == 0) == whole] for whole in (True, False))
        whole = self.const % c == 0
        return Sum(tuple(exact), self.const if whole else 0), Sum(tuple(rest), 0 if whole else self.const)

    def over(self, c: int) -> Sum:
        """Return the quotient by a number that divides all scales and the constant."""
        return Sum(tuple(replace(p, scale=p.scale // c) for p in self.parts), self.const // c)


def _insert(parts: list[Part], new: Part) -> None:
    """Add a part to the parts of the same index."""
    at = next((k for k, p in enumerate(parts) if p.index is new.index), len(parts))
    while at < len(parts) and parts[at].index is new.index and parts[at].lower >= new.lower:
        if parts[at].joins(new):
            parts[at] = replace(parts[at], scale=parts[at].scale + new.scale)
            return
        at += 1
    parts.insert(at, new)


def _merged(parts: Sequence[Part]) -> list[Part]:
    """(x // 6) * 6 + (x // 3 % 2) * 3 -> (x // 3) * 3, and so on; the parts in the order of a text."""
    found = list(parts)
    while (pair := _mergeable(found)) is not None:
        a, b = pair
        left = [p for p in found if p is not a and p is not b]
        _insert(left, replace(b, upper=a.upper))
        found = [p for p in left if p.scale]
    return sorted(found, key=lambda p: (-p.scale, -p.lower, -inf if p.upper is None else -p.upper))


def _mergeable(parts: Sequence[Part]) -> tuple[Part, Part] | None:
    """Return a part, and one of the same index and division with which it makes a single part."""
    for a in parts:
        for b in parts:
            if (
                b is not a and b.index is a.index and b.upper == a.lower and a.scale % b.scale == 0
                and b.upper is not None and a.lower == a.scale // b.scale * b.lower and a.rounds_as(b.truncated)
            ):
                return a, b
    return None


@dataclass(slots=True)
class Canonicalizer(Rewriter):
    """Rewrites expressions, and integers to sums of parts."""

    sums: dict[PrimExpr, Sum] = field(default_factory=dict)

    def of(self, e: PrimExpr) -> PrimExpr:
        if isinstance(e, _ARITHMETIC) and is_index(e.dtype):
            return self.text(self.sum_of(e), e.dtype)
        return Rewriter.of(self, e)

    def within(self, condition: PrimExpr) -> Rewriter:
        """Return a simplifier that assumes a condition, also where it bounds a sum."""
        found = Rewriter.within(self, condition)
        facts = dict(found.ranges.facts)
        for c in conjuncts(condition):
            if isinstance(c, E.Comparison) and is_index(c.operands()[0].dtype):
                kind, d = difference(c, found.ranges)
                if len(d.coefs) > 1 and kind in (LT, GE):
                    at_least = d if kind is GE else d.times(-1).plus(LinearForm({}, -1))  # at least 0
                    form = LinearForm(at_least.coefs)
                    facts[expression(form, c.operands()[0].dtype)] = (-at_least.const, None)
        if len(facts) == len(found.ranges.facts):
            return found
        return found.over(Ranges(found.ranges.known, found.ranges.ends, facts))

    def text(self, s: Sum, dtype: DataType) -> PrimExpr:
        """Return a sum as an expression."""
        if s.is_part:
            (part,) = s.parts
            return part.text(part.scale)
        parts, total = _merged(s.parts), E.const(0, dtype)
        for p in parts:
            if p.scale > 0:
                total = E.add(total, p.text(p.scale))
        lowest = E.integer_range(dtype)[0]
        if s.const > 0 or s.const == lowest:
            total = E.add(total, E.const(s.const, dtype))
        for p in parts:
            if p.scale < 0:
                total = E.sub(total, p.text(-p.scale))
        return total if s.const >= 0 or s.const == lowest else E.sub(total, E.const(-s.const, dtype))

    # Sums of expressions.
    def sum_of(self, e: PrimExpr) -> Sum:
        found = self.sums.get(e)
        if found is None:
            found = self.sums[e] = self._sum_of(e)
        return found

    def _sum_of(self, e: PrimExpr) -> Sum:
        stated = self.fact(e)
        if stated is not None:
            return self.sum_of(stated)
        match e:
            case IntImm():
                return Sum((), e.value)
            case E.Add() | E.Sub():
                return self.sum_of(e.a).plus(self.sum_of(e.b), 1 if isinstance(e, E.Add) else -1)
            case E.Mul():
                return self.product(e)
            case E.FloorDiv() | E.FloorMod() | E.TruncDiv() | E.TruncMod():
                return self.division(e)
            case E.Cast() if is_index(e.value.dtype):
                return self.converted(e)
            case _:
                return self.atom(Rewriter.of(self, e))

    def atom(self, e: PrimExpr) -> Sum:
        """Return an expression to which no rule of rewriting applies as a part."""
        if isinstance(e, IntImm):
            return Sum((), e.value)
        return self.sum_of(e) if isinstance(e, (E.Add, E.Sub, E.Mul)) else Sum((Part(e),), 0, is_part=True)

    def product(self, e: E.Mul) -> Sum:
        a, b = self.sum_of(e.a), self.sum_of(e.b)
        if not a.parts or not b.parts:
            return b.times(a.const) if not a.parts else a.times(b.const)
        return Sum((Part(E.mul(self.text(a, e.dtype), self.text(b, e.dtype))),), 0, is_part=True)

    def converted(self, e: E.Cast) -> Sum:
        """cast(x + y * 2) -> cast(x) + cast(y) * 2, unless a value may not fit the narrower type."""
        s = self.sum_of(e.value)
        low, high = E.integer_range(e.dtype)
        if e.dtype.bits < e.value.dtype.bits:
            whole = self.text(s, e.value.dtype)
            texts = [x for p in s.parts for x in (p.index, p.text(p.scale))]
            if not low <= s.const <= high or not all(
                self._fits(x, low, high) for x in (whole, self.text(Sum(s.parts), whole.dtype), *texts)
            ):
                return Sum((Part(E.cast(e.dtype, whole)),), 0, is_part=True)
        return Sum(tuple(replace(p, index=E.cast(e.dtype, p.index)) for p in s.parts), s.const, s.is_part)

    def _fits(self, e: PrimExpr, low: int, high: int) -> bool:
        least, most = bounds(e, self.ranges)
        return least is not None and least >= low and most is not None and most <= high

    # Divisions.
    def division(self, e: E.FloorDiv | E.FloorMod | E.TruncDiv | E.TruncMod) -> Sum:
        a, b = self.sum_of(e.a), self.sum_of(e.b)
        truncated = isinstance(e, (E.TruncDiv, E.TruncMod))
        if not b.parts and b.const > 0:
            divide = self.quotient if isinstance(e, (E.FloorDiv, E.TruncDiv)) else self.remainder
            return divide(a, b.const, e.dtype, truncated)
        x, y = self.text(a, e.dtype), self.text(b, e.dtype)
        reduced = _without_common_factors(x, y)
        if reduced is None:
            return self.atom(Rewriter.of(self, type(e)(x, y)) if (x, y) != (e.a, e.b) else Rewriter.of(self, e))
        x, y, common = reduced
        found = self.sum_of(type(e)(x, y))
        if isinstance(e, (E.FloorDiv, E.TruncDiv)):
            return found
        if not found.parts:
            return self.sum_of(common).times(found.const)
        return Sum((Part(E.mul(self.text(found, e.dtype), common)),), 0, is_part=True)

    def lies_below(self, s: Sum, c: int, dtype: DataType) -> bool:
        """Return whether a sum is proved to be at least 0 and below `c`."""
        low, high = bounds(self.text(s, dtype), self.ranges)
        return low is not None and low >= 0 and high is not None and high < c

    def as_part(self, s: Sum, dtype: DataType) -> Part:
        return s.parts[0] if len(s.parts) == 1 and not s.const else Part(self.text(s, dtype))

    def quotient(self, s: Sum, c: int, dtype: DataType, truncated: bool) -> Sum:
        if s.is_part:
            return Sum() if self.lies_below(s, c, dtype) else _divided(s.parts[0], c, truncated)
        exact, rest = s.separated(c)
        if not rest.parts and not rest.const:
            return exact.over(c)
        if truncated and not (all(self.is_natural(self.text(x, dtype)) for x in (exact, rest))):
            return _truncated(s.const, c) if not s.parts else _divided(self.as_part(s, dtype), c, truncated)
        if not rest.parts:
            return exact.over(c).plus(Sum((), rest.const // c))
        if self.lies_below(rest, c, dtype):
            return exact.over(c)
        return exact.over(c).plus(_divided(self.as_part(rest, dtype), c, truncated))

    def remainder(self, s: Sum, c: int, dtype: DataType, truncated: bool) -> Sum:
        if s.is_part:
            return s if self.lies_below(s, c, dtype) else self.modulo(s.parts[0], c, dtype, truncated)
        if truncated:
            s = self.with_smaller_constant(s, c, dtype)
        exact, rest = s.separated(c)
        if not rest.parts and not rest.const:
            return Sum()
        if truncated and not (all(self.is_natural(self.text(x, dtype)) for x in (exact, rest))):
            return self.modulo(self.as_part(s, dtype), c, dtype, truncated) if s.parts else Sum(
                (), s.const - c * _truncated(s.const, c).const)
        if not truncated:
            rest = Sum(rest.parts, rest.const % c)
        if not rest.parts:
            return Sum((), rest.const % c)
        if self.lies_below(rest, c, dtype):
            return self.atom(self.text(rest, dtype)) if len(rest.parts) == 1 else Sum(
                (Part(self.text(rest, dtype)),), 0, is_part=True)
        return self.modulo(self.as_part(rest, dtype), c, dtype, truncated)

    def with_smaller_constant(self, s: Sum, c: int, dtype: DataType) -> Sum:
        """Return a sum with the same remainder towards zero, whose constant is reduced if neither sum is negative."""
        low, _ = bounds(self.text(s, dtype), self.ranges)
        const = s.const - c * _truncated(s.const, c).const
        return Sum(s.parts, const) if low is not None and low >= 0 and low - s.const + const >= 0 else s

    def modulo(self, p: Part, c: int, dtype: DataType, truncated: bool) -> Sum:
        """Return the remainder of a part."""
        if p.scale % c == 0:
            return Sum()
        whole = Sum((Part(p.text(p.scale), 1, c, 1, truncated),), 0, is_part=True)
        if c % p.scale or not p.rounds_as(truncated):
            return whole
        times = c // p.scale
        if times < 0:
            mod = E.truncmod if truncated else E.floormod
            return Sum((Part(mod(p.text(1), E.const(times, dtype)), scale=p.scale),), 0, is_part=True)
        upper = p.lower * times
        if p.upper is None:
            return Sum((replace(p, upper=upper, truncated=truncated),), 0, is_part=True)
        if p.upper <= upper:
            return Sum((p,), 0, is_part=True)
        if p.upper % upper:
            return whole
        inner = self.remainder(self.sum_of(p.index), upper, dtype, truncated)
        return (inner if p.lower == 1 else self.quotient(inner, p.lower, dtype, truncated)).times(p.scale)


def _truncated(value: int, c: int) -> Sum:
    """Return the quotient of two numbers rounded towards 0."""
    return Sum((), value // c if value >= 0 else -(-value // c))


def _divided(p: Part, c: int, truncated: bool) -> Sum:
    """Return the quotient of a part by a positive number."""
    if p.scale % c == 0:
        return Sum((replace(p, scale=p.scale // c),), 0, is_part=True)
    if p.scale > 0 and c % p.scale == 0 and p.rounds_as(truncated):
        lower = p.lower * (c // p.scale)
        if p.upper is None or p.upper % lower == 0:
            return Sum((Part(p.index, lower, p.upper, 1, truncated),), 0, is_part=True)
        if p.upper <= lower:
            return Sum()
        return Sum((Part(replace(p, lower=1).text(1), lower, None, 1, truncated),), 0, is_part=True)
    return Sum((Part(p.text(p.scale), c, None, 1, truncated),), 0, is_part=True)


def _factors(e: PrimExpr) -> tuple[list[PrimExpr], int]:
    """Return the factors of a product, and its constant factor."""
    if isinstance(e, IntImm):
        return [], e.value
    if isinstance(e, E.Mul):
        (a, k), (b, m) = _factors(e.a), _factors(e.b)
        return [*a, *b], k * m
    return [e], 1


def _without_common_factors(a: PrimExpr, b: PrimExpr) -> tuple[PrimExpr, PrimExpr, PrimExpr] | None:
    """Return the two operands of a division without their common factors, and the product of these; None without any.

    A common factor is not 0 where the division has a value.
    """
    (x, k), (y, m) = _factors(a), _factors(b)
    common, left = Counter(x) & Counter(y), Counter[PrimExpr]()
    number = gcd(k, m)
    if not m or (not common and number == 1):
        return None

    def split(factors: Sequence[PrimExpr]) -> tuple[list[PrimExpr], list[PrimExpr]]:
        left.clear()
        left.update(common)
        kept, taken = list[PrimExpr](), list[PrimExpr]()
        for f in factors:
            (taken if left[f] > 0 else kept).append(f)
            left[f] -= 1
        return kept, taken

    def product(factors: Sequence[PrimExpr], times: int) -> PrimExpr:
        if not factors:
            return E.const(times, a.dtype)
        return E.mul(reduce(E.mul, factors), E.const(times, a.dtype))

    rest, _ = split(x)
    others, shared = split(y)
    return product(rest, k // number), product(others, m // number), product(shared, number)


def canonical_simplify(e: PrimExpr, ranges: Ranges) -> PrimExpr:
    """Return an equal expression in canonical form. Raises `CompileError` for a division by the constant zero."""
    return Canonicalizer(ranges).of(e)


__all__ = ["canonical_simplify"]
