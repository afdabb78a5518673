"""Pooling over windows of one to three spatial dimensions, in the given layout.

If channels are last, they are the vector lanes, and each window is reduced in one step. If the width is last, it gives
the lanes. Windows are first reduced over their rows, to rows with padding on both sides, and then along these. If such
a row would be very long, each window is reduced in one step, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from tilewright import te
from tilewright.backends.cpu.strategies.conv import Geometry, Ints, channels_last, placed, window, windows_of
from tilewright.backends.cpu.strategies.schedules.reduce import ReduceSchedule
from tilewright.backends.cpu.strategies.schedules.window_rows import WindowRowsSchedule
from tilewright.scalar.expr import IntImm, PrimExpr, Var, as_expr, cast, if_then_else, maximum, minimum
from tilewright.topi import channel_blocks
from tilewright.topi.elementwise import greatest

Reducer = Callable[..., PrimExpr]
Finish = Callable[[PrimExpr, Sequence[PrimExpr]], PrimExpr]

_LONGEST_ROW: Final = 4 << 20
"""Largest size in bytes of an intermediate row between the two steps of a pool."""


def max_pool(
    data: te.Tensor, ksize: Ints, strides: Ints, padding: Ints, dilation: Ints, layout: str, scheduled: bool = True
) -> te.Tensor:
    """Return the maximum of each window; padding counts as minus infinity. `padding` includes the additions of ceil
    mode.

    Without `scheduled`, it is the plain definition, for any back end.
    """
    if channel_blocks.is_blocked(layout) or not scheduled:
        return channel_blocks.pool(
            data, ksize, strides, padding, dilation, layout, greatest, te.min_value(data.dtype), None, "max_pool",
            scheduled
        )
    g = Geometry(data, channels_last(layout), ksize, strides, padding, dilation)
    return _pool(g, greatest, te.min_value(data.dtype), None, name="max_pool")


def avg_pool(
    data: te.Tensor, ksize: Ints, strides: Ints, padding: Ints, dilation: Ints, layout: str, count_include_pad: bool,
    counted: Ints | None = None, scheduled: bool = True,
) -> te.Tensor:
    """Return the mean of each window. `counted` is the part of `padding` that counts as elements with
    `count_include_pad`.

    Without `scheduled`, it is the plain definition, for any back end.
    """
    blocked = channel_blocks.is_blocked(layout) or not scheduled
    g = Geometry(data, channels_last(layout), ksize, strides, padding, dilation)
    n_dims = len(g.ksize)
    pads = list(counted if counted is not None else padding) if count_include_pad else [0] * (2 * n_dims)
    last = n_dims - 1
    uneven = not isinstance(_covered(g, last, Var("x", "int64"), pads[last], pads[-1]), IntImm)
    counts = te.compute(
        (g.out[-1],), lambda x: cast(data.dtype, _covered(g, last, x, pads[last], pads[-1])), name="counts",
        inline=not uneven
    )

    def mean(total: PrimExpr, point: Sequence[PrimExpr]) -> PrimExpr:
        count = as_expr(1)
        for d, o in enumerate(point[:-1]):
            count = count * _covered(g, d, o, pads[d], pads[n_dims + d])
        if blocked or not _by_rows(g) or _is_long(g):
            return total / cast(data.dtype, count * _covered(g, last, point[-1], pads[last], pads[-1]))
        each: PrimExpr = cast(data.dtype, count) * counts(point[-1])
        return total / each

    if blocked:
        return channel_blocks.pool(
            data, ksize, strides, padding, dilation, layout, te.sum, cast(data.dtype, 0), mean, "avg_pool", scheduled
        )
    return _pool(g, te.sum, cast(data.dtype, 0), mean, name="avg_pool")


def _pool(g: Geometry, reduce: Reducer, identity: PrimExpr, finish: Finish | None, name: str) -> te.Tensor:
    """Apply `reduce` to each window, with padding as `identity`; `finish(value, point)` computes the result from it."""
    if _by_rows(g):
        return (_each_window if _is_long(g) else _along_rows)(g, reduce, identity, finish, name)
    g = windows_of(g, identity)
    taps = g.taps()

    def term(n: Var, *rest: Var) -> PrimExpr:
        x, inside = g.at(n, rest[:-1], taps, rest[-1])
        return reduce(if_then_else(inside, x, identity), axis=taps)

    return window(g, g.data.extents[g.place[-1]], term, g.place, name, finish)


def _by_rows(g: Geometry) -> bool:
    """Return whether the width is contiguous, not the channels."""
    return g.place[-2] == len(g.place) - 1


def _is_long(g: Geometry) -> bool:
    """Return whether a row with its padding is too long for a thread to keep between two steps."""
    return not g.is_open and _row(g) * g.data.dtype.itemsize > _LONGEST_ROW


def _row(g: Geometry) -> int:
    """Return the number of elements of a row that windows reach, including padding."""
    row: int = (g.out[-1] - 1) * g.strides[-1] + (g.ksize[-1] - 1) * g.dilation[-1] + 1
    return row


def _each_window(g: Geometry, reduce: Reducer, identity: PrimExpr, finish: Finish | None, name: str) -> te.Tensor:
    """Return the pool in one step, without intermediate memory."""
    taps = g.taps()

    def element(*i: Var) -> PrimExpr:
        n, *point, c = (i[d] for d in g.place)
        x, inside = g.at(n, point, taps, c)
        return reduce(if_then_else(inside, x, identity), axis=taps)

    sizes = placed(g.place, (g.batch, *g.out, g.data.extents[g.place[-1]]))
    acc = te.compute(sizes, element, name=name, schedule=ReduceSchedule())

    def result(*i: Var) -> PrimExpr:
        _, *point, _ = (i[d] for d in g.place)
        return acc(*i) if finish is None else finish(acc(*i), point)

    return te.compute(sizes, result, name=f"{name}_out")


def _along_rows(g: Geometry, reduce: Reducer, identity: PrimExpr, finish: Finish | None, name: str) -> te.Tensor:
    """Return the pool in two steps: over the window's rows, `down[n, c, o…, x]` for every x including padding, then
    along the rows."""
    along = g.taps()[-1]
    stride, step, before = g.strides[-1], g.dilation[-1], g.before[-1]
    wide = _row(g)
    padding = [*g.before, *g.after[:-1], wide - before - g.sizes[-1]]
    rows = Geometry(g.data, g.place, [*g.ksize[:-1], 1], [*g.strides[:-1], 1], padding, [*g.dilation[:-1], 1])
    above, channels = rows.taps(), g.data.extents[g.place[-1]]

    def downwards(*i: Var) -> PrimExpr:
        n, *point, c = (i[d] for d in g.place)
        x, inside = rows.at(n, point, above, c)
        return reduce(if_then_else(inside, x, identity), axis=above)

    tall = placed(g.place, (g.batch, *rows.out, channels))
    down = te.compute(tall, downwards, name=f"{name}_down")
    beside = te.compute(tall, down, name=f"{name}_rows", inline=False)

    def sideways(*i: Var) -> PrimExpr:
        return reduce(beside(*i[:-1], i[-1] * stride + along.var * step), axis=[along])

    sizes = placed(g.place, (g.batch, *g.out, channels))
    flops = 2 * math.prod(sizes) * math.prod(g.ksize)
    acc = te.compute(
        sizes, sideways, name=name, schedule=WindowRowsSchedule(flops=flops, down=down, rows=beside, axis=g.place[-3])
    )

    def result(*i: Var) -> PrimExpr:
        _, *point, _ = (i[d] for d in g.place)
        return acc(*i) if finish is None else finish(acc(*i), point)

    return te.compute(sizes, result, name=f"{name}_out")


def _covered(g: Geometry, d: int, o: PrimExpr, before: int, after: int) -> PrimExpr:
    """Return the number of taps of a window along one dimension that are inside the image and its counted padding."""
    first, step, size = -g.before[d], g.dilation[d], g.ksize[d]
    low, high = -before, g.sizes[d] + after
    if first >= low and (
        g.after[d] <= after or (
            not g.is_open and (g.out[d] - 1) * g.strides[d] - g.before[d] + (size - 1) * step < high
        )
    ):
        return as_expr(size)
    start = o * g.strides[d] - g.before[d]
    skipped = maximum(low - start + step - 1, 0) // step
    reach = minimum((high - start + step - 1) // step, size)
    return maximum(reach - skipped, 1)
