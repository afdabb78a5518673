"""Division of an affine map into an outer and an inner part: TVM's `arith.subspace_divide`.

    i in [0, 4), j in [0, 8), k in [0, 2), of which k is inner
    i * 2 + j // 4    ->    outer i * 2 + j // 4, inner 0
    j % 4 * 2 + k     ->    outer j % 4,          inner k

An index is `outer * extent of inner + inner`, and `inner` has only inner variables, `outer` none of these. It is what a
block needs that is to contain a part of the loops around it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tilewright.scalar.arith.iter_map import IterMapLevel, detect_iter_map
from tilewright.scalar.arith.iter_nodes import IterMark, IterSplitExpr, IterSumExpr, expression_of
from tilewright.scalar.arith.polynomials import exact_quotient, holds, is_number, is_same
from tilewright.scalar.arith.ranges import Ranges
from tilewright.scalar.arith.simplify import simplify
from tilewright.scalar.expr import IntImm, PrimExpr, Value, Var, all_of, literal, mul
from tilewright.scalar.range import Range
from tilewright.scalar.walk import free_vars

Part = IterSplitExpr | None
"""One side of a division; None if it is always 0."""


class _Indivisible(Exception):
    """An index that is no sum of an outer and an inner part."""


def subspace_divide(
    bindings: Sequence[Value], input_iters: Mapping[Var, Range], sub_iters: Collection[Var], predicate: Value = True,
    check_level: str | int | IterMapLevel = IterMapLevel.Surjective, simplify_trivial_iterators: bool = True
) -> list[list[IterMark]]:
    """Return the outer and the inner part of each index as iterators, and at the end two whose extents are the outer
    and the inner part of `predicate`. Nothing is returned if an index or a condition mixes both.

    `input_iters` are the ranges of all variables, of which `sub_iters` are inner. Other variables are constants, and
    belong to the inner part.
    """
    found = detect_iter_map(bindings, input_iters, predicate, check_level, simplify_trivial_iterators).indices
    division = _Division({*sub_iters})
    try:
        parts = [division.index(x) for x in found]
    except _Indivisible:
        return []
    if not parts:
        return []
    nothing = IterSumExpr((), literal(0))
    return [*parts, [IterMark(nothing, all_of(*c)) for c in (division.outer_conditions, division.inner_conditions)]]


class _Division:
    def __init__(self, inner: set[Var]) -> None:
        self.inner = inner
        self.outer_conditions: list[PrimExpr] = []
        self.inner_conditions: list[PrimExpr] = []
        self.known: dict[int, tuple[IterMark, IterMark | None, IterMark | None]] = {}
        """By identity, each iterator that was divided, and its parts."""

    def index(self, x: IterSumExpr) -> list[IterMark]:
        """Return the parts of an index as iterators; the constant is in the inner part."""
        one, zero = IntImm(x.base.dtype, 1), IntImm(x.base.dtype, 0)
        if not x.args:
            return [IterMark(IterSumExpr((), zero), one), IterMark(IterSumExpr((), x.base), one)]
        (split,) = x.args
        outer, inner = self.split(split)
        if outer is not None and inner is not None and not is_same(split.scale, one):
            raise _Indivisible
        made = []
        for part, base in ((outer, zero), (inner, x.base)):
            args = () if part is None else (replace(part, scale=split.scale),)
            made.append(IterMark(IterSumExpr(args, base), one if part is None else part.extent))
        return made

    def split(self, a: IterSplitExpr) -> tuple[Part, Part]:
        """Return the parts of a split, with the scale 1."""
        outer, inner = self.mark(a.source)
        one = IntImm(a.scale.dtype, 1)
        if outer is None or inner is None:
            return (
                None if outer is None else IterSplitExpr(outer, a.lower_factor, a.extent, one),
                None if inner is None else IterSplitExpr(inner, a.lower_factor, a.extent, one))
        if is_same(a.lower_factor, one) and is_same(a.extent, a.source.extent):
            return IterSplitExpr(outer, one, outer.extent, one), IterSplitExpr(inner, one, inner.extent, one)
        above = exact_quotient(a.lower_factor, inner.extent)
        if above is not None:
            return IterSplitExpr(outer, above, a.extent, one), None
        if exact_quotient(inner.extent, mul(a.lower_factor, a.extent)) is not None:
            return None, IterSplitExpr(inner, a.lower_factor, a.extent, one)
        steps = exact_quotient(inner.extent, a.lower_factor)
        trips = None if steps is None else exact_quotient(a.extent, steps)
        if steps is None or trips is None:
            raise _Indivisible
        return IterSplitExpr(outer, one, trips, one), IterSplitExpr(inner, a.lower_factor, steps, one)

    def mark(self, m: IterMark) -> tuple[IterMark | None, IterMark | None]:
        """Return the parts of an iterator, and note its condition."""
        if id(m) not in self.known:
            self.known[id(m)] = (m, *self.divided(m))
        return self.known[id(m)][1:]

    def divided(self, m: IterMark) -> tuple[IterMark | None, IterMark | None]:
        if not isinstance(m.source, IterSumExpr):
            return (None, m) if any(v in self.inner for v in free_vars(m.source)) else (m, None)
        one = IntImm(m.extent.dtype, 1)
        outer: list[IterSplitExpr] = []
        inner: list[IterSplitExpr] = []
        extents: list[PrimExpr] = [one, one]
        for a in reversed(m.source.args):  # the innermost first
            if not is_same(a.scale, mul(*extents)):
                raise _Indivisible
            above, below = self.split(a)
            if below is not None:
                if outer and not is_same(below.extent, one):
                    raise _Indivisible
                inner.insert(0, replace(below, scale=extents[1]))
                extents[1] = _product(extents[1], below.extent)
            if above is not None:
                outer.insert(0, replace(above, scale=extents[0]))
                extents[0] = _product(extents[0], above.extent)
        return self.limited(m, outer, inner, extents)

    def limited(
        self, m: IterMark, outer: list[IterSplitExpr], inner: list[IterSplitExpr], extents: Sequence[PrimExpr]
    ) -> tuple[IterMark | None, IterMark | None]:
        """Return the parts of a sum as iterators. If only a range of its values is left, only one part may vary."""
        base = m.source.base
        if is_same(mul(*extents), m.extent) and is_number(base, 0):
            return (
                _mark_of(outer, base, extents[0]) if outer else None,
                _mark_of(inner, base, extents[1]) if inner else None)
        if outer and inner:
            raise _Indivisible
        args, conditions = (outer, self.outer_conditions) if outer else (inner, self.inner_conditions)
        value = expression_of(IterSumExpr(args, base))
        if not holds(base >= 0):
            conditions.append(value >= 0)
        if not holds(base + mul(*extents) <= m.extent):
            conditions.append(value < m.extent)
        limited = IterMark(IterSumExpr(args, base), m.extent)
        return (limited, None) if outer else (None, limited)


def _product(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    return simplify(mul(a, b), Ranges())


def _mark_of(args: Sequence[IterSplitExpr], base: PrimExpr, extent: PrimExpr) -> IterMark:
    """Return a sum as an iterator: one whole iterator is the sum itself."""
    first = args[0]
    one = IntImm(extent.dtype, 1)
    if len(args) == 1 and is_same(first.lower_factor, one) and is_same(first.extent, first.source.extent) and is_same(
            first.scale, one):
        return first.source
    return IterMark(IterSumExpr(args, base), extent)


__all__ = ["subspace_divide"]
