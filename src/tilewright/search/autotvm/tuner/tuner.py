"""Base class of tuners, which search the configurations of a task; and the simple tuners, which need no model.

The configuration that the compiler uses without tuning is the first trial of a kernel: the best one is never worse.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.errors import OptionError
from tilewright.search.autotvm.callback import PREFIXES
from tilewright.search.autotvm.measure import MeasureInput, MeasureResult, at_once, create_measure_batch
from tilewright.search.autotvm.task.task import Task
from tilewright.search.loop import Callback, TaskSearch

log: Final = logging.getLogger(__name__)
Array = np.ndarray[Any, Any]
History = Iterable[tuple[MeasureInput, MeasureResult]]


class Tuner(TaskSearch[MeasureInput]):
    """Base class of tuners. Subclasses propose (`next_indices`) and learn (`learn`)."""

    task: Task

    def __init__(self, task: Task, seed: int = 0) -> None:
        self.task, self.space = task, task.config_space
        self.rng = np.random.default_rng(seed)
        self.visited: set[int] = set()
        self._first = None if task.default_config is None else task.default_config.index
        super().__init__()

    def reset(self) -> None:
        super().reset()
        self.visited.clear()

    @property
    def best_config(self) -> Any:
        """The best configuration; None before the first success."""
        return None if self.best_measure_pair is None else self.best_measure_pair[0].config

    def has_next(self) -> bool:
        """Return whether there is a configuration that was not proposed yet."""
        return len(self.visited) < len(self.space)

    def next_batch(self, batch_size: int) -> list[Any]:
        """Propose at most `batch_size` configurations, none of which was proposed before."""
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

    def propose(self, count: int) -> list[MeasureInput]:
        return [MeasureInput(self.task.target, self.task, c) for c in self.next_batch(count)]

    def next_indices(self, count: int) -> list[int]:
        """Return at most `count` indices, none of them in `visited`."""
        raise NotImplementedError

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        indices = [i.config.index for i in inputs]
        self.visited.update(indices)
        self.learn(indices, np.asarray([i.task.speed(r) for i, r in zip(inputs, results, strict=True)]))

    def learn(self, indices: Sequence[int], speeds: Array) -> None:
        """Learn from configurations and their operations a second, 0 for those that failed."""

    def tune(
        self, n_trial: int, measure_option: Mapping[str, Any], early_stopping: int | None = None,
        callbacks: Sequence[Callback] = (), si_prefix: str = "G",
    ) -> None:
        """Measure up to `n_trial` configurations; stop after `early_stopping` of them in a row without a better one.

        Raises `OptionError` for arguments out of range.
        """
        if n_trial < 0 or (early_stopping is not None and early_stopping < 1):
            raise OptionError(
                f"n_trial={n_trial} must not be negative, and early_stopping={early_stopping} at least 1",
                code="TW1104")
        if si_prefix not in PREFIXES:
            raise OptionError(f"there is no prefix '{si_prefix}' of units; the prefixes are K, M, G, T", code="TW1103")
        measure = create_measure_batch(self.task, measure_option)
        ended = self.run(measure, n_trial, at_once(measure_option), callbacks, early_stopping)
        if ended:
            log.info("%s: %s", self.task.title, ended)

    def load_history(self, data_set: History, min_seed_records: int = 500) -> None:
        """Learn from records of other runs and of other shapes of the same operators, before anything is measured.

        Only tuners with a cost model learn, from at least `min_seed_records` records of tasks of this name.
        """
        raise OptionError(f"{type(self).__name__} cannot learn from other tasks; use XGBTuner", code="TW1103")

    def resume(self, data_set: History) -> int:
        """Take the records of this task: they are not proposed again, and the best counts. Return their number."""
        inputs, results = list[MeasureInput](), list[MeasureResult]()
        for i, r in data_set:
            index = self.space.index_of(i.config.entity_map) if i.task.workload == self.task.workload else None
            if index is not None:
                inputs.append(MeasureInput(i.target, self.task, self.space.get(index)))
                results.append(r)
                self.keep(inputs[-1], r)
        if self._first in {i.config.index for i in inputs}:
            self._first = None
        if inputs:
            self.update(inputs, results)
        return len(inputs)


class IndexBaseTuner(Tuner):
    """Base class of tuners over the indices of a space: all of them, or those from `range_idx[0]` to `range_idx[1]`."""

    def __init__(self, task: Task, range_idx: tuple[int, int] | None = None, seed: int = 0) -> None:
        """Raises `OptionError` for a range outside of the space."""
        super().__init__(task, seed)
        low, high = range_idx or (0, self.space.range_length - 1)
        self.begin_idx, self.end_idx = low, high + 1
        self.range_length = self.end_idx - self.begin_idx
        self.visited_max = self.space.subrange_length(self.begin_idx, self.end_idx)
        self._begin = self.space.position_of(self.begin_idx)
        if range_idx is not None:
            self._first = None

    def has_next(self) -> bool:
        return len(self.visited) < self.visited_max

    def _indices(self) -> Iterator[int]:
        """Iterate over the valid indices of the range."""
        return map(self.space.index_at, range(self._begin, self._begin + self.visited_max))


class GridSearchTuner(IndexBaseTuner):
    """Proposes all configurations in order."""

    def __init__(self, task: Task, range_idx: tuple[int, int] | None = None, seed: int = 0) -> None:
        super().__init__(task, range_idx, seed)
        self._position = self._begin

    @property
    def index(self) -> int:
        """The next index, or the end of the range."""
        return self.space.index_at(self._position) if self._position < self._end else self.end_idx

    @property
    def _end(self) -> int:
        return self._begin + self.visited_max

    def next_indices(self, count: int) -> list[int]:
        found: list[int] = []
        while len(found) < count and self._position < self._end:
            index = self.space.index_at(self._position)
            self._position += 1
            if index not in self.visited:
                found.append(index)
        return found


class RandomTuner(IndexBaseTuner):
    """Proposes configurations at random, each once."""

    def next_indices(self, count: int) -> list[int]:
        left = self.visited_max - len(self.visited)
        if left <= 4 * count or len(self.visited) > self.visited_max // 2:
            others = [i for i in self._indices() if i not in self.visited]
            return [others[k] for k in self.rng.permutation(len(others))[:count]]
        found: dict[int, None] = {}
        while len(found) < count:
            index = self.space.index_at(self._begin + int(self.rng.integers(self.visited_max)))
            if index not in self.visited:
                found[index] = None
        return list(found)

    def filled(self, chosen: list[int], count: int) -> list[int]:
        """Return `chosen` with random indices added, up to `count`."""
        if len(chosen) >= count:
            return chosen
        # as many as are proposed in all, of which some may be chosen already
        more = RandomTuner.next_indices(self, count)
        return [*chosen, *(i for i in more if i not in chosen)][:count]
