"""What one step of a matrix product or convolution multiplies: one value of the depth, or two neighbours at once.

    ONE     acc += x[k] * w[k]
    PAIRS   acc = dot2(pair(x[2k], x[2k+1]), packed[k], acc)      bfloat16, even depths; the weights packed as pairs

With PAIRS the accumulators are float32 and a step does twice the work: packed weights are `uint32`, one for two values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tilewright.expr import PrimExpr, Value, cast, const, dot2, mul, pair
from tilewright.types import DataType

Array = np.ndarray[Any, Any]
Along = Callable[[Value], PrimExpr]
"""The value at a place of the depth."""


_ONES: Final = 0x3F803F80
"""Twice the one of bfloat16."""


class Dot:
    """One value of the depth in each step."""

    width = 1

    def accumulator(self, out_dtype: str | DataType) -> DataType:
        """The type that is summed in for a result of `out_dtype`."""
        return DataType(out_dtype)

    def product(self, x: Along, step: PrimExpr, w: PrimExpr, dtype: DataType) -> PrimExpr:
        """The term of a step: `x` along the depth times the packed `w`."""
        return cast(dtype, x(step)) * cast(dtype, w)

    def element(self, w: Along, step: PrimExpr) -> PrimExpr:
        """What is packed for a step."""
        return w(step)

    def sum(self, packed: PrimExpr, dtype: DataType) -> PrimExpr:
        """The sum of the values of one step."""
        return cast(dtype, packed)

    def zero(self, dtype: DataType) -> PrimExpr:
        """What is packed where there are no weights of type `dtype`."""
        return const(0, dtype)

    def array(self, w: Array, axis: int) -> Array:
        """The steps of an array of weights along `axis`, their depth."""
        return w


class _Pairs(Dot):
    """Two neighbours in each step: bfloat16 with float32 accumulators."""

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
        last = np.ascontiguousarray(np.moveaxis(w.view(np.uint16), axis, -1))
        return np.moveaxis(last.view(np.uint32), -1, axis)


ONE: Final = Dot()
PAIRS: Final = _Pairs()


def dot_of(left: DataType, right: DataType, depth: int) -> Dot:
    """How a product of these types and depth goes on in steps."""
    return PAIRS if left == right == DataType("bfloat16") and depth % 2 == 0 else ONE
