"""Times two functions on the same input, turn by turn, so that both see the same machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Times:
    """Seconds of each round of one contestant."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle round, in seconds."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles, relative to the median."""
        low, _, high = statistics.quantiles(self.seconds, n=4)
        return (high - low) / 2 / self.median


def race(contestants: Sequence[Callable[[], object]], rounds: int) -> list[Times]:
    """Run each contestant once in each round, after two rounds that do not count. Needs two rounds at least."""
    seconds: list[list[float]] = [[] for _ in contestants]
    for turn in range(rounds + 2):
        for times, contestant in zip(seconds, contestants, strict=True):
            begin = time.perf_counter()
            contestant()
            if turn >= 2:
                times.append(time.perf_counter() - begin)
    return [Times(tuple(times)) for times in seconds]
