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
from tilewright.topi.layouts import placed
from tilewright.topi.windows import Ints


def without_overlap(
    data: te.Tensor, weight: te.Tensor, kernel_order: Ints, out_dtype: DataType, options: KernelOptions
) -> te.Tensor:
    """Return the product of the pixels of `data`, channels last, with the kernel as a matrix whose columns are (tap…,
    channel); `kernel_order` are its axes I, O and spatial."""
    kernel = [weight.extents[d] for d in kernel_order]
    depth, channels, taps = kernel[0], kernel[1], tuple(kernel[2:])
    columns = channels * math.prod(taps)

    def element(n: PrimExpr, k: PrimExpr) -> PrimExpr:
        tap = unflatten(floordiv(n, channels), taps)
        return weight(*placed(kernel_order, (k, floormod(n, channels), *tap)))

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
