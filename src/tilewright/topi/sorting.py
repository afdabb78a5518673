"""Sorting along an axis: merge sort of keys with their positions, and insertion for the first few.

A row is sorted in runs of 16 by counting, for each element, the elements before it; then runs are merged in pairs.
Sorting is stable: equal elements keep their order. NaN counts as the greatest value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, log2, nan
from typing import Any, Final

from tilewright import te
from tilewright.base.types import DataType, OpenSize
from tilewright.scalar import expr as E
from tilewright.scalar import intrinsics as I
from tilewright.scalar.arith.open_sizes import greatest, memory_for, typical
from tilewright.scalar.expr import PrimExpr, Value, Var
from tilewright.tir.ir_builder import BufferVar
from tilewright.topi.loops import Loops, Rows, before, loops
from tilewright.topi.work import Step

__all__ = ["argsort", "searchsorted", "sort", "topk", "unique"]

_RUN = 16
_MOST_INSERTED = 32
"""Largest number of elements selected by insertion, which reads each of the others once."""


_MOST_PLACES: Final = 1 << 31
"""Number of elements whose positions have 32 bits."""


@dataclass(frozen=True, slots=True)
class Sorter:
    """A sort of a row of `length` elements; `key(k)` is element k."""

    b: Loops
    key: Callable[[PrimExpr], PrimExpr]
    length: int | PrimExpr
    most: int
    """`length`, or its upper bound if it is dynamic."""
    dtype: DataType
    ascending: bool
    places: bool
    """Whether the positions of the elements are needed, too."""

    def memory(self, size: int, name: str) -> tuple[BufferVar, ...]:
        """Allocate memory for `size` keys, and for their positions if needed."""
        room = memory_for(size)
        keys = self.b.allocate(self.dtype, room, f"{name}_keys")
        return (keys, self.b.allocate("int32", room, f"{name}_places")) if self.places else (keys,)

    def comes_before(self, x: PrimExpr, y: PrimExpr) -> PrimExpr:
        return before(x, y, self.ascending)

    def merged(self) -> tuple[BufferVar, ...]:
        """Return the sorted keys of the whole row, and their positions."""
        most = greatest(self.most)
        b, levels = self.b, ceil(log2(ceil((_MOST_PLACES if most is None else max(1, most)) / _RUN)) / 2)
        first = self.memory(self.most, "first")
        self._runs(first)
        if levels:
            second = self.memory(self.most, "second")
            with b.for_range(0, levels, "level") as level:
                width = b.let("width", I.shift_left(E.const(_RUN, "int64"), level * 2))
                with b.if_scope(width < self.length):
                    self._merge(first, second, width)
                    self._merge(second, first, width * 2)
        return first

    def _runs(self, to: Sequence[BufferVar]) -> None:
        """Store the data as sorted runs of 16."""
        whole = E.floordiv(self.length, _RUN)
        with self.b.for_range(0, whole, "run") as run:
            self._run(to, self.b.let("start", run * _RUN), _RUN)
        self._run(to, E.mul(whole, _RUN), E.floormod(self.length, _RUN))

    def _run(self, to: Sequence[BufferVar], start: PrimExpr, size: Value) -> None:
        b = self.b
        keys = b.allocate(self.dtype, _RUN, "run_keys")
        with b.for_range(0, size, "k") as k:
            keys[k] = self.key(start + k)
        with b.for_range(0, size, "k") as k:
            x = b.let("x", keys[k])
            rank = b.variable("rank", "int32", 0)
            with b.for_range(0, size, "other") as other:
                y = b.let("y", keys[other])
                ahead = E.if_then_else(other < k, E.logical_not(self.comes_before(x, y)), self.comes_before(y, x))
                rank[0] = rank[0] + E.cast("int32", ahead)
            place = b.let("place", start + E.cast("int64", rank[0]))
            to[0][place] = x
            if self.places:
                to[1][place] = E.cast("int32", start + k)

    def _merge(self, source: Sequence[BufferVar], to: Sequence[BufferVar], width: PrimExpr) -> None:
        """Merge pairs of runs of `width`."""
        b, n = self.b, self.length
        with b.for_range(0, E.floordiv(width * 2 + n - 1, width * 2), "pair") as pair:
            low = b.let("low", pair * width * 2)
            middle, high = b.let("middle", E.minimum(low + width, n)), b.let("high", E.minimum(low + width * 2, n))
            i, j = b.variable("i", "int64", low), b.variable("j", "int64", middle)
            with b.for_range(low, high, "to") as k:
                at_i, at_j = b.let("at_i", E.minimum(i[0], n - 1)), b.let("at_j", E.minimum(j[0], n - 1))
                x, y = b.let("x", source[0][at_i]), b.let("y", source[0][at_j])
                left = E.logical_and(i[0] < middle, E.logical_or(j[0] >= high, E.logical_not(self.comes_before(y, x))))
                from_left = b.let("from_left", E.cast("int64", left))
                at = b.let("at", E.if_then_else(from_left > 0, at_i, at_j))
                for from_, to_ in zip(source, to, strict=True):
                    to_[k] = from_[at]
                i[0] = i[0] + from_left
                j[0] = j[0] + (1 - from_left)

    def inserted(self, count: int) -> tuple[BufferVar, ...]:
        """Return the first `count` elements in order, by insertion among those found so far."""
        b, found = self.b, self.memory(count, "found")
        with b.for_range(0, count, "k") as k:
            self._insert(found, b.let("x", self.key(k)), k, k)
        last = b.variable("last", self.dtype, found[0][count - 1])
        with b.for_range(count, self.length, "k") as k:
            x = b.let("x", self.key(k))
            with b.if_scope(self.comes_before(x, last[0])):
                self._insert(found, x, k, E.const(count - 1, "int64"))
                last[0] = found[0][count - 1]
        return found

    def _insert(self, found: Sequence[BufferVar], x: PrimExpr, place: PrimExpr, end: PrimExpr) -> None:
        """Insert `x` among the elements before `end`; the element at `end` is lost."""
        b = self.b
        rank = b.variable("rank", "int64", 0)
        with b.for_range(0, end, "other") as other:
            rank[0] = rank[0] + E.cast("int64", E.logical_not(self.comes_before(x, found[0][other])))
        to = b.let("rank_of_x", rank[0])
        with b.for_range(0, end - to, "shift") as shift:
            for f in found:
                f[end - shift] = f[end - shift - 1]
        found[0][to] = x
        if self.places:
            found[1][to] = E.cast("int32", place)


def sorted_places(
    b: Loops, key: Callable[[PrimExpr], PrimExpr], length: int | PrimExpr, most: int, dtype: DataType
) -> BufferVar:
    """Return the positions of the elements of a row of `length` in descending order; at most `most` of them."""
    return Sorter(b, key, length, most, dtype, False, True).merged()[1]


def _sorted(
    data: te.Tensor, axis: int, count: int, ascending: bool, results: Sequence[tuple[int, str | DataType]], name: str
) -> tuple[te.Tensor, ...]:
    """Return the first `count` elements along `axis` in order: result (0, dtype) has the elements, (1, dtype) their
    positions."""
    source = Rows.of(data.extents, axis)
    shape = (*data.extents[:axis], count, *data.extents[axis + 1 :])
    target = Rows.of(shape, axis)

    def body(b: Loops, x: BufferVar, *outs: BufferVar) -> None:
        if not source.count * count:
            return
        few = not isinstance(count, OpenSize) and count <= _MOST_INSERTED and count * 4 <= typical(source.length)
        length = typical(source.length)
        steps = typical(source.count) * length * (1 if few else max(1, log2(max(1, length))))
        with b.shared(source.count, steps, Step.COMPARE) as row:
            sorter = Sorter(
                b, lambda k: x[source.at(row, k)], source.length, source.length, data.dtype, ascending,
                any(kind for kind, _ in results)
            )
            found = sorter.inserted(count) if few else sorter.merged()
            with b.for_range(0, count, "k") as k:
                for out, (kind, dtype) in zip(outs, results, strict=True):
                    out[target.at(row, k)] = E.cast(dtype, found[kind][k])

    return loops(name, [data], [(shape, dtype) for _, dtype in results], body)


def sort(data: te.Tensor, axis: int = -1, is_ascend: bool = True) -> te.Tensor:
    """Sort the elements along `axis`; equal ones keep their order."""
    where = axis % data.ndim
    return _sorted(data, where, data.extents[where], bool(is_ascend), [(0, data.dtype)], "sort")[0]


def argsort(
    data: te.Tensor, valid_count: te.Tensor | None = None, axis: int = -1, is_ascend: bool = True,
    dtype: str = "float32"
) -> te.Tensor:
    """Return the positions of the sorted elements along `axis`; with `valid_count`, only that many elements of each row
    are sorted."""
    where = axis % data.ndim
    if valid_count is not None:
        last = te.min_value(data.dtype) if not is_ascend else E.const(
            nan, data.dtype
        ) if data.dtype.is_float else te.max_value(data.dtype)
        data = _valid(data, valid_count, where, last)
    return _sorted(data, where, data.extents[where], bool(is_ascend), [(1, dtype)], "argsort")[0]


def _valid(data: te.Tensor, count: te.Tensor, axis: int, last: PrimExpr) -> te.Tensor:
    """Replace the elements of `data` from position `count` on by `last`."""

    def element(*i: Var) -> PrimExpr:
        return E.if_then_else(i[axis] < E.cast("int64", count(*i[: count.ndim])), data(*i), last)

    return te.compute(data.shape, element, name="valid", inline=False)


def topk(
    data: te.Tensor, k: int = 1, axis: int = -1, ret_type: str = "both", is_ascend: bool = False, dtype: str = "int64"
) -> Any:
    """Return the `k` greatest elements along `axis` (the least with `is_ascend`) in order, and their positions;
    `ret_type` selects "both", as a list, "values" or "indices"."""
    where = axis % data.ndim
    count = k if isinstance(k, OpenSize) or k > 0 else data.extents[where]
    results: dict[str, list[tuple[int, Any]]] = {
        "both": [(0, data.dtype), (1, dtype)], "values": [(0, data.dtype)], "indices": [(1, dtype)]
    }
    made = _sorted(data, where, count, bool(is_ascend), results[ret_type], "topk")
    return list(made) if ret_type == "both" else made[0]


def searchsorted(sorted_sequence: te.Tensor, values: te.Tensor, right: bool = False, dtype: str = "int64") -> te.Tensor:
    """Return the insertion position of each value in a sorted row: before equal elements, or after them with `right`.

    `sorted_sequence` is one row, or has one row for each row of `values`.
    """
    n, width = sorted_sequence.extents[-1], values.extents[-1] if values.ndim else 1
    one = sorted_sequence.ndim == 1
    total = 1
    for d in values.extents:
        total *= d
    steps = n.bit_length()

    def body(b: Loops, rows: BufferVar, wanted: BufferVar, out: BufferVar) -> None:
        with b.shared(total, total * steps, Step.COMPARE, "value") as v:
            x = b.let("x", wanted[v])
            start = b.let("start", E.const(0, "int64") if one else E.floordiv(v, width) * n)
            low, high = b.variable("low", "int64", 0), b.variable("high", "int64", n)
            with b.for_range(0, steps, "step"), b.if_scope(low[0] < high[0]):
                middle = b.let("middle", E.floordiv(low[0] + high[0], 2))
                y = b.let("y", rows[start + middle])
                after = E.logical_not(before(x, y, True)) if right else before(y, x, True)
                with b.if_scope(after):
                    low[0] = middle + 1
                with b.else_scope():
                    high[0] = middle
            out[v] = E.cast(dtype, low[0])

    return loops("searchsorted", [sorted_sequence, values], [(values.extents, dtype)], body)[0]


def unique(data: te.Tensor, is_sorted: bool = True, return_counts: bool = False) -> tuple[te.Tensor, ...]:
    """Return the distinct elements of a row, ascending or by first occurrence.

    Further results are the position of each first occurrence, the index of each element among the distinct ones, and
    their number. With `return_counts`, the number of occurrences of each is the last result. Unused positions are zero.
    """
    n, dtype = data.extents[0], data.dtype

    def body(
        b: Loops, x: BufferVar, found: BufferVar, first: BufferVar, inverse: BufferVar, number: BufferVar,
        *counts: BufferVar
    ) -> None:
        keys, places = Sorter(b, lambda k: x[k], n, n, dtype, True, True).merged()
        rank, total = b.allocate("int32", memory_for(n), "rank"), b.variable("total", "int64", 0)
        tally = counts[0] if counts else b.allocate("int32", memory_for(n), "tally")
        with b.for_range(0, n, "k") as k:
            found[k] = E.const(0, dtype)
            first[k] = 0
            tally[k] = 0
        with b.for_range(0, n, "k") as k:
            place = b.let("place", E.cast("int64", places[k]))
            with b.if_scope(E.any_of(E.compare(E.EQ, k, 0), before(keys[E.maximum(k - 1, 0)], keys[k], True))):
                total[0] = total[0] + 1
                found[total[0] - 1] = keys[k]
                first[total[0] - 1] = places[k]
            tally[total[0] - 1] = tally[total[0] - 1] + 1
            inverse[place] = E.cast("int32", total[0] - 1)
        number[0] = E.cast("int32", total[0])
        if not is_sorted:
            _as_they_come(b, x, (found, first, inverse, rank, tally), total, n)

    results: list[Any] = [((n,), dtype), ((n,), "int32"), ((n,), "int32"), ((1,), "int32")]
    return loops("unique", [data], [*results, ((n,), "int32")] if return_counts else results, body)


def _as_they_come(b: Loops, x: BufferVar, parts: Sequence[BufferVar], total: BufferVar, n: int) -> None:
    """Reorder results found in ascending order by first occurrence."""
    found, first, inverse, rank, tally = parts
    old = b.allocate("int32", memory_for(n), "old_tally")
    seen = b.variable("seen", "int64", 0)
    with b.for_range(0, n, "k") as k:
        old[k] = tally[k]
        rank[k] = -1
    with b.for_range(0, n, "k") as k:
        kind = b.let("kind", E.cast("int64", inverse[k]))
        with b.if_scope(rank[kind] < 0):
            rank[kind] = E.cast("int32", seen[0])
            found[seen[0]] = x[k]
            first[seen[0]] = E.cast("int32", k)
            tally[seen[0]] = old[kind]
            seen[0] = seen[0] + 1
        inverse[k] = rank[kind]
    with b.for_range(total[0], n, "k") as k:
        tally[k] = 0
