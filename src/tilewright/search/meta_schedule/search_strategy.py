"""Search strategies: which schedules of a design space are measured next."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.base.errors import OptionError, ScheduleError
from tilewright.ir.module import IRModule
from tilewright.ir.structural import structural_hash
from tilewright.search.loop import children
from tilewright.search.meta_schedule.arg_info import ArgInfo
from tilewright.search.meta_schedule.candidates import MeasureCandidate, RunnerResult
from tilewright.search.meta_schedule.utils import Extensible
from tilewright.tir.module_schedule import Schedule
from tilewright.tir.schedule_trace import Trace

if TYPE_CHECKING:
    from tilewright.search.meta_schedule.tune_context import TuneContext

__all__ = [
    "EvolutionarySearch", "MeasureCandidate", "PySearchStrategy", "ReplayFunc", "ReplayTrace", "SearchStrategy",
]


class SearchStrategy(Extensible):
    """Base of strategies. Between `pre_tuning` and `post_tuning`, `generate_measure_candidates` returns candidates."""

    context: TuneContext

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        """Take the task."""
        self.context = context

    def pre_tuning(
        self, max_trials: int, num_trials_per_iter: int, design_spaces: Sequence[Schedule], database: Any = None,
        cost_model: Any = None,
    ) -> None:
        """Begin a search of at most `max_trials` candidates, `num_trials_per_iter` at a time."""
        raise NotImplementedError(f"{type(self).__name__} does not define pre_tuning")

    def post_tuning(self) -> None:
        """End the search."""
        raise NotImplementedError(f"{type(self).__name__} does not define post_tuning")

    def generate_measure_candidates(self) -> list[MeasureCandidate] | None:
        """Return the next candidates, which may be none at the moment; None at the end of the search."""
        raise NotImplementedError(f"{type(self).__name__} does not define generate_measure_candidates")

    def notify_runner_results(
        self, measure_candidates: Sequence[MeasureCandidate], results: Sequence[RunnerResult]
    ) -> None:
        """Learn the results of candidates."""
        raise NotImplementedError(f"{type(self).__name__} does not define notify_runner_results")

    @staticmethod
    def create(kind: SearchStrategy | str = "evolutionary", **options: Any) -> SearchStrategy:
        """Return a strategy for its name, or for itself. Raises `OptionError` for an unknown name."""
        if isinstance(kind, SearchStrategy):
            return kind
        kinds = {"evolutionary": EvolutionarySearch, "replay-trace": ReplayTrace, "replay-func": ReplayFunc}
        if kind not in kinds:
            raise OptionError(f"there is no search strategy '{kind}'; there are {', '.join(kinds)}", code="TW1103")
        made: SearchStrategy = kinds[kind](**options)
        return made


PySearchStrategy = SearchStrategy


class _Rounds(SearchStrategy):
    """Base of strategies that measure until the number of trials is reached."""

    def pre_tuning(
        self, max_trials: int, num_trials_per_iter: int, design_spaces: Sequence[Schedule], database: Any = None,
        cost_model: Any = None,
    ) -> None:
        if not design_spaces:
            raise ScheduleError("the design space is empty: no rule gave a schedule")
        self.max_trials, self.per_iter, self.trials = max_trials, num_trials_per_iter, 0
        self.spaces = [sch.trace.simplified(remove_postproc=True) for sch in design_spaces]
        self.database, self.cost_model = database, cost_model
        self.random = random.Random(self.context.random.randrange(1 << 31))

    def post_tuning(self) -> None:
        """Forget the search."""
        self.spaces, self.database, self.cost_model = [], None, None

    def notify_runner_results(
        self, measure_candidates: Sequence[MeasureCandidate], results: Sequence[RunnerResult]
    ) -> None:
        self.trials += len(results)

    def _wanted(self) -> int:
        return min(self.per_iter, self.max_trials - self.trials)

    def _candidate(self, sch: Schedule) -> MeasureCandidate:
        return MeasureCandidate(sch, ArgInfo.from_entry_func(self._mod()))

    def _mod(self) -> IRModule:
        assert self.context.mod is not None
        return self.context.mod

    def _completed(self, sch: Schedule) -> Schedule | None:
        """Return a schedule after postprocessing; None if it is refused."""
        space = self.context.space_generator
        sch.enter_postproc()
        posts = [] if space is None or not isinstance(space.postprocs, (list, tuple)) else space.postprocs
        try:
            return sch if all(p.apply(sch) for p in posts) else None
        except ScheduleError:
            return None

    def _scheduled(self, trace: Trace, keep: bool = True) -> Schedule | None:
        """Return the schedule of a trace, with its decisions or new ones; None if it is not valid."""
        sch = Schedule(self._mod(), self.random.randrange(1, 1 << 31))
        try:
            (trace if keep else Trace(trace.insts)).apply_to_schedule(sch, remove_postproc=True)
        except ScheduleError:
            return None
        return self._completed(sch)


class ReplayTrace(_Rounds):
    """Draws the decisions of the traces of the design space anew."""

    def __init__(self, max_fail_count: int = 100) -> None:
        self.max_fail_count = max_fail_count

    def generate_measure_candidates(self) -> list[MeasureCandidate] | None:
        if self._wanted() <= 0:
            return None
        found: list[MeasureCandidate] = []
        for _ in range(self._wanted()):
            for _ in range(self.max_fail_count):
                sch = self._scheduled(self.random.choice(self.spaces), keep=False)
                if sch is not None:
                    found.append(self._candidate(sch))
                    break
        return found or None


class ReplayFunc(_Rounds):
    """Calls the generator of the design space anew."""

    def generate_measure_candidates(self) -> list[MeasureCandidate] | None:
        space = self.context.space_generator
        if self._wanted() <= 0 or space is None:
            return None
        found: list[MeasureCandidate] = []
        for _ in range(self._wanted()):
            space.seed = self.random.randrange(1, 1 << 31)
            sch = self._completed(self.random.choice(space.generate_design_space(self._mod())))
            if sch is not None:
                found.append(self._candidate(sch))
        return found or None


class EvolutionarySearch(_Rounds):
    """Mutates traces; the cost model chooses those that are measured.

    A population consists of the best traces of the database (`init_measured_ratio` of it) and of random ones, at least
    `init_min_unmeasured`. In each of `genetic_num_iters` generations a trace is mutated with `genetic_mutate_prob`, in
    at most `genetic_max_fail_count` attempts. A fraction `eps_greedy` of the candidates is random. `max_fail_count` is
    the number of times that a random population may bring nothing.
    """

    EMPTY_ROUNDS = 5
    """Number of rounds without a new schedule after which the search ends."""

    def __init__(
        self, *, population_size: int = 64, init_measured_ratio: float = 0.2, init_min_unmeasured: int = 50,
        max_fail_count: int = 5, genetic_num_iters: int = 4, genetic_mutate_prob: float = 0.85,
        genetic_max_fail_count: int = 10, eps_greedy: float = 0.05,
    ) -> None:
        for name, value in (("init_measured_ratio", init_measured_ratio), ("genetic_mutate_prob", genetic_mutate_prob),
                            ("eps_greedy", eps_greedy)):
            if not 0 <= value <= 1:
                raise OptionError(f"{name}={value} must be between 0 and 1", code="TW1104")
        self.population_size, self.init_measured_ratio = population_size, init_measured_ratio
        self.init_min_unmeasured, self.max_fail_count = init_min_unmeasured, max_fail_count
        self.genetic_num_iters, self.genetic_mutate_prob = genetic_num_iters, genetic_mutate_prob
        self.genetic_max_fail_count, self.eps_greedy = genetic_max_fail_count, eps_greedy

    def pre_tuning(
        self, max_trials: int, num_trials_per_iter: int, design_spaces: Sequence[Schedule], database: Any = None,
        cost_model: Any = None,
    ) -> None:
        super().pre_tuning(max_trials, num_trials_per_iter, design_spaces, database, cost_model)
        self.measured: set[str] = set()
        self.empty_rounds = 0

    def generate_measure_candidates(self) -> list[MeasureCandidate] | None:
        wanted = self._wanted()
        if wanted <= 0:
            return None
        known = self._best_known(int(self.population_size * self.init_measured_ratio))
        fresh = self._random_population(self.population_size - len(known))
        if not fresh:
            return None
        best = self._evolved([*known, *fresh])
        picked = self._picked(best, fresh, wanted)
        if not picked:
            self.empty_rounds += 1
            return None if self.empty_rounds >= self.EMPTY_ROUNDS else []
        return [self._candidate(sch) for sch in picked]

    def _best_known(self, count: int) -> list[Schedule]:
        """Return the fastest schedules of the database."""
        if self.database is None or count < 1 or not self.database.has_workload(self._mod()):
            return []
        records = self.database.get_top_k(self.database.commit_workload(self._mod()), count)
        found = (self._scheduled(r.trace) for r in records)
        return [sch for sch in found if sch is not None]

    def _random_population(self, count: int) -> list[Schedule]:
        """Return random schedules of the design space, at least `init_min_unmeasured` if there are valid ones."""
        found: list[Schedule] = []
        failures = 0
        while len(found) < self.init_min_unmeasured and failures < self.max_fail_count:
            drawn = (self._scheduled(self.random.choice(self.spaces), keep=False) for _ in range(max(1, count)))
            valid = [sch for sch in drawn if sch is not None]
            found += valid
            failures += not valid
        return found

    def _evolved(self, population: list[Schedule]) -> list[Schedule]:
        """Return the schedules of all generations, each once, the best first."""
        met = {_identity(sch): sch for sch in population}
        for _ in range(self.genetic_num_iters):
            ranked = self._ranked(list(met.values()))[: self.population_size]
            weights = [float(w) for w in np.linspace(1.0, 0.1, len(ranked))]
            for made in children(ranked, weights, self.population_size, self._child, self.random):
                met.setdefault(_identity(made), made)
        return self._ranked(list(met.values()))

    def _child(self, sch: Schedule, other: Schedule) -> Schedule | None:
        """Return a schedule that a mutator makes of another, or None."""
        space = self.context.space_generator
        probabilities = None if space is None else space.mutator_probs
        if not isinstance(probabilities, dict) or not probabilities or self.random.random() >= self.genetic_mutate_prob:
            return None
        for _ in range(self.genetic_max_fail_count):
            mutator = self.random.choices(list(probabilities), [float(p) for p in probabilities.values()])[0]
            trace = mutator.apply(sch.trace)
            made = None if trace is None else self._scheduled(trace)
            if made is not None:
                return made
        return None

    def _ranked(self, population: list[Schedule]) -> list[Schedule]:
        """Return schedules in the order of the cost model, the best first."""
        if self.cost_model is None or len(population) < 2:
            return population
        scores = np.asarray(self.cost_model.predict(self.context, [self._candidate(sch) for sch in population]))
        return [population[k] for k in np.argsort(-scores, kind="stable")]

    def _picked(self, best: list[Schedule], fresh: list[Schedule], wanted: int) -> list[Schedule]:
        """Return schedules that were not measured: the best, and a random part."""
        by_chance = math.ceil(wanted * self.eps_greedy) if self.eps_greedy else 0
        others = list(fresh)
        self.random.shuffle(others)
        picked: dict[str, Schedule] = {}
        for source, most in ((best, wanted - by_chance), (others, wanted), (best, wanted)):
            for sch in source:
                identity = _identity(sch)
                if len(picked) < most and identity not in self.measured:
                    picked.setdefault(identity, sch)
        self.measured.update(picked)
        return list(picked.values())


def _identity(sch: Schedule) -> str:
    return str(structural_hash(sch.mod))
