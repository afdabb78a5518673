"""Which of two programs is faster: measured in turn, compared in pairs, with a confidence interval.

Times drift (clocks, other programs), so what was measured one after the other is compared, and the interval of the median ratio is found by
drawing the pairs again and again (the bootstrap of Efron, 1979).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tilewright.base.errors import InputError
from tilewright.runtime.turns import turn

CONFIDENCE: Final = 0.95
_DRAWN: Final = 2000
_SHORTEST: Final = 2e-3
"""Seconds that a turn takes at least: of a faster program, several calls."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The time of the second over that of the first: median of the pairs, and between what it lies with 95 % confidence."""

    ratio: float
    low: float
    high: float
    pairs: int
    first: float
    second: float
    """Medians, seconds."""

    @property
    def is_faster(self) -> bool:
        """Whether the second is surely faster."""
        return self.high < 1

    @property
    def is_slower(self) -> bool:
        """Whether the second is surely slower."""
        return self.low > 1

    def __str__(self) -> str:
        return f"{self.ratio:.3f} of the time ({self.low:.3f} to {self.high:.3f}, {self.pairs} pairs)"


def compared(first: Sequence[float], second: Sequence[float], seed: int = 0) -> Comparison:
    """Of two lists of seconds, the k-th of each measured one after the other. Raises `InputError` without pairs."""
    if not first or len(first) != len(second):
        raise InputError(f"{len(first)} and {len(second)} figures are no pairs; measure both programs equally often, at least once", code="TW0717")
    a, b = np.asarray(first), np.asarray(second)
    logs = np.log(b) - np.log(a)
    drawn = np.random.default_rng(seed).integers(len(logs), size=(_DRAWN, len(logs)))
    medians = np.median(logs[drawn], axis=1)
    outside = (1 - CONFIDENCE) / 2
    low, high = np.quantile(medians, [outside, 1 - outside])
    ratio, low, high = (float(np.exp(x)) for x in (np.median(logs), low, high))
    return Comparison(ratio, low, high, len(logs), float(np.median(a)), float(np.median(b)))


def in_turn(first: Callable[[], object], second: Callable[[], object], pairs: int = 60, seconds: float = float("inf")) -> Comparison:
    """Time two programs in turn, who begins changing from pair to pair, for so many pairs or until `seconds` are over (at least 8 pairs)."""
    start = time.perf_counter()
    numbers = []
    for call in (first, second):
        call()
        numbers.append(max(1, int(_SHORTEST / max(_timed(call, 1), 1e-7))))
    times: tuple[list[float], list[float]] = ([], [])
    for k in range(pairs):
        if k >= 8 and time.perf_counter() - start > seconds:
            break
        with turn():
            for which in (0, 1) if k % 2 else (1, 0):
                times[which].append(_timed((first, second)[which], numbers[which]))
    return compared(*times)


def _timed(call: Callable[[], object], number: int) -> float:
    begin = time.perf_counter()
    for _ in range(number):
        call()
    return (time.perf_counter() - begin) / number
