"""Elementwise operators of one input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from tilewright import expr as E
from tilewright import intrinsics as I
from tilewright import te
from tilewright.errors import ShapeError
from tilewright.relay.expr import Call, Expr
from tilewright.relay.op.registry import Array, Fusion, Op, Precision, op, tensors
from tilewright.topi import elementwise as topi
from tilewright.topi.math import fixed_point_multiply_per_axis, log10
from tilewright.topi.nn.activation import prelu
from tilewright.topi.orders import Order
from tilewright.topi.shapes import Perm, axis_of, differ, text
from tilewright.types import BOOL, DataType, TensorType, Type


class Elementwise(Op):
    """Base of the operators whose result has the shape and dtype of their input, in whatever order it is stored."""

    def infer(self, data: Type) -> TensorType:
        (t,) = tensors(data)
        return t

    def relayout(self, perms: Sequence[Perm | None]) -> tuple[Op, tuple[Perm | None, ...], Perm | None]:
        return self, tuple(perms), perms[0]

    def reblock(self, orders: Sequence[Order | None], types: Sequence[TensorType]) -> tuple[Op, tuple[Order | None, ...], Order | None]:
        return self, tuple(orders), orders[0]


class FloatFunction(Elementwise):
    """Base of the functions of real numbers: `intrinsic` is the function of one element."""

    intrinsic: ClassVar[E.Intrinsic]

    def infer(self, data: Type) -> TensorType:
        (t,) = tensors(data)
        if not t.dtype.is_float:
            raise ShapeError(f"a floating-point tensor was expected, and this one is {t.dtype}; cast it first")
        return t

    def reference(self, data: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(self.intrinsic.reference(data), data.dtype)  # type: ignore[misc]

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.elementwise(data, self.intrinsic, self.intrinsic.name)


@op("exp", kind=Fusion.ELEMWISE)
class Exp(FloatFunction):
    """e to the power x."""

    precision = Precision.NEVER
    intrinsic = I.exp


@op("log", kind=Fusion.ELEMWISE)
class Log(FloatFunction):
    """The natural logarithm."""

    intrinsic = I.log


@op("log2", kind=Fusion.ELEMWISE)
class Log2(FloatFunction):
    """The logarithm to base 2."""

    intrinsic = I.log2


@op("log10", kind=Fusion.ELEMWISE)
class Log10(FloatFunction):
    """The logarithm to base 10."""

    def reference(self, data: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.log10(data).astype(data.dtype)

    def compute(self, data: te.Tensor) -> te.Tensor:
        return log10(data)


@op("sqrt", kind=Fusion.ELEMWISE)
class Sqrt(FloatFunction):
    """The square root."""

    precision = Precision.FOLLOW
    intrinsic = I.sqrt


@op("rsqrt", kind=Fusion.ELEMWISE)
class Rsqrt(FloatFunction):
    """1 / sqrt(x)."""

    intrinsic = I.rsqrt


@op("tanh", kind=Fusion.ELEMWISE)
class Tanh(FloatFunction):
    """The hyperbolic tangent."""

    precision = Precision.FOLLOW
    intrinsic = I.tanh


@op("sigmoid", kind=Fusion.ELEMWISE)
class Sigmoid(FloatFunction):
    """1 / (1 + exp(-x))."""

    precision = Precision.FOLLOW
    intrinsic = I.sigmoid


@op("erf", kind=Fusion.ELEMWISE)
class Erf(FloatFunction):
    """The error function."""

    precision = Precision.NEVER
    intrinsic = I.erf


@op("sin", kind=Fusion.ELEMWISE)
class Sin(FloatFunction):
    """The sine."""

    intrinsic = I.sin


@op("cos", kind=Fusion.ELEMWISE)
class Cos(FloatFunction):
    """The cosine."""

    intrinsic = I.cos


@op("tan", kind=Fusion.ELEMWISE)
class Tan(FloatFunction):
    """The tangent."""

    intrinsic = I.tan


@op("asin", kind=Fusion.ELEMWISE)
class Asin(FloatFunction):
    """The inverse sine."""

    intrinsic = I.asin


@op("acos", kind=Fusion.ELEMWISE)
class Acos(FloatFunction):
    """The inverse cosine."""

    intrinsic = I.acos


@op("atan", kind=Fusion.ELEMWISE)
class Atan(FloatFunction):
    """The inverse tangent."""

    intrinsic = I.atan


@op("sinh", kind=Fusion.ELEMWISE)
class Sinh(FloatFunction):
    """The hyperbolic sine."""

    intrinsic = I.sinh


@op("cosh", kind=Fusion.ELEMWISE)
class Cosh(FloatFunction):
    """The hyperbolic cosine."""

    intrinsic = I.cosh


@op("asinh", kind=Fusion.ELEMWISE)
class Asinh(FloatFunction):
    """The inverse hyperbolic sine."""

    intrinsic = I.asinh


@op("acosh", kind=Fusion.ELEMWISE)
class Acosh(FloatFunction):
    """The inverse hyperbolic cosine."""

    intrinsic = I.acosh


@op("atanh", kind=Fusion.ELEMWISE)
class Atanh(FloatFunction):
    """The inverse hyperbolic tangent."""

    intrinsic = I.atanh


class Rounding(Elementwise):
    """Base of the roundings; integers are already round."""

    precision = Precision.FOLLOW
    intrinsic: ClassVar[E.Intrinsic]

    def reference(self, data: Array) -> Array:
        if DataType(data.dtype).is_float:
            return np.asarray(self.intrinsic.reference(data), data.dtype)  # type: ignore[misc]
        return data

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.elementwise(data, topi.rounded(self.intrinsic), self.intrinsic.name)


@op("floor", kind=Fusion.ELEMWISE)
class Floor(Rounding):
    """The greatest whole number that is not above x."""

    intrinsic = I.floor


@op("ceil", kind=Fusion.ELEMWISE)
class Ceil(Rounding):
    """The least whole number that is not below x."""

    intrinsic = I.ceil


@op("trunc", kind=Fusion.ELEMWISE)
class Trunc(Rounding):
    """x without its fraction."""

    intrinsic = I.trunc


@op("round", kind=Fusion.ELEMWISE)
class Round(Rounding):
    """The nearest whole number; halves go to the even one, as in ONNX, numpy and IEEE 754."""

    intrinsic = I.nearbyint


@op("abs", kind=Fusion.ELEMWISE)
class Abs(Elementwise):
    """x without its sign; the least integer wraps around to itself."""

    precision = Precision.FOLLOW
    def reference(self, data: Array) -> Array:
        return np.abs(data)

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.elementwise(data, topi.absolute, "abs")


@op("negative", kind=Fusion.ELEMWISE)
class Negative(Elementwise):
    """-x; integers wrap around."""

    precision = Precision.FOLLOW
    def reference(self, data: Array) -> Array:
        return np.negative(data)

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.elementwise(data, topi.negated, "negative")


@op("sign", kind=Fusion.ELEMWISE)
class Sign(Elementwise):
    """-1, 0 or 1; not-a-number stays."""

    precision = Precision.FOLLOW
    def reference(self, data: Array) -> Array:
        return np.sign(data)

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.elementwise(data, topi.sign, "sign")


class Predicate(Elementwise):
    """Base of the tests of floating-point values: the result is boolean."""

    test: ClassVar[Callable[..., Any]]
    of_elements: ClassVar[Callable[..., E.PrimExpr]]
    of_integers: ClassVar[bool] = False

    def infer(self, data: Type) -> TensorType:
        (t,) = tensors(data)
        return TensorType(t.shape, BOOL)

    def reference(self, data: Array) -> Array:
        if not DataType(data.dtype).is_float:
            return np.full(data.shape, self.of_integers)
        return np.asarray(self.test(data), bool)

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.elementwise(data, self.of_elements, self.name)


@op("isnan", kind=Fusion.ELEMWISE)
class IsNan(Predicate):
    """True where x is not a number."""

    test = staticmethod(np.isnan)
    of_elements = staticmethod(topi.is_nan)


@op("isinf", kind=Fusion.ELEMWISE)
class IsInf(Predicate):
    """True where x is plus or minus infinity."""

    test = staticmethod(np.isinf)
    of_elements = staticmethod(topi.is_inf)


@op("isfinite", kind=Fusion.ELEMWISE)
class IsFinite(Predicate):
    """True where x is neither infinite nor not-a-number."""

    test = staticmethod(np.isfinite)
    of_elements = staticmethod(topi.is_finite)
    of_integers = True


@op("logical_not", kind=Fusion.ELEMWISE)
class LogicalNot(Elementwise):
    """True where the boolean x is false."""

    def infer(self, data: Type) -> TensorType:
        (t,) = tensors(data)
        if t.dtype != BOOL:
            raise ShapeError(f"a boolean tensor was expected, and this one is {t.dtype}; compare it with zero first")
        return t

    def reference(self, data: Array) -> Array:
        return np.logical_not(data)

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.elementwise(data, E.logical_not, "logical_not")


@op("bitwise_not", kind=Fusion.ELEMWISE)
class BitwiseNot(Elementwise):
    """Every bit of the integer (or boolean) x flipped."""

    def infer(self, data: Type) -> TensorType:
        (t,) = tensors(data)
        if t.dtype.is_float:
            raise ShapeError(f"an integer or boolean tensor was expected, and this one is {t.dtype}")
        return t

    def reference(self, data: Array) -> Array:
        return np.bitwise_not(data)

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.elementwise(data, topi.bits_not, "bitwise_not")


def converted(data: Array, dtype: str) -> Array:
    """`data` as another type: floats lose their fraction, integers wrap around."""
    with np.errstate(all="ignore"):
        result: Array = data.astype(DataType(dtype).numpy())
    return result


@op("cast", kind=Fusion.ELEMWISE)
class Cast(Elementwise):
    """x as `dtype`: floats lose their fraction on the way to integers, integers wrap around."""

    precision = Precision.NEVER
    dtype: str

    def infer(self, data: Type) -> TensorType:
        (t,) = tensors(data)
        return TensorType(t.shape, self.dtype)

    def reference(self, data: Array) -> Array:
        return converted(data, self.dtype)

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.elementwise(data, lambda x: topi.converted(x, self.dtype), "cast")

    def simplify(self, call: Call) -> Expr | None:
        (data,) = call.args
        return data if data.tensor_type.dtype == DataType(self.dtype) else None


@op("cast_like", kind=Fusion.ELEMWISE)
class CastLike(Elementwise):
    """x as the dtype of the second tensor, which is not read."""

    precision = Precision.NEVER

    def infer(self, data: Type, dtype_like: Type) -> TensorType:  # type: ignore[override]
        t, like = tensors(data, dtype_like)
        return TensorType(t.shape, like.dtype)

    def reference(self, data: Array, dtype_like: Array) -> Array:
        return converted(data, DataType(dtype_like.dtype))

    def compute(self, data: te.Tensor, dtype_like: te.Tensor) -> te.Tensor:
        return Cast(dtype_like.dtype).compute(data)

    def simplify(self, call: Call) -> Expr | None:
        return Cast(call.tensor_type.dtype)(call.args[0], span=call.span)


@op("clip", kind=Fusion.ELEMWISE)
class Clip(Elementwise):
    """x held in `[a_min, a_max]`; bounds outside an integer type do nothing."""

    precision = Precision.FOLLOW
    a_min: float
    a_max: float

    def reference(self, data: Array) -> Array:
        low, high = self.a_min, self.a_max
        dtype = DataType(data.dtype)
        if dtype.is_integer:
            least, most = topi.integer_range(dtype)
            low, high = int(max(low, least)), int(min(high, most))
        return np.asarray(np.minimum(np.maximum(data, np.asarray(low, data.dtype)), np.asarray(high, data.dtype)))

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.elementwise(data, lambda x: topi.clamp(x, self.a_min, self.a_max), "clip")


@op("copy", kind=Fusion.ELEMWISE)
class Copy(Elementwise):
    """x itself."""

    precision = Precision.FOLLOW
    def reference(self, data: Array) -> Array:
        return data.copy()

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.elementwise(data, lambda x: x, "copy")

    def simplify(self, call: Call) -> Expr | None:
        return call.args[0]


@op("fixed_point_multiply", kind=Fusion.ELEMWISE)
class FixedPointMultiply(Elementwise):
    """x * multiplier * 2^(shift - 31), rounded, in integers: int32 times a number in Q31 (gemmlowp's requantization)."""

    multiplier: int
    shift: int

    def infer(self, data: Type) -> TensorType:
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
        return topi.elementwise(data, lambda x: topi.times_fixed_point(x, self.multiplier, left, right), "fixed_point_multiply")


@op("fixed_point_multiply_per_axis", kind=Fusion.OPAQUE)
class FixedPointMultiplyPerAxis(Op):
    """x * y * 2^(lshift - rshift - 31), rounded: int32 times numbers in Q31, one for each element of the dimensions `axes` of x.

    A shift that is not required is not read, and counts as zero.
    """

    is_lshift_required: bool = False
    is_rshift_required: bool = False
    axes: tuple[int, ...] = ()

    def infer(self, x: Type, y: Type, lshift: Type, rshift: Type) -> TensorType:
        t, *numbers = tensors(x, y, lshift, rshift)
        along = [axis_of(a, t.ndim, "axes") for a in self.axes]
        for n, what in zip(numbers, ("y", "lshift", "rshift"), strict=True):
            if n.ndim != len(along) or any(differ(m, t.shape[a]) for m, a in zip(n.shape, along, strict=True)):
                raise ShapeError(f"{what} must have the shape of dimensions {text(along)} of {text(t.shape)}, and it has {text(n.shape)}")
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
        return fixed_point_multiply_per_axis(x, y, lshift, rshift, self.is_lshift_required, self.is_rshift_required, axes)


@op("nn.relu", kind=Fusion.ELEMWISE)
class Relu(Elementwise):
    """max(x, 0)."""

    precision = Precision.FOLLOW
    def reference(self, data: Array) -> Array:
        return np.maximum(data, np.zeros((), data.dtype))

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.elementwise(data, topi.positive, "relu")


@op("nn.leaky_relu", kind=Fusion.ELEMWISE)
class LeakyRelu(Elementwise):
    """x above zero, alpha * x elsewhere."""

    precision = Precision.FOLLOW
    alpha: float = 0.25

    def reference(self, data: Array) -> Array:
        return np.where(data > 0, data, data * np.asarray(self.alpha, data.dtype))

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.elementwise(data, lambda x: topi.leaky(x, self.alpha), "leaky_relu")


@op("nn.prelu", kind=Fusion.BROADCAST)
class PRelu(Op):
    """x above zero, alpha[channel] * x elsewhere; `alpha` has one value for each element of `axis`."""

    precision = Precision.FOLLOW
    axis: int = 1

    def infer(self, data: Type, alpha: Type) -> TensorType:
        t, a = tensors(data, alpha)
        channels = t.shape[axis_of(self.axis, t.ndim)]
        if a.ndim != 1 or (differ(a.shape[0], channels)):
            raise ShapeError(f"alpha must have shape ({channels},), one slope for each channel, and it has {a.shape}")
        return t

    def _aligned(self, alpha: Any, ndim: int) -> Any:
        return alpha.reshape([-1 if d == self.axis % ndim else 1 for d in range(ndim)])

    def reference(self, data: Array, alpha: Array) -> Array:
        return np.where(data > 0, data, data * self._aligned(alpha, data.ndim)).astype(data.dtype)

    def compute(self, data: te.Tensor, alpha: te.Tensor) -> te.Tensor:
        return prelu(data, alpha, self.axis)

    def relayout(self, perms: Sequence[Perm | None]) -> tuple[Op, tuple[Perm | None, ...], Perm | None]:
        perm = perms[0]
        if perm is None:
            return self, (None, None), None
        return PRelu(axis=perm.index(self.axis % len(perm))), (perm, None), perm
