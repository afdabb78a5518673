"""Remainders of integer expressions: `coeff` and `base` such that the value is always `coeff * k + base`.

`int32` and `int64` arithmetic is assumed not to overflow, as in `bounds.py`; other types wrap around.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import gcd
from typing import Final

from tilewright.scalar.arith.bounds import bounds
from tilewright.scalar.arith.ranges import Ranges
from tilewright.scalar.arith.simplify import is_index
from tilewright.scalar.expr import (
    BITWISE_AND,
    SHIFT_LEFT,
    SHIFT_RIGHT,
    Add,
    Call,
    Cast,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    PrimExpr,
    Select,
    Sub,
    TruncDiv,
    TruncMod,
    Var,
)


@dataclass(frozen=True, slots=True)
class ModularSet:
    """The integers `coeff * k + base`, with `0 <= base < coeff`; `coeff` is 0 for one integer."""

    coeff: int
    base: int

    @staticmethod
    def of(coeff: int, base: int) -> ModularSet:
        """Return the set with its smallest base."""
        return ModularSet(abs(coeff), base % abs(coeff) if coeff else base)

    def intersection(self, other: ModularSet) -> ModularSet:
        """Return the integers in both sets (Chinese remainder theorem). Raises `ValueError` if there is none."""
        common = gcd(self.coeff, other.coeff)
        distance = other.base - self.base
        if distance % common if common else distance:
            raise ValueError(f"{self} and {other} have no integer in common")
        if not self.coeff or not other.coeff:
            return other if self.coeff else self
        step = other.coeff // common
        times = distance // common * pow(self.coeff // common, -1, step) % step
        return ModularSet.of(self.coeff * step, self.base + self.coeff * times)

    def union(self, other: ModularSet) -> ModularSet:
        return ModularSet.of(gcd(self.coeff, other.coeff, self.base - other.base), self.base)


ANY: Final = ModularSet(1, 0)


def modular_set(e: PrimExpr, ranges: Ranges, known: Mapping[Var, ModularSet]) -> ModularSet:
    """Return the remainders of `e`; `known` are those of variables."""
    if isinstance(e, IntImm):
        return ModularSet(0, e.value)
    if isinstance(e, Var):
        return known.get(e, ANY)
    if isinstance(e, Call):
        return _bitwise(e, ranges, known)
    rule = _RULES.get(type(e))
    return ANY if rule is None else _wrapped(e, rule(e, ranges, known))


def _wrapped(e: PrimExpr, found: ModularSet) -> ModularSet:
    """Return the remainders after wrapping around at the width of a type that is not an index type."""
    if is_index(e.dtype) or not e.dtype.bits or not isinstance(e, (Add, Sub, Mul, Call)):
        return found
    return ModularSet.of(gcd(found.coeff, 1 << e.dtype.bits), found.base)


def _pair(e: PrimExpr, ranges: Ranges, known: Mapping[Var, ModularSet]) -> tuple[ModularSet, ModularSet]:
    a, b = e.operands()
    return modular_set(a, ranges, known), modular_set(b, ranges, known)


def _sum(e: PrimExpr, ranges: Ranges, known: Mapping[Var, ModularSet]) -> ModularSet:
    a, b = _pair(e, ranges, known)
    return ModularSet.of(gcd(a.coeff, b.coeff), a.base - b.base if isinstance(e, Sub) else a.base + b.base)


def _product(e: PrimExpr, ranges: Ranges, known: Mapping[Var, ModularSet]) -> ModularSet:
    a, b = _pair(e, ranges, known)
    return ModularSet.of(gcd(a.coeff * b.coeff, a.coeff * b.base, b.coeff * a.base), a.base * b.base)


def _divided(a: ModularSet, by: int) -> ModularSet:
    return ModularSet.of(a.coeff // by, a.base // by) if by > 0 and a.coeff % by == 0 else ANY


def _quotient(e: PrimExpr, ranges: Ranges, known: Mapping[Var, ModularSet]) -> ModularSet:
    a, b = _pair(e, ranges, known)
    if b.coeff or not b.base:
        return ANY
    if isinstance(e, TruncDiv) and a.base and not _is_positive(e.a, ranges):
        return ANY
    return _divided(a, b.base)


def _remainder(e: PrimExpr, ranges: Ranges, known: Mapping[Var, ModularSet]) -> ModularSet:
    a, b = _pair(e, ranges, known)
    common = gcd(a.coeff, b.coeff, b.base)
    if isinstance(e, TruncMod) and not _is_positive(e.a, ranges):
        return ModularSet(common, 0) if common and a.base % common == 0 else ANY
    if not b.coeff and b.base and a.coeff % b.base == 0:
        return ModularSet(0, a.base % b.base)
    return ModularSet.of(common, a.base) if common else ANY


def _is_positive(e: PrimExpr, ranges: Ranges) -> bool:
    low, _ = bounds(e, ranges)
    return low is not None and low >= 0


def _either(e: PrimExpr, ranges: Ranges, known: Mapping[Var, ModularSet]) -> ModularSet:
    a, b = e.operands()[-2:]
    return modular_set(a, ranges, known).union(modular_set(b, ranges, known))


def _cast(e: PrimExpr, ranges: Ranges, known: Mapping[Var, ModularSet]) -> ModularSet:
    """Return the remainders of a converted integer, whose type holds all its values."""
    (value,) = e.operands()
    return modular_set(value, ranges, known) if value.dtype.is_integer and _holds(e, value, ranges) else ANY


def _holds(e: PrimExpr, value: PrimExpr, ranges: Ranges) -> bool:
    if not e.dtype.is_integer or e.dtype.code == "bool":
        return False
    if e.dtype.code == value.dtype.code and e.dtype.bits >= value.dtype.bits:
        return True
    low, high = bounds(value, ranges)
    signed = e.dtype.code == "int"
    least, greatest = (-(1 << (e.dtype.bits - 1)) if signed else 0), (1 << (e.dtype.bits - signed)) - 1
    return low is not None and high is not None and least <= low and high <= greatest


def _bitwise(e: Call, ranges: Ranges, known: Mapping[Var, ModularSet]) -> ModularSet:
    """Return the remainders of a shift by a constant, or of the lowest bits: `x & 7` is `x % 8`."""
    by = e.args[1] if e.op in (SHIFT_LEFT, SHIFT_RIGHT, BITWISE_AND) else None
    if not isinstance(by, IntImm) or by.value < 0:
        return ANY
    a = modular_set(e.args[0], ranges, known)
    if e.op is BITWISE_AND:
        return ModularSet.of(gcd(a.coeff, by.value + 1), a.base) if by.value & (by.value + 1) == 0 else ANY
    scale = 1 << by.value
    return (
        _wrapped(e, ModularSet.of(a.coeff * scale, a.base * scale)) if e.op is SHIFT_LEFT else _divided(a, scale))


Rule = Callable[[PrimExpr, Ranges, Mapping[Var, ModularSet]], ModularSet]
_RULES: Final[dict[type[PrimExpr], Rule]] = {
    Add: _sum, Sub: _sum, Mul: _product, FloorDiv: _quotient, TruncDiv: _quotient, FloorMod: _remainder,
    TruncMod: _remainder, Min: _either, Max: _either, Select: _either, Cast: _cast,
}
