"""Statistics of measurements: the comparison of two programs, and rank correlation.

Times drift (clock frequency, other programs). So two programs are measured alternately, and the confidence interval of
the median ratio is found by resampling the pairs (Efron's bootstrap, 1979).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tilewright.base.errors import InputError
from tilewright.runtime.timing_lock import exclusive

CONFIDENCE: Final = 0.95
_RESAMPLES: Final = 2000
_MIN_SECONDS: Final = 2e-3
"""Shortest time of one measurement, in seconds; faster programs are called several times."""
_MIN_PAIRS: Final = 8
Figures = Sequence[float] | np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The time of the second program divided by that of the first: the median of the pairs, and its 95 % interval."""

    ratio: float
    low: float
    high: float
    pairs: int
    first: float
    second: float
    """Median times, in seconds."""

    @property
    def is_faster(self) -> bool:
        """Whether the second program is significantly faster."""
        return self.high < 1

    @property
    def is_slower(self) -> bool:
        """Whether the second program is significantly slower."""
        return self.low > 1

    def __str__(self) -> str:
        return f"{self.ratio:.3f} of the time ({self.low:.3f} to {self.high:.3f}, {self.pairs} pairs)"


def compared(first: Sequence[float], second: Sequence[float], seed: int = 0) -> Comparison:
    """Compare two lists of seconds, whose k-th values form a pair. Raises `InputError` without pairs."""
    if not first or len(first) != len(second):
        raise InputError(
            f"{len(first)} and {len(second)} times are not pairs; measure both programs equally often, at least once",
            code="TW0717")
    a, b = np.asarray(first), np.asarray(second)
    logs = np.log(b) - np.log(a)
    drawn = np.random.default_rng(seed).integers(len(logs), size=(_RESAMPLES, len(logs)))
    medians = np.median(logs[drawn], axis=1)
    outside = (1 - CONFIDENCE) / 2
    low, high = np.quantile(medians, [outside, 1 - outside])
    ratio, low, high = (float(np.exp(x)) for x in (np.median(logs), low, high))
    return Comparison(ratio, low, high, len(logs), float(np.median(a)), float(np.median(b)))


def in_turn(
    first: Callable[[], object], second: Callable[[], object], pairs: int = 60, seconds: float = float("inf"),
) -> Comparison:
    """Time two programs alternately, in changing order, for `pairs` pairs or `seconds` (at least 8 pairs)."""
    start, programs = time.perf_counter(), (first, second)
    numbers = []
    for call in programs:
        call()
        numbers.append(max(1, int(_MIN_SECONDS / max(_timed(call, 1), 1e-7))))
    times: tuple[list[float], list[float]] = ([], [])
    for k in range(pairs):
        if k >= _MIN_PAIRS and time.perf_counter() - start > seconds:
            break
        with exclusive():
            for which in (0, 1) if k % 2 else (1, 0):
                times[which].append(_timed(programs[which], numbers[which]))
    return compared(*times)


def _timed(call: Callable[[], object], number: int) -> float:
    begin = time.perf_counter()
    for _ in range(number):
        call()
    return (time.perf_counter() - begin) / number


def rank_correlation(first: Figures, second: Figures) -> float:
    """Return Spearman's rank correlation: 1 for the same order, -1 for the reverse.

    Returns NaN for fewer than two values, or if all are equal. Equal values share their rank; infinite values come
    last.
    """
    a, b = _ranks(np.asarray(first, np.float64)), _ranks(np.asarray(second, np.float64))
    return float("nan") if len(a) < 2 or a.std() == 0 or b.std() == 0 else float(np.corrcoef(a, b)[0, 1])


def _ranks(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    ranks: np.ndarray[Any, Any] = (np.cumsum(count) - (count - 1) / 2)[place]
    return ranks
