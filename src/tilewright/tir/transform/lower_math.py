"""Replace elementary functions by arithmetic.

    B[i] = I.sigmoid(A[i])      ->      B[i] = 1.0 / (1.0 + …)        a polynomial, shifts and fused multiply-adds

Applies to scalar and vector `float32`; 16-bit floats are computed in `float32`. Other types, and functions not in
`EXPANSIONS`, stay calls, which code generation maps to the C library. Errors in units in the last place, measured over
all exponents against `float64` (`tests/test_tir_lower_math.py` verifies them), including subnormal results:

    exp 1, exp2 1, log 1, log2 2, tanh 2.5, sigmoid 2.5, erf 2, rsqrt 1.5

A value rounded to bfloat16 when stored needs less accuracy. For it, erf is one polynomial with an absolute error of at
most 2.5e-5 and a relative error of at most 1.1e-4.

Infinities, NaN, zeros and the ends of the range give the same results as the C library. Polynomials are minimax fits
(Lawson's iteration on Chebyshev nodes, coefficients rounded to `float32` one after the other) with their errors given
below. The range reductions are those of Cody and Waite, *Software Manual for the Elementary Functions* (1980).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, log, log2, nan
from typing import Final

from tilewright.base.types import DataType
from tilewright.scalar import expr as T
from tilewright.scalar import intrinsics as I
from tilewright.scalar.expr import Call, Cast, Intrinsic, Load, PrimExpr, Select, Var, const, if_then_else
from tilewright.scalar.intrinsics import fma, reinterpret, shift_left, shift_right
from tilewright.scalar.walk import walk
from tilewright.tir.stmt import IfThenElse, Let, PrimFunc, Stmt, Store, bodies, map_bodies

_MAGIC: Final = 12582912.0
"""1.5 * 2**23: adding it rounds a float32 to an integer in its low bits."""
_MAGIC_BITS: Final = 0x4B400000
_LN2_HIGH, _LN2_LOW = 0.693145751953125, 1.42860682030941723e-6
_EXP: Final = (
    0.4999999403953552, 0.16666516661643982, 0.041668280959129333, 0.008369248360395432, 0.0013820745516568422
)
"""exp(r) = 1 + r + r*r*p(r) for |r| <= 0.35; relative error 3.4e-9."""
_LOG: Final = (0.3333333134651184, -0.2500081956386566, 0.2000124156475067, -0.166234090924263, 0.14201579988002777,
               -0.13159610331058502, 0.12762217223644257, -0.07636439055204391)
"""log(1 + f) = f - f*f/2 + f*f*f*p(f) for sqrt(1/2) <= 1 + f <= sqrt(2); relative error 5.8e-9."""
_ERF_SMALL: Final = (0.12837915122509003, -0.3761250674724579, 0.11281976103782654, -0.02677328512072563,
                     0.005004160106182098,
                     -0.0006052461685612798)
"""erf(x) = x + x*p(x*x) for |x| <= 0.9; relative error 1.4e-8."""
_ERF_LARGE: Final = (-0.00016644762945361435, -1.127797245979309, -0.6369760632514954, -0.10411372035741806,
                     0.02231525257229805,
                     -0.0030655076261609793, 0.00019822249305434525)
"""erf(x) = 1 - exp(p(x)) for 0.9 <= x <= 3.92; relative error 1.7e-9."""

_ERF_COARSE: Final = (1.1282684803009033, -0.3753148913383484, 0.11107935011386871, -0.02510286308825016,
                      0.004235425498336554,
                      -0.0005110360798425972, 4.10603970522061e-05, -1.9448129933152813e-06, 4.0741809925748385e-08)
"""erf(x) = x*p(x*x) for |x| <= 3, and more than 1 beyond; absolute error 2.2e-5, relative error 1e-4."""


def lower_math(func: PrimFunc) -> PrimFunc:
    """Expand the elementary functions of `EXPANSIONS` in `func`."""
    return func.with_body(_stmt(func.body))


def _stmt(s: Stmt) -> Stmt:
    if bodies(s):
        s = map_bodies(s, _stmt) or s
    lowering = _Lowering()
    match s:
        case Store():
            s = Store(s.buffer, lowering.expr(s.value, guarded=False, coarse=_is_rounded(s.value)), s.indices, s.mask)
        case IfThenElse():
            s = IfThenElse(lowering.expr(s.condition, guarded=False), s.then_case, s.else_case)
        case Let():
            s = Let(s.var, lowering.expr(s.value, guarded=False), s.body)
        case _:
            return s
    for value, var in reversed(lowering.bound.items()):
        s = Let(var, value, s)
    return s


def _is_rounded(e: PrimExpr) -> bool:
    return isinstance(e, Cast) and e.dtype.code == "bfloat"


class _Lowering:
    """Lowers the expressions of one statement.

    An argument that reads memory, and on which an expansion branches, is bound to a variable first. Otherwise its loads
    would be conditional, below a `Select`.
    """

    def __init__(self) -> None:
        self.bound: dict[PrimExpr, Var] = {}
        self.memo: dict[tuple[PrimExpr, bool, bool], PrimExpr] = {}

    def expr(self, e: PrimExpr, guarded: bool, coarse: bool = False) -> PrimExpr:
        """Return `e` lowered. `guarded`: it is below a `Select`, where loads cannot be moved up. `coarse`: sums and
        products of it are rounded to bfloat16."""
        old = e.operands()
        if not old:
            return e
        known = self.memo.get((e, guarded, coarse))
        if known is not None:
            return known
        rough = coarse and (not isinstance(e, Call) or e.op is fma)
        below = [guarded or (isinstance(e, Select) and k > 0) for k in range(len(old))]
        new = [self.expr(x, g, rough) for x, g in zip(old, below, strict=True)]
        result = e if all(a is b for a, b in zip(old, new, strict=True)) else e.with_operands(new)
        expanded = expand(result, coarse)
        if expanded is not None:
            result = expanded if guarded else self.bind(result, expanded)
        self.memo[e, guarded, coarse] = result
        return result

    def bind(self, call: PrimExpr, expanded: PrimExpr) -> PrimExpr:
        (x,) = call.operands()
        if not any(isinstance(e, Select) for e in walk(expanded)) or not any(isinstance(e, Load) for e in walk(x)):
            return expanded
        var = self.bound.setdefault(x, Var("x", x.dtype))
        rewritten = expand(call.with_operands([var]))
        return expanded if rewritten is None else rewritten


def expand(e: PrimExpr, coarse: bool = False) -> PrimExpr | None:
    """Return the arithmetic for a call, or None if it stays a call; `coarse`: the result is rounded to bfloat16."""
    if not isinstance(e, Call):
        return None
    rule = COARSE.get(e.op) if coarse else None
    rule = rule or EXPANSIONS.get(e.op)
    if rule is None or not e.dtype.is_float:
        return None
    if e.dtype.bits == 16:
        wide = DataType("float32").with_lanes(e.dtype.lanes)
        return T.cast(e.dtype, rule(*(T.cast(wide, a) for a in e.args)))
    return rule(*e.args) if e.dtype.bits == 32 else None


def _polynomial(x: PrimExpr, coefficients: Sequence[float]) -> PrimExpr:
    """Return `sum(coefficients[k] * x**k)` by Horner's rule."""
    total = const(coefficients[-1], x.dtype)
    for c in reversed(coefficients[:-1]):
        total = fma(total, x, const(c, x.dtype))
    return total


def _clamp(x: PrimExpr, low: float, high: float) -> PrimExpr:
    """Clamp `x`; NaN stays NaN, since `Min` and `Max` return their first operand for NaN."""
    return T.maximum(T.minimum(x, high), low)


def _ints(x: PrimExpr) -> DataType:
    return DataType("int32").with_lanes(x.dtype.lanes)


def _int(x: PrimExpr, value: int) -> PrimExpr:
    return const(value, _ints(x))


def _power_of_two(n: PrimExpr, like: PrimExpr) -> PrimExpr:
    """Return 2**n as float32 for integers -126 <= n <= 127."""
    return reinterpret(shift_left(n + 127, _int(like, 23)), dtype=like.dtype)


def _round(x: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """Return the integer nearest to `x`, as float32 and as int32; |x| must be below 2**22."""
    shifted = x + _MAGIC
    return shifted - _MAGIC, reinterpret(shifted, dtype=_ints(x)) - _MAGIC_BITS


def _split_exponent(x: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """Return `(r, n)` with exp(x) = exp(r) * 2**n and |r| <= log(2) / 2."""
    n, k = _round(x * (1 / log(2)))
    return fma(n, const(-_LN2_LOW, x.dtype), fma(n, const(-_LN2_HIGH, x.dtype), x)), k


def _exp_minus_1(r: PrimExpr) -> PrimExpr:
    """Return exp(r) - 1 for |r| <= log(2) / 2."""
    return fma(r * r, _polynomial(r, _EXP), r)


def _scaled(p: PrimExpr, n: PrimExpr) -> PrimExpr:
    """Return p * 2**n, computed in two steps so that neither factor leaves the range of float32."""
    half = shift_right(n, _int(p, 1))
    return p * _power_of_two(half, p) * _power_of_two(n - half, p)


def _exp(x: PrimExpr) -> PrimExpr:
    r, n = _split_exponent(_clamp(x, -104.0, 89.0))
    return _scaled(_exp_minus_1(r) + 1.0, n)


def _exp2(x: PrimExpr) -> PrimExpr:
    x = _clamp(x, -151.0, 129.0)
    n, k = _round(x)
    return _scaled(_exp_minus_1((x - n) * log(2)) + 1.0, k)


def _log_parts(x: PrimExpr) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
    """Return `(n, f, c)` with x = 2**n * (1 + f) and log(1 + f) = f + c, for positive finite x."""
    tiny = x < 1.1754943508222875e-38
    bits = reinterpret(if_then_else(tiny, x * float(2**23), x), dtype=_ints(x))
    n = shift_right(bits - 0x3F3504F3, _int(x, 23))  # the bits of sqrt(1/2)
    f = reinterpret(bits - shift_left(n, _int(x, 23)), dtype=x.dtype) - 1.0
    exponent = T.cast(x.dtype, n) - if_then_else(tiny, const(23.0, x.dtype), const(0.0, x.dtype))
    square = f * f
    return exponent, f, fma(square, const(-0.5, x.dtype), square * f * _polynomial(f, _LOG))


def _log_ends(x: PrimExpr, value: PrimExpr) -> PrimExpr:
    """Return `value` for positive finite x, minus infinity for zero, NaN for negative x, and x itself for infinity and
    NaN."""
    value = if_then_else(x < float("inf"), value, x)
    return if_then_else(x > 0.0, value, if_then_else(x.equal(0.0), -inf, if_then_else(x < 0.0, nan, x)))


def _log(x: PrimExpr) -> PrimExpr:
    n, f, c = _log_parts(x)
    low = fma(n, const(_LN2_LOW, x.dtype), c)
    return _log_ends(x, fma(n, const(_LN2_HIGH, x.dtype), f + low))


def _log2(x: PrimExpr) -> PrimExpr:
    n, f, c = _log_parts(x)
    scale = log2(2.718281828459045)
    return _log_ends(x, n + fma(f, const(scale, x.dtype), c * scale))


def _exp_minus_1_below_0(x: PrimExpr) -> PrimExpr:
    """Return exp(x) - 1 for -87 <= x <= 0."""
    r, n = _split_exponent(x)
    scale = _power_of_two(n, x)
    return fma(scale, _exp_minus_1(r), scale - 1.0)


def _signed(magnitude: PrimExpr, sign: PrimExpr) -> PrimExpr:
    """Return `magnitude` (not negative) with the sign of `sign`."""
    bit = I.bitwise_and(reinterpret(sign, dtype=_ints(sign)), _int(sign, -(1 << 31)))
    return reinterpret(I.bitwise_or(reinterpret(magnitude, dtype=_ints(sign)), bit), dtype=sign.dtype)


def _tanh(x: PrimExpr) -> PrimExpr:
    e = _exp_minus_1_below_0(T.minimum(I.fabs(x), 10.0) * -2.0)
    return _signed(I.fabs(e / (e + 2.0)), x)


def _sigmoid(x: PrimExpr) -> PrimExpr:
    return 1.0 / (1.0 + _exp(0.0 - x))


def _erf(x: PrimExpr) -> PrimExpr:
    size = I.fabs(x)
    small = fma(x, _polynomial(x * x, _ERF_SMALL), x)
    large = 0.0 - _exp_minus_1_below_0(_polynomial(T.minimum(size, 4.0), _ERF_LARGE))
    return if_then_else(size < 0.9, small, _signed(large, x))


def _erf_coarse(x: PrimExpr) -> PrimExpr:
    return _clamp(x * _polynomial(x * x, _ERF_COARSE), -1.0, 1.0)


def _rsqrt(x: PrimExpr) -> PrimExpr:
    return 1.0 / I.sqrt(x)


EXPANSIONS: Final[dict[Intrinsic, Callable[..., PrimExpr]]] = {
    I.exp: _exp, I.exp2: _exp2, I.log: _log, I.log2: _log2, I.tanh: _tanh, I.sigmoid: _sigmoid, I.erf: _erf,
    I.rsqrt: _rsqrt,
}
COARSE: Final[dict[Intrinsic, Callable[..., PrimExpr]]] = {I.erf: _erf_coarse}
"""Expansions for results that are rounded to bfloat16."""
