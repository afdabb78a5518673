"""The loop that all tuners share: propose configurations, have them measured, learn, until trials or hope run out.

The configuration that the compiler takes by itself is the first trial of a kernel, so what is best is never worse than that.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.errors import OptionError
from tilewright.search.autotvm.callback import Callback
from tilewright.search.autotvm.measure import MeasureBatch, MeasureInput, MeasureResult, at_once, create_measure_batch
from tilewright.search.autotvm.task.task import Task

log: Final = logging.getLogger(__name__)
History = Iterable[tuple[MeasureInput, MeasureResult]]


class Tuner:
    """Base of tuners: subclasses say what to try next (`next_indices`), and learn (`learn`)."""

    def __init__(self, task: Task, seed: int = 0) -> None:
        self.task, self.space = task, task.config_space
        self.rng = np.random.default_rng(seed)
        self.visited: set[int] = set()
        self.best_config: Any = None
        self.best_flops: float = 0.0
        self.best_measure_pair: tuple[MeasureInput, MeasureResult] | None = None
        self.best_iter = 0
        self.trials = 0
        self.ttl: float | None = None
        self._first = None if task.default_config is None else task.default_config.index

    def has_next(self) -> bool:
        """Whether there is a configuration that was not proposed yet."""
        return len(self.visited) < len(self.space)

    def next_batch(self, batch_size: int) -> list[Any]:
        """The configurations to try next, at most so many; none that was proposed before."""
        chosen: list[int] = []
        if self._first is not None:
            chosen.append(self._first)
            self._first = None
            self.visited.update(chosen)
        if len(chosen) < batch_size and self.has_next():
            more = self.next_indices(batch_size - len(chosen))
            self.visited.update(more)
            chosen += more
        return [self.space.get(i) for i in chosen]

    def next_indices(self, count: int) -> list[int]:
        """At most `count` indices, none of them in `visited`."""
        raise NotImplementedError

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Learn from what was measured."""
        indices = [i.config.index for i in inputs]
        self.visited.update(indices)
        self.learn(indices, np.asarray([self._speed(i, r) for i, r in zip(inputs, results, strict=True)]))

    def learn(self, indices: Sequence[int], speeds: np.ndarray[Any, Any]) -> None:
        """Learn from configurations and their operations a second, 0 for those that failed."""

    def _speed(self, inp: MeasureInput, result: MeasureResult) -> float:
        return inp.task.flop / result.cost if result.error_no == 0 else 0.0

    def tune(
        self, n_trial: int, measure_option: Mapping[str, Any], early_stopping: int | None = None, callbacks: Sequence[Callback] = (), si_prefix: str = "G",
    ) -> None:
        """Measure up to `n_trial` configurations; stop when `early_stopping` of them in succession were not better. Raises `OptionError`."""
        if n_trial < 0 or (early_stopping is not None and early_stopping < 1):
            raise OptionError(f"n_trial={n_trial} must not be negative, and early_stopping={early_stopping} at least 1", code="TW1104")
        if si_prefix not in ("", "K", "M", "G", "T"):
            raise OptionError(f"there is no prefix '{si_prefix}' of units; the prefixes are K, M, G, T", code="TW1103")
        measure_batch, width = create_measure_batch(self.task, measure_option), at_once(measure_option)
        while self.trials < n_trial and self.has_next():
            self.step(measure_batch, min(width, n_trial - self.trials), callbacks)
            self.ttl = None if early_stopping is None else max(early_stopping + self.best_iter, 0) - self.trials
            if self.ttl is not None and self.ttl <= 0:
                log.info("%s: no better configuration in %d trials", self.task.title, early_stopping)
                break

    def step(self, measure_batch: MeasureBatch, count: int, callbacks: Sequence[Callback] = ()) -> int:
        """Propose, measure and learn from at most `count` configurations; returns how many there were."""
        configs = self.next_batch(count)
        if not configs:
            return 0
        inputs = [MeasureInput(self.task.target, self.task, c) for c in configs]
        results = measure_batch(inputs)
        for inp, result in zip(inputs, results, strict=True):
            self.trials += 1
            speed = self._speed(inp, result)
            if speed > self.best_flops:
                self.best_flops, self.best_config, self.best_measure_pair, self.best_iter = speed, inp.config, (inp, result), self.trials
            elif result.error_no:
                log.debug("%s: configuration %d failed: %s", self.task.title, inp.config.index, result.error)
        self.update(inputs, results)
        for callback in callbacks:
            callback(self, inputs, results)
        return len(configs)

    def reset(self) -> None:
        """Forget what was tried and which was best."""
        self.visited, self.best_config, self.best_flops, self.best_measure_pair, self.best_iter, self.trials = set(), None, 0.0, None, 0, 0

    def load_history(self, data_set: History, min_seed_records: int = 500) -> None:
        """Learn from records of other runs and of other shapes of the same operators, before anything is measured.

        Only tuners with a cost model do; with fewer than `min_seed_records` records of tasks of this name nothing is learnt.
        """
        raise OptionError(f"{type(self).__name__} learns nothing from other tasks; use XGBTuner", code="TW1103")

    def resume(self, data_set: History) -> int:
        """Know what records say of this very task: it is not proposed again, and what was best stays so. Returns how many there are."""
        known = [(i, r) for i, r in data_set if i.task.workload == self.task.workload and self.space.index_of(i.config.entity_map) is not None]
        inputs = []
        for i, r in known:
            index = self.space.index_of(i.config.entity_map)
            assert index is not None
            inputs.append(MeasureInput(i.target, self.task, self.space.get(index)))
            speed = self._speed(i, r)
            if speed > self.best_flops:
                self.best_flops, self.best_config, self.best_measure_pair = speed, inputs[-1].config, (inputs[-1], r)
        if self._first in {i.config.index for i in inputs}:
            self._first = None
        if inputs:
            self.update(inputs, [r for _, r in known])
        return len(inputs)
