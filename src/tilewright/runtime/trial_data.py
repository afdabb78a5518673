"""Data for trials: reproducible random arrays with guards on both sides, and the comparison of results."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.errors import InputError
from tilewright.base.nd import aligned_empty
from tilewright.base.types import DataType
from tilewright.runtime.manifest import Argument, Parameter

Array = np.ndarray[Any, Any]
Ranges = Mapping[str, Sequence[float]]

_GUARD: Final = 4096
_GUARD_BYTE: Final = 0xA5
_FLOAT_RANGE: Final = (-1.0, 1.0)
_WIDE_INTEGERS: Final = (-63, 63)
"""Range of random integers of more than 8 bits, so that products and sums do not overflow. Integers of at most 8 bits
take all values."""

TOLERANCE: Final = {"float64": 1e-9, "float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}
"""Tolerance by dtype, relative to the larger of the expected element and the root mean square of all elements."""


class Guarded:
    """An array between two guards: `broken` tells whether the memory next to it was overwritten."""

    def __init__(self, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        padded = -(-nbytes // 64) * 64
        self._block = aligned_empty((2 * _GUARD + padded,))
        self._block[:] = _GUARD_BYTE
        self._end = _GUARD + nbytes
        self.array: Array = self._block[_GUARD : self._end].view(dtype).reshape(tuple(shape))

    @property
    def broken(self) -> bool:
        return bool((self._block[:_GUARD] != _GUARD_BYTE).any() or (self._block[self._end :] != _GUARD_BYTE).any())


def arrays_of(name: str, params: Sequence[Argument]) -> tuple[Parameter, ...]:
    """Return the array parameters of a function. Raises `InputError` for scalar parameters and symbolic sizes, which
    have no values here."""
    arrays = tuple(p for p in params if isinstance(p, Parameter))
    if len(arrays) != len(params) or any(not isinstance(d, int) for p in arrays for d in p.shape):
        raise InputError(
            f"{name} takes numbers or arrays of dynamic shape, but only functions of static shapes are measured; lower "
            "it for fixed sizes",
            code="TW0717")
    return arrays


def random_array(param: Parameter, place: int, seed: int, ranges: Ranges) -> Array:
    """Return the initial contents of parameter number `place`; they depend only on the arguments."""
    digest = hashlib.sha256(f"{seed}:{place}:{param.name}".encode()).digest()
    rng = np.random.default_rng(int.from_bytes(digest[:8], "little"))
    dtype = DataType(param.dtype)
    shape = [int(d) for d in param.shape]
    low, high = ranges.get(param.name, _usual_range(dtype))
    if dtype.is_float:
        return rng.uniform(low, high, shape).astype(dtype.numpy())
    return rng.integers(int(low), int(high), shape, endpoint=True).astype(dtype.numpy())


def _usual_range(dtype: DataType) -> tuple[float, float]:
    if dtype.is_float:
        return _FLOAT_RANGE
    if dtype == "bool":
        return 0, 1
    signed = not dtype.startswith("uint")
    if dtype.bits <= 8:
        return (-(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1) if signed else (0, (1 << dtype.bits) - 1)
    return _WIDE_INTEGERS if signed else (0, _WIDE_INTEGERS[1])


def difference(found: Array, wanted: Array, name: str) -> str:
    """Describe how `found` differs from `wanted` beyond rounding; empty if it does not. Integers must be equal, and NaN
    matches NaN."""
    tolerance = TOLERANCE.get(str(found.dtype))
    if tolerance is None:
        wrong = found != wanted
        off = np.abs(found.astype(np.float64) - wanted.astype(np.float64))
    else:
        a, b = found.astype(np.float64), wanted.astype(np.float64)
        finite = np.isfinite(b)
        scale = float(np.sqrt(np.mean(np.square(b[finite])))) if finite.any() else 0.0
        with np.errstate(invalid="ignore"):
            off = np.abs(a - b)
        wrong = np.where(
            finite, ~(off <= tolerance * np.maximum(np.abs(b), scale)), (a != b) & ~(np.isnan(a) & np.isnan(b)))
    count = int(np.count_nonzero(wrong))
    if not count:
        return ""
    at = tuple(map(int, np.argwhere(wrong)[0]))
    return (
        f"{count} of {found.size} elements of {name} are wrong; element {list(at)} is {found[at]}, expected "
        f"{wanted[at]} (off by {off[at]:.3g})"
    )
