"""Plain definitions of convolution and pooling for data in any layout, including blocked ones such as `NCHW8c`.

A point of the result is split into batch, channel and position, which give the indices of data and kernel. If these
have the same blocks, the conversions cancel. The kernels for plain layouts are in `conv` and `pool`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import DataType
from tilewright.scalar.expr import PrimExpr, Var, cast, const, if_then_else
from tilewright.tir.data_layout import BijectiveLayout, bijective_layout, layout
from tilewright.topi.kinds import ChannelBlocks, Reduction
from tilewright.topi.layouts import SPATIAL
from tilewright.topi.windows import Ints, Window

Finish = Callable[[PrimExpr, Sequence[PrimExpr]], PrimExpr]
"""From the value of a window and its place to the result."""


def plain_data(name: str, spatial: int) -> BijectiveLayout:
    """Return the conversion from a layout of data to N, C, spatial order. Raises `ShapeError` for blocks of spatial
    dimensions."""
    way = bijective_layout(name, "NC" + SPATIAL[spatial])
    for c in SPATIAL[spatial]:
        if way.src.factor_of(c) > 0:
            raise ShapeError(
                f"the layout {name} has blocks of the spatial dimension {c}; only N and C can have blocks"
            )
    return way


def plain_kernel(name: str, spatial: int) -> BijectiveLayout:
    """Return the conversion from a layout of kernels to O, I, spatial order."""
    return bijective_layout(name, "OI" + SPATIAL[spatial])


def is_blocked(*names: str) -> bool:
    """Return whether any of these layouts has blocks."""
    return any(layout(n).blocked for n in names if n)


def conv(
    data: te.Tensor, weight: te.Tensor, strides: Ints, padding: Ints, dilation: Ints, groups: int, data_layout: str,
    kernel_layout: str, out_layout: str, out_dtype: DataType, name: str = "conv_blocks",
) -> te.Tensor:
    """A convolution of tensors in any layouts, such as NCHW8c, OIHW8i8o and NCHW8c, summed in `out_dtype`, half floats
    in float32."""
    rank = len(strides)
    d, w, o = plain_data(data_layout, rank), plain_kernel(kernel_layout, rank), plain_data(out_layout, rank)
    batch, _, *sizes = d.forward_shape(data.extents)
    channels, depth, *ksize = w.forward_shape(weight.extents)
    window = Window(sizes, ksize, strides, padding, dilation)
    taps = window.taps()
    per_group = channels // groups
    block = math.gcd(depth, max(1, d.src.factor_of("C")))
    chunk, lane = te.reduce_axis((0, depth // block), "chunk"), te.reduce_axis((0, block), "lane")

    acc = DataType("float32") if out_dtype.is_float and out_dtype.bits < 32 else out_dtype

    def element(*i: Var) -> PrimExpr:
        n, c, *point = o.forward_index(i)
        where, inside = window.under(point, taps)
        own = chunk.var * block + lane.var if block > 1 else chunk.var
        group = c if per_group == 1 else c // per_group
        channel = own if groups == 1 else group if depth == 1 else group * depth + own
        x = cast(acc, data(*d.backward_index([n, channel, *where])))
        k = cast(acc, weight(*w.backward_index([c, own, *(t.var for t in taps)])))
        return te.sum(if_then_else(inside, x, const(0, acc)) * k, axis=[chunk, *taps, lane])

    shape = o.backward_shape([batch, channels, *window.out])
    return _finished(
        shape, element, o, math.prod(shape) * depth * math.prod(ksize), lambda total, _: cast(out_dtype, total), name,
        is_blocked(data_layout, kernel_layout, out_layout)
    )


def pool(
    data: te.Tensor, ksize: Ints, strides: Ints, padding: Ints, dilation: Ints, data_layout: str,
    reduce: Callable[..., PrimExpr], identity: PrimExpr, finish: Finish | None, name: str,
) -> te.Tensor:
    """Apply `reduce` to each window, with padding as `identity`; `finish(value, position)` computes the result from it.
    """
    way = plain_data(data_layout, len(ksize))
    batch, channels, *sizes = way.forward_shape(data.extents)
    window = Window(sizes, ksize, strides, padding, dilation)
    taps = window.taps()

    def element(*i: Var) -> PrimExpr:
        n, c, *point = way.forward_index(i)
        where, inside = window.under(point, taps)
        return reduce(if_then_else(inside, data(*way.backward_index([n, c, *where])), identity), axis=taps)

    shape = way.backward_shape([batch, channels, *window.out])
    return _finished(
        shape, element, way, math.prod(shape) * math.prod(ksize), finish, name, is_blocked(data_layout)
    )


def _finished(
    shape: Sequence[Any], element: Callable[..., PrimExpr], out: BijectiveLayout, steps: int, finish: Finish | None,
    name: str, blocked: bool,
) -> te.Tensor:
    """Return the sums of `element`, with `finish` applied to each."""
    kind = ChannelBlocks(out.src.index_of(out.dst[-1]), 2 * steps) if blocked else Reduction()
    total = te.compute(shape, element, name=name, schedule=kind)

    def result(*i: Var) -> PrimExpr:
        return total(*i) if finish is None else finish(total(*i), out.forward_index(i)[2:])

    return te.compute(shape, result, name=f"{name}_out")
