"""Random arrays of odd shapes and values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from fuzz.outcomes import Draw
from tilewright.base.types import DataType

Array = np.ndarray[Any, Any]
SPECIAL: Final = (
    np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-40, 1.1754944e-38, 3e38, -3e38, 65504.0, 1e-8, 0.5, -0.5, 1.5, 2.5,
    16777217.0, 2147483648.0
)
MOODS: Final = ("normal",) * 6 + ("whole",) * 3 + ("special", "wide", "zeros", "ones")
"""How values are drawn; normal most of the time, since special values hide others behind them."""


def shape_of(draw: Draw, low: int = 0, high: int = 4, most: int = 6) -> tuple[int, ...]:
    """A shape of `low` to `high` dimensions; a size of 0 in one shape of 25."""
    dims = [draw.pick((1, 1, 2, 3, 4, 5, most, draw.between(1, most))) for _ in range(draw.between(low, high))]
    if dims and draw.chance(0.04):
        dims[draw.random.randrange(len(dims))] = 0
    return tuple(dims)


def values(draw: Draw, shape: Sequence[int], dtype: str, mood: str = "") -> Array:
    """An array of an element type by the name of numpy or ml_dtypes."""
    mood = mood or draw.pick(MOODS)
    kind = DataType(dtype).numpy()
    if dtype == "bool":
        return draw.numbers.random(tuple(shape)) < 0.5
    if kind.kind in "iu":
        return _integers(draw, tuple(shape), kind, mood)
    if kind.kind == "V" and not DataType(dtype).is_float:  # integers of a few bits
        return draw.numbers.integers(0, 4, tuple(shape)).astype(kind)
    with np.errstate(all="ignore"):
        return _reals(draw, tuple(shape), mood).astype(kind)


def _integers(draw: Draw, shape: tuple[int, ...], kind: np.dtype[Any], mood: str) -> Array:
    info = np.iinfo(kind)
    if mood in ("zeros", "ones"):
        return np.full(shape, int(mood == "ones"), kind)
    if mood == "wide" or (kind.itemsize == 1 and mood == "normal"):
        return draw.numbers.integers(info.min, info.max, shape, dtype=kind, endpoint=True)
    made = draw.numbers.integers(max(info.min, -4), 7, shape).astype(kind)
    if mood == "special" and made.size:
        made.flat[draw.random.randrange(made.size)] = draw.pick((info.min, info.max, 0))
    return made


def _reals(draw: Draw, shape: tuple[int, ...], mood: str) -> Array:
    if mood == "whole":
        return np.asarray(draw.numbers.integers(-4, 5, shape).astype(np.float64) * draw.pick((1.0, 1.0, 0.5)))
    if mood in ("zeros", "ones"):
        return np.full(shape, float(mood == "ones"))
    made = np.asarray(draw.numbers.standard_normal(shape) * draw.pick((1.0, 1.0, 1.0, 3.0, 0.1)))
    if mood == "wide":
        return np.asarray(made * 10.0 ** draw.numbers.integers(-6, 7, shape))
    if mood == "special" and made.size:
        for _ in range(draw.between(1, 3)):
            made.flat[draw.random.randrange(made.size)] = draw.pick(SPECIAL)
    return made
