"""The search of one task: rounds of proposing candidates, measuring them, and learning from the results."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from tilewright.base.errors import CompileError, OptionError, ScheduleError
from tilewright.base.forks import lazy_attribute
from tilewright.base.settings import nearest
from tilewright.search.auto_scheduler.cost_model import XGBModel
from tilewright.search.auto_scheduler.evolution import Evolution
from tilewright.search.auto_scheduler.loop_state import State
from tilewright.search.auto_scheduler.measure import MeasureInput, engines, measure
from tilewright.search.auto_scheduler.program import Program, program_of
from tilewright.search.auto_scheduler.sketch import Sketch, sketches
from tilewright.search.measure import Measured

if TYPE_CHECKING:
    from tilewright.search.auto_scheduler.search_task import SearchTask, TuningOptions

_KEPT: Final = 48
"""Number of measured programs in the initial population."""


class PreloadMeasuredStates:
    """A search callback: records of the same task are not measured again, and the model learns from them."""

    def __init__(self, filename: str) -> None:
        self.filename = filename


class SketchPolicy:
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
        seed: int | None = None, verbose: int = 1, init_search_callbacks: Sequence[PreloadMeasuredStates] | None = None,
    ) -> None:
        self.task, self.verbose = task, verbose
        for name in params or {}:
            if name not in self.DEFAULT_PARAMS:
                raise OptionError(
                    f"there is no parameter '{name}' of a SketchPolicy{nearest(name, self.DEFAULT_PARAMS)}; "
                    f"there are {', '.join(self.DEFAULT_PARAMS)}", code="TW1103")
        p = {**self.DEFAULT_PARAMS, **(params or {})}
        self.evolution = Evolution(
            int(p["sample_init_min_population"]), int(p["evolutionary_search_population"]),
            int(p["evolutionary_search_num_iters"]), float(p["evolutionary_search_mutation_prob"]),
            float(p["eps_greedy"]),
        )
        self.model = program_cost_model if program_cost_model is not None else XGBModel(seed=seed)
        self._random = random.Random(0 if seed is None else seed)
        self.measured: dict[str, float] = {}
        self.trials = 0
        self.best_cost = float("inf")
        self.best_state: State | None = None
        self.best_at = 0
        """The number of the best trial."""
        self._programs: list[tuple[float, Program]] = []
        for callback in init_search_callbacks or ():
            self.preload(callback.filename)

    def generate_sketches(self, print_for_debug: bool = False) -> list[State]:
        """Return one state of each sketch, with its knobs at their first choices."""
        made = [s.state({k.name: k.choices[0] for k in s.knobs}) for s in self.sketches]
        if print_for_debug:
            print(*made, sep="\n")
        return made

    @lazy_attribute
    def sketches(self) -> list[Sketch]:
        """The sketches of the task."""
        return sketches(self.task.compute_dag, self.task.machine)

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
        self._learn(programs, results)
        return len(programs)

    def search(self, options: TuningOptions) -> State | None:
        """Run rounds until the trials are used up. Return the best state; None when nothing ran.

        Without trials, return the state that the model ranks first, without measuring.
        """
        if options.num_measure_trials == 0:
            best = self._ordered()
            self.best_state = best[0].state if best else None
            return self.best_state
        end = self.trials + options.num_measure_trials
        with engines(options) as (builder, runner):
            while self.trials < end:
                before = self.trials
                self.round(min(options.num_measures_per_round, end - self.trials), builder, runner, options)
                waited = self.trials - self.best_at
                if self.trials == before or (options.early_stopping is not None and waited >= options.early_stopping):
                    if self.verbose and options.verbose:
                        print("no candidates are left" if self.trials == before else
                              f"no better candidate in {waited} trials: the search ends")
                    break
        return self.best_state

    def round(
        self, count: int, builder: Any, runner: Any, options: TuningOptions,
    ) -> tuple[list[MeasureInput], list[Measured]]:
        """Propose `count` candidates, measure them, call the callbacks, and learn."""
        start = time.perf_counter()
        programs = self.propose(count)
        proposed = time.perf_counter() - start
        inputs = [MeasureInput(self.task, p.state, p.func) for p in programs]
        finished: dict[int, Measured] = {}
        try:
            results = measure(inputs, builder, runner, finished.__setitem__)
        except BaseException:  # an interrupt: finished trials are reported
            self._report(options, [inputs[k] for k in finished], list(finished.values()))
            raise
        self._report(options, inputs, results)
        self._learn(programs, results)
        if options.verbose and self.verbose and programs:
            failed = sum(r.error_no != 0 for r in results)
            rate = self.task.compute_dag.flop_ct / self.best_cost / 1e9
            print(f"{self.trials} trials: best {self.best_cost * 1e3:.4g} ms, {rate:.4g} GFLOPS; "
                  f"{failed} of {len(results)} failed; proposed in {proposed:.1f} s, "
                  f"measured in {time.perf_counter() - start - proposed:.1f} s")
        return inputs, results

    def _report(self, options: TuningOptions, inputs: Sequence[MeasureInput], results: Sequence[Measured]) -> None:
        for callback in options.measure_callbacks or ():
            (callback.callback if hasattr(callback, "callback") else callback)(self, inputs, results)

    def propose(self, count: int) -> list[Program]:
        """Return up to `count` candidates that were not measured, the most promising first."""
        fresh = [p for p in self._ordered() if p.identity not in self.measured]
        if self.task.own is not None:
            own = program_of(self.task, self.task.compute_dag.init_state)
            fresh = [own, *fresh] if own.identity not in self.measured else fresh
        by_chance = min(len(fresh), round(count * self.evolution.random_share))
        picked = fresh[: max(0, count - by_chance)]
        rest = fresh[len(picked) :]
        self._random.shuffle(rest)
        return picked + rest[: count - len(picked)]

    def _ordered(self) -> list[Program]:
        if not self.sketches:
            raise ScheduleError(f"workload {self.task.workload_key} computes nothing that could be scheduled")
        population = self.evolution.initial(self.task, self.sketches, self._random)
        population += [p for _, p in sorted(self._programs, key=lambda x: x[0])[:_KEPT]]
        return self.evolution.evolve(self.task, population, self.model.predict, self._random)

    def _learn(self, programs: Sequence[Program], results: Sequence[Measured]) -> None:
        for p, r in zip(programs, results, strict=True):
            self.trials += 1
            self.measured[p.identity] = r.cost
            if r.error_no == 0:
                self._programs.append((r.cost, p))
            if r.cost < self.best_cost:
                self.best_cost, self.best_state, self.best_at = r.cost, p.state, self.trials
        if programs:
            self.model.update(programs, results)
