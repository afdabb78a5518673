"""Pooling over windows, over whole images, and to a given size; and the gradient of pooling.

Padding is `(*before, *after)` over the spatial dimensions. `pool_type` is "max" or "avg". With `ceil_mode`, the last
window of a pool can begin in the padding after the data, as in TVM's functions: its maximum is the least value of the
type, and its mean is 0. Relay's operators leave such windows out.
"""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.scalar.expr import (
    EQ,
    PrimExpr,
    Var,
    all_of,
    cast,
    compare,
    const,
    floordiv,
    floormod,
    if_then_else,
    maximum,
    minimum,
)
from tilewright.topi import pool as of
from tilewright.topi.adaptive import adaptive_pool as to_size
from tilewright.topi.algorithms import fastest
from tilewright.topi.kinds import Reduction
from tilewright.topi.layouts import axes_of_layout, data_axes
from tilewright.topi.reduction import arg_reduce
from tilewright.topi.tag import tagged
from tilewright.topi.windows import Ints, padding_of, per_dimension, pooled_size, reaching, window_count


def _is_mean(pool_type: str) -> bool:
    if pool_type not in ("max", "avg"):
        raise ShapeError(f"pool_type '{pool_type}' is not supported; it must be max or avg")
    return pool_type == "avg"


def _pool(
    data: te.Tensor, rank: int, kernel: Any, stride: Any, dilation: Any, padding: Any, pool_type: str, ceil_mode: bool,
    layout: str, count_include_pad: bool
) -> te.Tensor:
    window, every, apart = (
        per_dimension(v, rank, what) for v, what in ((kernel, "kernel"), (stride, "stride"), (dilation, "dilation"))
    )
    sides = padding_of(padding, window)
    sizes = [data.extents[d] for d in axes_of_layout(layout)[1:-1]]
    counts = [
        window_count(
            n, sides[k], sides[rank + k] + (every[k] - 1 if ceil_mode else 0), window[k], every[k], apart[k], k
        ) for k, n in enumerate(sizes)
    ]
    whole = reaching(tuple(sizes), counts, window, every, apart, sides, ceil_mode)
    if _is_mean(pool_type):
        return fastest(of.avg_pool)(data, window, every, whole, apart, layout, count_include_pad, sides)
    return _computed(fastest(of.max_pool)(data, window, every, whole, apart, layout))


def _computed(t: te.Tensor) -> te.Tensor:
    """Return the reduction that `t` is an element-by-element copy of, or else `t`: a script schedules the reduction
    itself."""
    body = t.op.body[0] if isinstance(t.op, te.ComputeOp) else None
    if isinstance(body, te.TensorElem) and body.indices == tuple(a.var for a in t.op.axis) and isinstance(
        body.tensor.op, te.ComputeOp
    ) and body.tensor.op.schedule is not None:
        return body.tensor
    return t


@tagged("pool_max")
def pool1d(
    data: te.Tensor, kernel: int | Ints, stride: int | Ints, dilation: int | Ints, padding: int | Ints, pool_type: str,
    ceil_mode: bool = False, layout: str = "NCW", count_include_pad: bool = True,
) -> te.Tensor:
    """Return the maximum or mean of each window of (batch, channels, width)."""
    return _pool(data, 1, kernel, stride, dilation, padding, pool_type, ceil_mode, layout, count_include_pad)


@tagged("pool_max")
def pool2d(
    data: te.Tensor, kernel: int | Ints, stride: int | Ints, dilation: int | Ints, padding: int | Ints, pool_type: str,
    ceil_mode: bool = False, layout: str = "NCHW", count_include_pad: bool = True,
) -> te.Tensor:
    """Return the maximum or mean of each window of (batch, channels, height, width)."""
    return _pool(data, 2, kernel, stride, dilation, padding, pool_type, ceil_mode, layout, count_include_pad)


@tagged("pool_max")
def pool3d(
    data: te.Tensor, kernel: int | Ints, stride: int | Ints, dilation: int | Ints, padding: int | Ints, pool_type: str,
    ceil_mode: bool = False, layout: str = "NCDHW", count_include_pad: bool = True,
) -> te.Tensor:
    """Return the maximum or mean of each window of (batch, channels, depth, height, width)."""
    return _pool(data, 3, kernel, stride, dilation, padding, pool_type, ceil_mode, layout, count_include_pad)


def _to_size(data: te.Tensor, output_size: Any, pool_type: str, layout: str, rank: int) -> te.Tensor:
    sizes = per_dimension(output_size, rank, "output_size")
    return to_size(data, axes_of_layout(layout)[1:-1], sizes, _is_mean(pool_type))


@tagged("adaptive_pool")
def global_pool(data: te.Tensor, pool_type: str, layout: str = "NCHW") -> te.Tensor:
    """Return the maximum or mean of each image."""
    return _to_size(data, 1, pool_type, layout, len(axes_of_layout(layout)) - 2)


@tagged("adaptive_pool")
def adaptive_pool(data: te.Tensor, output_size: int | Ints, pool_type: str, layout: str = "NCHW") -> te.Tensor:
    """Pool images over windows [floor(i n / out), ceil((i + 1) n / out)), so that the result has `output_size`."""
    return _to_size(data, output_size, pool_type, layout, 2)


@tagged("adaptive_pool")
def adaptive_pool1d(data: te.Tensor, output_size: int | Ints, pool_type: str, layout: str = "NCW") -> te.Tensor:
    """Pool (batch, channels, width) to `output_size` as `adaptive_pool` does."""
    return _to_size(data, output_size, pool_type, layout, 1)


@tagged("adaptive_pool")
def adaptive_pool3d(data: te.Tensor, output_size: int | Ints, pool_type: str, layout: str = "NCDHW") -> te.Tensor:
    """Pool (batch, channels, depth, height, width) to `output_size` as `adaptive_pool` does."""
    return _to_size(data, output_size, pool_type, layout, 3)


@tagged("pool_grad")
def pool_grad(
    grads: te.Tensor, data: te.Tensor, kernel: int | Ints, stride: int | Ints, padding: int | Ints, pool_type: str,
    ceil_mode: bool = False, layout: str = "NCHW", count_include_pad: bool = True,
) -> te.Tensor:
    """Return the gradient of `pool2d` with respect to its data: the sum of the gradients of the windows over each
    element.

    A maximum passes its gradient to the first maximal element of the window, a mean passes equal shares to all.
    """
    window, every = per_dimension(kernel, 2, "kernel"), per_dimension(stride, 2, "stride")
    sides = padding_of(padding, window)
    _, _, *spatial = data_axes(layout, 2)
    sizes, counts = [data.extents[d] for d in spatial], [grads.extents[d] for d in spatial]
    wanted = [pooled_size(n, window[k], every[k], 1, sides[k], sides[2 + k], ceil_mode, k) for k, n in enumerate(sizes)]
    spread = every if ceil_mode else (1, 1)
    beyond = [
        window_count(n, sides[k], sides[2 + k] + spread[k] - 1, window[k], every[k], 1, k) for k, n in enumerate(sizes)
    ]
    if counts not in (wanted, beyond):  # those of Relay's operators, and those of `pool2d`
        raise ShapeError(f"gradients at {counts} positions do not fit windows at {wanted} positions")
    taps = [te.reduce_axis((0, w), f"k{d}") for d, w in enumerate(window)]
    found = None if _is_mean(pool_type) else _places_of_maxima(data, spatial, counts, window, every, sides)

    def element(*i: Var) -> PrimExpr:
        where: list[Any] = list(i)
        inside, share = all_of(), const(1, data.dtype)
        for k, d in enumerate(spatial):
            reach = i[d] + sides[k] - taps[k].var
            place = floordiv(reach, every[k])
            inside = all_of(inside, reach >= 0, compare(EQ, floormod(reach, every[k]), 0), place < counts[k])
            where[d] = place
            if found is None:
                share = share * cast(
                    data.dtype,
                    _counted(place, window[k], every[k], sides[k], sides[2 + k], sizes[k], count_include_pad)
                )
        value = grads(*where)
        if found is None:
            return te.sum(if_then_else(inside, value / share, const(0, data.dtype)), axis=taps)
        own = taps[0].var * window[1] + taps[1].var
        return te.sum(
            if_then_else(all_of(inside, compare(EQ, cast("int64", found(*where)), own)), value, const(0, data.dtype)),
            axis=taps
        )

    total = te.compute(data.shape, element, name="pool_grad_sum", schedule=Reduction())
    return te.compute(data.shape, total, name="pool_grad")


def _counted(
    place: PrimExpr, window: int, stride: int, before: int, after: int, size: int, with_padding: bool
) -> PrimExpr:
    """Return the number of elements that the window at `place` counts along one dimension."""
    low, high = (-before, size + after) if with_padding else (0, size)
    start = place * stride - before
    return maximum(minimum(start + window, high) - maximum(start, low), 1)


def _places_of_maxima(
    data: te.Tensor, spatial: Ints, counts: Ints, window: Ints, stride: Ints, padding: Ints
) -> te.Tensor:
    """Return the row-major tap index of the first maximum of each window."""
    shape = list(data.extents)
    for d, n in zip(spatial, counts, strict=True):
        shape[d] = n

    def seen(*i: Var) -> PrimExpr:
        where: list[Any] = list(i[: data.ndim])
        inside = all_of()
        for k, d in enumerate(spatial):
            where[d] = i[d] * stride[k] + i[data.ndim + k] - padding[k]
            inside = all_of(inside, where[d] >= 0, where[d] < data.extents[d])
        return if_then_else(inside, data(*where), te.min_value(data.dtype))

    windows = te.compute((*shape, *window), seen, name="windows")
    return arg_reduce(
        windows, [data.ndim, data.ndim + 1], False, True, False, "int32", "place_of_maximum", scheduled=False
    )


__all__ = [
    "adaptive_pool", "adaptive_pool1d", "adaptive_pool3d", "global_pool", "pool1d", "pool2d", "pool3d", "pool_grad"
]
