"""Scans: each element combined with all elements before it along an axis."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from tilewright import te
from tilewright.base.types import DataType
from tilewright.scalar import expr as E
from tilewright.tir.ir_builder import BufferVar
from tilewright.topi.loops import Loops, Rows, loops
from tilewright.topi.work import Step

__all__ = ["cumprod", "cumsum", "extremes"]


def scan(
    data: te.Tensor, axis: int | None, combine: Callable[..., Any], identity: int, exclusive: bool,
    dtype: str | DataType, name: str
) -> te.Tensor:
    """Combine each element with all elements before it along `axis` (None: the flattened data); with `exclusive`,
    without the element itself."""
    shape = (prod(data.extents),) if axis is None else data.extents
    rows = Rows.of(shape, (axis or 0) % max(1, len(shape))) if shape else Rows(1, 1, 1)

    def body(b: Loops, x: BufferVar, out: BufferVar) -> None:
        with b.shared(rows.outer, rows.outer * rows.length * rows.inner, Step.MOVE) as row:
            if rows.inner == 1:
                total = b.variable("total", dtype, identity)
                with b.for_range(0, rows.length, "k") as k:
                    with_this = b.let("with_this", combine(total[0], E.cast(dtype, x[row * rows.length + k])))
                    out[row * rows.length + k] = total[0] if exclusive else with_this
                    total[0] = with_this
                return
            start = b.let("start", row * (rows.length * rows.inner))
            if not rows.length * rows.inner:
                return
            with b.for_range(0, rows.inner, "i") as i:
                out[start + i] = E.const(identity, dtype) if exclusive else E.cast(dtype, x[start + i])
            with b.for_range(1, rows.length, "k") as k, b.for_range(0, rows.inner, "i") as i:
                here = start + k * rows.inner + i
                out[here] = combine(out[here - rows.inner], E.cast(dtype, x[here - rows.inner if exclusive else here]))

    return loops(name, [data], [(shape, dtype)], body)[0]


def cumsum(
    data: te.Tensor, axis: int | None = None, dtype: str | None = None, exclusive: bool | None = None
) -> te.Tensor:
    """Return cumulative sums along `axis`; with `exclusive`, without the element itself."""
    return scan(data, axis, E.add, 0, bool(exclusive), dtype or data.dtype, "cumsum")


def cumprod(
    data: te.Tensor, axis: int | None = None, dtype: str | None = None, exclusive: bool | None = None
) -> te.Tensor:
    """Return cumulative products along `axis`; with `exclusive`, without the element itself."""
    return scan(data, axis, E.mul, 1, bool(exclusive), dtype or data.dtype, "cumprod")


def extremes(data: te.Tensor, axis: int, is_greatest: bool, name: str) -> tuple[te.Tensor, ...]:
    """Return the cumulative maximum or minimum along `axis`, and its position, the last of equal ones."""
    rows = Rows.of(data.extents, axis % data.ndim)

    def body(b: Loops, x: BufferVar, values: BufferVar, places: BufferVar) -> None:
        if not rows.count * rows.length:
            return
        with b.shared(rows.count, rows.count * rows.length, Step.MOVE) as row:
            best, place = b.variable("best", data.dtype, x[rows.at(row, 0)]), b.variable("place", "int64", 0)
            with b.for_range(0, rows.length, "k") as k:
                here = b.let("here", x[rows.at(row, k)])
                taken = here >= best[0] if is_greatest else here <= best[0]
                if data.dtype.is_float:  # comparisons with NaN are false
                    taken = E.logical_or(taken, E.compare(E.NE, here, here))
                with b.if_scope(taken):
                    best[0] = here
                    place[0] = k
                values[rows.at(row, k)] = best[0]
                places[rows.at(row, k)] = place[0]

    return loops(name, [data], [(data.extents, data.dtype), (data.extents, "int64")], body)
