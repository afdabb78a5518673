"""Convolutions of one to three spatial dimensions, direct, in the layout they are given.

The accumulators are `acc[n, o…, group, oc]` with the output channels padded to whole panels; the weights are packed as
`[group, panel, k…, ic, k_last, column]`, so that one step of a micro-kernel reads one row of columns. A tap that falls in
the padding is a guarded step, which the loop passes turn into loop bounds and edge variants: it costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import te
from tilewright.expr import PrimExpr, Value, Var, all_of, cast, floordiv, floormod, if_then_else
from tilewright.tir.stmt import IterVar
from tilewright.topi import machine, winograd
from tilewright.topi.products import matmul_rows
from tilewright.topi.schedules.tile import schedule_conv
from tilewright.topi.schedules.window import schedule_window
from tilewright.topi.tiles import register_tile
from tilewright.topi.winograd_choice import cut
from tilewright.types import DataType

Ints = Sequence[int]


def channels_last(layout: str) -> tuple[int, ...]:
    """Where batch, the spatial dimensions in order, and channels stand in a layout: `NCHW` -> (0, 2, 3, 1)."""
    spatial = [layout.index(c) for c in "DHW" if c in layout]
    return (layout.index("N"), *spatial, layout.index("C"))


def kernel_order(layout: str) -> tuple[int, ...]:
    """Where output channels, input channels and the spatial dimensions stand in a kernel layout: `HWIO` -> (3, 2, 0, 1)."""
    return (layout.index("O"), layout.index("I"), *(layout.index(c) for c in "DHW" if c in layout))


def conv(
    data: te.Tensor, weight: te.Tensor, strides: Ints, padding: Ints, dilation: Ints, groups: int, data_layout: str, kernel_layout: str,
    out_layout: str, out_dtype: str,
) -> te.Tensor:
    """A convolution. `padding` is before… then after…, one for each spatial dimension; layouts such as NHWC and HWIO."""
    place, kernel = channels_last(data_layout), kernel_order(kernel_layout)
    shape, wshape = data.extents, weight.extents
    channels, ksize = wshape[kernel[0]], [wshape[d] for d in kernel[2:]]
    depth = wshape[kernel[1]]
    if groups == shape[place[-1]] and depth == 1 and groups > 1:
        return depthwise(data, weight, strides, padding, dilation, data_layout, kernel_layout, out_layout, out_dtype)
    plain = all(k == 1 for k in ksize) and all(s == 1 for s in strides) and not any(padding) and groups == 1
    if plain and data_layout == out_layout and place[-1] == len(shape) - 1:
        return _pointwise(data, weight, kernel, out_dtype)
    if groups == 1 and data_layout == out_layout == "NHWC":
        found = cut(data, weight, depth, channels, ksize, strides, padding, dilation, out_dtype)
        if found is not None:
            return winograd.convolution(data, weight, kernel, found)
    geometry = _Geometry(data, place, ksize, strides, padding, dilation)
    return _direct(geometry, weight, kernel, groups, channels // groups, depth, channels_last(out_layout), DataType(out_dtype))


class _Geometry:
    """The sliding window of a convolution or pooling over one tensor."""

    def __init__(self, data: te.Tensor, place: tuple[int, ...], ksize: Ints, strides: Ints, padding: Ints, dilation: Ints) -> None:
        n = len(ksize)
        self.data, self.place, self.ksize = data, place, list(ksize)
        self.strides, self.dilation = list(strides), list(dilation)
        self.before, self.after = list(padding[:n]), list(padding[n:])
        self.sizes = [data.extents[d] for d in place[1:-1]]
        self.batch = data.extents[place[0]]
        self.out = [
            (i + b + a - (k - 1) * d - 1) // s + 1
            for i, b, a, k, d, s in zip(self.sizes, self.before, self.after, ksize, dilation, strides, strict=True)
        ]

    def at(self, n: Value, point: Sequence[PrimExpr], taps: Sequence[IterVar], channel: Value) -> tuple[PrimExpr, PrimExpr]:
        """The input element under a tap, and the condition that it is not padding."""
        where: list[Any] = [None] * len(self.place)
        where[self.place[0]], where[self.place[-1]] = n, channel
        inside: PrimExpr = all_of()
        for k, (o, tap) in enumerate(zip(point, taps, strict=True)):
            i = o * self.strides[k] + tap.var * self.dilation[k] - self.before[k]
            last = (self.out[k] - 1) * self.strides[k] + (self.ksize[k] - 1) * self.dilation[k] - self.before[k]
            if self.before[k]:
                inside = all_of(inside, i >= 0)
            if last >= self.sizes[k]:
                inside = all_of(inside, i < self.sizes[k])
            where[self.place[1 + k]] = i
        return self.data(*where), inside

    def taps(self) -> list[IterVar]:
        names = "kd", "kh", "kw"
        return [te.reduce_axis((0, k), names[3 - len(self.ksize) + d]) for d, k in enumerate(self.ksize)]


def _direct(
    g: _Geometry, weight: te.Tensor, kernel: tuple[int, ...], groups: int, channels: int, depth: int, out_place: tuple[int, ...], out_dtype: DataType
) -> te.Tensor:
    steps = depth * math.prod(g.ksize)
    tile = register_tile(g.out[-1], channels, steps, machine.current(), stride=g.strides[-1], taps=g.ksize[-1])
    columns = tile.columns
    panels = -(-channels // columns)
    packed = _pack(weight, kernel, groups, channels, depth, g.ksize, panels, columns)
    taps = g.taps()
    rc = te.reduce_axis((0, depth), "ic")

    def term(n: Var, *rest: Var) -> PrimExpr:
        point, group, c = rest[:-2], rest[-2], rest[-1]
        x, inside = g.at(n, point, taps, group * depth + rc.var if groups > 1 else rc.var)
        w = packed(group, floordiv(c, columns), *(t.var for t in taps[:-1]), rc.var, taps[-1].var, floormod(c, columns))
        return te.sum(if_then_else(inside, cast(out_dtype, x) * cast(out_dtype, w), cast(out_dtype, 0)), axis=[*taps[:-1], rc, taps[-1]])

    flops = 2 * g.batch * math.prod(g.out) * channels * groups * steps
    acc = te.compute(
        (g.batch, *g.out, groups, panels * columns), term, name="conv", schedule=schedule_conv,
        attrs={"tile": tile, "groups": groups, "flops": flops, "left_bytes": math.prod(g.data.extents) * g.data.dtype.itemsize, "channels_last": out_place},
        axis_names=_names(len(g.out), "g", "oc"),
    )

    def result(*i: Var) -> PrimExpr:
        n, *point, c = (i[d] for d in out_place)
        value: PrimExpr = acc(n, *point, floordiv(c, channels), floormod(c, channels)) if groups > 1 else acc(n, *point, 0, c)
        return value

    return te.compute(_placed(out_place, (g.batch, *g.out, groups * channels)), result, name="conv_out")  # type: ignore[no-any-return]


def _placed(place: tuple[int, ...], sizes: Sequence[int]) -> list[int]:
    shape = [0] * len(sizes)
    for d, size in zip(place, sizes, strict=True):
        shape[d] = size
    return shape


def _names(spatial: int, *last: str) -> list[str]:
    return ["n", *("od", "oh", "ow")[3 - spatial :], *last]


def _pack(
    weight: te.Tensor, kernel: tuple[int, ...], groups: int, channels: int, depth: int, ksize: list[int], panels: int, columns: int
) -> te.Tensor:
    def on_arrays(w: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        padded = w.transpose(kernel).reshape(groups, channels, depth, *ksize)
        if channels != panels * columns:
            exact, padded = padded, np.zeros((groups, panels * columns, depth, *ksize), w.dtype)
            padded[:, :channels] = exact
        split = padded.reshape(groups, panels, columns, depth, *ksize)
        n = len(ksize)
        return split.transpose(0, 1, *range(4, 3 + n), 3, 3 + n, 2)

    def element(group: Var, panel: Var, *rest: Var) -> PrimExpr:
        *outer, ic, last, column = rest
        c = panel * columns + column
        where: list[Any] = [None] * len(kernel)
        for d, v in zip(kernel, (group * channels + c, ic, *outer, last), strict=True):
            where[d] = v
        return if_then_else(c < channels, weight(*where), cast(weight.dtype, 0))

    shape = (groups, panels, *ksize[:-1], depth, ksize[-1], columns)
    return te.compute(shape, element, name="packed", prepack=on_arrays)  # type: ignore[no-any-return]


def _pointwise(data: te.Tensor, weight: te.Tensor, kernel: tuple[int, ...], out_dtype: str) -> te.Tensor:
    """A 1x1 convolution of channels-last data is a product of all its pixels with the weights."""
    wshape = weight.extents
    columns, depth = wshape[kernel[0]], wshape[kernel[1]]

    def element(n: PrimExpr, k: PrimExpr) -> PrimExpr:
        where: list[Any] = [0] * len(kernel)
        where[kernel[0]], where[kernel[1]] = n, k
        return weight(*where)

    def matrix(w: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return w.transpose(kernel).reshape(columns, depth)

    return matmul_rows(data, weight, element, matrix, columns, depth, out_dtype, name="conv")


def depthwise(
    data: te.Tensor, weight: te.Tensor, strides: Ints, padding: Ints, dilation: Ints, data_layout: str, kernel_layout: str, out_layout: str,
    out_dtype: str,
) -> te.Tensor:
    """Each input channel with its own kernels, `weight` of one input channel and `multiplier` outputs for each."""
    place, kernel, out_place = channels_last(data_layout), kernel_order(kernel_layout), channels_last(out_layout)
    wshape, inputs = weight.extents, data.extents[place[-1]]
    ksize = [wshape[d] for d in kernel[2:]]
    channels = wshape[kernel[0]]
    multiplier = channels // inputs
    g = _Geometry(data, place, ksize, strides, padding, dilation)
    taps = g.taps()

    def on_arrays(w: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.ascontiguousarray(w.transpose(*kernel[2:], kernel[0], kernel[1]).reshape(*ksize, channels))

    def element(*i: Var) -> PrimExpr:
        where: list[Any] = [0] * len(kernel)
        for d, v in zip(kernel[2:], i[:-1], strict=True):
            where[d] = v
        where[kernel[0]] = i[-1]
        return weight(*where)

    packed = te.compute((*ksize, channels), element, name="packed", prepack=on_arrays)

    def term(n: Var, *rest: Var) -> PrimExpr:
        *point, c = rest
        x, inside = g.at(n, point, taps, floordiv(c, multiplier))
        w = packed(*(t.var for t in taps), c)
        return te.sum(if_then_else(inside, cast(out_dtype, x) * cast(out_dtype, w), cast(out_dtype, 0)), axis=taps)

    return window(g, channels, term, out_place, name="depthwise")


def window(g: _Geometry, channels: int, term: Any, out_place: tuple[int, ...], name: str, finish: Any = None) -> te.Tensor:
    """A reduction over the taps of a window, channel by channel; `finish(acc, point)` makes the result of it."""
    flops = 2 * g.batch * math.prod(g.out) * channels * math.prod(g.ksize)
    acc = te.compute(
        (g.batch, *g.out, channels), term, name=name, schedule=schedule_window,
        attrs={"flops": flops, "channels_last": out_place, "stride": g.strides[-1], "taps": math.prod(g.ksize)}, axis_names=_names(len(g.out), "c"),
    )

    def result(*i: Var) -> PrimExpr:
        n, *point, c = (i[d] for d in out_place)
        value: PrimExpr = acc(n, *point, c) if finish is None else finish(acc(n, *point, c), point)
        return value

    return te.compute(_placed(out_place, (g.batch, *g.out, channels)), result, name=f"{name}_out")  # type: ignore[no-any-return]
