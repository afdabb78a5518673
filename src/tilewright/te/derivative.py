"""Derivatives of scalar expressions with respect to one of the elements that they read.

    d/dA[i] of A[i] * B[i] + if_then_else(i < 3, A[i], 0)  ->  B[i] + if_then_else(i < 3, 1, 0)

Conditions are kept around derivatives, so no additional elements are read. Integers, indices and conditions have zero
derivatives. At a kink, the derivative is one-sided: that of `abs` at 0 is 1, that of `max(a, b)` at `a == b` is that of
`a`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from tilewright.base.errors import CompileError
from tilewright.scalar import expr as E
from tilewright.scalar import intrinsics as I
from tilewright.scalar.expr import Call, Intrinsic, PrimExpr


def derivative(e: PrimExpr, by: PrimExpr, memo: dict[PrimExpr, PrimExpr | None] | None = None) -> PrimExpr | None:
    """Return the derivative, in the type of `e`; None if it is zero. Raises `CompileError` for a function without
    derivative."""
    memo = {} if memo is None else memo
    if e in memo:
        return memo[e]
    if e is by:
        found: PrimExpr | None = E.const(1, e.dtype)
    elif not e.dtype.is_float:
        found = None
    else:
        found = _RULES.get(type(e), _none)(e, lambda x: derivative(x, by, memo))
    memo[e] = found
    return found


Inner = Callable[[PrimExpr], PrimExpr | None]


def _none(e: PrimExpr, d: Inner) -> PrimExpr | None:
    return None


def _plus(a: PrimExpr | None, b: PrimExpr | None) -> PrimExpr | None:
    return b if a is None else a if b is None else E.add(a, b)


def _times(a: PrimExpr | None, b: PrimExpr) -> PrimExpr | None:
    return None if a is None else E.mul(a, b)


def _minus(a: PrimExpr | None) -> PrimExpr | None:
    return None if a is None else -a


def _add(e: PrimExpr, d: Inner) -> PrimExpr | None:
    a, b = e.operands()
    return _plus(d(a), d(b))


def _sub(e: PrimExpr, d: Inner) -> PrimExpr | None:
    a, b = e.operands()
    return _plus(d(a), _minus(d(b)))


def _mul(e: PrimExpr, d: Inner) -> PrimExpr | None:
    a, b = e.operands()
    return _plus(_times(d(a), b), _times(d(b), a))


def _div(e: PrimExpr, d: Inner) -> PrimExpr | None:
    a, b = e.operands()
    da, db = d(a), d(b)
    return _plus(None if da is None else E.div(da, b), None if db is None else -E.div(db * a, b * b))


def _either(condition: PrimExpr, a: PrimExpr | None, b: PrimExpr | None, e: PrimExpr) -> PrimExpr | None:
    if a is None and b is None:
        return None
    zero = E.const(0, e.dtype)
    return E.if_then_else(condition, zero if a is None else a, zero if b is None else b)


def _select(e: PrimExpr, d: Inner) -> PrimExpr | None:
    condition, a, b = e.operands()
    return _either(condition, d(a), d(b), e)


def _max(e: PrimExpr, d: Inner) -> PrimExpr | None:
    a, b = e.operands()
    return _either(a >= b, d(a), d(b), e)


def _min(e: PrimExpr, d: Inner) -> PrimExpr | None:
    a, b = e.operands()
    return _either(a <= b, d(a), d(b), e)


def _cast(e: PrimExpr, d: Inner) -> PrimExpr | None:
    inner = d(e.operands()[0])
    return None if inner is None else E.cast(e.dtype, inner)


def _same_lanes(e: PrimExpr, d: Inner) -> PrimExpr | None:
    inner = d(e.operands()[0])
    return None if inner is None else E.broadcast(inner, e.dtype.lanes)


def _call(e: PrimExpr, d: Inner) -> PrimExpr | None:
    assert isinstance(e, Call)
    parts = [d(a) for a in e.args]
    if all(p is None for p in parts):
        return None
    if e.op is I.fma:
        a, b, _ = e.args
        return _plus(_plus(_times(parts[0], b), _times(parts[1], a)), parts[2])
    x, y = (*e.args, *e.args)[:2]
    if e.op is I.fmod:
        return _plus(parts[0], _minus(_times(parts[1], I.trunc(E.div(x, y)))))
    if e.op is I.pow:
        by_base = _times(parts[0], y * I.pow(x, y - 1))
        return _plus(by_base, _times(parts[1], E.mul(e, I.log(x))))
    rule = _FUNCTIONS.get(e.op)
    if rule is None:
        raise CompileError(
            f"te.gradient: '{e.op.spelling}' has no derivative; use only these functions: "
            f"{', '.join(f.spelling for f in _FUNCTIONS)}", code="TW0605")
    slope = rule(e.args[0], e)
    return None if slope is None else _times(parts[0], slope)


_TWO_OVER_ROOT_PI: Final = 2 / math.sqrt(math.pi)

_FUNCTIONS: Final[dict[Intrinsic, Callable[[PrimExpr, PrimExpr], PrimExpr | None]]] = {
    I.exp: lambda x, y: y,
    I.exp2: lambda x, y: y * math.log(2),
    I.log: lambda x, y: E.div(1.0, x),
    I.log2: lambda x, y: E.div(1 / math.log(2), x),
    I.sqrt: lambda x, y: E.div(0.5, y),
    I.rsqrt: lambda x, y: E.div(y * -0.5, x),
    I.tanh: lambda x, y: 1.0 - y * y,
    I.sigmoid: lambda x, y: y * (1.0 - y),
    I.erf: lambda x, y: I.exp(-(x * x)) * _TWO_OVER_ROOT_PI,
    I.sin: lambda x, y: I.cos(x),
    I.cos: lambda x, y: -I.sin(x),
    I.tan: lambda x, y: 1.0 + y * y,
    I.asin: lambda x, y: I.rsqrt(1.0 - x * x),
    I.acos: lambda x, y: -I.rsqrt(1.0 - x * x),
    I.atan: lambda x, y: E.div(1.0, 1.0 + x * x),
    I.sinh: lambda x, y: I.cosh(x),
    I.cosh: lambda x, y: I.sinh(x),
    I.asinh: lambda x, y: I.rsqrt(x * x + 1.0),
    I.acosh: lambda x, y: I.rsqrt(x * x - 1.0),
    I.atanh: lambda x, y: E.div(1.0, 1.0 - x * x),
    I.fabs: lambda x, y: E.if_then_else(x >= 0.0, E.const(1, x.dtype), E.const(-1, x.dtype)),
    I.floor: lambda x, y: None,
    I.ceil: lambda x, y: None,
    I.trunc: lambda x, y: None,
    I.nearbyint: lambda x, y: None,
}
"""Return the slope for an argument and the function's value; None for step functions."""

_RULES: Final[dict[type[PrimExpr], Callable[[PrimExpr, Inner], PrimExpr | None]]] = {
    E.Add: _add, E.Sub: _sub, E.Mul: _mul, E.Div: _div, E.Max: _max, E.Min: _min, E.Select: _select, E.Cast: _cast,
    E.Broadcast: _same_lanes, E.Call: _call,
}
