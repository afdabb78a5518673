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
from tilewright.backends.cpu.strategies.conv import Geometry, window, windows_of
from tilewright.backends.cpu.strategies.schedules.window_rows import WindowRowsSchedule
from tilewright.backends.kernel_options import KernelOptions
from tilewright.scalar.expr import IntImm, PrimExpr, Var, as_expr, cast, if_then_else
from tilewright.topi import pool as plain
from tilewright.topi.channel_blocks import Finish, is_blocked
from tilewright.topi.elementwise import greatest
from tilewright.topi.layouts import axes_of_layout, placed
from tilewright.topi.windows import Ints

Reducer = Callable[..., PrimExpr]

_LONGEST_ROW: Final = 4 << 20
"""Largest size in bytes of an intermediate row between the two steps of a pool."""


def max_pool(
    data: te.Tensor, ksize: Ints, strides: Ints, padding: Ints, dilation: Ints, layout: str, options: KernelOptions
) -> te.Tensor:
    """Return the pool that `topi.pool.max_pool` defines."""
    g = _geometry(data, ksize, strides, padding, dilation, layout)
    if g is None:
        return plain.max_pool(data, ksize, strides, padding, dilation, layout)
    return _pool(g, greatest, te.min_value(data.dtype), None, options, "max_pool")


def avg_pool(
    data: te.Tensor, ksize: Ints, strides: Ints, padding: Ints, dilation: Ints, layout: str, count_include_pad: bool,
    counted: Ints | None = None, *, options: KernelOptions,
) -> te.Tensor:
    """Return the pool that `topi.pool.avg_pool` defines."""
    g = _geometry(data, ksize, strides, padding, dilation, layout)
    if g is None:
        return plain.avg_pool(data, ksize, strides, padding, dilation, layout, count_include_pad, counted)
    pads = plain.counted_padding(padding, counted, count_include_pad)
    mean = _mean_along_rows(g, pads) if _by_rows(g) else plain.mean_of(g, pads, data.dtype)
    return _pool(g, te.sum, cast(data.dtype, 0), mean, options, "avg_pool")


def _geometry(
    data: te.Tensor, ksize: Ints, strides: Ints, padding: Ints, dilation: Ints, layout: str
) -> Geometry | None:
    """Return the windows of a pool; None where the plain definition is its algorithm: for blocks of channels, and where
    a row with its padding is too long for a thread to keep between two steps."""
    if is_blocked(layout):
        return None
    g = Geometry(data, axes_of_layout(layout), ksize, strides, padding, dilation)
    return None if _by_rows(g) and not g.is_open and _row(g) * data.dtype.itemsize > _LONGEST_ROW else g


def _mean_along_rows(g: Geometry, pads: Ints) -> Finish:
    """Return `topi.pool.mean_of`, with the numbers of taps along a row in a tensor of their own where they differ."""
    dtype, n = g.data.dtype, len(g.ksize)
    last = n - 1
    uneven = not isinstance(g.covered(last, Var("x", "int64"), pads[last], pads[-1]), IntImm)
    counts = te.compute(
        (g.out[-1],), lambda x: cast(dtype, g.covered(last, x, pads[last], pads[-1])), name="counts", inline=not uneven
    )

    def mean(total: PrimExpr, point: Sequence[PrimExpr]) -> PrimExpr:
        count = as_expr(1)
        for d, o in enumerate(point[:-1]):
            count = count * g.covered(d, o, pads[d], pads[n + d])
        each: PrimExpr = cast(dtype, count) * counts(point[-1])
        return total / each

    return mean


def _pool(
    g: Geometry, reduce: Reducer, identity: PrimExpr, finish: Finish | None, options: KernelOptions, name: str
) -> te.Tensor:
    """Apply `reduce` to each window, with padding as `identity`; `finish(value, point)` computes the result from it."""
    if _by_rows(g):
        return _along_rows(g, reduce, identity, finish, name)
    g = windows_of(g, identity, 0, options)
    taps = g.taps()

    def term(n: Var, *rest: Var) -> PrimExpr:
        x, inside = g.at(n, rest[:-1], taps, rest[-1])
        return reduce(if_then_else(inside, x, identity), axis=taps)

    return window(g, g.data.extents[g.place[-1]], term, g.place, options, name, finish)


def _by_rows(g: Geometry) -> bool:
    """Return whether the width is contiguous, not the channels."""
    return g.place[-2] == len(g.place) - 1


def _row(g: Geometry) -> int:
    """Return the number of elements of a row that windows reach, including padding."""
    row: int = (g.out[-1] - 1) * g.strides[-1] + (g.ksize[-1] - 1) * g.dilation[-1] + 1
    return row


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
