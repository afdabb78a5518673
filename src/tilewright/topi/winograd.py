"""The matrices of Winograd's algorithm for convolutions with 3 taps: F(m, 3) for tiles of m outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

from tilewright.scalar.expr import EQ, PrimExpr, compare, if_then_else

Row = tuple[Fraction, ...]
TAPS: Final = 3
_FEW_POINTS: Final = (Fraction(0), Fraction(1), Fraction(-1))
_POINTS: Final = (Fraction(0), Fraction(3, 4), Fraction(-3, 4), Fraction(3, 2), Fraction(-3, 2))
"""Points at which the polynomials of small and of larger tiles are evaluated, besides infinity. All points cost the
same; those whose powers stay near 1 round least (half as much as 1 and 2), and the matrices of these are float32
exactly."""


@dataclass(frozen=True, slots=True)
class Matrices:
    """`y = At ((G w Gt) * (Bt d B)) A` for a tile `y` of `len(At)` outputs a side."""

    inputs: tuple[Row, ...]
    weights: tuple[Row, ...]
    outputs: tuple[Row, ...]


@lru_cache
def matrices(m: int) -> Matrices:
    """Bt, G and At of F(m, 3)."""
    points = (_POINTS if m + TAPS - 2 > len(_FEW_POINTS) else _FEW_POINTS)[: m + TAPS - 2]
    size = len(points) + 1

    def row(coefficients: Sequence[Fraction]) -> Row:
        return (*coefficients, *[Fraction(0)] * (size - len(coefficients)))

    inputs, weights = [], []
    for p in points:
        others = [q for q in points if q != p]
        scale = Fraction(1)
        for q in others:
            scale *= p - q
        inputs.append(row(_product_of_roots(others)))
        weights.append(tuple(p**k / scale for k in range(TAPS)))
    inputs.append(row(_product_of_roots(points)))
    weights.append((Fraction(0),) * (TAPS - 1) + (Fraction(1),))
    outputs = tuple((*(p**k for p in points), Fraction(k == m - 1)) for k in range(m))
    return Matrices(tuple(inputs), tuple(weights), outputs)


def _product_of_roots(roots: Sequence[Fraction]) -> list[Fraction]:
    """The coefficients of the product of `x - r`, lowest power first."""
    coefficients = [Fraction(1)]
    for r in roots:
        shifted = [Fraction(0), *coefficients]
        coefficients = [a - r * b for a, b in zip(shifted, [*coefficients, Fraction(0)], strict=True)]
    return coefficients


def chosen(index: PrimExpr, values: Sequence[PrimExpr]) -> PrimExpr:
    """`values[index]`, decided when the loop over `index` is written out."""
    result = values[-1]
    for k in range(len(values) - 2, -1, -1):
        result = if_then_else(compare(EQ, index, k), values[k], result)
    return result
