"""Plain definitions of convolution and pooling for data in any layout, including blocked ones such as `NCHW8c`.

A point of the result is split into batch, channel and position, which give the indices of data and kernel. If these
have the same blocks, the conversions cancel. The kernels for plain layouts are in `conv` and `pool`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te
from tilewright.backends.cpu.strategies.schedules.channel_blocks import ChannelBlocksSchedule
from tilewright.base.errors import ShapeError
from tilewright.base.types import DataType
from tilewright.scalar.expr import PrimExpr, Var, all_of, cast, const, if_then_else
from tilewright.tir.data_layout import BijectiveLayout, bijective_layout, layout
from tilewright.tir.stmt import IterVar
from tilewright.topi.layouts import SPATIAL

Ints = Sequence[int]


def plain_data(name: str, spatial: int) -> BijectiveLayout:
    """Return the conversion from a layout of data to N, C, spatial order. Raises `ShapeError` for blocks of spatial
    dimensions."""
    way = bijective_layout(name, "NC" + SPATIAL[spatial])
    for c in SPATIAL[spatial]:
        if way.src.factor_of(c) > 0:
            raise ShapeError(
                f"the layout {name} has blocks of the dimension {c}, and windows slide along it; only N and C can have "
                "blocks"
            )
    return way


def plain_kernel(name: str, spatial: int) -> BijectiveLayout:
    """Return the conversion from a layout of kernels to O, I, spatial order."""
    return bijective_layout(name, "OI" + SPATIAL[spatial])


def is_blocked(*names: str) -> bool:
    """Return whether any of these layouts has blocks."""
    return any(layout(n).blocked for n in names if n)


class _Window:
    """The taps of a window, and the positions that they read."""

    def __init__(self, sizes: Sequence[int], ksize: Ints, strides: Ints, padding: Ints, dilation: Ints) -> None:
        n = len(ksize)
        self.sizes, self.strides, self.dilation, self.before = sizes, strides, dilation, padding[:n]
        reach = [(k - 1) * d + 1 for k, d in zip(ksize, dilation, strict=True)]
        self.out = [(size + padding[k] + padding[n + k] - reach[k]) // strides[k] + 1 for k, size in enumerate(sizes)]
        self.last = [(o - 1) * strides[k] + reach[k] - 1 - padding[k] for k, o in enumerate(self.out)]
        self.taps: list[IterVar] = [
            te.reduce_axis((0, size), name) for size, name in zip(ksize, ("kd", "kh", "kw")[3 - n :], strict=True)
        ]

    def at(self, point: Sequence[PrimExpr]) -> tuple[list[PrimExpr], PrimExpr]:
        """Return the position that each tap reads, and the condition that it is not padding."""
        where: list[PrimExpr] = []
        inside: PrimExpr = all_of()
        for k, (o, tap) in enumerate(zip(point, self.taps, strict=True)):
            i = o * self.strides[k] + tap.var * self.dilation[k] - self.before[k]
            if self.before[k]:
                inside = all_of(inside, i >= 0)
            if self.last[k] >= self.sizes[k]:
                inside = all_of(inside, i < self.sizes[k])
            where.append(i)
        return where, inside


def conv(
    data: te.Tensor, weight: te.Tensor, strides: Ints, padding: Ints, dilation: Ints, groups: int, data_layout: str,
    kernel_layout: str, out_layout: str, out_dtype: DataType, name: str = "conv_blocks", scheduled: bool = True,
) -> te.Tensor:
    """Return the convolution of tensors in any layouts, such as NCHW8c, OIHW8i8o and NCHW8c, summed in `out_dtype`;
    16-bit floats are summed in float32.

    Without `scheduled`, it is the plain definition, for any back end.
    """
    rank = len(strides)
    d, w, o = plain_data(data_layout, rank), plain_kernel(kernel_layout, rank), plain_data(out_layout, rank)
    batch, _, *sizes = d.forward_shape(data.extents)
    channels, depth, *ksize = w.forward_shape(weight.extents)
    window = _Window(sizes, ksize, strides, padding, dilation)
    per_group = channels // groups
    block = math.gcd(depth, max(1, d.src.factor_of("C")))
    chunk, lane = te.reduce_axis((0, depth // block), "chunk"), te.reduce_axis((0, block), "lane")

    acc = DataType("float32") if out_dtype.is_float and out_dtype.bits < 32 else out_dtype

    def element(*i: Var) -> PrimExpr:
        n, c, *point = o.forward_index(i)
        where, inside = window.at(point)
        own = chunk.var * block + lane.var if block > 1 else chunk.var
        group = c if per_group == 1 else c // per_group
        channel = own if groups == 1 else group if depth == 1 else group * depth + own
        x = cast(acc, data(*d.backward_index([n, channel, *where])))
        k = cast(acc, weight(*w.backward_index([c, own, *(t.var for t in window.taps)])))
        return te.sum(if_then_else(inside, x, const(0, acc)) * k, axis=[chunk, *window.taps, lane])

    shape = o.backward_shape([batch, channels, *window.out])
    return _scheduled(
        shape, element, o, math.prod(shape) * depth * math.prod(ksize), lambda total, _: cast(out_dtype, total), name,
        scheduled
    )


def pool(
    data: te.Tensor, ksize: Ints, strides: Ints, padding: Ints, dilation: Ints, data_layout: str,
    reduce: Callable[..., PrimExpr], identity: PrimExpr,
    finish: Callable[[PrimExpr, Sequence[PrimExpr]], PrimExpr] | None, name: str, scheduled: bool = True,
) -> te.Tensor:
    """Apply `reduce` to each window, with padding as `identity`; `finish(value, position)` computes the result from it.
    """
    way = plain_data(data_layout, len(ksize))
    batch, channels, *sizes = way.forward_shape(data.extents)
    window = _Window(sizes, ksize, strides, padding, dilation)

    def element(*i: Var) -> PrimExpr:
        n, c, *point = way.forward_index(i)
        where, inside = window.at(point)
        return reduce(if_then_else(inside, data(*way.backward_index([n, c, *where])), identity), axis=window.taps)

    shape = way.backward_shape([batch, channels, *window.out])
    return _scheduled(shape, element, way, math.prod(shape) * math.prod(ksize), finish, name, scheduled)


def _scheduled(
    shape: Sequence[Any], element: Callable[..., PrimExpr], out: BijectiveLayout, flops: int,
    finish: Callable[[PrimExpr, Sequence[PrimExpr]], PrimExpr] | None, name: str, scheduled: bool,
) -> te.Tensor:
    """Return the result computed from the scheduled sums."""
    row = out.src.index_of(out.dst[-1])
    total = te.compute(
        shape, element, name=name, schedule=ChannelBlocksSchedule(flops=2 * flops, row=row) if scheduled else None
    )

    def result(*i: Var) -> PrimExpr:
        return total(*i) if finish is None else finish(total(*i), out.forward_index(i)[2:])

    return te.compute(shape, result, name=f"{name}_out")
