"""Elementwise functions of one tensor."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilewright import te
from tilewright.base.errors import CompileError
from tilewright.base.types import DataType
from tilewright.scalar import expr as E
from tilewright.scalar import intrinsics as I
from tilewright.scalar.expr import PrimExpr
from tilewright.tir.functions import times_fixed_point
from tilewright.topi import elementwise as of

Unary = Callable[[te.Tensor], te.Tensor]


def _function(name: str, f: Callable[[PrimExpr], PrimExpr], doc: str) -> Unary:
    def apply(x: te.Tensor) -> te.Tensor:
        return of.elementwise(x, f, name)

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = f"{doc} The result has the shape of `x`."
    return apply


def _float_function(name: str, f: Callable[[PrimExpr], PrimExpr], doc: str) -> Unary:
    """Return a function of floating-point numbers, to which it converts other numbers."""
    return _function(
        name, lambda x: f(x if x.dtype.is_float else E.cast("float32", x)),
        f"{doc} Integers and booleans are converted to float32.")


identity = _function("identity", lambda x: x, "x itself.")
negative = _function("negative", of.negated, "-x; integers wrap around.")
abs = _function("abs", of.absolute, "x without its sign.")
sign = _function("sign", of.sign, "-1, 0 or 1; what is not a number stays.")
exp = _float_function("exp", I.exp, "e to the power x.")
log = _float_function("log", I.log, "The natural logarithm.")
log2 = _float_function("log2", I.log2, "The logarithm to base 2.")
log10 = _float_function(
    "log10", lambda x: E.mul(I.log(x), E.const(1 / math.log(10), x.dtype)), "The logarithm to base 10.")
sqrt = _float_function("sqrt", I.sqrt, "The square root.")
rsqrt = _float_function("rsqrt", I.rsqrt, "1 / sqrt(x).")
erf = _float_function("erf", I.erf, "The error function.")
sigmoid = _float_function("sigmoid", I.sigmoid, "1 / (1 + exp(-x)).")
sin = _float_function("sin", I.sin, "The sine.")
cos = _float_function("cos", I.cos, "The cosine.")
tan = _float_function("tan", I.tan, "The tangent.")
asin = _float_function("asin", I.asin, "The inverse sine.")
acos = _float_function("acos", I.acos, "The inverse cosine.")
atan = _float_function("atan", I.atan, "The inverse tangent.")
sinh = _float_function("sinh", I.sinh, "The hyperbolic sine.")
cosh = _float_function("cosh", I.cosh, "The hyperbolic cosine.")
tanh = _float_function("tanh", I.tanh, "The hyperbolic tangent.")
asinh = _float_function("asinh", I.asinh, "The inverse hyperbolic sine.")
acosh = _float_function("acosh", I.acosh, "The inverse hyperbolic cosine.")
atanh = _float_function("atanh", I.atanh, "The inverse hyperbolic tangent.")
floor = _function("floor", of.rounded(I.floor), "The greatest whole number that is not above x.")
ceil = _function("ceil", of.rounded(I.ceil), "The least whole number that is not below x.")
trunc = _function("trunc", of.rounded(I.trunc), "x without its fraction.")
round = _function("round", of.rounded(I.nearbyint), "The nearest whole number; halves go to the even one.")
isnan = _function("isnan", of.is_nan, "True where x is not a number.")
isinf = _function("isinf", of.is_inf, "True where x is plus or minus infinity.")
isfinite = _function("isfinite", of.is_finite, "True where x is neither infinite nor not a number.")
logical_not = _function("logical_not", E.logical_not, "True where the boolean x is false.")
bitwise_not = _function("bitwise_not", of.bits_not, "Every bit of the integer or boolean x flipped.")

fast_exp = exp
fast_tanh = tanh
fast_erf = erf
"""The exact functions: their code uses vectorized polynomials."""


def ceil_log2(x: Any) -> Any:
    """Return the least k with 2^k >= x, for a positive tensor, expression or number; in the type of x."""
    if isinstance(x, te.Tensor):
        return of.elementwise(x, ceil_log2, "ceil_log2")
    value = E.as_expr(x)
    if value.dtype.is_float:
        return I.ceil(I.log2(value))
    return E.cast(value.dtype, I.ceil(I.log2(E.cast("float64", value))))


def clip(x: te.Tensor, a_min: float, a_max: float) -> te.Tensor:
    """Clamp x to `[a_min, a_max]`; bounds outside the range of an integer type have no effect."""
    return of.elementwise(x, lambda e: of.clamp(e, a_min, a_max), "clip")


def cast(x: Any, dtype: str | DataType, span: Any = None) -> Any:
    """Convert x, a tensor or an expression, to `dtype`. Floats are truncated to integers, and integers wrap around."""
    if isinstance(x, te.Tensor):
        return of.elementwise(x, lambda e: of.converted(e, dtype), "cast")
    return of.converted(E.as_expr(x), dtype)


def reinterpret(x: te.Tensor, dtype: str | DataType) -> te.Tensor:
    """Return the bits of x as `dtype`. Raises `CompileError` if the widths differ."""
    wanted = DataType(dtype)
    if wanted.bits != x.dtype.bits:
        raise CompileError(
            f"the bits of {x.dtype} cannot be read as {wanted}: the widths differ; cast the tensor instead",
            code="TW0308"
        )
    return of.elementwise(x, lambda e: I.reinterpret(e, dtype=wanted), "reinterpret")


def fixed_point_multiply(x: te.Tensor, multiplier: int, shift: int) -> te.Tensor:
    """Return x * multiplier * 2^(shift - 31), rounded: int32 times a number in Q31."""
    left, right = max(shift, 0), 31 - min(shift, 0)
    return of.elementwise(x, lambda e: times_fixed_point(e, multiplier, left, right), "fixed_point_multiply")


def fixed_point_multiply_per_axis(
    x: te.Tensor, y: te.Tensor, lshift: te.Tensor, rshift: te.Tensor, is_lshift_required: int, is_rshift_required: int,
    axes: Any
) -> te.Tensor:
    """Return x * y * 2^(lshift - rshift - 31), rounded: int32 times numbers in Q31, one for each element of `axes` of
    x."""

    def element(*i: PrimExpr) -> PrimExpr:
        at = [i[a] for a in axes]
        left = E.cast("int64", lshift(*at)) if is_lshift_required else 0
        right = E.add(E.cast("int64", rshift(*at)), 31) if is_rshift_required else 31
        return times_fixed_point(x(*i), y(*at), left, right)

    return te.compute(x.shape, element, name="fixed_point_multiply_per_axis", tag="broadcast")


__all__ = [
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "bitwise_not", "cast", "ceil", "ceil_log2", "clip", "cos",
    "cosh", "erf", "exp", "fast_erf",
    "fast_exp", "fast_tanh", "fixed_point_multiply", "fixed_point_multiply_per_axis", "floor", "identity", "isfinite",
    "isinf", "isnan", "log", "log2",
    "log10", "logical_not", "negative", "reinterpret", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt",
    "tan", "tanh", "trunc",
]
