"""Elementwise operators of one input."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from tilewright import te
from tilewright.base.errors import InputError, ShapeError
from tilewright.base.types import BOOL, MINIFLOATS, DataType, TensorType, Type
from tilewright.relay.expr import Call, Expr
from tilewright.relay.op.registry import Array, Fusion, Op, Precision, Relaid, declare, op, per_channel_types, tensors
from tilewright.scalar import expr as E
from tilewright.scalar import intrinsics as I
from tilewright.topi import elementwise as topi
from tilewright.topi.math import log10
from tilewright.topi.nn.activation import prelu
from tilewright.topi.orders import Order
from tilewright.topi.shapes import Perm, axis_of, differ

_WHOLE: Final = re.compile(r"\s*[+-]?\d+\s*")


class Elementwise(Op):
    """Base of the elementwise operators of one input, which may be stored in any order."""

    def infer(self, data: Type) -> TensorType:
        """The type of the data."""
        (t,) = tensors(data)
        return t

    def relayout(self, perms: Sequence[Perm | None]) -> Relaid:
        return self, tuple(perms), perms[0]

    def reblock(self, orders: Sequence[Order | None], types: Sequence[TensorType]) -> Relaid:
        return self, tuple(orders), orders[0]


class FloatFunction(Elementwise):
    """Base of the functions of real numbers; `intrinsic` is the function of one element."""

    intrinsic: ClassVar[E.Intrinsic]

    def infer(self, data: Type) -> TensorType:
        """The type of the data, which must be floating-point."""
        (t,) = tensors(data)
        if not t.dtype.is_float:
            raise ShapeError(f"a floating-point tensor was expected, and this one is {t.dtype}; cast it first")
        return t

    def reference(self, data: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(self.intrinsic.reference(data), data.dtype)  # type: ignore[misc]

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.elementwise(data, self.intrinsic, self.intrinsic.spelling)


Exp = declare(FloatFunction, "exp", Fusion.ELEMWISE, "e to the power x.", intrinsic=I.exp, precision=Precision.NEVER)
Log = declare(FloatFunction, "log", Fusion.ELEMWISE, "The natural logarithm.", intrinsic=I.log)
Log2 = declare(FloatFunction, "log2", Fusion.ELEMWISE, "The logarithm to base 2.", intrinsic=I.log2)


@op("log10", kind=Fusion.ELEMWISE)
class Log10(FloatFunction):
    """The logarithm to base 10."""

    def reference(self, data: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.log10(data).astype(data.dtype)

    def compute(self, data: te.Tensor) -> te.Tensor:
        return log10(data)


Sqrt = declare(FloatFunction, "sqrt", Fusion.ELEMWISE, "The square root.", intrinsic=I.sqrt, precision=Precision.FOLLOW)
Rsqrt = declare(FloatFunction, "rsqrt", Fusion.ELEMWISE, "1 / sqrt(x).", intrinsic=I.rsqrt)
Tanh = declare(FloatFunction, "tanh", Fusion.ELEMWISE, "The hyperbolic tangent.",
    intrinsic=I.tanh, precision=Precision.FOLLOW)
Sigmoid = declare(FloatFunction, "sigmoid", Fusion.ELEMWISE, "1 / (1 + exp(-x)).",
    intrinsic=I.sigmoid, precision=Precision.FOLLOW)
Erf = declare(FloatFunction, "erf", Fusion.ELEMWISE, "The error function.", intrinsic=I.erf, precision=Precision.NEVER)
Sin = declare(FloatFunction, "sin", Fusion.ELEMWISE, "The sine.", intrinsic=I.sin)
Cos = declare(FloatFunction, "cos", Fusion.ELEMWISE, "The cosine.", intrinsic=I.cos)
Tan = declare(FloatFunction, "tan", Fusion.ELEMWISE, "The tangent.", intrinsic=I.tan)
Asin = declare(FloatFunction, "asin", Fusion.ELEMWISE, "The inverse sine.", intrinsic=I.asin)
Acos = declare(FloatFunction, "acos", Fusion.ELEMWISE, "The inverse cosine.", intrinsic=I.acos)
Atan = declare(FloatFunction, "atan", Fusion.ELEMWISE, "The inverse tangent.", intrinsic=I.atan)
Sinh = declare(FloatFunction, "sinh", Fusion.ELEMWISE, "The hyperbolic sine.", intrinsic=I.sinh)
Cosh = declare(FloatFunction, "cosh", Fusion.ELEMWISE, "The hyperbolic cosine.", intrinsic=I.cosh)
Asinh = declare(FloatFunction, "asinh", Fusion.ELEMWISE, "The inverse hyperbolic sine.", intrinsic=I.asinh)
Acosh = declare(FloatFunction, "acosh", Fusion.ELEMWISE, "The inverse hyperbolic cosine.", intrinsic=I.acosh)
Atanh = declare(FloatFunction, "atanh", Fusion.ELEMWISE, "The inverse hyperbolic tangent.", intrinsic=I.atanh)


class Rounding(Elementwise):
    """Base of the roundings; integers are unchanged."""

    precision = Precision.FOLLOW
    intrinsic: ClassVar[E.Intrinsic]

    def reference(self, data: Array) -> Array:
        if DataType(data.dtype).is_float:
            return np.asarray(self.intrinsic.reference(data), data.dtype)  # type: ignore[misc]
        return data

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.elementwise(data, topi.rounded(self.intrinsic), self.intrinsic.spelling)


Floor = declare(Rounding, "floor", Fusion.ELEMWISE, "The largest integer that is at most x.", intrinsic=I.floor)
Ceil = declare(Rounding, "ceil", Fusion.ELEMWISE, "The smallest integer that is at least x.", intrinsic=I.ceil)
Trunc = declare(Rounding, "trunc", Fusion.ELEMWISE, "x rounded toward zero.", intrinsic=I.trunc)
Round = declare(
    Rounding, "round", Fusion.ELEMWISE,
    "The nearest integer; ties go to the even one, as in ONNX, numpy and IEEE 754.",
    intrinsic=I.nearbyint)


@op("abs", kind=Fusion.ELEMWISE)
class Abs(Elementwise):
    """|x|; the smallest signed integer wraps around to itself."""

    precision = Precision.FOLLOW
    def reference(self, data: Array) -> Array:
        return np.abs(data)

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.elementwise(data, topi.absolute, "abs")


@op("negative", kind=Fusion.ELEMWISE)
class Negative(Elementwise):
    """-x. Integers wrap around; bool is unchanged."""

    precision = Precision.FOLLOW
    def reference(self, data: Array) -> Array:
        return data.copy() if data.dtype == np.bool_ else np.negative(data)

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.elementwise(data, topi.negated, "negative")


@op("sign", kind=Fusion.ELEMWISE)
class Sign(Elementwise):
    """-1, 0 or 1 by the sign of x; NaN stays NaN."""

    precision = Precision.FOLLOW
    def reference(self, data: Array) -> Array:
        return data.copy() if data.dtype == np.bool_ else np.sign(data)

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.elementwise(data, topi.sign, "sign")


class Predicate(Elementwise):
    """Base of the tests of floating-point values."""

    test: ClassVar[Callable[..., Any]]
    of_elements: ClassVar[Callable[..., E.PrimExpr]]
    of_integers: ClassVar[bool] = False

    def infer(self, data: Type) -> TensorType:
        """The shape of the data; bool."""
        (t,) = tensors(data)
        return TensorType(t.shape, BOOL)

    def reference(self, data: Array) -> Array:
        if not DataType(data.dtype).is_float:
            return np.full(data.shape, self.of_integers)
        return np.asarray(self.test(data), bool)

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.elementwise(data, self.of_elements, self.name)


IsNan = declare(Predicate, "isnan", Fusion.ELEMWISE, "True where x is NaN.", test=np.isnan, of_elements=topi.is_nan)
IsInf = declare(Predicate, "isinf", Fusion.ELEMWISE, "True where x is plus or minus infinity.",
    test=np.isinf, of_elements=topi.is_inf)
IsFinite = declare(Predicate, "isfinite", Fusion.ELEMWISE, "True where x is neither infinite nor NaN.",
    test=np.isfinite, of_elements=topi.is_finite, of_integers=True)


@op("logical_not", kind=Fusion.ELEMWISE)
class LogicalNot(Elementwise):
    """True where x is false."""

    def infer(self, data: Type) -> TensorType:
        """The type of the data, which must be bool."""
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
    """x with every bit inverted."""

    def infer(self, data: Type) -> TensorType:
        """The type of the data, which must be integer or bool."""
        (t,) = tensors(data)
        if t.dtype.is_float:
            raise ShapeError(f"an integer or boolean tensor was expected, and this one is {t.dtype}")
        return t

    def reference(self, data: Array) -> Array:
        return np.bitwise_not(data)

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.elementwise(data, topi.bits_not, "bitwise_not")


def converted(data: Array, dtype: str) -> Array:
    """Convert `data` to another type: floats are truncated, integers wrap around, strings are parsed as numbers."""
    wanted = DataType(dtype)
    if wanted.is_object:
        return data.astype(np.str_).astype(object)
    if data.dtype == object:
        data = _numbers(data, wanted)
    source = DataType(data.dtype)
    with np.errstate(all="ignore"):
        # via float32, since not all small float types convert directly
        if source.code in MINIFLOATS and source is not wanted:
            data = data.astype(np.float32)
        if wanted.is_integer and wanted.bits < 8:  # wrapped integers do not either
            data = _wrapped(data.astype(np.int32 if source.is_float else np.int64), wanted)
        elif source.is_integer and source.bits < 8:
            data = data.astype(np.int8)
        result: Array = data.astype(wanted.numpy())
    return result


def _wrapped(whole: np.ndarray[Any, np.dtype[np.signedinteger[Any]]], wanted: DataType) -> Array:
    """The lowest bits of integers as values of `wanted`, a type of less than 8 bits, one per byte."""
    low = whole & ((1 << wanted.bits) - 1)
    sign = 1 << (wanted.bits - 1) if wanted.code == "int" else 0
    return ((low ^ sign) - sign).astype(np.int8 if sign else np.uint8)


def _numbers(data: Array, wanted: DataType) -> Array:
    """Parse strings as float64, or as 64-bit integers if `wanted` is an integer type."""
    read = (lambda s: int(s) if _WHOLE.fullmatch(s) else int(float(s))) if wanted.is_integer else float
    kind = np.float64 if not wanted.is_integer else np.int64 if wanted.code == "int" else np.uint64
    try:
        return np.array([read(s) for s in data.flat], kind).reshape(data.shape)
    except (ValueError, OverflowError) as error:
        raise InputError(f"a string cannot be cast to {wanted}: {error}", code="TW0712") from None


@op("cast", kind=Fusion.ELEMWISE)
class Cast(Elementwise):
    """x converted to `dtype`: floats are truncated to integers, integers wrap around.

    Strings are parsed as numbers at run time; `InputError` for a string that is not a number.
    """

    objects = True
    precision = Precision.NEVER
    dtype: str
    """Type of the result."""

    def infer(self, data: Type) -> TensorType:
        """The shape of the data; `dtype`."""
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
    """x converted to the dtype of the second tensor, whose elements are not read."""

    objects = True
    precision = Precision.NEVER

    def infer(self, data: Type, dtype_like: Type) -> TensorType:  # type: ignore[override]
        """The shape of the data; the dtype of the second tensor."""
        t, like = tensors(data, dtype_like)
        return TensorType(t.shape, like.dtype)

    def reference(self, data: Array, dtype_like: Array) -> Array:
        return converted(data, DataType(dtype_like.dtype))

    def compute(self, data: te.Tensor, dtype_like: te.Tensor) -> te.Tensor:
        return Cast(dtype_like.dtype).compute(data)

    def simplify(self, call: Call) -> Expr | None:
        return Cast(call.tensor_type.dtype)(call.args[0], span=call.span)


@op("reinterpret", kind=Fusion.ELEMWISE)
class Reinterpret(Elementwise):
    """The bits of x as a value of another type."""

    dtype: str
    """Type of the result, of the same size in bytes."""

    def infer(self, data: Type) -> TensorType:
        """The shape of the data; `dtype`, which must have the same size in bytes."""
        (t,) = tensors(data)
        if (t.dtype.itemsize != DataType(self.dtype).itemsize
                or {t.dtype.bits, DataType(self.dtype).bits} & {2, 4, 6} not in (set(), {t.dtype.bits})):
            raise ShapeError(f"{t.dtype} cannot be reinterpreted as {self.dtype}: the two have different sizes")
        return TensorType(t.shape, self.dtype)

    def reference(self, data: Array) -> Array:
        return np.ascontiguousarray(data).reshape(data.shape).view(DataType(self.dtype).numpy())

    def compute(self, data: te.Tensor) -> te.Tensor:
        wanted = DataType(self.dtype)
        if BOOL in (data.dtype, wanted):  # a bool is one byte in memory
            return topi.elementwise(data, lambda x: topi.converted(x, wanted) if x.dtype == BOOL or x.dtype.is_integer
                                    else x, "reinterpret")
        return topi.elementwise(data, lambda x: I.reinterpret(x, dtype=wanted), "reinterpret")


@op("clip", kind=Fusion.ELEMWISE)
class Clip(Elementwise):
    """min(max(x, a_min), a_max). Bounds outside of the range of an integer type have no effect."""

    precision = Precision.FOLLOW
    a_min: float
    """Lower bound, inclusive."""
    a_max: float
    """Upper bound, inclusive."""

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
    """A copy of x."""

    objects = True
    precision = Precision.FOLLOW
    def reference(self, data: Array) -> Array:
        return data.copy()

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.elementwise(data, lambda x: x, "copy")

    def simplify(self, call: Call) -> Expr | None:
        return call.args[0]


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
    """Slope below zero."""

    def infer(self, data: Type) -> TensorType:
        """The type of the data, which must be floating-point."""
        (t,) = tensors(data)
        if not t.dtype.is_float:
            raise ShapeError(f"a floating-point tensor was expected, and this one is {t.dtype}; cast it first, or "
                             "write qnn.leaky_relu")
        return t

    def reference(self, data: Array) -> Array:
        return np.where(data > 0, data, data * np.asarray(self.alpha, data.dtype))

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.elementwise(data, lambda x: topi.leaky(x, self.alpha), "leaky_relu")


@op("nn.prelu", kind=Fusion.BROADCAST)
class PRelu(Op):
    """x above zero, alpha[channel] * x elsewhere."""

    precision = Precision.FOLLOW
    axis: int = 1
    """Dimension of the channels; negative counts from the end."""

    def infer(self, data: Type, alpha: Type) -> TensorType:
        """The type of the data; `alpha` is a vector with one element for each index of `axis`."""
        t, a = tensors(data, alpha)
        channels = t.shape[axis_of(self.axis, t.ndim)]
        if a.ndim != 1 or (differ(a.shape[0], channels)):
            raise ShapeError(f"alpha must have shape ({channels},), one slope for each channel, and it has {a.shape}")
        return t

    def infer_arguments(self, types: Sequence[Type | None]) -> Sequence[Type | None]:
        """`alpha` from the channels of the data."""
        return per_channel_types(types, self.axis)

    def _aligned(self, alpha: Any, ndim: int) -> Any:
        return alpha.reshape([-1 if d == self.axis % ndim else 1 for d in range(ndim)])

    def reference(self, data: Array, alpha: Array) -> Array:
        return np.where(data > 0, data, data * self._aligned(alpha, data.ndim)).astype(data.dtype)

    def compute(self, data: te.Tensor, alpha: te.Tensor) -> te.Tensor:
        return prelu(data, alpha, self.axis)

    def relayout(self, perms: Sequence[Perm | None]) -> Relaid:
        perm = perms[0]
        if perm is None:
            return self, (None, None), None
        return PRelu(axis=perm.index(self.axis % len(perm))), (perm, None), perm
