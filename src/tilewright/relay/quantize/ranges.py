"""Ranges of quantized values: distributions of values, and the choice of a range.

A value is quantized as `round(clip(x / scale, low, high))`; low and high are integers, so that zero is exactly a level.
A narrow range has fine levels but clips more. Four methods choose the range: the extremes (`minmax`), a share of all
values (`percentile`), the least mean squared error (`mse`), or the least divergence of the distribution. The latter,
`kl`, is that of Migacz, "8-bit Inference with TensorRT", GTC 2017.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tilewright.base.errors import InputError

Array = np.ndarray[Any, Any]

_BINS: Final = 1 << 14
"""Number of bins; after the last doubling of the range, a bin is at most 1/4096 of the greatest magnitude."""
_FOLDED: Final = 1 << 11
"""Number of bins of magnitudes in the divergence search."""
_CUTS: Final = 96
"""Number of candidate cuts, evenly spaced between a quarter and all of the range."""


@dataclass(frozen=True, eq=False)
class Levels:
    """The levels of a quantized value: `scale`, a number or an array that broadcasts, and the lowest and highest level.
    """

    scale: Array
    low: int
    high: int

    @staticmethod
    def symmetric(most: Array | float, bits: int) -> Levels:
        """Levels for magnitudes up to `most`, symmetric around zero."""
        high = (1 << (bits - 1)) - 1
        return Levels(_scale(np.asarray(most, np.float64) / high), -high, high)

    @staticmethod
    def between(low: float, high: float, bits: int = 8) -> Levels:
        """All levels of `bits` bits for values from `low` to `high`, and for zero."""
        low, high = min(low, 0.0), max(high, 0.0)
        count = (1 << bits) - 1
        scale = _scale(np.asarray((high - low) / count, np.float64))
        zero = int(np.clip(np.rint(-low / float(scale)), 0, count))
        return Levels(scale, -zero, count - zero)

    def apply(self, x: Array) -> Array:
        """`x` rounded to the levels."""
        return np.asarray(np.rint(np.clip(x / self.scale, self.low, self.high)) * self.scale, np.float32)


def _scale(scale: Array) -> Array:
    """The scale in float32; 1 if it is zero, for values that are always zero."""
    return np.where(scale < np.finfo(np.float32).tiny, 1.0, scale).astype(np.float32)


class Distribution:
    """A histogram with equal bins on both sides of zero, whose range doubles for larger values, and exact extremes."""

    def __init__(self) -> None:
        self.counts = np.zeros(_BINS, np.int64)
        self.range = 0.0
        self.least, self.greatest = np.inf, -np.inf

    def add(self, values: Array, counted: bool = True) -> None:
        """Add values; only the extremes if nothing is `counted`. Raises `InputError` for values that are not finite."""
        if not values.size:
            return
        x = values.ravel()
        least, greatest = float(x.min()), float(x.max())
        if not np.isfinite(least) or not np.isfinite(greatest):
            raise InputError("a value of the network is infinite or NaN for the calibration data; remove the samples "
                             "that cause it", code="TW1002")
        self.least, self.greatest = min(self.least, least), max(self.greatest, greatest)
        if not counted:
            return
        most = max(-least, greatest)
        if self.range == 0.0:
            self.range = most
        while 0.0 < self.range < most:
            self._double()
        if self.range == 0.0:
            self.counts[_BINS // 2] += x.size
            return
        places = np.clip(((x.astype(np.float64) + self.range) * (_BINS / (2 * self.range))).astype(np.int64), 0,
                         _BINS - 1)
        self.counts += np.bincount(places, minlength=_BINS)

    def _double(self) -> None:
        pairs = self.counts.reshape(-1, 2).sum(1)
        self.counts = np.zeros_like(self.counts)
        self.counts[_BINS // 4 : 3 * _BINS // 4] = pairs
        self.range *= 2

    def edges(self) -> Array:
        """The starts of the bins, and the end of the last one."""
        return np.linspace(-self.range, self.range, _BINS + 1)

    def magnitudes(self, bins: int = _BINS // 2) -> Array:
        """A histogram of magnitudes, in bins from zero to the end of the range."""
        half = self.counts.shape[0] // 2
        folded = self.counts[half:] + self.counts[:half][::-1]
        return np.asarray(folded.reshape(bins, -1).sum(1))

    def most(self) -> float:
        """The greatest magnitude; raises `InputError` if there are no values."""
        if self.least > self.greatest:
            raise InputError("the calibration data are empty; give at least one input", code="TW1002")
        return max(-self.least, self.greatest)

    def within(self, most: float) -> tuple[float, float]:
        """The extremes, clipped to magnitudes up to `most`."""
        return max(self.least, -most), min(self.greatest, most)


def percentile_of(d: Distribution, part: float) -> float:
    """The smallest magnitude that is not exceeded by a fraction `part` of all values."""
    most, counts = d.most(), d.magnitudes()
    upto = np.cumsum(counts)
    place = int(np.searchsorted(upto, part * upto[-1]))
    return float(min(most, (place + 1) * d.range / len(counts)))


def divergence_of(d: Distribution, levels: int = 128) -> float:
    """The clipping magnitude with the least Kullback-Leibler divergence for `levels` levels."""
    most = d.most()
    if most == 0.0:
        return most
    counts = d.magnitudes(_FOLDED).astype(np.float64)
    counts[0] = counts[1]  # exact zeros (from relu or padding) always have their own level
    last = max(levels, int(np.ceil(most / d.range * _FOLDED)))
    cuts = np.unique(np.linspace(levels, last, 2 * _CUTS).astype(int))
    found = min(cuts, key=lambda cut: _divergence(counts, int(cut), levels))
    return float(min(most, found * d.range / _FOLDED))


def _divergence(counts: Array, cut: int, levels: int) -> float:
    """KL(p, q): p has all counts beyond `cut` in the last bin, q the counts up to `cut` resolved by `levels` levels."""
    within = counts[:cut]
    p = within.copy()
    p[-1] += counts[cut:].sum()
    of_bin = np.arange(cut) * levels // cut
    there = p > 0
    sums = np.bincount(of_bin, weights=within, minlength=levels)
    shares = np.bincount(of_bin, weights=there.astype(np.float64), minlength=levels)
    q = np.where(there, (sums / np.maximum(shares, 1))[of_bin], 0.0)
    p, q = p / p.sum(), q / max(q.sum(), 1e-300)
    floor = 1e-9
    return float(np.sum(np.where(p > 0, p * np.log(np.maximum(p, floor) / np.maximum(q, floor)), 0.0)))


def least_error_of(d: Distribution, make: Callable[[float, float], Levels]) -> tuple[float, float]:
    """The symmetrically shrunk range with the least mean squared error; `make` gives the levels of a range."""
    if d.most() == 0.0:
        return 0.0, 0.0
    edges = d.edges()
    there = np.flatnonzero(d.counts)
    middles, weights = ((edges[:-1] + edges[1:]) / 2)[there], d.counts[there]

    def error(part: float) -> float:
        levels = make(d.least * part, d.greatest * part)
        return float(np.sum(weights * (levels.apply(middles) - middles) ** 2))

    best = min(np.linspace(1.0, 0.25, _CUTS), key=error)
    return d.least * float(best), d.greatest * float(best)
