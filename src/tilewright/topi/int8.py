"""Products and convolutions of unsigned by signed bytes, summed in 32 bits: four products a lane and step (`expr.dot4`).

The depth is read in words of four bytes: a word of the left operand goes into all lanes, and the weights, which are
constants, are packed as words `[panel, k / 4, column]`. Otherwise tiles and loops are those of floats. The depth must be a
multiple of four; who makes the graph pads channels. Sums wrap around, so their order does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from tilewright import te
from tilewright.expr import (
    PrimExpr,
    Ramp,
    Value,
    Var,
    as_expr,
    bitwise_and,
    bitwise_or,
    cast,
    const,
    dot4,
    floordiv,
    floormod,
    if_then_else,
    mul,
    reinterpret,
    shift_left,
)
from tilewright.te.tensor import TensorElem
from tilewright.topi import machine
from tilewright.topi.conv import Geometry, axis_names, channels_last, kernel_order, placed
from tilewright.topi.products import flatten, unflatten, unroll
from tilewright.topi.schedules.tile import schedule_conv, schedule_matmul
from tilewright.topi.tiles import Tile, register_tile
from tilewright.types import INT32, DataType

Array = np.ndarray[Any, Any]
Ints = Sequence[int]
WORD: Final = 4
"""Bytes that one step multiplies in each lane."""


def multiplies_bytes(data: te.Tensor, weight: te.Tensor, out_dtype: str | DataType, depth: int) -> bool:
    """Whether these kernels apply: unsigned data, signed weights, 32-bit sums, a depth in whole words."""
    return data.dtype == "uint8" and weight.dtype == "int8" and DataType(out_dtype) is INT32 and depth % WORD == 0


def dense(data: te.Tensor, weight: te.Tensor) -> te.Tensor:
    """`data[…, k]` (uint8) times the transpose of `weight[n, k]` (int8, constant): int32."""
    columns, depth = weight.extents
    return _rows(data, weight, weight, lambda w: w, columns, depth, "dense")


def conv(
    data: te.Tensor, weight: te.Tensor, strides: Ints, padding: Ints, dilation: Ints, data_layout: str, kernel_layout: str, out_layout: str
) -> te.Tensor:
    """A convolution in one group of channels-last uint8 data with a constant int8 kernel: int32. Padding is zeros."""
    place, kernel = channels_last(data_layout), kernel_order(kernel_layout)
    wshape = weight.extents
    channels, depth, *ksize = (wshape[d] for d in kernel)
    plain = all(k == 1 for k in ksize) and all(s == 1 for s in strides) and not any(padding)
    if plain and data_layout == out_layout:
        pointwise = _at(weight, kernel)
        return _rows(data, weight, pointwise, lambda w: w.transpose(kernel).reshape(channels, depth), channels, depth, "conv")
    geometry = Geometry(data, place, ksize, strides, padding, dilation)
    return _direct(geometry, weight, kernel, channels, depth // WORD, channels_last(out_layout))


def word(x: te.Tensor, index: Sequence[Value]) -> PrimExpr:
    """Four neighbours of the last dimension as one uint32; the last of `index` counts words."""
    *lead, last = (as_expr(i) for i in index)
    return reinterpret(TensorElem(x, (*lead, Ramp(mul(last, WORD), 1, WORD))), dtype="uint32")


def _at(weight: te.Tensor, kernel: tuple[int, ...]) -> Callable[..., PrimExpr]:
    """The element of a kernel at (output channel, input channel, taps…), these 0 where they are left out."""

    def element(n: PrimExpr, k: PrimExpr, *taps: PrimExpr) -> PrimExpr:
        where: list[Any] = [0] * len(kernel)
        for d, v in zip(kernel, (n, k, *taps), strict=False):
            where[d] = v
        return weight(*where)

    return element


def _rows(
    data: te.Tensor, weight: te.Tensor, element: Callable[[PrimExpr, PrimExpr], PrimExpr], matrix: Callable[[Array], Array], columns: int, depth: int, name: str,
) -> te.Tensor:
    """`out[r…, n] = sum over k of data[r…, k] * element(n, k)`; `matrix` gives the same `[n, k]` from the weight's array."""
    lead, words = data.extents[:-1], depth // WORD
    rows = math.prod(lead)
    tile = register_tile(rows, columns, words, machine.current())
    shape = (-(-columns // tile.columns), words, tile.columns)
    packed = _packed(weight, lambda n, byte, k: element(n, k * WORD + byte), matrix, columns, shape, lambda w: w.swapaxes(1, 2))
    k = te.reduce_axis((0, words), "k")

    def term(m: Var, n: Var) -> PrimExpr:
        w = packed(floordiv(n, tile.columns), k.var, floormod(n, tile.columns))
        return te.sum(_product(word(data, (*unflatten(m, lead), k.var)), w), axis=k)

    acc = te.compute(
        (rows, -(-columns // tile.columns) * tile.columns), term, name=name, schedule=schedule_matmul,
        attrs=_attributes(tile, rows * columns * words, rows * depth) | {"batch_axes": 0, "unroll": unroll(words)}, axis_names=("m", "n"),
    )
    return te.compute((*lead, columns), lambda *i: acc(flatten(i[:-1], lead), i[-1]), name=f"{name}_out")  # type: ignore[no-any-return]


def _direct(g: Geometry, weight: te.Tensor, kernel: tuple[int, ...], channels: int, words: int, out_place: tuple[int, ...]) -> te.Tensor:
    steps, n = words * math.prod(g.ksize), len(g.ksize)
    tile = register_tile(g.out[-1], channels, steps, machine.current(), stride=g.strides[-1], taps=g.ksize[-1])
    panels = -(-channels // tile.columns)

    def ordered(w: Array) -> Array:
        """`[panel, column, taps…, word]` -> `[panel, taps but the last, word, last tap, column]`."""
        return w.reshape(panels, tile.columns, *g.ksize, words).transpose(0, *range(2, n + 1), n + 2, n + 1, 1)

    weight_at = _at(weight, kernel)
    packed = _packed(
        weight, lambda c, byte, *rest: weight_at(c, rest[-2] * WORD + byte, *rest[:-2], rest[-1]),
        lambda w: w.transpose(kernel[0], *kernel[2:], kernel[1]).reshape(channels, -1), channels,
        (panels, *g.ksize[:-1], words, g.ksize[-1], tile.columns), ordered,
    )
    taps, rc = g.taps(), te.reduce_axis((0, words), "ic")

    def term(image: Var, *rest: Var) -> PrimExpr:
        point, c = rest[:-2], rest[-1]
        x, inside = g.at(image, point, taps, rc.var, element=word)
        w = packed(floordiv(c, tile.columns), *(t.var for t in taps[:-1]), rc.var, taps[-1].var, floormod(c, tile.columns))
        return te.sum(if_then_else(inside, _product(x, w), const(0, INT32)), axis=[*taps[:-1], rc, taps[-1]])

    attrs = _attributes(tile, g.batch * math.prod(g.out) * channels * steps, math.prod(g.data.extents))
    acc = te.compute(
        (g.batch, *g.out, 1, panels * tile.columns), term, name="conv", schedule=schedule_conv,
        attrs=attrs | {"shared": True, "groups": 1, "channels_last": out_place}, axis_names=axis_names(len(g.out), "g", "oc"),
    )

    def result(*i: Var) -> PrimExpr:
        image, *point, c = (i[d] for d in out_place)
        value: PrimExpr = acc(image, *point, 0, c)
        return value

    return te.compute(placed(out_place, (g.batch, *g.out, channels)), result, name="conv_out")  # type: ignore[no-any-return]


def _attributes(tile: Tile, steps: int, left_bytes: int) -> dict[str, Any]:
    """What the schedules ask for; `flops` counts steps of a lane, each as long as a multiply-add of floats."""
    return {"tile": tile, "flops": 2 * steps, "left_bytes": left_bytes, "exact": True}


def _product(x: PrimExpr, w: PrimExpr) -> PrimExpr:
    return dot4(x, w, const(0, INT32), dtype=INT32)


def _packed(
    weight: te.Tensor, element: Callable[..., PrimExpr], matrix: Callable[[Array], Array], channels: int, shape: Sequence[int], ordered: Callable[[Array], Array],
) -> te.Tensor:
    """The weights as words of `shape`, whose first axis is the panel and whose last the column in it.

    `element(n, byte, *others)` is the weight of column n at one byte of the word at the `others` indices, those between
    panel and column; `matrix` gives `[n, k]` of the array, and `ordered` brings `[panel, word, column]` into `shape`.
    """
    panels, columns = shape[0], shape[-1]

    def on_arrays(w: Array) -> Array:
        m = matrix(w)
        full = np.zeros((panels * columns, m.shape[1]), np.int8)
        full[:channels] = m
        words = full.view(np.int32).reshape(panels, columns, -1)
        return np.ascontiguousarray(ordered(words)).reshape(shape)

    def one(panel: Var, *rest: Var) -> PrimExpr:
        n = panel * columns + rest[-1]
        whole: PrimExpr = const(0, INT32)
        for k in range(WORD):
            byte = bitwise_and(cast(INT32, element(n, k, *rest[:-1])), const(255, INT32))
            whole = bitwise_or(whole, shift_left(byte, const(8 * k, INT32))) if k else byte
        return if_then_else(n < channels, whole, const(0, INT32))

    return te.compute(shape, one, name="packed", prepack=on_arrays)  # type: ignore[no-any-return]
