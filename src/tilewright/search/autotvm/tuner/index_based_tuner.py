"""Tuners that need no model: every configuration in order, or any of them."""

from __future__ import annotations

from tilewright.search.autotvm.task.task import Task
from tilewright.search.autotvm.tuner.tuner import Tuner


class GridSearchTuner(Tuner):
    """All configurations in order."""

    def __init__(self, task: Task, seed: int = 0) -> None:
        super().__init__(task, seed)
        self._position = 0

    def next_indices(self, count: int) -> list[int]:
        found: list[int] = []
        while len(found) < count and self._position < len(self.space):
            index = self.space.index_at(self._position)
            self._position += 1
            if index not in self.visited:
                found.append(index)
        return found


class RandomTuner(Tuner):
    """Configurations at random, each once."""

    def next_indices(self, count: int) -> list[int]:
        left = len(self.space) - len(self.visited)
        if left <= 4 * count or len(self.visited) > len(self.space) // 2:
            others = [i for i in map(self.space.index_at, range(len(self.space))) if i not in self.visited]
            return [others[k] for k in self.rng.permutation(len(others))[:count]]
        found: dict[int, None] = {}
        while len(found) < count:
            index = self.space.random_index(self.rng)
            if index not in self.visited:
                found[index] = None
        return list(found)
