"""Timing a call many times, and the summary that the field prints."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tilewright.errors import OptionError


@dataclass(frozen=True, slots=True)
class BenchmarkResult:
    """Seconds per call, one figure for each repetition."""

    results: tuple[float, ...]

    @property
    def mean(self) -> float:
        return float(np.mean(self.results))

    @property
    def median(self) -> float:
        return float(np.median(self.results))

    @property
    def min(self) -> float:
        return min(self.results)

    @property
    def max(self) -> float:
        return max(self.results)

    @property
    def std(self) -> float:
        return float(np.std(self.results))

    def __str__(self) -> str:
        titles = ("mean", "median", "max", "min", "std")
        values = (self.mean, self.median, self.max, self.min, self.std)
        head = " ".join(f"{title + ' (ms)':^12}" for title in titles)
        return f"Execution time summary:\n{head}\n" + " ".join(f"{1e3 * value:^12.4f}" for value in values)


def measure(call: Callable[[], object], repeat: int, number: int, min_repeat_ms: float = 0) -> BenchmarkResult:
    """Run `call` once unmeasured, then `repeat` times `number` calls; `number` grows until these take `min_repeat_ms`."""
    if repeat < 1 or number < 1:
        raise OptionError(f"repeat={repeat} and number={number} must both be at least 1", code="TW0209")
    call()
    results = []
    for _ in range(repeat):
        seconds = _time(call, number)
        while 1e3 * seconds < min_repeat_ms:
            wanted = number * min_repeat_ms / max(1e3 * seconds, 1e-6)
            number = max(number + 1, min(int(1.1 * wanted), 100 * number))
            seconds = _time(call, number)
        results.append(seconds / number)
    return BenchmarkResult(tuple(results))


def _time(call: Callable[[], object], number: int) -> float:
    rounds = range(number)
    start = time.perf_counter()
    for _ in rounds:
        call()
    return time.perf_counter() - start
