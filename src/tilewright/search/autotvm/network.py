"""Tuning a whole network within a time: each slice of trials goes to the task that should gain most.

    tuning = NetworkTuning(tasks, option, Records("trials.json"))
    tuning.run(seconds=600, report=lambda: …)

What a task should gain is its part of the network's time, times how much of that the next trials may save: what the last ones saved,
and where none says yet, what tuning saves usually, less with every trial. So nobody chooses a number of trials.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tilewright.base.errors import OptionError
from tilewright.search.autotvm.measure import MeasureInput, MeasureResult, create_measure_batch
from tilewright.search.autotvm.record import of_record
from tilewright.search.autotvm.task.kernels import KernelTask
from tilewright.search.autotvm.tuner.names import tuner_named
from tilewright.search.autotvm.tuner.tuner import Tuner
from tilewright.search.records import Records

_USUAL_GAIN: Final = 0.15
"""The part of a kernel's time that its first trials save, before they say themselves."""
_HALVED_AFTER: Final = 24
"""Trials after which what more of them should save is half."""
_REMEMBERED: Final = 0.7
_SLICE: Final = 8


@dataclass(slots=True)
class TaskState:
    """A task while it is tuned; times in seconds of one call."""

    task: KernelTask
    calls: int
    tuner: Tuner
    default: float = float("inf")
    """What the model's choice takes."""
    best: float = float("inf")
    trials: int = 0
    failed: int = 0
    recent: float = _USUAL_GAIN
    """The part of the time that the last slices saved, the latest counting most."""
    machine: str = ""
    """Where the last trial was made."""
    fastest: list[tuple[float, Any]] = field(default_factory=list)
    """The best configurations, the fastest first."""

    @property
    def is_done(self) -> bool:
        return not self.tuner.has_next()

    @property
    def gain(self) -> float:
        """The part of its time that the next slice should save."""
        if self.is_done:
            return 0.0
        return max(self.recent, _USUAL_GAIN / 4) * _HALVED_AFTER / (_HALVED_AFTER + self.trials)

    def took(self, config: Any, result: MeasureResult) -> None:
        """Count one trial."""
        self.trials += 1
        self.machine = result.details.machine if result.details is not None else self.machine
        if result.error_no:
            self.failed += 1
            return
        cost = min(result.costs)  # what disturbs only adds
        if config.index == self.task.default_config.index:
            self.default = min(self.default, cost)
        self.fastest = sorted([*((c, k) for c, k in self.fastest if k.index != config.index), (cost, config)], key=lambda one: one[0])[:_SLICE]
        self.best = min(self.best, cost)


class NetworkTuning:
    """The tasks of a network, tuned together. What `records` have is known and goes on from there; what is measured is added to them."""

    def __init__(
        self, tasks: Sequence[tuple[KernelTask, int]], option: Mapping[str, Any], records: Records, tuner: str = "auto", seed: int = 0,
    ) -> None:
        """`tasks` with how often the network runs each. Raises `OptionError` for a tuner that there is not, or where there are no tasks."""
        make = tuner_named(tuner)
        if not tasks:
            raise OptionError("the network has no kernel that leaves anything to choose; there is nothing to tune", code="TW1112")
        self.option, self.records = option, records
        self.states = [TaskState(t, calls, make(t, seed=seed)) for t, calls in tasks]
        self._resume()

    def _resume(self) -> None:
        by_key: dict[tuple[str, str, str], TaskState] = {}
        for s in self.states:
            by_key[s.task.name, s.task.args[0] + s.task.args[1], str(s.task.target)] = s
        known: dict[int, list[tuple[MeasureInput, MeasureResult]]] = {}
        for record in self.records:
            i, r = of_record(record)
            state = by_key.get((i.task.name, "".join(map(str, i.task.args)), str(i.target)))
            if state is not None:
                known.setdefault(id(state), []).append((i, r))
        for s in self.states:
            pairs = known.get(id(s), [])
            if pairs and s.tuner.resume(pairs):
                for i, r in pairs:
                    index = s.task.config_space.index_of(i.config.entity_map)
                    if index is not None:
                        s.took(s.task.config_space.get(index), r)

    @property
    def trials(self) -> int:
        return sum(s.trials for s in self.states)

    @property
    def time(self) -> float:
        """Seconds that the kernels of the network take as far as they were measured, with the best configurations."""
        return sum(s.calls * s.best for s in self.states if s.best < float("inf"))

    @property
    def time_before(self) -> float:
        """The same with what the model chooses."""
        return sum(s.calls * min(s.default, 1e9) for s in self.states if s.best < float("inf") and s.default < float("inf"))

    def share(self, state: TaskState) -> float:
        """The part of the network's time that a task takes."""
        return state.calls * state.best / self.time if state.best < float("inf") and self.time else 0.0

    def close(self) -> None:
        """End the processes that build and measure, as far as they are of this machine."""
        for part in self.option.values():
            if hasattr(part, "close"):
                part.close()

    def run(
        self, seconds: float = float("inf"), trials: int | None = None, report: Callable[[TaskState], None] | None = None,
    ) -> None:
        """Measure until `seconds` are over, `trials` are made in all, or nothing is left to try. What interrupts it loses no finished trial."""
        start = time.perf_counter()
        made = 0
        while time.perf_counter() - start < seconds and (trials is None or made < trials):
            state = self.next()
            if state is None:
                return
            left = _SLICE if trials is None else min(_SLICE, trials - made)
            first = 1 if state.default == float("inf") and not state.trials else left
            made += self.step(state, first)
            if report is not None:
                report(state)

    def next(self) -> TaskState | None:
        """The task whose next slice should save most; first, each once, the model's choice of it."""
        new = next((s for s in self.states if not s.trials and not s.is_done), None)
        if new is not None:
            return new
        left = [s for s in self.states if not s.is_done]
        return max(left, key=lambda s: s.calls * min(s.best, 1.0) * s.gain) if left else None

    def step(self, state: TaskState, count: int) -> int:
        """One slice of trials of a task; returns how many there were."""
        before = state.best

        def note(_: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
            for i, r in zip(inputs, results, strict=True):
                state.took(i.config, r)

        made = state.tuner.step(create_measure_batch(state.task, self.option, self.records), count, [note])
        if before < float("inf") and made:
            saved = max(0.0, (before - state.best) / before)
            state.recent = _REMEMBERED * state.recent + (1 - _REMEMBERED) * saved
        return made
