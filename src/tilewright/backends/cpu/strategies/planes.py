"""Convolutions in bfloat16 of images in NCHW with few channels, whose pairs are neighbours along a row.

    padded[n, c, y, x]   = data[n, c, y - top, x - left], zero beyond the image
                         bfloat16
    conv[n, oh, ow, oc]  = sum over kh, c, p of
                           dot2(pair(padded[n, c, oh*s + kh, ow*s + 2*p], its neighbour), packed[kh, c, p, oc])

A kernel of odd width is extended by a column of zeros.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import te
from tilewright.backends.cpu.strategies.dots import PAIRS, dot_of
from tilewright.backends.cpu.strategies.products import unroll
from tilewright.backends.cpu.strategies.schedules.tile import ConvSchedule
from tilewright.backends.cpu.strategies.tiles import Tile, conv_tile
from tilewright.backends.kernel_options import KernelOptions
from tilewright.base.types import DataType
from tilewright.scalar.expr import PrimExpr, Value, Var, all_of, as_expr, cast, const, floordiv, floormod, if_then_else
from tilewright.topi.layouts import placed

Array = np.ndarray[Any, Any]
Ints = Sequence[int]


def multiplies_neighbours(layout: str, ksize: Ints, dilation: Ints, groups: int) -> bool:
    """Return whether rows of the kernel can be split into pairs: NCHW, one group, and adjacent taps along a row."""
    return layout == "NCHW" and groups == 1 and isinstance(ksize[1], int) and ksize[1] > 1 and dilation[1] == 1


def applies(
    data: te.Tensor, weight: te.Tensor, depth: int, layout: str, ksize: Ints, dilation: Ints, groups: int,
    options: KernelOptions,
) -> bool:
    """Return whether `convolution` applies: a product of pairs exists for the dtypes, and the depth is odd."""
    return dot_of(
        data.dtype, weight.dtype, "float32", PAIRS.width, options
    ) is PAIRS and depth % 2 == 1 and multiplies_neighbours(layout, ksize, dilation, groups)


def convolution(
    data: te.Tensor, weight: te.Tensor, kernel: tuple[int, ...], strides: Ints, padding: Ints, dilation: Ints,
    out_place: tuple[int, ...], out_dtype: DataType, options: KernelOptions
) -> te.Tensor:
    """Return the convolution of `data` NCHW; the axes `kernel` of the weights are O, I, H, W, the result's `out_place`
    N, H, W, C."""
    batch, depth, *_ = data.extents
    channels, _, *ksize = (weight.extents[d] for d in kernel)
    pairs = -(-ksize[1] // 2)
    padded = _padded(data, ksize, strides, padding, dilation)
    out = [
        (padded.extents[2] - (ksize[0] - 1) * dilation[0] - 1) // strides[0] + 1,
        (padded.extents[3] - 2 * pairs) // strides[1] + 1
    ]
    steps = ksize[0] * depth * pairs
    tile, _ = conv_tile(out[1], channels, steps, options, strides[1], 1)
    panels = -(-channels // tile.columns)
    packed = _packed(weight, kernel, panels, tile)
    kh, c, p = (te.reduce_axis((0, size), name) for size, name in ((ksize[0], "kh"), (depth, "ic"), (pairs, "p")))

    def term(n: Var, oh: Var, ow: Var, _: Var, oc: Var) -> PrimExpr:
        y, x = oh * strides[0] + kh.var * dilation[0], ow * strides[1]
        w = packed(floordiv(oc, tile.columns), kh.var, c.var, p.var, floormod(oc, tile.columns))
        return te.sum(
            PAIRS.product(lambda t: padded(n, c.var, y, x + t), p.var, w, PAIRS.accumulator(out_dtype)), axis=[kh, c, p]
        )

    flops = 4 * batch * math.prod(out) * channels * steps
    acc = te.compute(
        (batch, *out, 1, panels * tile.columns), term, name="conv", axis_names=("n", "oh", "ow", "g", "oc"),
        schedule=ConvSchedule(
            tile=tile, unroll=unroll(pairs, options), flops=flops, padded=padded, channels_last=out_place,
            left_bytes=2 * math.prod(padded.extents),
        ),
    )

    def result(*i: Var) -> PrimExpr:
        n, oh, ow, oc = (i[d] for d in out_place)
        return cast(out_dtype, acc(n, oh, ow, 0, oc))

    return te.compute(placed(out_place, (batch, *out, channels)), result, name="conv_out")


def _padded(data: te.Tensor, ksize: Ints, strides: Ints, padding: Ints, dilation: Ints) -> te.Tensor:
    """Return the image with the padding that taps read; rows are extended for the last pair."""
    batch, depth, height, width = data.extents
    top, left, bottom, right = padding
    rows = (
        height + top + bottom - (ksize[0] - 1) * dilation[0] - 1
    ) // strides[0] * strides[0] + (ksize[0] - 1) * dilation[0] + 1
    columns = (width + left + right - ksize[1]) // strides[1] * strides[1] + 2 * -(-ksize[1] // 2)

    def element(n: Var, c: Var, y: Var, x: Var) -> PrimExpr:
        inside = all_of(*([y >= top] if top else []), *([y < top + height] if rows > top + height else []))
        along = all_of(*([x >= left] if left else []), *([x < left + width] if columns > left + width else []))
        return if_then_else(all_of(inside, along), data(n, c, y - top, x - left), const(0, data.dtype))

    return te.compute(
        (batch, depth, rows, columns), element, name="padded", inline=False, axis_names=("n", "c", "y", "x")
    )


def _packed(weight: te.Tensor, kernel: tuple[int, ...], panels: int, tile: Tile) -> te.Tensor:
    """Return the weights as panels `[panel, kh, c, pair, column]`, zero beyond the last column of the kernel and the
    last channel."""
    channels, depth, height, width = (weight.extents[d] for d in kernel)
    pairs = -(-width // 2)

    def on_arrays(w: Array) -> Array:
        full = np.zeros((panels * tile.columns, depth, height, 2 * pairs), w.dtype)
        full[:channels, ..., :width] = w.transpose(kernel)
        split = PAIRS.array(full, 3).reshape(panels, tile.columns, depth, height, pairs)
        return split.transpose(0, 3, 2, 4, 1)

    def element(panel: Var, kh: Var, c: Var, p: Var, column: Var) -> PrimExpr:
        oc = panel * tile.columns + column

        def at(kw: Value) -> PrimExpr:
            w = weight(*placed(kernel, (oc, c, kh, kw)))
            return if_then_else(all_of(oc < channels, as_expr(kw) < width), w, const(0, weight.dtype))

        return PAIRS.element(at, p)

    return te.compute((panels, height, depth, pairs, tile.columns), element, name="packed", prepack=on_arrays)
