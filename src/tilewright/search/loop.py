"""The loops that all searches share: over batches of one task, over tasks of a network, over pairs of a generation."""

from __future__ import annotations

import logging
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Generic, TypeVar

from tilewright.search.measure import Measured, OnMeasured
from tilewright.search.task import TuningTask

log: Final = logging.getLogger(__name__)
Input = TypeVar("Input")
T = TypeVar("T")
INFINITE: Final = float("inf")
Measure = Callable[[Sequence[Any], OnMeasured], list[Measured]]
"""Measures inputs: returns one result for each, in order, and reports each result at once."""
Callback = Callable[[Any, Sequence[Any], Sequence[Measured]], object]
"""Called after each batch with the search, the inputs and the results."""


class TaskSearch(ABC, Generic[Input]):
    """The search of one task: proposes candidates, measures them, and learns from the results."""

    task: TuningTask

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all trials and the best one."""
        self.trials = self.best_iter = 0
        """Number of trials, and the number of the best one."""
        self.best_cost = INFINITE
        """Seconds of the best trial."""
        self.best_measure_pair: tuple[Input, Measured] | None = None
        self.ttl: int | None = None
        """Number of consecutive trials without improvement after which the search ends."""
        self.seconds = 0.0, 0.0
        """Seconds that the last step took to propose, and to measure."""

    @property
    def best_flops(self) -> float:
        """Operations per second of the best trial."""
        return 0.0 if self.best_measure_pair is None else self.task.speed(self.best_measure_pair[1])

    @abstractmethod
    def propose(self, count: int) -> list[Input]:
        """Return at most `count` inputs that were not measured, the most promising first."""

    @abstractmethod
    def update(self, inputs: Sequence[Input], results: Sequence[Measured]) -> None:
        """Learn from results."""

    def step(self, measure: Measure, count: int, callbacks: Sequence[Callback] = ()) -> int:
        """Propose, measure and learn from at most `count` inputs; return their number.

        On an interrupt, callbacks still receive the finished trials.
        """
        begin = time.perf_counter()
        inputs = self.propose(count)
        if not inputs:
            return 0
        proposed = time.perf_counter()
        finished: dict[int, Measured] = {}
        try:
            results = measure(inputs, finished.__setitem__)
        except BaseException:
            for callback in callbacks:
                callback(self, [inputs[k] for k in finished], list(finished.values()))
            raise
        self.seconds = proposed - begin, time.perf_counter() - proposed
        self.count(inputs, results)
        for callback in callbacks:
            callback(self, inputs, results)
        self.update(inputs, results)
        return len(inputs)

    def count(self, inputs: Sequence[Input], results: Sequence[Measured]) -> None:
        """Count trials, and keep the best one."""
        for inp, result in zip(inputs, results, strict=True):
            self.trials += 1
            self.keep(inp, result)
            if not result.ok:
                log.debug("%s: trial %d failed: %s", self.task.title, self.trials, result.error)

    def keep(self, inp: Input, result: Measured) -> None:
        """Keep the trial if it is the best one."""
        if result.cost < self.best_cost:
            self.best_cost, self.best_measure_pair, self.best_iter = result.cost, (inp, result), self.trials

    def run(
        self, measure: Measure, trials: int, batch: int, callbacks: Sequence[Callback], early_stopping: int | None,
    ) -> str:
        """Search until there are `trials` in total, or `early_stopping` consecutive ones without improvement.

        Return the reason for an early end, or "".
        """
        while self.trials < trials:
            if not self.step(measure, min(batch, trials - self.trials), callbacks):
                return "no candidates are left"
            waited = self.trials - self.best_iter
            self.ttl = None if early_stopping is None else early_stopping - waited
            if self.ttl is not None and self.ttl <= 0:
                return f"no better candidate in {waited} trials: the search ends"
        return ""


def share_budget(
    choose: Callable[[], T | None], step: Callable[[T, float], int], trials: float, seconds: float = INFINITE,
) -> None:
    """Distribute slices of a budget among the tasks that `choose` returns, until it is used up or `choose` returns
    None.

    `step(task, left)` runs a slice of at most `left` trials, and returns their number.
    """
    end = time.perf_counter() + seconds
    while trials > 0 and time.perf_counter() < end and (task := choose()) is not None:
        trials -= step(task, trials)


def children(
    parents: Sequence[T], weights: Sequence[float], count: int, child: Callable[[T, T], T | None],
    chance: random.Random,
) -> Iterator[T]:
    """Yield the children of `count` pairs of parents, drawn by weight with replacement; None for a pair without a
    child."""
    made = (child(*chance.choices(parents, weights, k=2)) for _ in range(count))
    return (c for c in made if c is not None)
