"""Steps of a matrix product or convolution: each multiplies one value of the depth, or two or four neighbours at once.

    ONE     acc += x[k] * w[k]
    PAIRS   acc = dot2(pair(x[2k], x[2k+1]), packed[k], acc)      bfloat16, even depths; the weights packed as pairs
    FOURS   acc = dot4(word(x[4k … 4k+3]), packed[k], acc)        unsigned by signed bytes, depths in whole words
    ROWS    the same, of four neighbours along a row of one channel, or of planes

A step of any width takes the time of one multiply-add of floats in each lane. With PAIRS the accumulators are
float32 and packed weights `uint32`; with FOURS both are `int32`, and sums wrap around, so their order does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from tilewright.backends.kernel_options import KernelOptions
from tilewright.base.types import INT32, DataType
from tilewright.scalar.expr import Broadcast, PrimExpr, Ramp, Value, as_expr, cast, const, mul
from tilewright.scalar.intrinsics import bitwise_and, bitwise_or, dot2, dot4, pair, reinterpret, shift_left
from tilewright.te.tensor import TensorElem

Array = np.ndarray[Any, Any]
Along = Callable[[Value], PrimExpr]
"""Returns the value at an index of the depth."""


_ONES: Final = 0x3F803F80
"""A pair of bfloat16 ones, as the bits of a uint32."""


class Dot:
    """Steps of one value of the depth."""

    width = 1
    most_sums = 32
    """Largest number of accumulators in a tile of rows."""

    def accumulator(self, out_dtype: str | DataType) -> DataType:
        """Return the accumulator dtype for a result of `out_dtype`."""
        return DataType(out_dtype)

    def product(self, x: Along, step: PrimExpr, w: PrimExpr, dtype: DataType) -> PrimExpr:
        """Return the term of a step: `x` along the depth times the packed `w`."""
        return cast(dtype, x(step)) * cast(dtype, w)

    def element(self, w: Along, step: PrimExpr) -> PrimExpr:
        """Return the packed value of a step."""
        return w(step)

    def sum(self, packed: PrimExpr, dtype: DataType) -> PrimExpr:
        """Return the sum of the values of one step."""
        return cast(dtype, packed)

    def zero(self, dtype: DataType) -> PrimExpr:
        """Return the packed value for absent weights of type `dtype`."""
        return const(0, dtype)

    def array(self, w: Array, axis: int) -> Array:
        """Return an array of weights packed along `axis`, their depth."""
        return w


class _Pairs(Dot):
    """Steps of two neighbours: bfloat16 with float32 accumulators."""

    width = 2

    def accumulator(self, out_dtype: str | DataType) -> DataType:
        return DataType("float32")

    def product(self, x: Along, step: PrimExpr, w: PrimExpr, dtype: DataType) -> PrimExpr:
        return dot2(self.element(x, step), w, const(0, dtype), dtype=dtype)

    def element(self, w: Along, step: PrimExpr) -> PrimExpr:
        first = mul(step, 2)
        return pair(w(first), w(first + 1), dtype="uint32")

    def sum(self, packed: PrimExpr, dtype: DataType) -> PrimExpr:
        return dot2(packed, const(_ONES, "uint32"), const(0, dtype), dtype=dtype)

    def zero(self, dtype: DataType) -> PrimExpr:
        return const(0, "uint32")

    def array(self, w: Array, axis: int) -> Array:
        return _together(w.view(np.uint16), axis, np.uint32)


class _Fours(Dot):
    """Steps of four neighbours: unsigned bytes, contiguous in depth, times signed bytes."""

    width = 4
    most_sums = 16  # rounding and packing of a larger tile would not overlap with the next products

    def accumulator(self, out_dtype: str | DataType) -> DataType:
        return INT32

    def product(self, x: Along, step: PrimExpr, w: PrimExpr, dtype: DataType) -> PrimExpr:
        first = x(mul(step, 4))
        assert isinstance(first, TensorElem)
        *lead, last = first.indices
        word = reinterpret(TensorElem(first.tensor, (*lead, Ramp(last, 1, 4))), dtype="uint32")
        return dot4(word, w, const(0, dtype), dtype=dtype)

    def element(self, w: Along, step: PrimExpr) -> PrimExpr:
        whole: PrimExpr = const(0, INT32)
        for k in range(4):
            byte = bitwise_and(cast(INT32, w(mul(step, 4) + k)), const(255, INT32))
            whole = bitwise_or(whole, shift_left(byte, const(8 * k, INT32))) if k else byte
        return whole

    def zero(self, dtype: DataType) -> PrimExpr:
        return const(0, INT32)

    def array(self, w: Array, axis: int) -> Array:
        return _together(w, axis, np.int32)


class _Rows(_Fours):
    """Steps of four neighbours along a row, for kernels whose width is a multiple of four; `x` gives the first
    neighbour at a channel.

    In `x`, the index along the row is followed by `after` indices. A row is contiguous, so a channel index after it
    must have a single value.
    """

    def __init__(self, after: int) -> None:
        self.after = after

    def product(self, x: Along, step: PrimExpr, w: PrimExpr, dtype: DataType) -> PrimExpr:
        first = x(step)
        assert isinstance(first, TensorElem)
        indices = [*first.indices]
        column = len(indices) - 1 - self.after
        where = (
            *indices[:column], Ramp(indices[column], 1, 4), *(Broadcast(as_expr(i), 4) for i in indices[column + 1 :])
        )
        return dot4(reinterpret(TensorElem(first.tensor, where), dtype="uint32"), w, const(0, dtype), dtype=dtype)

    def array(self, w: Array, axis: int) -> Array:
        return np.ascontiguousarray(w).view(np.int32)


def _together(w: Array, axis: int, dtype: Any) -> Array:
    """Return neighbours along `axis` as one number of `dtype`."""
    last = np.ascontiguousarray(np.moveaxis(w, axis, -1))
    return np.moveaxis(last.view(dtype), -1, axis)


ONE: Final = Dot()
PAIRS: Final = _Pairs()
FOURS: Final = _Fours()
ROWS: Final = {"NHWC": _Rows(after=1), "NCHW": _Rows(after=0)}
"""The steps along rows by data layout."""


def along_rows(
    layout: str, depth: int, ksize: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int
) -> bool:
    """Return whether a convolution of bytes multiplies words along rows: one channel or planes, a kernel of whole
    words, and no padding."""
    stored = depth == 1 if layout == "NHWC" else layout == "NCHW" and depth % FOURS.width != 0
    return (
        stored and groups == 1 and len(ksize) == 2 and ksize[1] % FOURS.width == 0 and dilation[1] == 1
        and not any(padding)
    )


def dot_of(
    left: DataType, right: DataType, out: str | DataType, depth: int, options: KernelOptions, contiguous: bool = True
) -> Dot:
    """Return the kind of steps for a product of these dtypes and depth; `contiguous` describes the depth of the left
    operand."""
    if left == right == DataType("bfloat16") and depth % PAIRS.width == 0 and not options.machine.scalar:
        return PAIRS
    if left == "uint8" and right == "int8" and DataType(out) is INT32 and depth % FOURS.width == 0 and contiguous:
        return FOURS
    return ONE
