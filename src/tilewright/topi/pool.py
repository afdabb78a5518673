"""Pooling over windows of one to three spatial dimensions, and over whole images."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright import te
from tilewright.expr import PrimExpr, Var, as_expr, cast, if_then_else, maximum, minimum
from tilewright.topi.conv import Geometry, Ints, channels_last, window
from tilewright.topi.elementwise import greatest


def max_pool(data: te.Tensor, ksize: Ints, strides: Ints, padding: Ints, dilation: Ints, layout: str) -> te.Tensor:
    """The maximum of each window; padding counts as minus infinity. `padding` includes what ceil mode adds."""
    g = Geometry(data, channels_last(layout), ksize, strides, padding, dilation)
    taps = g.taps()

    def term(n: Var, *rest: Var) -> PrimExpr:
        x, inside = g.at(n, rest[:-1], taps, rest[-1])
        return greatest(if_then_else(inside, x, te.min_value(data.dtype)), axis=taps)

    return window(g, data.extents[g.place[-1]], term, channels_last(layout), name="max_pool")


def avg_pool(
    data: te.Tensor, ksize: Ints, strides: Ints, padding: Ints, dilation: Ints, layout: str, count_include_pad: bool, counted: Ints | None = None
) -> te.Tensor:
    """The mean of each window. `counted` is the part of `padding` that counts as elements when `count_include_pad` is set."""
    g = Geometry(data, channels_last(layout), ksize, strides, padding, dilation)
    taps = g.taps()
    n_dims = len(g.ksize)
    pads = list(counted if counted is not None else padding) if count_include_pad else [0] * (2 * n_dims)

    def term(n: Var, *rest: Var) -> PrimExpr:
        x, inside = g.at(n, rest[:-1], taps, rest[-1])
        return te.sum(if_then_else(inside, x, cast(data.dtype, 0)), axis=taps)

    def mean(total: PrimExpr, point: Sequence[PrimExpr]) -> PrimExpr:
        count = as_expr(1)
        for d, o in enumerate(point):
            count = count * _covered(g, d, o, pads[d], pads[n_dims + d])
        return total / cast(data.dtype, count)

    return window(g, data.extents[g.place[-1]], term, channels_last(layout), name="avg_pool", finish=mean)


def _covered(g: Geometry, d: int, o: PrimExpr, before: int, after: int) -> PrimExpr:
    """How many taps of a window along one dimension count: those inside the image and its counted padding."""
    first, step, size = -g.before[d], g.dilation[d], g.ksize[d]
    low, high = -before, g.sizes[d] + after
    if first >= low and (g.out[d] - 1) * g.strides[d] - g.before[d] + (size - 1) * step < high:
        return as_expr(size)
    start = o * g.strides[d] - g.before[d]
    skipped = maximum(low - start + step - 1, 0) // step
    reach = minimum((high - start + step - 1) // step, size)
    return maximum(reach - skipped, 1)
