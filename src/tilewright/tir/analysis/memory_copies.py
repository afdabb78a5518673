"""Finds loops that copy a contiguous part of one buffer to another, in the same order: what `memcpy` does.

    for i, j in T.grid(32, 32):
        B[i * 32 + j] = A[i, j]         ->      (A[0:32, 0:32], B[0:1024]), (A[i, 0:32], B[i * 32:i * 32 + 32])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tilewright.scalar.arith import Ranges, simplify
from tilewright.scalar.arith.iter_map import IterMapLevel, IterSumExpr, detect_iter_map
from tilewright.scalar.arith.iter_nodes import expression_of
from tilewright.scalar.buffer_region import BufferRegion
from tilewright.scalar.expr import Buffer, Load, PrimExpr, Var, add, as_expr, const, mul, number_of, sub
from tilewright.scalar.range import Range
from tilewright.tir.region import span_of
from tilewright.tir.stmt import For, Stmt, Store, walk_stmt


class Refusal(str):
    """The reason why a loop is not a copy of memory."""

    __slots__ = ()

    @property
    def value(self) -> str:
        """The text, as that of TVM's `StringImm`."""
        return str(self)


class _NoCopy(Exception):
    """A loop is not a copy; the message says why."""


def identify_memory_copies(stmt: Stmt) -> list[tuple[BufferRegion, BufferRegion] | Refusal]:
    """Return, for each loop inside `stmt`, outermost first, the boxes that it copies from and to, or the reason why it
    is not a copy of memory. Variables of outer loops are constants of a loop."""
    return [_copied(s) for s in walk_stmt(stmt) if isinstance(s, For)]


def _copied(loop: For) -> tuple[BufferRegion, BufferRegion] | Refusal:
    try:
        return _regions(loop)
    except _NoCopy as reason:
        return Refusal(reason)


def _regions(loop: For) -> tuple[BufferRegion, BufferRegion]:
    loops, s = [loop], loop.body
    while isinstance(s, For):
        loops.append(s)
        s = s.body
    if not isinstance(s, Store):
        raise _NoCopy(f"Expected innermost loop to have BufferStore body, but it is a {type(s).__name__}")
    if not isinstance(s.value, Load) or s.mask is not None:
        raise _NoCopy(f"Expected BufferStore's value to be BufferLoad, but it is {s.value}")
    nest = _Nest.of(loops)
    source, result = s.value, s
    first = nest.elements(source.buffer, source.indices, "src")
    second = nest.elements(result.buffer, result.indices, "dst")
    if _iterator(first) is not _iterator(second):
        raise _NoCopy(f"The indices {_iterator(first)} and {_iterator(second)} have different source iterators")
    return nest.box(source.buffer, source.indices, first), nest.box(result.buffer, result.indices, second)


@dataclass(frozen=True, slots=True)
class _Nest:
    """Loops inside each other, with the number of trips of all."""

    domain: dict[Var, Range]
    ranges: Ranges
    trips: PrimExpr

    @staticmethod
    def of(loops: Sequence[For]) -> _Nest:
        ranges, trips = Ranges(), const(1, "int64")
        for f in loops:
            ranges, trips = ranges.bind_loop(f.var, f.min, f.extent), mul(trips, f.extent)
        return _Nest(
            {f.var: Range.from_min_extent(f.min, f.extent) for f in loops}, ranges, simplify(trips, Ranges()))

    def elements(self, buffer: Buffer, indices: Sequence[PrimExpr], side: str) -> IterSumExpr:
        """Return the position of the element at `indices` as one iterator, if each trip has another one, and they have
        no gaps."""
        place = _place(buffer, indices)
        found = detect_iter_map([place], self.domain, True, IterMapLevel.Bijective)
        if not found.indices:
            raise _NoCopy(f"The {side} index {place} does not form a bijective transform: {'; '.join(found.errors)}")
        (one,) = found.indices
        touched: PrimExpr = const(1, place.dtype)
        for a in one.args:
            touched = simplify(add(mul(a.scale, sub(a.extent, 1)), 1), Ranges())
        if number_of(simplify(sub(touched, self.trips), Ranges())) != 0:
            raise _NoCopy(
                f"Mismatch between loop iterations ({self.trips}) and number of {side} indices touched ({touched})")
        return one

    def box(self, buffer: Buffer, indices: Sequence[PrimExpr], place: IterSumExpr) -> BufferRegion:
        """Return the box of the elements at `indices`, with nothing else in it."""
        if len(indices) == 1 and not buffer.strides:
            return BufferRegion(buffer, (Range.from_min_extent(place.base, self.trips),))
        spans = [s for i in indices if (s := span_of(i, Ranges(), self.ranges)) is not None]
        extents = [high - low + 1 for _, low, high in spans]
        if len(spans) != len(indices) or prod(extents) != number_of(self.trips):
            raise _NoCopy(f"The elements of '{buffer.name}' are not a known box of its dimensions")
        return BufferRegion(buffer, tuple(
            Range.from_min_extent(simplify(add(base, low), Ranges()), as_expr(n))
            for (base, low, _), n in zip(spans, extents, strict=True)))


def _iterator(place: IterSumExpr) -> PrimExpr:
    """Return the position without its constant part."""
    return expression_of(IterSumExpr(place.args, const(0, place.base.dtype)))


def _place(buffer: Buffer, indices: Sequence[PrimExpr]) -> PrimExpr:
    """Return the distance of an element from the first one of a buffer, in elements."""
    if any(i.dtype.lanes > 1 for i in indices):
        raise _NoCopy(f"The indices of '{buffer.name}' are vectors")
    place: PrimExpr = const(0, "int64")
    if buffer.strides:
        for i, n in zip(indices, buffer.strides, strict=True):
            place = add(place, mul(i, n))
        return place
    for i, n in zip(indices, buffer.shape, strict=True):
        place = add(mul(place, n), i)
    return place


__all__ = ["Refusal", "identify_memory_copies"]
