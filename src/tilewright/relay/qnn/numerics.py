"""The arithmetic of quantization: ranges, rounding, fixed-point multipliers, and graphs of plain operators."""

from __future__ import annotations

import math
from contextvars import ContextVar, Token
from typing import Any, Final

import numpy as np

from tilewright.base.errors import CompileError, Origin, ShapeError
from tilewright.base.types import FLOAT32, INT32, DataType, TensorType
from tilewright.relay.expr import Call, Constant, Expr
from tilewright.relay.op.broadcast import (
    Add,
    BitwiseAnd,
    BitwiseXor,
    Divide,
    GreaterEqual,
    LeftShift,
    Multiply,
    MultiplyAdd,
    Quotient,
    RightShift,
    Subtract,
    Where,
)
from tilewright.relay.op.elementwise import Cast, Clip, Floor, Round, Trunc
from tilewright.relay.op.fixed_point import HighProduct
from tilewright.relay.op.registry import Array
from tilewright.relay.op.shaping import Reshape, sized
from tilewright.topi.shapes import axis_of, differ, text

QUANTIZED: Final = ("int8", "uint8", "int16", "uint16", "int32")
ROUNDING: Final = ("UPWARD", "TONEAREST", "TOEVEN", "TFLITE")
COMPUTE: Final = ("float32", "float64", "int32", "int64")


def limits(dtype: str | DataType) -> tuple[int, int]:
    """The least and greatest value of an integer type."""
    info = np.iinfo(DataType(dtype).numpy())
    return int(info.min), int(info.max)


def float_limits(dtype: str | DataType) -> tuple[float, float]:
    """The limits as float32 values that convert safely: 2^31 would not fit int32."""
    low, high = limits(dtype)
    return float(low), float(np.nextafter(np.float32(high), np.float32(0))) if high > 1 << 24 else float(high)


class RequantizeConfig:
    """The rounding and the type of the arithmetic of requantizations that name none, while a program is built under
    `with`."""

    def __init__(self, rounding: str = "UPWARD", compute_dtype: str = "int64") -> None:
        """Raises `CompileError` for unknown values."""
        self.rounding, self.compute_dtype = checked(rounding, compute_dtype)
        self._tokens: list[Token[RequantizeConfig | None]] = []

    def __enter__(self) -> RequantizeConfig:
        self._tokens.append(_CONFIG.set(self))
        return self

    def __exit__(self, *error: object) -> None:
        _CONFIG.reset(self._tokens.pop())


_CONFIG: Final[ContextVar[RequantizeConfig | None]] = ContextVar("requantize_config", default=None)


def checked(rounding: str, compute_dtype: str) -> tuple[str, str]:
    """The attributes of a requantization, "None" replaced by those of the current `RequantizeConfig`, or TVM's
    defaults. Raises `CompileError` for other values."""
    config = _CONFIG.get()
    how = (config.rounding if config else "UPWARD") if rounding == "None" else rounding
    kind = (config.compute_dtype if config else "int64") if compute_dtype == "None" else compute_dtype
    if how not in ROUNDING:
        raise CompileError(f"qnn: rounding is {rounding!r}; it must be one of {', '.join(ROUNDING)}", code="TW1004")
    if kind not in COMPUTE:
        raise CompileError(f"qnn: compute_dtype is {compute_dtype!r}; it must be one of {', '.join(COMPUTE)}",
                           code="TW1004")
    return how, kind


def require_quantized(t: TensorType, what: str) -> TensorType:
    if t.dtype not in QUANTIZED:
        raise ShapeError(f"{what} must be quantized ({', '.join(QUANTIZED)}), and it is {t.dtype}")
    return t


def require_parameter(t: Any, what: str, of: TensorType, axis: int, exact: bool = False) -> None:
    """Check a scale (float32; with `exact` also float64) or zero point (int32): a scalar, or one element per index of
    `axis`.

    Raises `ShapeError` for other tensors.
    """
    wanted = FLOAT32 if what.endswith("scale") else INT32
    if not isinstance(t, TensorType) or (t.dtype is not wanted
                                         and not (exact and wanted is FLOAT32 and t.dtype == "float64")):
        raise ShapeError(f"{what} must be a tensor of {wanted}, and it is {t!r}")
    if all(d == 1 for d in t.shape):
        return
    channels = of.shape[axis_of(axis, of.ndim)] if of.ndim else 1
    if t.ndim != 1 or differ(t.shape[0], channels):
        raise ShapeError(f"{what} must be one number, or {channels}, one for each element of axis {axis}, and its "
                         f"shape is {text(t.shape)}")


def along(parameter: Array, ndim: int, axis: int) -> Array:
    """Reshape a scale or zero point to broadcast along `axis` of a tensor with `ndim` dimensions."""
    if parameter.size == 1:
        return parameter.reshape(())
    return parameter.reshape([-1 if d == axis % ndim else 1 for d in range(ndim)])


def rounded(x: Array, rounding: str) -> Any:
    """Round floats to integers: half up (UPWARD), half away from zero (TONEAREST), or half to even."""
    if rounding == "UPWARD":
        return np.floor(x + np.asarray(0.5, x.dtype))
    if rounding == "TONEAREST":
        whole = np.trunc(x)
        return whole + np.trunc((x - whole) * np.asarray(2, x.dtype))
    return np.rint(x)


def saturated(x: Array, dtype: str | DataType) -> Array:
    """Clip to the range of an integer type, and convert."""
    low, high = limits(dtype) if x.dtype.kind == "i" else float_limits(dtype)
    return np.clip(x, low, high).astype(DataType(dtype).numpy())


def fixed_point(multiplier: float) -> tuple[int, int]:
    """`(m, shift)` with `multiplier = m * 2^(shift - 31)` and 31-bit m: gemmlowp's fixed-point numbers."""
    if multiplier == 0:
        return 0, 0
    fraction, exponent = math.frexp(multiplier)
    m = math.floor(fraction * (1 << 31) + 0.5)
    if exponent < -31:
        return 0, 0  # less than 1/2 for every 32-bit number
    return (m // 2, exponent + 1) if m == 1 << 31 else (m, exponent)


def fixed_points(multipliers: Array) -> tuple[Array, Array, Array]:
    """The multipliers, left shifts and right shifts (int64) for an array of numbers."""
    found = [fixed_point(float(m)) for m in np.asarray(multipliers, np.float64).ravel()]
    shape = np.shape(multipliers)
    m = np.asarray([f for f, _ in found], np.int64).reshape(shape)
    shift = np.asarray([s for _, s in found], np.int64).reshape(shape)
    return m, np.maximum(shift, 0), 31 - np.minimum(shift, 0)


def fixed_product(x: Array, multipliers: Array, rounding: str, wide: bool = False) -> Array:
    """int64 `x` times real multipliers in fixed point; TONEAREST rounds half away from zero, TOEVEN half to even.

    TFLITE reproduces TensorFlow Lite's reference kernels. The product with a 31-bit number is rounded twice: to 32 bits
    half up, then to the result half away from zero. For `wide` sums, of more than 32 bits, the product with a 15-bit
    number is rounded up once, in each rounding: a 31-bit number would overflow 64 bits.
    """
    m, left, right = fixed_points(multipliers)
    if wide:
        return _reduced_product(x, m, right - left)
    if rounding == "TFLITE":
        return _twice_rounded(x, m, left, right)
    product = (x << left) * m
    half = np.int64(1) << (right - 1)
    if rounding == "TONEAREST":
        half = np.where(product >= 0, half, half - 1)
    elif rounding == "TOEVEN":
        half = half - 1 + ((product >> right) & 1)
    result: Array = (product + half) >> right
    return result


def _twice_rounded(x: Array, m: Array, left: Array, right: Array) -> Array:
    whole = ((x << left).astype(np.int32).astype(np.int64) * m + (1 << 30)) >> 31
    last = right - 31
    half = (np.int64(1) << last) >> 1
    result: Array = (whole + half + np.where(last > 0, whole >> 63, 0)) >> last
    return result


def _reduced_product(x: Array, m: Array, right: Array) -> Array:
    result: Array = (x * reduced(m) + (np.int64(1) << (right - 17))) >> (right - 16)
    return result


def reduced(m: Array) -> Array:
    """Reduce 31-bit multipliers to 15 bits."""
    return np.where(m < 0x7FFF0000, (m + (1 << 15)) >> 16, 0x7FFF)


# Graphs
def constant(value: Any, dtype: str | DataType) -> Constant:
    return Constant(np.asarray(value, DataType(dtype).numpy()))


def is_zero(e: Expr) -> bool:
    return isinstance(e, Constant) and not e.value.any()


def casted(x: Expr, dtype: str | DataType, span: Origin | None) -> Expr:
    kind = DataType(dtype)
    if x.tensor_type.dtype is kind:
        return x
    if isinstance(x, Constant):
        return Constant(x.value.astype(kind.numpy()), x.span)
    return Call(Cast(str(kind)), [x], span=span)


def spread(parameter: Expr, ndim: int, axis: int, span: Origin | None) -> Expr:
    """`along` for an expression."""
    if isinstance(parameter, Constant):
        return Constant(along(parameter.value, ndim, axis), parameter.span)
    size = parameter.tensor_type.shape
    if all(d == 1 for d in size):
        return parameter if not size else Call(Reshape(()), [parameter], span=span)
    return Call(sized(tuple(size[0] if d == axis % ndim else 1 for d in range(ndim))), [parameter], span=span)


def difference(x: Expr, zero_point: Expr, span: Origin | None) -> Expr:
    """x - zero_point; x itself if the zero point is zero."""
    if is_zero(zero_point):
        return x
    if isinstance(x, Constant) and isinstance(zero_point, Constant):
        return Constant(np.asarray(x.value - zero_point.value, x.value.dtype), x.span)
    if isinstance(zero_point, Constant):
        return Call(Add(), [x, Constant(-zero_point.value, zero_point.span)], span=span)
    return Call(Subtract(), [x, zero_point], span=span)


def quotient(a: Expr, b: Expr, span: Origin | None) -> Expr:
    if isinstance(a, Constant) and isinstance(b, Constant):
        return Constant(np.asarray(a.value / b.value, a.value.dtype), a.span)
    return Call(Quotient() if a.tensor_type.dtype is FLOAT32 else Divide(), [a, b], span=span)


def product(x: Expr, factor: Expr, span: Origin | None) -> Expr:
    """x * factor in float32, as a product that no pass merges with its neighbours."""
    return Call(MultiplyAdd(), [x, factor, constant(-0.0, FLOAT32)], span=span)


def rounded_graph(x: Expr, rounding: str, span: Origin | None) -> Expr:
    """`rounded` for an expression."""
    kind = x.tensor_type.dtype
    if rounding == "UPWARD":
        return Call(Floor(), [Call(Add(), [x, constant(0.5, kind)], span=span)], span=span)
    if rounding == "TONEAREST":
        whole = Call(Trunc(), [x], span=span)
        twice = Call(Multiply(), [Call(Subtract(), [x, whole], span=span), constant(2, kind)], span=span)
        return Call(Add(), [whole, Call(Trunc(), [twice], span=span)], span=span)
    return Call(Round(), [x], span=span)


def saturated_graph(x: Expr, zero_point: Expr, dtype: str | DataType, span: Origin | None) -> Expr:
    """Integral values plus a zero point, clipped to the range of `dtype` and converted."""
    kind = x.tensor_type.dtype
    low, high = limits(dtype) if kind.is_integer else float_limits(dtype)
    if not is_zero(zero_point):
        x = Call(Add(), [x, casted(zero_point, kind, span)], span=span)
    return casted(Call(Clip(low, high), [x], span=span), dtype, span)


def fixed_product_graph(x: Expr, multipliers: Array, rounding: str, span: Origin | None, wide: bool = False,
                        least: int = -1) -> Expr:
    """`fixed_product` for an int64 expression, or int32 for TFLITE sums that are not `wide` and for
    `fits_high_product`.

    Results up to `least` need not be exact: with `least` = 0, negative results may be rounded differently.
    """
    m, left, right = fixed_points(multipliers)
    if wide:
        return _reduced_product_graph(x, m, right - left, span)
    if rounding == "TFLITE":
        return twice_rounded_graph(x, m, left, right, span, least)
    half = np.int64(1) << (right - 1)
    if x.tensor_type.dtype is INT32:
        return _upper_part(x, m, half, right - 32, span)
    if left.any():
        x = Call(LeftShift(), [x, Constant(left)], span=span)
    product = Call(Multiply(), [x, Constant(m)], span=span)
    more: Expr = Constant(np.asarray(half))
    if rounding == "TONEAREST":
        more = Call(Where(), [Call(GreaterEqual(), [product, constant(0, "int64")], span=span), more,
                              Constant(np.asarray(half - 1))], span=span)
    elif rounding == "TOEVEN":
        odd = Call(BitwiseAnd(), [Call(RightShift(), [product, Constant(right)], span=span), constant(1, "int64")],
                   span=span)
        more = Call(Add(), [odd, Constant(np.asarray(half - 1))], span=span)
    return Call(RightShift(), [Call(Add(), [product, more], span=span), Constant(right)], span=span)


def fits_high_product(multipliers: Array, rounding: str) -> bool:
    """Whether `fixed_product` of int32 numbers fits the high half of a 64-bit product, with room for a zero point."""
    _, left, right = fixed_points(multipliers)
    return rounding == "UPWARD" and not left.any() and bool((right >= 33).all())


def twice_rounded_graph(x: Expr, m: Array, left: Array, right: Array, span: Origin | None, least: int = -1) -> Expr:
    """`_twice_rounded` for an int32 expression: int32, with only the product in 64 bits.

        whole = (x * m + 2^30) >> 31; (whole + half - (whole < 0)) >> last

    The half of the second rounding is merged into the addend of the first. The sign of `whole` is that of x where it
    matters, or the opposite if `m` is negative. If negative results are irrelevant (`least` >= 0, `m` >= 0), both
    shifts are merged.
    """
    if left.any():
        x = Call(LeftShift(), [x, Constant(left.astype(np.int32))], span=span)
    last = right - 31
    half = (np.int64(1) << last) >> 1
    addend = (half << 31) + (1 << 30)
    if least >= 0 and last.all() and (m >= 0).all():
        return _upper_part(x, m, addend, last - 1, span)
    whole: Expr = Call(HighProduct(doubled=True), [x, Constant(m.astype(np.int32)), Constant(np.asarray(addend))],
                       span=span)
    if not last.any():
        return whole
    signed: Expr = x
    if (m < 0).any():
        signed = Call(BitwiseXor(), [x, Constant(np.where(m < 0, -1, 0).astype(np.int32))], span=span)
    sign: Expr = Call(RightShift(), [signed, constant(31, "int32")], span=span)
    if not last.all():
        sign = Call(Multiply(), [sign, Constant((last > 0).astype(np.int32))], span=span)
    return Call(RightShift(), [Call(Add(), [whole, sign], span=span), Constant(last.astype(np.int32))], span=span)


def _upper_part(x: Expr, m: Array, addend: Array, more: Array, span: Origin | None) -> Expr:
    """`(x * m + addend) >> (32 + more)` for int32, as int32."""
    whole = Call(HighProduct(), [x, Constant(m.astype(np.int32)), Constant(np.asarray(addend))], span=span)
    return Call(RightShift(), [whole, Constant(np.asarray(more, np.int32))], span=span) if more.any() else whole


def _reduced_product_graph(x: Expr, m: Array, right: Array, span: Origin | None) -> Expr:
    product = Call(Multiply(), [x, Constant(reduced(m))], span=span)
    return Call(RightShift(), [Call(Add(), [product, Constant(np.int64(1) << (right - 17))], span=span),
                               Constant(right - 16)], span=span)
