"""Interval arithmetic: bounds of the value of an integer expression. The bounds of a vector include all lanes.

`int32` and `int64` arithmetic is assumed not to overflow (these are indices); narrower types wrap around.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Final

from tilewright.base.types import DataType
from tilewright.scalar.arith.linear import LinearForm, linear
from tilewright.scalar.arith.ranges import UNKNOWN, Interval, Ranges
from tilewright.scalar.expr import (
    BITWISE_AND,
    SHIFT_LEFT,
    SHIFT_RIGHT,
    Add,
    Broadcast,
    Call,
    Cast,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    PrimExpr,
    Ramp,
    Select,
    Sub,
    TruncDiv,
    TruncMod,
    Var,
    number_of,
)
from tilewright.scalar.intrinsics import ceil, log2


def bounds(e: PrimExpr, ranges: Ranges) -> Interval:
    """Return the least and the greatest value of `e`; None for an unlimited or unknown end."""
    known = ranges.bounds.get(e)
    if known is None:
        rule = _RULES.get(type(e))
        known = of_dtype(e.dtype) if rule is None else _fitting(rule(e, ranges), e.dtype)
        ranges.bounds[e] = known
    return known


def bounds_of_form(form: LinearForm, ranges: Ranges) -> Interval:
    """Return the bounds of a linear form. A fact about a sum of its atoms may give a higher lower bound."""
    found = _by_atoms(form, ranges)
    for known, (least, _) in ranges.facts.items():
        if least is not None and isinstance(known, (Add, Sub)):
            part = linear(known)
            if all(form.coefs.get(atom, 0) == k for atom, k in part.coefs.items()):
                low, _ = _by_atoms(form.plus(part, -1), ranges)
                if low is not None and (found[0] is None or low + least > found[0]):
                    found = low + least, found[1]
    return found


def _by_atoms(form: LinearForm, ranges: Ranges) -> Interval:
    low: int | None = form.const
    high: int | None = form.const
    for atom, k in form.coefs.items():
        lo, hi = bounds(atom, ranges)
        if k < 0:
            lo, hi = hi, lo
        low = None if low is None or lo is None else low + k * lo
        high = None if high is None or hi is None else high + k * hi
        if low is None and high is None:
            return UNKNOWN
    return low, high


def of_dtype(dtype: DataType) -> Interval:
    """Return the range of a type; index types count as unlimited."""
    if dtype.code == "bool":
        return 0, 1
    if dtype.code == "uint":
        return 0, (1 << dtype.bits) - 1
    return (
        (-(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1) if dtype.code == "int" and dtype.bits < 32 else UNKNOWN
    )


def _fitting(found: Interval, dtype: DataType) -> Interval:
    """Return `found`, or the range of the type if a value may wrap around."""
    lo, hi = of_dtype(dtype)
    if lo is None or hi is None:
        return found
    return found if found[0] is not None and found[1] is not None and lo <= found[0] and found[1] <= hi else (lo, hi)


def _sum(e: PrimExpr, ranges: Ranges) -> Interval:
    if e.dtype.is_float:
        return UNKNOWN
    form = linear(e)
    if len(form.coefs) == 1 and form.const == 0 and e in form.coefs:
        return _product(e.a, e.b, ranges)  # type: ignore[attr-defined]
    return bounds_of_form(form, ranges)


def _product(a: PrimExpr, b: PrimExpr, ranges: Ranges) -> Interval:
    (p, q), (s, t) = bounds(a, ranges), bounds(b, ranges)
    if p is None or q is None or s is None or t is None:
        return _unlimited_product((p, q), (s, t), is_square=a is b)
    corners = (p * s, p * t, q * s, q * t)
    low = min(corners)
    return (0 if a is b and low < 0 else low), max(corners)


def _unlimited_product(a: Interval, b: Interval, *, is_square: bool) -> Interval:
    """Bound a product of factors that have unlimited ends: the product of 0 and such an end is 0."""
    ends = [[-math.inf if lo is None else lo, math.inf if hi is None else hi] for lo, hi in (a, b)]
    corners = [x * y if x and y else 0 for x in ends[0] for y in ends[1]]
    low, high = min(corners), max(corners)
    if is_square and low < 0:
        low = 0
    return None if low == -math.inf else int(low), None if high == math.inf else int(high)


def _floordiv(e: FloorDiv, ranges: Ranges) -> Interval:
    (lo, hi), (least, most) = bounds(e.a, ranges), bounds(e.b, ranges)
    if e.dtype.is_float:
        return UNKNOWN
    if least is not None and least > 0 and most is not None and lo is not None and hi is not None:
        return lo // (least if lo < 0 else most), hi // (most if hi < 0 else least)
    low, high = _quotients((lo, hi), (least, most), operator.floordiv)
    largest = _most_quotient(e, ranges) if high is None or least is None or least <= 0 else None
    if largest is None:
        return low, high
    return (0, largest) if lo is not None and lo >= 0 else (low, high)


def _quotients(dividend: Interval, divisor: Interval, divide: Callable[[int, int], int]) -> Interval:
    """Return the bounds of quotients by the divisors other than 0. They are at the ends of the dividend, divided by
    the ends of the divisor or by 1 or -1."""
    ends = [x for x in dividend if x is not None]
    far = max(map(abs, ends), default=0) + 1  # quotients by larger divisors are the same
    least = divisor[0] if divisor[0] is not None else -far if divisor[1] is None else min(divisor[1], -far)
    most = divisor[1] if divisor[1] is not None else max(least, far)
    divisors = [d for d in {least, most, -1, 1} if d and least <= d <= most]
    if not divisors or not ends:
        return UNKNOWN
    found = [divide(x, d) for x in ends for d in divisors]
    positive, negative = max(divisors) > 0, min(divisors) < 0
    no_low, no_high = (x is None for x in dividend)
    return (
        None if (no_low and positive) or (no_high and negative) else min(found),
        None if (no_high and positive) or (no_low and negative) else max(found))


def _most_quotient(e: FloorDiv, ranges: Ranges) -> int | None:
    """Return the greatest quotient of a variable below a multiple of the symbolic divisor: i // n < 4 for i < n * 4.
    If the variable is not negative, the divisor is positive."""
    end = ranges.ends.get(e.a) if isinstance(e.a, Var) else None
    if end is None:
        return None
    whole, part = linear(end), linear(e.b)
    times = next((k // part.coefs[a] for a, k in whole.coefs.items() if a in part.coefs), 0)
    exact = part.times(times)
    return times - 1 if times > 0 and whole.coefs == exact.coefs and whole.const == exact.const else None


def _floormod(e: FloorMod, ranges: Ranges) -> Interval:
    """Bound a remainder, which has the sign of the divisor."""
    if e.dtype.is_float:
        return UNKNOWN
    (lo, hi), (least, most) = bounds(e.a, ranges), bounds(e.b, ranges)
    if least is not None and least > 0:
        if least == most and lo is not None and hi is not None and lo // least == hi // least:
            return lo % least, hi % least
        high = None if most is None else most - 1
        return 0, high if hi is None or lo is None or lo < 0 else hi if high is None else min(hi, high)
    return None if least is None else min(least + 1, 0), None if most is None else max(most - 1, 0)


def _truncdiv(e: TruncDiv, ranges: Ranges) -> Interval:
    lo, (least, _) = bounds(e.a, ranges)[0], bounds(e.b, ranges)
    if lo is not None and lo >= 0 and (least is None or least >= 0):
        return _floordiv(FloorDiv(e.a, e.b), ranges)
    return UNKNOWN if e.dtype.is_float else _quotients(bounds(e.a, ranges), bounds(e.b, ranges), _truncated)


def _truncated(a: int, b: int) -> int:
    """Return the quotient rounded towards 0."""
    return -(-a // b) if (a < 0) != (b < 0) else a // b


def _truncmod(e: TruncMod, ranges: Ranges) -> Interval:
    """Bound a remainder, which has the sign of the dividend and is smaller than the divisor."""
    if e.dtype.is_float:
        return UNKNOWN
    (lo, hi), (least, most) = bounds(e.a, ranges), bounds(e.b, ranges)
    if lo is not None and lo >= 0 and least is not None and least > 0:
        return _floormod(FloorMod(e.a, e.b), ranges)
    largest = None if least is None or most is None else max(abs(least), abs(most), 1) - 1
    return (
        0 if lo is not None and lo >= 0 else max(
            (x for x in (lo, None if largest is None else -largest) if x is not None), default=None),
        0 if hi is not None and hi <= 0 else min((x for x in (hi, largest) if x is not None), default=None))


def _min(e: Min, ranges: Ranges) -> Interval:
    (a, b), (c, d) = bounds(e.a, ranges), bounds(e.b, ranges)
    return (None if a is None or c is None else min(a, c)), (d if b is None else b if d is None else min(b, d))


def _max(e: Max, ranges: Ranges) -> Interval:
    (a, b), (c, d) = bounds(e.a, ranges), bounds(e.b, ranges)
    return (c if a is None else a if c is None else max(a, c)), (None if b is None or d is None else max(b, d))


def _either(e: Select, ranges: Ranges) -> Interval:
    (a, b), (c, d) = bounds(e.true_value, ranges), bounds(e.false_value, ranges)
    return (None if a is None or c is None else min(a, c)), (None if b is None or d is None else max(b, d))


def _ramp(e: Ramp, ranges: Ranges) -> Interval:
    (lo, hi), step = bounds(e.base, ranges), number_of(e.stride)
    if not isinstance(step, int):
        return UNKNOWN
    span = step * (e.dtype.lanes - 1)
    return (None if lo is None else lo + min(0, span)), (None if hi is None else hi + max(0, span))


def _cast(e: Cast, ranges: Ranges) -> Interval:
    """Bound a conversion. Integers keep their values in a floating-point type that holds them exactly."""
    found = bounds(e.value, ranges)
    if not e.dtype.is_float:
        return _rounded_log2(e.value, ranges) if found == UNKNOWN and e.value.dtype.is_float else found
    exact = 1 << _SIGNIFICANT_BITS.get(str(e.dtype.element), 0)
    return found if all(x is not None and abs(x) <= exact for x in found) else UNKNOWN


def _rounded_log2(e: PrimExpr, ranges: Ranges) -> Interval:
    """Bound `ceil(log2(x))` of an integer `x`; unknown for other values, and where double precision is too coarse."""
    if not (isinstance(e, Call) and e.op is ceil and e.dtype == "float64"):
        return UNKNOWN
    (inner,) = e.args
    if not (isinstance(inner, Call) and inner.op is log2):
        return UNKNOWN
    (x,) = inner.args
    low, high = (int(x.value),) * 2 if isinstance(x, FloatImm) and x.value.is_integer() else bounds(x, ranges)
    if low is None or high is None or low < 1 or high > 1 << 40:
        return UNKNOWN
    return (low - 1).bit_length(), (high - 1).bit_length()


def _call(e: Call, ranges: Ranges) -> Interval:
    """Bound shifts by numbers that are not negative, and bitwise conjunctions."""
    if e.op not in (SHIFT_LEFT, SHIFT_RIGHT, BITWISE_AND) or not e.dtype.is_integer:
        return of_dtype(e.dtype)
    (lo, hi), (least, most) = (bounds(x, ranges) for x in e.args)
    if e.op is BITWISE_AND:
        highs = [h for low, h in ((lo, hi), (least, most)) if low is not None and low >= 0]
        return (0, min((h for h in highs if h is not None), default=None)) if highs else UNKNOWN
    if lo is None or hi is None or least is None or least < 0 or most is None or most >= e.dtype.bits:
        return UNKNOWN
    shift = operator.lshift if e.op is SHIFT_LEFT else operator.rshift
    corners = [shift(x, by) for x in (lo, hi) for by in (least, most)]
    return min(corners), max(corners)


_SIGNIFICANT_BITS: Final = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
_RULES: Final[dict[type, Callable[..., Interval]]] = {
    Var: lambda e, r: r.of(e), IntImm: lambda e, r: (e.value, e.value), Add: _sum, Sub: _sum, Mul: _sum,
    FloorDiv: _floordiv,
    FloorMod: _floormod, TruncDiv: _truncdiv, TruncMod: _truncmod, Min: _min, Max: _max, Select: _either, Ramp: _ramp,
    Broadcast: lambda e, r: bounds(e.value, r), Call: _call, Cast: _cast,
}
