"""The search of one task: programs evolve from sketches, and a cost model ranks them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from tilewright.base.errors import CompileError, OptionError, ScheduleError
from tilewright.base.forks import lazy_attribute
from tilewright.base.settings import nearest
from tilewright.search.auto_scheduler.cost_model import XGBModel
from tilewright.search.auto_scheduler.custom_rules import PreloadCustomSketchRule
from tilewright.search.auto_scheduler.derivation import Derived, derive
from tilewright.search.auto_scheduler.derived_sketch import FixedSketch, sketches_of
from tilewright.search.auto_scheduler.evolution import Evolution
from tilewright.search.auto_scheduler.loop_state import State
from tilewright.search.auto_scheduler.measure import engines, measure_batch
from tilewright.search.auto_scheduler.program import Program, program_of
from tilewright.search.auto_scheduler.sketch import Sketch, sketches
from tilewright.search.auto_scheduler.sketch_rules import default_rules
from tilewright.search.loop import Callback, TaskSearch
from tilewright.search.measure import Measured

if TYPE_CHECKING:
    from tilewright.search.auto_scheduler.search_task import SearchTask, TuningOptions

_KEPT: Final = 48
"""Number of measured programs in the initial population."""


class PreloadMeasuredStates:
    """A search callback: records of the same task are not measured again, and the model learns from them."""

    def __init__(self, filename: str) -> None:
        self.filename = filename


class SearchPolicy(TaskSearch[Program]):
    """Base class of the searches of one task."""

    task: SearchTask

    def __init__(self, task: SearchTask, verbose: int = 1) -> None:
        super().__init__()
        self.task, self.verbose = task, verbose

    @property
    def search_task(self) -> SearchTask:
        """The task, under TVM's name."""
        return self.task

    @property
    def best_state(self) -> State | None:
        """The state of the best candidate; None before the first success."""
        return None if self.best_measure_pair is None else self.best_measure_pair[0].state

    def callbacks(self, options: TuningOptions) -> list[Callback]:
        """Return the callbacks of the options, and one that prints progress if these are verbose."""
        given = [getattr(c, "callback", c) for c in options.measure_callbacks or ()]
        return [*given, _print_progress] if self.verbose and options.verbose else given

    def search(self, options: TuningOptions) -> State | None:
        """Run rounds until the trials are used up. Return the best state; None when nothing ran."""
        with engines(options) as (builder, runner):
            ended = self.run(
                measure_batch(builder, runner), self.trials + options.num_measure_trials,
                options.num_measures_per_round, self.callbacks(options), options.early_stopping)
        if ended and self.verbose and options.verbose:
            print(ended)
        return self.best_state


class EmptyPolicy(SearchPolicy):
    """Measures the state without a step, once."""

    def __init__(self, task: SearchTask, init_search_callbacks: Sequence[Any] | None = None) -> None:
        super().__init__(task)

    def propose(self, count: int) -> list[Program]:
        return [] if self.trials else [program_of(self.task, self.task.compute_dag.init_state)]

    def update(self, inputs: Sequence[Program], results: Sequence[Measured]) -> None:
        """Learn nothing."""


class SketchPolicy(SearchPolicy):
    """Proposes candidates for a task. `program_cost_model` ranks them (default `XGBModel()`); proposals depend on
    `seed`.

    `params` are `eps_greedy`, `sample_init_min_population`, `evolutionary_search_population`,
    `evolutionary_search_num_iters` and `evolutionary_search_mutation_prob`.
    """

    DEFAULT_PARAMS: Final = {
        "eps_greedy": 0.05, "sample_init_min_population": 64, "evolutionary_search_population": 32,
        "evolutionary_search_num_iters": 3, "evolutionary_search_mutation_prob": 0.85,
    }

    def __init__(
        self, task: SearchTask, program_cost_model: Any = None, params: dict[str, Any] | None = None,
        seed: int | None = None, verbose: int = 1,
        init_search_callbacks: Sequence[PreloadMeasuredStates | PreloadCustomSketchRule] | None = None,
    ) -> None:
        super().__init__(task, verbose)
        for name in params or {}:
            if name not in self.DEFAULT_PARAMS:
                raise OptionError(
                    f"there is no parameter '{name}' of a SketchPolicy{nearest(name, self.DEFAULT_PARAMS)}; "
                    f"there are {', '.join(self.DEFAULT_PARAMS)}", code="TW1103")
        p = {**self.DEFAULT_PARAMS, **(params or {})}
        self.evolution = Evolution(
            int(p["sample_init_min_population"]), int(p["evolutionary_search_population"]),
            int(p["evolutionary_search_num_iters"]), float(p["evolutionary_search_mutation_prob"]),
            float(p["eps_greedy"]))
        self.model = program_cost_model if program_cost_model is not None else XGBModel(seed=seed)
        self._random = random.Random(0 if seed is None else seed)
        self.measured: dict[str, float] = {}
        self._known: dict[str, Program] = {}
        self._programs: list[tuple[float, Program]] = []
        self.custom_rules: list[PreloadCustomSketchRule] = []
        for callback in init_search_callbacks or ():
            if isinstance(callback, PreloadCustomSketchRule):
                self.custom_rules.append(callback)
            else:
                self.preload(callback.filename)

    def generate_sketches(self, print_for_debug: bool = False) -> list[State]:
        """Return the states that the rules of `sketch_rules.py` and those of the program derive, with open lengths.

        The search chooses these lengths. It also uses sketches of its own, which `sketches` has too.
        """
        made = [d.state for d in self.derived]
        if print_for_debug:
            print(*made, sep="\n")
        return made

    @lazy_attribute
    def derived(self) -> list[Derived]:
        """The states that rules derive, those of the program first."""
        return derive(self, self.task.compute_dag.init_state, [*self.custom_rules, *default_rules(self.task.shape)])

    @lazy_attribute
    def sketches(self) -> list[Sketch]:
        """The sketches of the search by itself; none where rules of the program apply to all states."""
        is_open = not all(d.is_custom for d in self.derived)
        return sketches(self.task.compute_dag, self.task.machine) if is_open else []

    @lazy_attribute
    def derived_sketches(self) -> list[FixedSketch]:
        """The sketches of `derived`."""
        return sketches_of(self.derived, self.task.machine)

    def preload(self, filename: str) -> int:
        """Learn from the records of this task in a file. Return their number."""
        from tilewright.search.auto_scheduler.measure_record import load_records

        programs, results = list[Program](), list[Measured]()
        for inp, result in load_records(filename):
            if inp.task.workload_key == self.task.workload_key:
                try:
                    state = self.task.compute_dag.init_state.apply(inp.state.transform_steps)
                    programs.append(program_of(self.task, state))
                except CompileError:
                    continue  # a record of another version of the workload
                results.append(result)
        self.count(programs, results)
        if programs:
            self.update(programs, results)
        return len(programs)

    def search(self, options: TuningOptions) -> State | None:
        """Run rounds until the trials are used up. Return the best state; None when nothing ran.

        Without trials, return the state that the model ranks first, without measuring.
        """
        if options.num_measure_trials == 0:
            ranked = self._ordered()
            return ranked[0].state if ranked else None
        return super().search(options)

    def propose(self, count: int) -> list[Program]:
        fresh = [p for p in self._ordered() if p.identity not in self.measured]
        if self.task.own is not None:
            own = program_of(self.task, self.task.compute_dag.init_state)
            fresh = [own, *fresh] if own.identity not in self.measured else fresh
        by_chance = min(len(fresh), round(count * self.evolution.random_share))
        picked = fresh[: max(0, count - by_chance)]
        rest = fresh[len(picked) :]
        self._random.shuffle(rest)
        return picked + rest[: count - len(picked)]

    def sample_initial_population(self) -> list[State]:
        """Return the states of a random population, of all sketches."""
        found = self._initial()
        self._known.update((p.identity, p) for p in found)
        return [p.state for p in found]

    def evolutionary_search(self, init_populations: Sequence[State], out_size: int) -> list[State]:
        """Return up to `out_size` states that evolved from a population, the best first.

        States of `sample_initial_population` are mutated; others only compete.
        """
        population = [self._known.get(str(s.transform_steps)) or program_of(self.task, s) for s in init_populations]
        found = self.evolution.evolve(self.task, population, self.model.score, self._random)[:out_size]
        self._known.update((p.identity, p) for p in found)
        return [p.state for p in found]

    def _ordered(self) -> list[Program]:
        if not self.sketches and not self.derived_sketches:
            raise ScheduleError(f"workload {self.task.workload_key} computes nothing that could be scheduled")
        population = self._initial()
        population += [p for _, p in sorted(self._programs, key=lambda x: x[0])[:_KEPT]]
        return self.evolution.evolve(self.task, population, self.model.score, self._random)

    def _initial(self) -> list[Program]:
        return self.evolution.initial(self.task, self.sketches, self._random, self.derived_sketches)

    def update(self, inputs: Sequence[Program], results: Sequence[Measured]) -> None:
        for p, r in zip(inputs, results, strict=True):
            self.measured[p.identity] = r.cost
            if r.error_no == 0:
                self._programs.append((r.cost, p))
        self.model.update(inputs, results)


def _print_progress(policy: SketchPolicy, inputs: Sequence[Program], results: Sequence[Measured]) -> None:
    failed = sum(r.error_no != 0 for r in results)
    proposed, measured = policy.seconds
    print(
        f"{policy.trials} trials: best {policy.best_cost * 1e3:.4g} ms, {policy.best_flops / 1e9:.4g} GFLOPS; "
        f"{failed} of {len(results)} failed; proposed in {proposed:.1f} s, measured in {measured:.1f} s")
