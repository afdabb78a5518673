"""Tensor expressions of elementwise operators, with broadcasting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te
from tilewright.base.types import BOOL, DataType
from tilewright.scalar import expr as E
from tilewright.scalar import intrinsics as I
from tilewright.scalar.expr import PrimExpr, Value
from tilewright.topi.tag import BROADCAST, ELEMWISE


def elementwise(x: te.Tensor, f: Callable[[PrimExpr], Value], name: str) -> te.Tensor:
    """Apply `f` to every element."""
    return te.compute(x.shape, lambda *i: f(x(*i)), name=name, tag=ELEMWISE)


def broadcast(shape: Sequence[Any], f: Callable[..., Value], *inputs: te.Tensor, name: str) -> te.Tensor:
    """Apply `f` to the elements of `inputs`, which broadcast to `shape`."""
    return te.compute(shape, lambda *i: f(*(at(x, i) for x in inputs)), name=name, tag=BROADCAST)


def at(x: te.Tensor, indices: tuple[Any, ...]) -> PrimExpr:
    """Return the element of `x` that broadcasting reads at `indices`."""
    aligned = indices[len(indices) - x.ndim :]
    return x(*(0 if E.number_of(n) == 1 else i for n, i in zip(x.shape, aligned, strict=True)))


def absolute(x: PrimExpr) -> PrimExpr:
    if x.dtype.is_float:
        return I.fabs(x)
    return x if x.dtype.code in ("uint", "bool") else E.maximum(x, E.sub(E.const(0, x.dtype), x))


def sign(x: PrimExpr) -> PrimExpr:
    """Return 1 above zero, -1 below zero, else `x` itself: zero or NaN."""
    zero = E.const(0, x.dtype)
    below = x if x.dtype.code in ("uint", "bool") else E.if_then_else(x < zero, E.const(-1, x.dtype), x)
    return E.if_then_else(x > zero, E.const(1, x.dtype), below)


def greater_of(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """Return the greater value; NaN if either is NaN."""
    return _extreme(E.maximum, x, y)


def lesser_of(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """Return the lesser value; NaN if either is NaN."""
    return _extreme(E.minimum, x, y)


def _extreme(of: Callable[..., PrimExpr], x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """Apply `of` so that NaN of either operand is propagated; `of` itself propagates only NaN of the first."""
    if E.number_of(x) is not None:
        x, y = y, x
    if not x.dtype.is_float or E.number_of(y) is not None:
        return of(x, y)
    return E.if_then_else(E.compare(E.NE, y, y), y, of(x, y))


def _folded(
    of: Callable[..., PrimExpr], plain: Callable[..., PrimExpr], identity: Callable[..., PrimExpr], name: str
) -> Callable[..., PrimExpr]:
    keeping = te.comm_reducer(of, identity, name)

    def reduce(e: PrimExpr, axis: Any) -> PrimExpr:
        return (keeping if e.dtype.is_float else plain)(e, axis)

    return reduce


greatest = _folded(greater_of, te.max, te.min_value, "max")
"""The greatest element along reduction axes; NaN if one of them is NaN."""
least = _folded(lesser_of, te.min, te.max_value, "min")
"""The least element along reduction axes; NaN if one of them is NaN."""


def clamp(x: PrimExpr, low: float, high: float) -> PrimExpr:
    """Clamp `x` to `[low, high]`; bounds outside the range of the type have no effect."""
    if x.dtype.is_integer:
        least, most = integer_range(x.dtype)
        low, high = max(low, least), min(high, most)
    return E.minimum(E.maximum(x, E.const(low, x.dtype)), E.const(high, x.dtype))


def integer_range(dtype: DataType) -> tuple[int, int]:
    """Return the least and the greatest value of an integer type."""
    if dtype.code == "uint":
        return 0, (1 << dtype.bits) - 1
    return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1


def power(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """Return `x` to the power `y`; small integer exponents become products. Integers wrap around."""
    n = E.number_of(y)
    if n in (1, 2, 3):
        result = x
        for _ in range(int(n) - 1):
            result = E.mul(result, x)
        return result
    if n == 0.5 and x.dtype.is_float:
        return I.sqrt(x)
    return I.pow(x, y)


def negated(x: PrimExpr) -> PrimExpr:
    """Return -x, with the sign of zero changed; integers wrap around."""
    return E.mul(x, E.const(-1, x.dtype)) if x.dtype.is_float else E.sub(E.const(0, x.dtype), x)


def rounded(how: E.Intrinsic) -> Callable[[PrimExpr], PrimExpr]:
    """Return a rounding function that leaves integers unchanged."""
    return lambda x: how(x) if x.dtype.is_float else x


def positive(x: PrimExpr) -> PrimExpr:
    """Return max(x, 0)."""
    return E.maximum(x, E.const(0, x.dtype))


def leaky(x: PrimExpr, slope: E.Value) -> PrimExpr:
    """Return x above zero, slope * x elsewhere."""
    return E.if_then_else(x > 0, x, E.mul(x, slope if isinstance(slope, PrimExpr) else E.const(slope, x.dtype)))


def is_nan(x: PrimExpr) -> PrimExpr:
    return I.isnan(x, dtype=BOOL) if x.dtype.is_float else E.const(0, BOOL)


def is_inf(x: PrimExpr) -> PrimExpr:
    return I.isinf(x, dtype=BOOL) if x.dtype.is_float else E.const(0, BOOL)


def is_finite(x: PrimExpr) -> PrimExpr:
    return E.logical_not(E.logical_or(is_nan(x), is_inf(x))) if x.dtype.is_float else E.const(1, BOOL)


def exclusive_or(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """Return true where exactly one operand is true."""
    return E.compare(E.NE, x, y)


def bits_and(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    return E.logical_and(x, y) if x.dtype == BOOL else I.bitwise_and(x, y)


def bits_or(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    return E.logical_or(x, y) if x.dtype == BOOL else I.bitwise_or(x, y)


def bits_xor(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    return exclusive_or(x, y) if x.dtype == BOOL else I.bitwise_xor(x, y)


def bits_not(x: PrimExpr) -> PrimExpr:
    return E.logical_not(x) if x.dtype == BOOL else I.bitwise_not(x)


def selected(condition: PrimExpr, x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """Return x where the condition, a boolean or a number, is nonzero; y elsewhere."""
    return E.if_then_else(
        condition if condition.dtype == BOOL else E.compare(E.NE, condition, E.const(0, condition.dtype)), x, y
    )


def converted(x: PrimExpr, dtype: str | DataType) -> PrimExpr:
    """Convert x to `dtype`; as a boolean, the result is whether x is nonzero."""
    if DataType(dtype) == BOOL:
        return x if x.dtype == BOOL else E.compare(E.NE, x, E.const(0, x.dtype))
    return E.cast(dtype, x)
