"""Interval arithmetic: bounds of the value of an integer expression. The bounds of a vector include all lanes.

`int32` and `int64` arithmetic is assumed not to overflow (these are indices); narrower types wrap around.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tilewright.base.types import DataType
from tilewright.scalar.arith.linear import LinearForm, linear
from tilewright.scalar.arith.ranges import UNKNOWN, Interval, Ranges
from tilewright.scalar.expr import (
    Add,
    Broadcast,
    Cast,
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
        return (p * s, None) if p is not None and s is not None and p >= 0 and s >= 0 else UNKNOWN
    corners = (p * s, p * t, q * s, q * t)
    return min(corners), max(corners)


def _floordiv(e: FloorDiv, ranges: Ranges) -> Interval:
    (lo, hi), (least, most) = bounds(e.a, ranges), bounds(e.b, ranges)
    if e.dtype.is_float or least is None or least <= 0:
        largest = _most_quotient(e, ranges)
        return UNKNOWN if largest is None or lo is None or lo < 0 else (0, largest)
    if most is None:
        most = least if lo is None or hi is None else max(least, abs(lo), abs(hi)) + 1
    low = None if lo is None else lo // (least if lo < 0 else most)
    high = _most_quotient(e, ranges) if hi is None else hi // (most if hi < 0 else least)
    return low, high


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
    least, most = bounds(e.b, ranges)
    if e.dtype.is_float or least is None or least <= 0:
        return UNKNOWN
    lo, hi = bounds(e.a, ranges)
    if least == most and lo is not None and hi is not None and lo // least == hi // least:
        return lo % least, hi % least
    return 0, None if most is None else most - 1


def _truncated(e: TruncDiv | TruncMod, ranges: Ranges) -> Interval:
    lo = bounds(e.a, ranges)[0]
    if lo is None or lo < 0:
        return UNKNOWN
    return _floordiv(FloorDiv(e.a, e.b), ranges) if isinstance(e, TruncDiv) else _floormod(FloorMod(e.a, e.b), ranges)


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
    return UNKNOWN if e.value.dtype.is_float or e.dtype.is_float else bounds(e.value, ranges)


_RULES: Final[dict[type, Callable[..., Interval]]] = {
    Var: lambda e, r: r.of(e), IntImm: lambda e, r: (e.value, e.value), Add: _sum, Sub: _sum, Mul: _sum,
    FloorDiv: _floordiv,
    FloorMod: _floormod, TruncDiv: _truncated, TruncMod: _truncated, Min: _min, Max: _max, Select: _either, Ramp: _ramp,
    Broadcast: lambda e, r: bounds(e.value, r), Cast: _cast,
}
