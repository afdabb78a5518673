"""Transposed convolutions without overlap: each input pixel makes one block of the result, by a matrix product."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright import te
from tilewright.backends.cpu.strategies.products import flatten, row_products, unflatten
from tilewright.backends.cpu.strategies.schedules.open_rows import balanced_pixels
from tilewright.backends.kernel_options import KernelOptions
from tilewright.base.types import DataType
from tilewright.scalar.expr import PrimExpr, Var, cast, floordiv, floormod
from tilewright.topi import conv_transpose as plain
from tilewright.topi.conv_transpose import at_axes
from tilewright.topi.shapes import inverse
from tilewright.topi.windows import Ints


def conv_transpose(
    data: te.Tensor, weight: te.Tensor, strides: Ints, before: Ints, dilation: Ints, groups: int, sizes: Ints,
    data_order: Ints, kernel_order: Ints, out_order: Ints, out_dtype: DataType, options: KernelOptions,
) -> te.Tensor:
    """The convolution that `topi.conv_transpose` defines; by a matrix product where channels are last and the windows
    of neighbouring pixels lie side by side."""
    shape = [data.extents[d] for d in data_order]
    kernel = [weight.extents[d] for d in kernel_order]
    last = (0, len(shape) - 1, *range(1, len(shape) - 1))
    apart = list(strides) == kernel[2:] and not any(before) and groups == 1 and all(d == 1 for d in dilation)
    whole = list(sizes) == [n * k for n, k in zip(shape[2:], strides, strict=True)]
    if apart and whole and tuple(data_order) == last == tuple(inverse(tuple(out_order))):
        return _without_overlap(data, weight, kernel, kernel_order, out_dtype, options)
    return plain.conv_transpose(
        data, weight, strides, before, dilation, groups, sizes, data_order, kernel_order, out_order, out_dtype
    )


def _without_overlap(
    data: te.Tensor, weight: te.Tensor, kernel: Ints, kernel_order: Ints, out_dtype: DataType, options: KernelOptions
) -> te.Tensor:
    """The product of pixels with the kernel as a matrix whose columns are (tap…, channel)."""
    depth, channels, taps = kernel[0], kernel[1], tuple(kernel[2:])
    columns = channels * math.prod(taps)

    def element(n: PrimExpr, k: PrimExpr) -> PrimExpr:
        tap = unflatten(floordiv(n, channels), taps)
        return weight(*at_axes((k, floormod(n, channels), *tap), kernel_order))

    def matrix(w: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        n = len(taps)
        return w.transpose(kernel_order).transpose(*range(2, 2 + n), 1, 0).reshape(columns, depth)

    acc = row_products(
        data, weight, element, matrix, columns, depth, out_dtype, options, "conv_transpose", scattered=taps,
        heights=balanced_pixels
    )
    lead = data.extents[:-1]

    def result(n: Var, *rest: Var) -> PrimExpr:
        *point, c = rest
        row = flatten((n, *(floordiv(o, s) for o, s in zip(point, taps, strict=True))), lead)
        column = flatten((*(floormod(o, s) for o, s in zip(point, taps, strict=True)), c), (*taps, channels))
        return cast(out_dtype, acc(row, column))

    return te.compute(
        (lead[0], *(n * s for n, s in zip(lead[1:], taps, strict=True)), channels), result, name="conv_transpose_out"
    )
