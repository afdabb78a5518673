"""Affine maps of iterators: indices as sums of splits and fusions of loop variables, under TVM's names.

    x, y = Var("x"), Var("y")                                       x in [0, 3), y in [0, 4)
    detect_iter_map([y * 3 + x], {x: Range(0, 3), y: Range(0, 4)})  one iterator of extent 12
    detect_iter_map([x // 2, x % 2], {x: Range(0, 4)})              splits of x with extents 2 and 2

An index is `base + sum(scale * split)`. A split of an iterator `m` is `m // lower_factor % extent`. An iterator is a
variable, or a fusion: a sum of splits that takes each value from 0 to its extent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Any

from tilewright.base.node import node
from tilewright.base.types import BOOL
from tilewright.scalar.arith.iter_nodes import IterMapExpr, IterMark, IterSplitExpr, IterSumExpr, expression_of
from tilewright.scalar.arith.polynomials import exact_quotient, holds, is_number, is_same, polynomial, whole_quotient
from tilewright.scalar.arith.ranges import Ranges
from tilewright.scalar.arith.simplify import simplify
from tilewright.scalar.arith.solve import conjuncts
from tilewright.scalar.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    Add,
    Comparison,
    FloorDiv,
    FloorMod,
    IntImm,
    Mul,
    PrimExpr,
    Sub,
    Value,
    Var,
    add,
    cast,
    floordiv,
    floormod,
    literal,
    logical_and,
    maximum,
    minimum,
    mul,
    sub,
)
from tilewright.scalar.range import Range
from tilewright.scalar.walk import free_vars, walk


class IterMapLevel(IntEnum):
    """How much of a map is checked: each point reached exactly once, or at least once, or nothing."""

    Bijective = 0
    Surjective = 1
    NoCheck = 3

    @staticmethod
    def from_str(name: str) -> IterMapLevel:
        """Return the level of that name in any case, such as "bijective". Raises `ValueError`."""
        for level in IterMapLevel:
            if level.name.lower() == name.lower():
                return level
        raise ValueError(f"unknown check level {name!r}; the levels are bijective, surjective and nocheck")


@node
class IterMapResult:
    """The indices as iterators, empty if there is no such form, the reasons why, and where values are padding."""

    indices: list[IterSumExpr]
    errors: list[str]
    padding_predicate: PrimExpr


class _Unsupported(Exception):
    """An expression without the form of an iterator map."""


Arg = IterSplitExpr


def _simple(e: PrimExpr) -> PrimExpr:
    return simplify(e, Ranges())


def _key(s: Arg) -> tuple[int, PrimExpr, PrimExpr]:
    return id(s.source), s.lower_factor, s.extent


@node
class _Constraint:
    """The values from `low` to before `high` that a condition leaves of a sum of splits, divided by a common scale."""

    args: tuple[Arg, ...]
    mark: IterMark
    low: PrimExpr


class IterMapper:
    """Converts expressions over the variables of `dom`."""

    def __init__(self, dom: Mapping[Var, Range], *, keep_trivial: bool = False, overlap: bool = True) -> None:
        self.keep_trivial, self.overlap = keep_trivial, overlap
        self.low: dict[Var, PrimExpr] = {}
        self.marks: dict[Var, IterMark] = {}
        for v, r in dom.items():
            low, extent = (_simple(cast(v.dtype, e)) for e in (r.min, r.extent))
            self.low[v] = low
            self.marks[v] = IterMark(v if is_number(low, 0) else sub(v, low), extent)
        self.fused: dict[Any, IterMark] = {}
        self.padded: dict[tuple[int, PrimExpr, PrimExpr], tuple[IterMark, IterMark]] = {}
        self.original: dict[int, IterMark] = {}
        """Marks before padding, by the identity of the padded one."""
        self.periods: dict[Any, PrimExpr] = {}
        """Least common multiples of the divisors of iterators."""
        self.roots: dict[int, Any] = {}
        """Keys of the splits that were padded, by the identity of the padded iterator."""
        self.overlapping: set[int] = set()
        self.constraints: list[_Constraint] = []
        self.used: set[int] = set()
        """Identities of the iterators of constraints that are used."""
        self.padding: list[PrimExpr] = []
        self.alive: list[Any] = []

    def restart(self) -> None:
        """Forget everything but the common multiples of divisors."""
        self.padding.clear()
        self.padded.clear()
        self.constraints = []
        self.used.clear()

    # Sums.
    def sum_of(self, e: PrimExpr, lenient: bool = False) -> IterSumExpr:
        """Return an expression as a sum of splits. A part of another form raises `_Unsupported`, or, with `lenient`,
        becomes a part of the base."""
        if not any(v in self.marks for v in free_vars(e)):
            return IterSumExpr((), e)
        if isinstance(e, Var):
            mark = self.marks[e]
            if is_number(mark.extent, 1) and not self.keep_trivial:
                return IterSumExpr((), self.low[e])
            one, zero = IntImm(e.dtype, 1), self.low[e]
            return IterSumExpr((Arg(mark, one, mark.extent, one),), zero)
        if isinstance(e, (Add, Sub)):
            a, b = self.sum_of(e.a, lenient), self.sum_of(e.b, lenient)
            return _plus(a, b if isinstance(e, Add) else _times(b, IntImm(e.dtype, -1)))
        if isinstance(e, Mul):
            a, b = self.sum_of(e.a, lenient), self.sum_of(e.b, lenient)
            if not b.args or not a.args:
                return _times(a, b.base) if not b.args else _times(b, a.base)
        if isinstance(e, (FloorDiv, FloorMod)):
            divisor = self.sum_of(e.b, lenient)
            if not divisor.args:
                try:
                    return self.divided(self.sum_of(e.a, lenient), _simple(divisor.base), isinstance(e, FloorDiv))
                except _Unsupported:
                    if not lenient:
                        raise
        if lenient:
            return IterSumExpr((), e)
        raise _Unsupported(f"{e} is not a sum of splits of iterators")

    def divided(self, x: IterSumExpr, by: PrimExpr, quotient: bool) -> IterSumExpr:
        """Return `x // by`, or `x % by` without `quotient`."""
        zero = IntImm(by.dtype, 0)
        if is_number(by, 1):
            return x if quotient else IterSumExpr((), zero)
        if not x.args:
            return IterSumExpr((), _simple((floordiv if quotient else floormod)(x.base, by)))
        split, offset = self.single(x)
        base = _simple(add(x.base, offset))
        larger = exact_quotient(split.scale, by)
        if larger is not None:
            whole = _simple(floordiv(base, by))
            return IterSumExpr((replace(split, scale=larger),), whole) if quotient else IterSumExpr(
                (), _simple(floormod(base, by)))
        smaller = exact_quotient(by, split.scale)
        steps = exact_quotient(base, split.scale) if smaller is not None else None
        if smaller is None or steps is None:
            raise _Unsupported(f"{split.scale} and {by} do not divide each other")
        inner, skipped = self.within(replace(split, scale=IntImm(by.dtype, 1)), steps, smaller)
        rest = exact_quotient(skipped, smaller) or _simple(floordiv(skipped, smaller))
        count = whole_quotient(inner.extent, smaller)
        if count is None:
            raise _Unsupported(f"{inner.extent} is not a multiple of {smaller}")
        if quotient:
            found = replace(inner, lower_factor=_simple(mul(inner.lower_factor, smaller)), extent=count)
            return self.sum_without_ones(found, rest)
        return self.sum_without_ones(replace(inner, extent=smaller, scale=split.scale), zero)

    def sum_without_ones(self, split: Arg, base: PrimExpr) -> IterSumExpr:
        return IterSumExpr(() if is_number(split.extent, 1) and not self.keep_trivial else (split,), base)

    def within(self, split: Arg, steps: PrimExpr, by: PrimExpr) -> tuple[Arg, PrimExpr]:
        """Return a split of which `by` divides the extent, and a multiple of `by`, whose sum is `split + steps`. The
        iterator is padded on both sides if necessary."""
        self.alive.append(split.source)
        root = self.roots.get(id(split.source))
        if root is None:
            mark = split.source
            root = _key(Arg(mark, IntImm(by.dtype, 1), mark.extent, split.scale))
        known, needed = self.periods.get(root), _simple(mul(split.lower_factor, by))
        self.periods[root] = period = needed if known is None else _common_multiple(known, needed)
        is_part = not is_number(split.lower_factor, 1) or split.extent is not split.source.extent
        if id(split.source) in self.roots or is_part:
            period = by
        before = _simple(floormod(steps, period))
        if is_number(before, 0) and whole_quotient(split.extent, period) is not None:
            return split, steps
        mark = self.padded_mark(split, before, period)
        self.roots[id(mark)] = _key(split)
        return Arg(mark, IntImm(by.dtype, 1), mark.extent, split.scale), _simple(sub(steps, before))

    def padded_mark(self, split: Arg, before: PrimExpr, period: PrimExpr) -> IterMark:
        """Return the iterator `split + before`, with an extent that is a multiple of `period`."""
        key = (*_key(split), before, period)
        known = self.padded.get(key)  # type: ignore[arg-type]
        if known is None:
            one = IntImm(period.dtype, 1)
            total = _simple(add(split.extent, before))
            count = whole_quotient(total, period)
            extent = total if count is not None else _simple(
                mul(floordiv(add(total, sub(period, 1)), period), period))
            mark = IterMark(IterSumExpr((replace(split, scale=one),), before), extent)
            known = (mark, IterMark(mark.source, split.extent))
            self.padded[key] = known  # type: ignore[index]
            self.original[id(mark)] = known[1]
            value = expression_of(mark.source)
            whole, rest = floordiv(value, period), floormod(value, period)
            ends: list[PrimExpr] = []
            if not is_number(before, 0):  # less than a period
                ends.append(logical_and(whole.equal(0), rest < before))
            if count is None:
                last, used = _simple(floordiv(total, period)), _simple(floormod(total, period))
                is_single = is_number(_simple(sub(period, used)), 1)
                ends.append(logical_and(whole.equal(last), rest.equal(used) if is_single else rest >= used))
            self.padding += [ends[0] | ends[1]] if len(ends) == 2 else ends
        return known[0]

    # Fusion.
    def single(self, x: IterSumExpr) -> tuple[Arg, PrimExpr]:
        """Return one split that equals the splits of a sum, and an offset. Raises `_Unsupported`."""
        args, offset = self.constrained(_merged(x.args))
        args = _merged(args)
        if len(args) == 1:
            return args[0], offset
        order, extent, overlaps = self.ordered(args)
        scale = order[0].scale
        parts = tuple(replace(a, scale=_divided(a.scale, scale)) for a in reversed(order))
        key = tuple((*_key(a), a.scale) for a in parts)
        mark = self.fused.get(key)
        if mark is None:
            zero = IntImm(scale.dtype, 0)
            mark = self.fused[key] = IterMark(IterSumExpr(parts, zero), extent)
            if overlaps:
                self.overlapping.add(id(mark))
        return Arg(mark, IntImm(scale.dtype, 1), mark.extent, scale), offset

    def ordered(self, args: Sequence[Arg]) -> tuple[list[Arg], PrimExpr, bool]:
        """Return splits such that each scale is the extent of all splits before it, times the first scale, with the
        extent of all; overlapping splits have smaller scales."""
        for first in _by_scale(args):
            left = [a for a in args if a is not first]
            order, extent, overlaps = [first], first.extent, False
            while left:
                found = next((a for a in left if is_same(a.scale, mul(first.scale, extent))), None)
                if found is not None:
                    extent = _simple(mul(extent, found.extent))
                elif self.overlap and is_number(first.scale, 1) and (found := _overlapped(left, extent)) is not None:
                    overlaps = True
                    extent = _simple(add(mul(found.scale, sub(found.extent, 1)), extent))
                else:
                    break
                order.append(found)
                left.remove(found)
            if not left:
                return order, extent, overlaps
        raise _Unsupported("the scales of " + ", ".join(str(a.scale) for a in args) + " do not follow from the extents")

    # Conditions.
    def constrained(self, args: Sequence[Arg]) -> tuple[list[Arg], PrimExpr]:
        """Return splits with each constrained sum as one split, and the offset that this adds."""
        found = list(args)
        offset: PrimExpr = IntImm(found[0].scale.dtype, 0) if found else literal(0)
        for c in self.constraints:
            keys = {_key(a): a for a in found}
            used = [keys.get(_key(a)) for a in c.args]
            if all(u is None for u in used):
                continue
            if any(u is None for u in used):
                raise _Unsupported("a part of a constrained sum is used alone")
            factors = [exact_quotient(u.scale, a.scale) for u, a in zip(used, c.args, strict=True) if u is not None]
            factor = factors[0]
            if factor is None or not all(f is not None and is_same(f, factor) for f in factors):
                raise _Unsupported("a constrained sum is used with other scales")
            self.used.add(id(c.mark))
            found = [a for a in found if _key(a) not in {_key(u) for u in used if u is not None}]
            one = IntImm(factor.dtype, 1)
            if not is_number(c.mark.extent, 1):
                found.append(Arg(c.mark, one, c.mark.extent, factor))
            offset = _simple(add(offset, mul(c.low, factor)))
        return found, offset

    def constrain(self, predicate: PrimExpr) -> None:
        """Add the conditions on iterators, those inside of others first. Raises `_Unsupported`."""
        left = sorted(
            (c for c in conjuncts(predicate) if any(v in self.marks for v in free_vars(c))), key=lambda c: len(walk(c)))
        while left:
            args, low, high = self.bound_of(left[0])
            key = tuple((*_key(a), a.scale) for a in args)
            later: list[PrimExpr] = []
            for c in left[1:]:
                others, least, most = self.bound_of(c)
                if tuple((*_key(a), a.scale) for a in others) != key:
                    later.append(c)
                    continue
                if least is not None:
                    low = least if low is None else _simple(_largest(low, least))
                if most is not None:
                    high = most if high is None else _simple(_smallest(high, most))
            left = later
            if args:
                self.add_constraint(args, low, high)

    def bound_of(self, c: PrimExpr) -> tuple[tuple[Arg, ...], PrimExpr | None, PrimExpr | None]:
        """Return the splits of a comparison, and the ends that it gives: `low <= sum < high`."""
        if not isinstance(c, Comparison) or not isinstance(c, (LT, LE, GT, GE, EQ)) or not c.a.dtype.is_integer:
            raise _Unsupported(f"{c} is not a bound of a sum of iterators")
        x = _plus(self.sum_of(c.a), _times(self.sum_of(c.b), IntImm(c.a.dtype, -1)))
        args, edge = x.args, _simple(sub(0, x.base))
        kind: type[Comparison] = type(c)
        if args and all(isinstance(a.scale, IntImm) and a.scale.value < 0 for a in args):
            args, edge = tuple(replace(a, scale=_simple(sub(0, a.scale))) for a in args), _simple(sub(0, edge))
            kind = {LT: GT, GT: LT, LE: GE, GE: LE, EQ: EQ}[kind]
        args = tuple(sorted(args, key=lambda a: (-_number(a.scale), str(a.source.source), str(a.lower_factor))))
        after = _simple(add(edge, 1))
        return args, {GT: after, GE: edge, EQ: edge}.get(kind), {LT: edge, LE: after, EQ: after}.get(kind)

    def add_constraint(self, args: tuple[Arg, ...], low: PrimExpr | None, high: PrimExpr | None) -> None:
        split, offset = self.single(IterSumExpr(args, IntImm(args[0].scale.dtype, 0)))
        if not is_number(split.scale, 1):
            raise _Unsupported("a condition on a sum with a common factor")
        zero = IntImm(split.scale.dtype, 0)
        least = zero if low is None else _simple(_largest(sub(low, offset), zero))
        most = split.extent if high is None else _simple(_smallest(sub(high, offset), split.extent))
        if is_number(least, 0) and most is split.extent:
            return
        mark = IterMark(self.shifted(split, least), _simple(sub(most, least)))
        self.alive.append(mark)
        kept = [c for c in self.constraints if not all(any(_key(a) == _key(b) for b in args) for a in c.args)]
        whole, total = list(args), least
        if len(kept) < len(self.constraints):
            total = _simple(add(least, offset))
        self.constraints = [*kept, _Constraint(tuple(whole), mark, total)]

    def shifted(self, split: Arg, by: PrimExpr) -> IterSumExpr:
        """Return `split - by` as a sum: of the parts of a whole fusion, or of the split itself."""
        fused = split.source
        if isinstance(fused.source, IterSumExpr) and is_same(split.lower_factor, IntImm(by.dtype, 1)) and is_same(
                split.extent, fused.extent) and id(fused) not in self.original and id(fused) not in self.overlapping:
            return IterSumExpr(fused.source.args, _simple(sub(fused.source.base, by)))
        return IterSumExpr((split,), _simple(sub(0, by)))

    # Checks.
    def check_constraints(self, indices: Sequence[PrimExpr]) -> None:
        """Raise `_Unsupported` if an index has a variable of a condition that it does not use as a whole."""
        present = {v for e in indices for v in free_vars(e)}
        for c in self.constraints:
            if id(c.mark) not in self.used and any(
                    v in present and v in self.marks for a in c.args for v in free_vars(expression_of(a))):
                raise _Unsupported("a condition is on other sums than those of the indices")

    def check(self, indices: Sequence[IterSumExpr], level: IterMapLevel) -> None:
        """Raise `_Unsupported` unless the indices are independent and reach each point."""
        uses: dict[int, list[Arg]] = {}
        marks: dict[int, IterMark] = {}
        for x in indices:
            for a in x.args:
                marks[id(a.source)] = a.source
                uses.setdefault(id(a.source), []).append(a)
        order = _from_outside(list(marks.values()))
        for mark in order:
            splits = uses.get(id(mark), [])
            self.check_mark(mark, splits, level)
            if isinstance(mark.source, IterSumExpr):
                for a in mark.source.args:
                    uses.setdefault(id(a.source), []).append(a)
        if level is IterMapLevel.Bijective:
            used = {id(m) for m in order}
            missing = [v for v, m in self.marks.items() if id(m) not in used and not is_number(m.extent, 1)]
            if missing:
                raise _Unsupported(f"{missing[0]} is not used, so the map is not bijective")

    def check_mark(self, mark: IterMark, splits: Sequence[Arg], level: IterMapLevel) -> None:
        original = self.original.get(id(mark))
        exact = level is IterMapLevel.Bijective
        if exact and (original is not None or id(mark) in self.overlapping):
            raise _Unsupported("padded or overlapping iterators are not bijective")
        reached: PrimExpr = IntImm(mark.extent.dtype, 1)
        left = list(splits)
        while left:
            found = next((s for s in left if is_same(s.lower_factor, reached)), None)
            if found is None:
                if exact:
                    raise _Unsupported("an iterator has a part that is not used")
                found = next((s for s in _by_factor(left) if exact_quotient(s.lower_factor, reached) is not None), None)
                if found is None:
                    raise _Unsupported("splits of an iterator overlap")
            reached = _simple(mul(found.lower_factor, found.extent))
            left.remove(found)
        if exact and not is_same(reached, mark.extent):
            raise _Unsupported("an iterator has a part that is not used")
        if original is not None and not holds(original.extent >= reached) and not (
                len(splits) == 1 and is_same(reached, mark.extent) and _reaches_ends(mark, original, splits[0])):
            raise _Unsupported("a padded iterator does not reach each value")


def _reaches_ends(mark: IterMark, original: IterMark, split: Arg) -> bool:
    """Return whether the quotient of a padded iterator takes its first and its last value outside of the padding."""
    before, width = mark.source.base, split.lower_factor
    return holds(before < width) and holds(add(original.extent, before) > sub(mark.extent, width))


def _number(e: PrimExpr) -> int:
    return e.value if isinstance(e, IntImm) else 0


def _largest(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    return _decided(a, b, simplify(a >= b, Ranges()), True)


def _smallest(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    return _decided(a, b, simplify(a >= b, Ranges()), False)


def _decided(a: PrimExpr, b: PrimExpr, above: PrimExpr, largest: bool) -> PrimExpr:
    """Return one of two ends. If their order is unknown, the second one is kept as a limit only if it is a number."""
    if isinstance(above, IntImm):
        return b if bool(above.value) != largest else a
    return (maximum if largest else minimum)(a, b) if isinstance(b, IntImm) else a


def _common_multiple(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        from math import lcm

        return IntImm(a.dtype, lcm(a.value, b.value))
    return b if exact_quotient(b, a) is not None else a if exact_quotient(a, b) is not None else _simple(mul(a, b))


def _divided(e: PrimExpr, by: PrimExpr) -> PrimExpr:
    found = exact_quotient(e, by)
    if found is None:
        raise _Unsupported(f"{by} does not divide the scale {e}")
    return found


def _by_scale(args: Sequence[Arg]) -> list[Arg]:
    """Return splits by their scales, constants first and ascending; an extent of 1 comes last."""
    return sorted(args, key=lambda a: (not isinstance(a.scale, IntImm), abs(_number(a.scale))))


def _by_factor(args: Sequence[Arg]) -> list[Arg]:
    return sorted(args, key=lambda a: _number(a.lower_factor))


def _overlapped(args: Sequence[Arg], extent: PrimExpr) -> Arg | None:
    """Return the split with the largest scale that is at most `extent`."""
    if not isinstance(extent, IntImm):
        return None
    below = [a for a in args if isinstance(a.scale, IntImm) and 0 < a.scale.value <= extent.value]
    return max(below, key=lambda a: _number(a.scale)) if below else None


def _plus(a: IterSumExpr, b: IterSumExpr) -> IterSumExpr:
    args = {_key(x): x for x in a.args}
    for x in b.args:
        old = args.pop(_key(x), None)
        scale = x.scale if old is None else _simple(add(old.scale, x.scale))
        if not is_number(scale, 0):
            args[_key(x)] = replace(x, scale=scale)
    return IterSumExpr(tuple(args.values()), _simple(add(a.base, b.base)))


def _times(x: IterSumExpr, by: PrimExpr) -> IterSumExpr:
    if is_number(by, 0):
        return IterSumExpr((), by)
    return IterSumExpr(
        tuple(replace(a, scale=_simple(mul(a.scale, by))) for a in x.args), _simple(mul(x.base, by)))


def _merged(args: Sequence[Arg]) -> list[Arg]:
    """Join splits of one iterator: (x // 4 * 4 + x % 4) is x."""
    found, changed = list(args), True
    while changed:
        changed = False
        for a in found:
            above = next((b for b in found if b.source is a.source and b is not a
                          and is_same(b.lower_factor, mul(a.lower_factor, a.extent))
                          and is_same(b.scale, mul(a.scale, a.extent))), None)
            if above is not None:
                place = found.index(above)
                found[place] = replace(a, extent=_simple(mul(a.extent, above.extent)))
                found.remove(a)
                changed = True
                break
    return found


def _from_outside(marks: Sequence[IterMark]) -> list[IterMark]:
    """Return iterators and those inside, each before those inside it."""
    order: list[IterMark] = []
    seen: set[int] = set()

    def visit(m: IterMark) -> None:
        if id(m) in seen:
            return
        seen.add(id(m))
        if isinstance(m.source, IterSumExpr):
            for a in m.source.args:
                visit(a.source)
        order.append(m)

    for m in marks:
        visit(m)
    return order[::-1]


def _level(check_level: str | int | IterMapLevel) -> IterMapLevel:
    return IterMapLevel.from_str(check_level) if isinstance(check_level, str) else IterMapLevel(check_level)


def detect_iter_map(
    indices: Sequence[Value], input_iters: Mapping[Var, Range], predicate: Value = True,
    check_level: str | int | IterMapLevel = IterMapLevel.Surjective, simplify_trivial_iterators: bool = True
) -> IterMapResult:
    """Return each index as one iterator, or no indices and the reasons if they have no such form.

    `input_iters` are the ranges of the iterators, other variables are constants, and `predicate` bounds sums of
    iterators. The check level is "bijective", "surjective" or "nocheck".
    """
    level, given = _level(check_level), [literal(e) for e in indices]
    never: PrimExpr = IntImm(BOOL, 0)
    mapper = IterMapper(input_iters, keep_trivial=not simplify_trivial_iterators,
                        overlap=level is not IterMapLevel.Bijective)
    try:
        for _ in range(2):  # the first time finds the common multiples of all divisors
            mapper.restart()
            mapper.constrain(literal(predicate))
            found = [_mapped(mapper, e) for e in given]
        mapper.check_constraints(given)
        if level is not IterMapLevel.NoCheck:
            mapper.check(found, level)
    except _Unsupported as reason:
        return IterMapResult([], [str(reason)], never)
    padding = never
    for p in mapper.padding:
        padding = p if padding is never else padding | p
    return IterMapResult(found, [], padding)


def _mapped(mapper: IterMapper, e: PrimExpr) -> IterSumExpr:
    x = mapper.sum_of(e)
    if not x.args:
        return x
    split, offset = mapper.single(x)
    return mapper.sum_without_ones(split, _simple(add(x.base, offset)))


def iter_map_simplify(
    indices: Sequence[Value], input_iters: Mapping[Var, Range], predicate: Value = True,
    check_level: str | int | IterMapLevel = IterMapLevel.Surjective, simplify_trivial_iterators: bool = True
) -> list[PrimExpr]:
    """Return the indices simplified as iterators; unchanged where they have no such form."""
    given = [literal(e) for e in indices]
    found = detect_iter_map(given, input_iters, predicate, check_level, simplify_trivial_iterators).indices
    return [expression_of(x) for x in found] if found else given


def normalize_to_iter_sum(index: Value, input_iters: Mapping[Var, Range]) -> IterSumExpr:
    """Return an index as a sum of splits, the largest scale first; other parts are in the base."""
    mapper = IterMapper(input_iters)
    x = mapper.sum_of(literal(index), lenient=True)
    args = sorted(_merged(x.args), key=lambda a: _degree(a.scale), reverse=True)
    return IterSumExpr(args, x.base)


def _degree(e: PrimExpr) -> tuple[int, int]:
    """Return the largest number of factors of a product in a scale, and its coefficient."""
    return max(((len(atoms), abs(k)) for atoms, k in polynomial(e).items()), default=(0, 0))


def inverse_affine_iter_map(iter_map: Sequence[IterSumExpr], outputs: Sequence[PrimExpr]) -> dict[Var, PrimExpr]:
    """Return each variable of a bijective map as an expression of the indices `outputs`."""
    values: dict[int, PrimExpr] = {}
    marks: dict[int, IterMark] = {}

    def put(a: Arg, value: PrimExpr) -> None:
        marks[id(a.source)] = a.source
        term = mul(value, a.lower_factor)
        known = values.get(id(a.source))
        values[id(a.source)] = term if known is None else add(known, term)

    for x, out in zip(iter_map, outputs, strict=True):
        for a in x.args:
            put(a, floordiv(sub(out, x.base), a.scale))
    found: dict[Var, PrimExpr] = {}
    for mark in _from_outside(list(marks.values())):
        value = values.get(id(mark))
        if value is None:
            continue
        if isinstance(mark.source, IterSumExpr):
            inner = sub(value, mark.source.base)
            for at, a in enumerate(mark.source.args):
                part = floordiv(inner, a.scale)
                put(a, part if at == 0 else floormod(part, a.extent))
        else:
            v = mark.source
            for name in free_vars(v):
                found[name] = _simple(value if v is name else add(value, sub(name, v)))
    return found


__all__ = [
    "IterMapExpr", "IterMapLevel", "IterMapResult", "IterMark", "IterSplitExpr", "IterSumExpr", "detect_iter_map",
    "expression_of", "inverse_affine_iter_map", "iter_map_simplify", "normalize_to_iter_sum",
]
