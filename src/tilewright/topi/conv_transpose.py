"""Transposed convolutions as sums over the taps that contribute to an element of the result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import te
from tilewright.backends.cpu.strategies.products import flatten, row_products, unflatten
from tilewright.backends.cpu.strategies.schedules.open_rows import balanced_pixels
from tilewright.backends.cpu.strategies.schedules.reduce import ReduceSchedule
from tilewright.base.types import DataType
from tilewright.scalar import expr as E
from tilewright.scalar.expr import PrimExpr, Var

Ints = Sequence[int]


def conv_transpose(
    data: te.Tensor, weight: te.Tensor, strides: Ints, before: Ints, dilation: Ints, groups: int, sizes: Ints,
    data_order: Ints, kernel_order: Ints, out_order: Ints, out_dtype: DataType,
) -> te.Tensor:
    """Return the transposed convolution. `data_order` and `kernel_order` permute the inputs to NC… and IO…; `out_order`
    permutes the result from NC…."""
    shape = [data.extents[d] for d in data_order]
    kernel = [weight.extents[d] for d in kernel_order]
    last = [0, len(shape) - 1, *range(1, len(shape) - 1)]
    apart = list(strides) == kernel[2:] and not any(before) and groups == 1 and all(d == 1 for d in dilation)
    if apart and list(sizes) == [
        n * k for n, k in zip(shape[2:], strides, strict=True)
    ] and list(data_order) == last == _inverse(out_order):
        return _without_overlap(data, weight, kernel, kernel_order, out_dtype)
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
        x = data(*_placed((n, ic, *where), data_order))
        w = weight(*_placed((ic, E.floormod(c, width), *(t.var for t in taps)), kernel_order))
        return te.sum(
            E.if_then_else(reached, E.mul(E.cast(out_dtype, x), E.cast(out_dtype, w)), E.const(0, out_dtype)),
            axis=[*taps, channel]
        )

    result = (shape[0], width * groups, *sizes)
    total = te.compute([result[d] for d in out_order], element, name="conv_transpose", schedule=ReduceSchedule())
    return te.compute(total.shape, total, name="conv_transpose_out")


def _inverse(order: Ints) -> list[int]:
    return [list(order).index(d) for d in range(len(order))]


def _without_overlap(
    data: te.Tensor, weight: te.Tensor, kernel: Ints, kernel_order: Ints, out_dtype: DataType
) -> te.Tensor:
    """Return the result of non-overlapping taps: each input pixel makes one block, by a matrix product with columns
    (tap…, channel)."""
    depth, channels, taps = kernel[0], kernel[1], tuple(kernel[2:])
    columns = channels * math.prod(taps)

    def element(n: PrimExpr, k: PrimExpr) -> PrimExpr:
        tap = unflatten(E.floordiv(n, channels), taps)
        return weight(*_placed((k, E.floormod(n, channels), *tap), kernel_order))

    def matrix(w: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        n = len(taps)
        return w.transpose(kernel_order).transpose(*range(2, 2 + n), 1, 0).reshape(columns, depth)

    acc = row_products(
        data, weight, element, matrix, columns, depth, out_dtype, "conv_transpose", scattered=taps,
        heights=balanced_pixels
    )
    lead = data.extents[:-1]

    def result(n: Var, *rest: Var) -> PrimExpr:
        *point, c = rest
        row = flatten((n, *(E.floordiv(o, s) for o, s in zip(point, taps, strict=True))), lead)
        return E.cast(
            out_dtype,
            acc(row, flatten((*(E.floormod(o, s) for o, s in zip(point, taps, strict=True)), c), (*taps, channels)))
        )

    return te.compute(
        (lead[0], *(n * s for n, s in zip(lead[1:], taps, strict=True)), channels), result, name="conv_transpose_out"
    )


def _placed(indices: Sequence[Any], order: Ints) -> list[Any]:
    """Return indices in normal order, rearranged to the dimensions that `order` gives."""
    where: list[Any] = [None] * len(order)
    for v, d in zip(indices, order, strict=True):
        where[d] = v
    return where
