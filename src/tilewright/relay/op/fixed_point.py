"""Products of integers and fixed-point numbers, as in the arithmetic of quantized networks (gemmlowp)."""

from __future__ import annotations

import numpy as np

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import TensorType, Type
from tilewright.relay.op.broadcast import Broadcasting
from tilewright.relay.op.elementwise import Elementwise
from tilewright.relay.op.registry import Array, Fusion, Op, op, tensors
from tilewright.scalar.intrinsics import doubled_high_product, high_product
from tilewright.tir.functions import times_fixed_point
from tilewright.topi import elementwise as topi
from tilewright.topi.math import fixed_point_multiply_per_axis
from tilewright.topi.shapes import axis_of, broadcast_shapes, differ, text
from tilewright.topi.transform import dims


@op("fixed_point_multiply", kind=Fusion.ELEMWISE)
class FixedPointMultiply(Elementwise):
    """x * multiplier * 2^(shift - 31), rounded to nearest with ties up: int32 times a number in Q31 (gemmlowp)."""

    multiplier: int
    """Factor in Q31: the number times 2^31."""
    shift: int
    """Exponent of the power of two; negative shifts right."""

    def infer(self, data: Type) -> TensorType:
        """The type of the data, which must be int32."""
        (t,) = tensors(data)
        if t.dtype != "int32":
            raise ShapeError(f"an int32 tensor was expected, and this one is {t.dtype}; cast it first")
        return t

    def _shifts(self) -> tuple[int, int]:
        return max(self.shift, 0), 31 - min(self.shift, 0)

    def reference(self, data: Array) -> Array:
        left, right = self._shifts()
        product = (data.astype(np.int64) << left) * self.multiplier
        return ((product + (1 << (right - 1))) >> right).astype(np.int32)

    def compute(self, data: te.Tensor) -> te.Tensor:
        left, right = self._shifts()
        return topi.elementwise(data, lambda x: times_fixed_point(x, self.multiplier, left, right),
                                "fixed_point_multiply")


@op("high_product", kind=Fusion.BROADCAST)
class HighProduct(Broadcasting):
    """Bits 32 to 63 of the 64-bit sum `data * multiplier + addend`, or bits 31 to 62 with `doubled`.

    Requantization is built from it: the addend determines the rounding of one 64-bit product.
    """

    doubled: bool = False
    """True returns bits 31 to 62 of the sum, False bits 32 to 63."""

    def infer(self, data: Type, multiplier: Type, addend: Type) -> TensorType:
        """The broadcast shape of int32 data, an int32 multiplier and an int64 addend; int32."""
        x, m, c = tensors(data, multiplier, addend)
        if x.dtype != "int32" or m.dtype != "int32" or c.dtype != "int64":
            raise ShapeError(f"int32 data and multiplier and an int64 addend were expected, and these are {x.dtype}, "
                             f"{m.dtype} and {c.dtype}; cast them first")
        return TensorType(broadcast_shapes(x.shape, m.shape, c.shape), x.dtype)

    def reference(self, data: Array, multiplier: Array, addend: Array) -> Array:
        return (
            np.asarray((data.astype(np.int64) * multiplier + addend) >> (31 if self.doubled else 32)).astype(np.int32))

    def compute(self, data: te.Tensor, multiplier: te.Tensor, addend: te.Tensor) -> te.Tensor:
        part = doubled_high_product if self.doubled else high_product
        shape = broadcast_shapes(*map(dims, (data, multiplier, addend)))
        return topi.broadcast(shape, lambda x, m, c: part(x, m, c, dtype="int32"), data, multiplier, addend,
                              name="high_product")


@op("fixed_point_multiply_per_axis", kind=Fusion.OPAQUE)
class FixedPointMultiplyPerAxis(Op):
    """x * y * 2^(lshift - rshift - 31), rounded to nearest with ties up; `y` in Q31 for each element of the dimensions
    `axes`.
    """

    is_lshift_required: bool = False
    """True when `lshift` is read; False counts it as zero."""
    is_rshift_required: bool = False
    """True when `rshift` is read; False counts it as zero."""
    axes: tuple[int, ...] = ()
    """Dimensions of `x` that `y`, `lshift` and `rshift` are indexed by."""

    def infer(self, x: Type, y: Type, lshift: Type, rshift: Type) -> TensorType:
        """The type of `x`; all inputs are int32, the others of the sizes of `axes`."""
        t, *numbers = tensors(x, y, lshift, rshift)
        along = [axis_of(a, t.ndim, "axes") for a in self.axes]
        for n, what in zip(numbers, ("y", "lshift", "rshift"), strict=True):
            if n.ndim != len(along) or any(differ(m, t.shape[a]) for m, a in zip(n.shape, along, strict=True)):
                raise ShapeError(f"{what} must have the sizes of dimensions {text(along)} of {text(t.shape)}, but it "
                                 f"has the shape {text(n.shape)}")
        for n in (t, *numbers):
            if n.dtype != "int32":
                raise ShapeError(f"int32 tensors were expected, and one is {n.dtype}; cast it first")
        return t

    def reference(self, x: Array, y: Array, lshift: Array, rshift: Array) -> Array:
        def along(v: Array) -> Array:
            order = np.argsort(self.axes)
            shape = [x.shape[d] if d in [a % x.ndim for a in self.axes] else 1 for d in range(x.ndim)]
            return v.transpose(order).reshape(shape).astype(np.int64)

        left = along(lshift) if self.is_lshift_required else np.int64(0)
        right = along(rshift) + 31 if self.is_rshift_required else np.int64(31)
        product = (x.astype(np.int64) << left) * along(y)
        return np.asarray((product + (np.int64(1) << (right - 1))) >> right).astype(np.int32)

    def compute(self, x: te.Tensor, y: te.Tensor, lshift: te.Tensor, rshift: te.Tensor) -> te.Tensor:
        axes = [a % x.ndim for a in self.axes]
        return fixed_point_multiply_per_axis(x, y, lshift, rshift, self.is_lshift_required, self.is_rshift_required,
            axes)
