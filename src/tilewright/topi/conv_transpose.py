"""Transposed convolutions as sums over the taps that contribute to an element of the result: the plain definition."""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.base.types import DataType
from tilewright.scalar import expr as E
from tilewright.scalar.expr import PrimExpr, Var
from tilewright.topi.kinds import Reduction
from tilewright.topi.layouts import placed
from tilewright.topi.windows import Ints


def conv_transpose(
    data: te.Tensor, weight: te.Tensor, strides: Ints, before: Ints, dilation: Ints, groups: int, sizes: Ints,
    data_order: Ints, kernel_order: Ints, out_order: Ints, out_dtype: DataType,
) -> te.Tensor:
    """Return the transposed convolution. `data_order` and `kernel_order` permute the inputs to NC… and IO…; `out_order`
    permutes the result from NC…."""
    shape = [data.extents[d] for d in data_order]
    kernel = [weight.extents[d] for d in kernel_order]
    depth, width = shape[1] // groups, kernel[1]
    taps = [te.reduce_axis((0, k), f"k{d}") for d, k in enumerate(kernel[2:])]
    channel = te.reduce_axis((0, depth), "ic")

    def element(*i: Var) -> PrimExpr:
        n, c, *point = (i[out_order.index(d)] for d in range(len(i)))
        reached = E.all_of()
        where: list[Any] = []
        for k, (o, tap) in enumerate(zip(point, taps, strict=True)):
            position = o + before[k] - tap.var * dilation[k]
            reached = E.all_of(reached, position >= 0, position < shape[2 + k] * strides[k])
            if strides[k] > 1:
                reached = E.all_of(reached, E.compare(E.EQ, E.floormod(position, strides[k]), 0))
            where.append(E.floordiv(position, strides[k]))
        ic = E.add(E.mul(E.floordiv(c, width), depth), channel.var)
        x = data(*placed(data_order, (n, ic, *where)))
        w = weight(*placed(kernel_order, (ic, E.floormod(c, width), *(t.var for t in taps))))
        return te.sum(
            E.if_then_else(reached, E.mul(E.cast(out_dtype, x), E.cast(out_dtype, w)), E.const(0, out_dtype)),
            axis=[*taps, channel]
        )

    result = (shape[0], width * groups, *sizes)
    total = te.compute([result[d] for d in out_order], element, name="conv_transpose", schedule=Reduction())
    return te.compute(total.shape, total, name="conv_transpose_out")
