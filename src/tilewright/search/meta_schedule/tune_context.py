"""The task of a search: a program, its target, its design space and its search strategy."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.backends.targets.target import Target
from tilewright.base.errors import OptionError
from tilewright.base.limits import usable_cores
from tilewright.ir.module import IRModule
from tilewright.search.meta_schedule.search_strategy import SearchStrategy
from tilewright.search.meta_schedule.space_generator import SpaceGenerator
from tilewright.search.meta_schedule.utils import normalized_module
from tilewright.tir.module_schedule import Schedule
from tilewright.tir.stmt import PrimFunc

if TYPE_CHECKING:
    from tilewright.search.meta_schedule.candidates import MeasureCandidate, RunnerResult

_normalize_mod = normalized_module
log = logging.getLogger(__name__)


class TuneContext:
    """A task. `space_generator` and `search_strategy` are objects, names, or (a space) a function on a schedule.

    Both are initialized with the task if it has a program and a target. `rand_state` -1 draws a seed.
    """

    def __init__(
        self, mod: PrimFunc | IRModule | None = None, *, target: Target | str | None = None,
        space_generator: SpaceGenerator | Callable[..., Any] | str | None = None,
        search_strategy: SearchStrategy | str | None = None, task_name: str = "main", logger: Any = None,
        rand_state: int = -1, num_threads: int | str = "physical",
    ) -> None:
        self.mod = None if mod is None else normalized_module(mod)
        self.target = None if target is None else Target(target)
        self.space_generator = None if space_generator is None else SpaceGenerator.create(space_generator)
        self.search_strategy = None if search_strategy is None else SearchStrategy.create(search_strategy)
        self.task_name, self.logger = task_name, logger or log
        if rand_state < -1:
            raise OptionError(f"rand_state={rand_state} must be a seed of 0 or more, or -1", code="TW1104")
        self.rand_state = random.randrange(1, 1 << 31) if rand_state == -1 else rand_state
        self.num_threads = num_threads if isinstance(num_threads, int) else usable_cores()
        self.random = random.Random(self.rand_state)
        if self.space_generator is not None and self.mod is not None:
            self.space_generator._initialize_with_tune_context(self)
        if self.search_strategy is not None and self.mod is not None:
            self.search_strategy._initialize_with_tune_context(self)

    def generate_design_space(self) -> list[Schedule]:
        """Return the schedules from which the search starts."""
        if self.space_generator is None or self.mod is None:
            raise OptionError("the task has no space_generator or no program", code="TW1108")
        return self.space_generator.generate_design_space(self.mod)

    def pre_tuning(
        self, max_trials: int, num_trials_per_iter: int = 64, design_spaces: Sequence[Schedule] | None = None,
        database: Any = None, cost_model: Any = None,
    ) -> None:
        """Begin a search of at most `max_trials` candidates."""
        from tilewright.search.meta_schedule.cost_model import RandomModel
        from tilewright.search.meta_schedule.database import MemoryDatabase

        self._strategy().pre_tuning(
            max_trials, num_trials_per_iter, self.generate_design_space() if design_spaces is None else design_spaces,
            database or MemoryDatabase(), cost_model or RandomModel())

    def post_tuning(self) -> None:
        """End the search."""
        self._strategy().post_tuning()

    def generate_measure_candidates(self) -> list[MeasureCandidate] | None:
        """Return the next candidates; None at the end of the search."""
        return self._strategy().generate_measure_candidates()

    def notify_runner_results(
        self, measure_candidates: Sequence[MeasureCandidate], results: Sequence[RunnerResult]
    ) -> None:
        """Tell the search the results of candidates."""
        self._strategy().notify_runner_results(measure_candidates, results)

    def clone(self) -> TuneContext:
        """Return another task of the same program, with copies of its parts."""
        parts = (self.space_generator, self.search_strategy)
        space, strategy = (None if p is None else p.clone() for p in parts)
        return TuneContext(
            self.mod, target=self.target, space_generator=space, search_strategy=strategy, task_name=self.task_name,
            logger=self.logger, rand_state=self.random.randrange(1, 1 << 31), num_threads=self.num_threads)

    def _strategy(self) -> SearchStrategy:
        if self.search_strategy is None:
            raise OptionError("the task has no search_strategy", code="TW1108")
        return self.search_strategy
