"""Repeated timing of calls, and summaries of the times as in TVM."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from tilewright.base.errors import OptionError


@dataclass(frozen=True, slots=True)
class BenchmarkResult:
    """Seconds per call, one value for each repetition."""

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


@dataclass(frozen=True, slots=True)
class Pace:
    """The pacing of measurements.

    After each `repeats_to_cooldown` measurements follows a pause of `cooldown_interval_ms`. A measurement below the
    clock's resolution is repeated with more calls, at most `limit_zero_time_iterations` times. `before` is called
    before each measurement.
    """

    limit_zero_time_iterations: int = 100
    cooldown_interval_ms: float = 0
    repeats_to_cooldown: int = 1
    before: Callable[[], object] | None = None

    def __post_init__(self) -> None:
        if self.limit_zero_time_iterations < 1 or self.repeats_to_cooldown < 1 or self.cooldown_interval_ms < 0:
            raise OptionError(
                f"limit_zero_time_iterations={self.limit_zero_time_iterations} and "
                f"repeats_to_cooldown={self.repeats_to_cooldown} must be at least 1, and "
                f"cooldown_interval_ms={self.cooldown_interval_ms} at least 0", code="TW0209")


USUAL: Final = Pace()


def measure(
    call: Callable[[], object], repeat: int, number: int, min_repeat_ms: float = 0, pace: Pace = USUAL
) -> BenchmarkResult:
    """Run `call` once unmeasured, then take `repeat` measurements of `number` calls; `number` grows until they take
    `min_repeat_ms`."""
    if repeat < 1 or number < 1:
        raise OptionError(f"repeat={repeat} and number={number} must both be at least 1", code="TW0209")
    call()
    results = []
    for k in range(repeat):
        if pace.before is not None:
            pace.before()
        seconds, zeros = _time(call, number), 0
        while 1e3 * seconds < min_repeat_ms or (seconds <= 0 and zeros < pace.limit_zero_time_iterations):
            zeros += seconds <= 0
            wanted = number * min_repeat_ms / max(1e3 * seconds, 1e-6)
            number = max(number + 1, min(int(1.1 * wanted), 100 * number))
            seconds = _time(call, number)
        results.append(seconds / number)
        if pace.cooldown_interval_ms and (k + 1) % pace.repeats_to_cooldown == 0 and k + 1 < repeat:
            time.sleep(pace.cooldown_interval_ms / 1e3)
    return BenchmarkResult(tuple(results))


def _time(call: Callable[[], object], number: int) -> float:
    rounds = range(number)
    start = time.perf_counter()
    for _ in rounds:
        call()
    return time.perf_counter() - start
