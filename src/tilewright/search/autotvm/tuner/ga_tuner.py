"""A genetic algorithm: answers of fast configurations are crossed and mutated."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from tilewright.base.errors import OptionError
from tilewright.search.autotvm.task.task import Task
from tilewright.search.autotvm.tuner.tuner import Array, RandomTuner
from tilewright.search.loop import children


class GATuner(RandomTuner):
    """Generations of `pop_size` configurations: the `elite_num` best survive, others come from fast pairs."""

    def __init__(
        self, task: Task, pop_size: int = 100, elite_num: int = 3, mutation_prob: float = 0.1, seed: int = 0,
    ) -> None:
        super().__init__(task, seed=seed)
        if pop_size < 2 or not 0 < elite_num <= pop_size or not 0 <= mutation_prob <= 1:
            raise OptionError(
                f"pop_size={pop_size} must be at least 2, elite_num={elite_num} at most that, "
                f"mutation_prob={mutation_prob} between 0 and 1", code="TW1104")
        self.pop_size, self.elite_num, self.mutation_prob = min(pop_size, len(self.space)), elite_num, mutation_prob
        first = self.space.sample_ints(self.pop_size, self.rng)
        self.genes = [self.space.point2knob(i) for i in first]
        """The first generation: the number of the answer along each axis."""
        self._founders = [i for i in first if i != self._first]
        self.visited.update(first)
        self._chance = random.Random(seed)
        self._generation: dict[int, float] = {}
        self._elites: dict[int, float] = {}
        self._waiting: list[int] = []

    def has_next(self) -> bool:
        return bool(self._founders) or super().has_next()

    def next_indices(self, count: int) -> list[int]:
        if self._founders:
            chosen, self._founders = self._founders[:count], self._founders[count:]
            return chosen
        if len(self._elites) + len(self._generation) < 2:
            return super().next_indices(count)
        if not self._waiting:
            self._breed()
        chosen = [i for i in dict.fromkeys(self._waiting) if i not in self.visited][:count]
        self._waiting = [i for i in self._waiting if i not in chosen and i not in self.visited]
        return self.filled(chosen, count)

    def learn(self, indices: Sequence[int], speeds: Array) -> None:
        self._generation.update(zip(indices, map(float, speeds), strict=True))
        ranked = sorted({**self._elites, **self._generation}.items(), key=lambda one: -one[1])
        self._elites = dict(ranked[: self.elite_num])

    def _breed(self) -> None:
        """Queue the next generation."""
        parents = {**self._elites, **self._generation}
        speeds = np.asarray(list(parents.values()))
        chances = speeds + 1e-3 * max(float(speeds.max()), 1.0)
        self._waiting += children(list(parents), chances.tolist(), self.pop_size, self._child, self._chance)
        if len(self._generation) >= self.pop_size:
            self._generation = {}

    def _child(self, one: int, other: int) -> int:
        """Take each answer from one of two configurations, and change some to a neighbouring one."""
        child = self.space.crossed(one, other, self.rng)
        for _ in range(len(self.space.point(child)) - 1):
            if self.rng.random() < self.mutation_prob:
                child = self.space.neighbour(child, self.rng, far=0.0)
        # a copy of a measured configuration teaches nothing
        return self.space.neighbour(child, self.rng) if child in self.visited else child
