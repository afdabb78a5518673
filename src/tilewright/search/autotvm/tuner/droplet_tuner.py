"""Droplet search: descent along each axis, with longer steps while it succeeds.

Canesche et al., "The Droplet Search Algorithm for Kernel Scheduling", 2024. For spaces in which neighbouring answers
are alike. The search ends in a local optimum and continues at random from there.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.base.errors import OptionError
from tilewright.search.autotvm.task.space import Point
from tilewright.search.autotvm.task.task import Task
from tilewright.search.autotvm.tuner.tuner import Array, RandomTuner


class DropletTuner(RandomTuner):
    """Moves from `start_position` (default: the compiler's choice) to the best neighbour, again and again."""

    def __init__(
        self, task: Task, start_position: Sequence[int] | None = None, pvalue: float = 0.05, seed: int = 0,
    ) -> None:
        """`start_position` is a point of the first branch; a neighbour must be better by `pvalue`."""
        super().__init__(task, seed=seed)
        start: Point = self.space.point(self._first or self.space.index_at(0))
        if start_position is not None:
            dims = self.space.dims
            if len(start_position) != len(dims) or not all(
                0 <= k < n for k, n in zip(start_position, dims, strict=True)):
                raise OptionError(
                    f"start_position={list(start_position)} is not a point of a space of {' x '.join(map(str, dims))} "
                    "answers",
                    code="TW1104")
            start = (0, *start_position)
            self._first = self.space.index_of_point(start)
        self._at, self._gain, self._step = start, pvalue, 1
        self._speeds: dict[int, float] = {}
        self._waiting = [self.space.index_of_point(start)]

    def next_indices(self, count: int) -> list[int]:
        self._move()
        waiting = (i for i in dict.fromkeys(self._waiting) if i not in self.visited and self.space.is_index_valid(i))
        chosen = list(waiting)[:count]
        self._waiting = [i for i in self._waiting if i not in chosen]
        return chosen or super().next_indices(count)

    def learn(self, indices: Sequence[int], speeds: Array) -> None:
        self._speeds.update(zip(indices, map(float, speeds), strict=True))

    def _move(self) -> None:
        """Once all neighbours are measured, go to the best of them, or back to steps of one."""
        if any(i not in self.visited for i in self._waiting) or not self._speeds:
            return
        here = self._speeds.get(self.space.index_of_point(self._at), 0.0)
        best = max(self._speeds, key=lambda i: self._speeds[i])
        if self._speeds[best] > here * (1 + self._gain):
            self._at, self._step = self.space.point(best), self._step + 1
        elif self._step > 1:
            self._step = 1
        self._waiting = self._neighbours()

    def _neighbours(self) -> list[int]:
        branch, *numbers = self._at
        found = []
        for axis, (k, a) in enumerate(zip(numbers, self.space.branches[branch], strict=True)):
            for to in (k + self._step, k - self._step):
                if 0 <= to < len(a.answers):
                    found.append(self.space.index_of_point((branch, *numbers[:axis], to, *numbers[axis + 1 :])))
        return found
