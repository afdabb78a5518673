"""Tunes a whole network within a time: each slice of trials goes to the task with the largest expected gain.

    tuning = NetworkTuning(tasks, option, Records("trials.json"))
    tuning.run(seconds=600)

The expected gain of a task is its share of the network's time, times the fraction that the next trials may save: what
the last ones saved, at first the usual gain, less with every trial. So no number of trials has to be chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tilewright.base.errors import OptionError
from tilewright.search.autotvm.measure import MeasureInput, MeasureResult, create_measure_batch
from tilewright.search.autotvm.record import of_record
from tilewright.search.autotvm.task.kernels import KernelTask
from tilewright.search.autotvm.tuner import Tuner, tuner_named
from tilewright.search.loop import INFINITE, share_budget
from tilewright.search.records import Records

_USUAL_GAIN: Final = 0.15
"""Fraction of a kernel's time that its first trials are expected to save."""
_HALVED_AFTER: Final = 24
"""Number of trials after which the expected gain is halved."""
_REMEMBERED: Final = 0.7
_SLICE: Final = 8


@dataclass(slots=True)
class TaskState:
    """A task while it is tuned; times are seconds of one call."""

    task: KernelTask
    calls: int
    tuner: Tuner
    default: float = INFINITE
    """The time of the compiler's own choice."""
    best: float = INFINITE
    trials: int = 0
    failed: int = 0
    recent: float = _USUAL_GAIN
    """Fraction of the time that the last slices saved, as a moving average."""
    machine: str = ""
    """The machine of the last trial."""
    fastest: list[tuple[float, Any]] = field(default_factory=list)
    """The best configurations, the fastest first."""

    @property
    def is_done(self) -> bool:
        return not self.tuner.has_next()

    @property
    def gain(self) -> float:
        """The fraction of its time that the next slice should save."""
        if self.is_done:
            return 0.0
        return max(self.recent, _USUAL_GAIN / 4) * _HALVED_AFTER / (_HALVED_AFTER + self.trials)

    def add(self, config: Any, result: MeasureResult) -> None:
        """Count one trial."""
        self.trials += 1
        self.machine = result.machine or self.machine
        if result.error_no:
            self.failed += 1
            return
        cost = min(result.costs)  # disturbances only add time
        if config.index == self.task.default_config.index:
            self.default = min(self.default, cost)
        others = [(c, k) for c, k in self.fastest if k.index != config.index]
        self.fastest = sorted([*others, (cost, config)], key=lambda one: one[0])[:_SLICE]
        self.best = min(self.best, cost)


class NetworkTuning:
    """The tasks of a network, tuned together. Tuning continues from the trials in `records`, and adds its own."""

    def __init__(
        self, tasks: Sequence[tuple[KernelTask, int]], option: Mapping[str, Any], records: Records, tuner: str = "auto",
        seed: int = 0,
    ) -> None:
        """`tasks` with how often the network runs each. Raises `OptionError` for an unknown tuner, or without tasks."""
        make = tuner_named(tuner)
        if not tasks:
            raise OptionError(
                "the network has no tunable kernel; there is nothing to tune", code="TW1112")
        self.option, self.records = option, records
        self.states = [TaskState(t, calls, make(t, seed=seed)) for t, calls in tasks]
        known: dict[Any, list[tuple[MeasureInput, MeasureResult]]] = {}
        for i, r in map(of_record, self.records):
            known.setdefault((str(i.target), i.task.workload), []).append((i, r))
        for s in self.states:
            pairs = known.get((str(s.task.target), s.task.workload), [])
            if s.tuner.resume(pairs):
                for i, r in pairs:
                    index = s.task.config_space.index_of(i.config.entity_map)
                    if index is not None:
                        s.add(s.task.config_space.get(index), r)

    @property
    def trials(self) -> int:
        return sum(s.trials for s in self.states)

    @property
    def time(self) -> float:
        """Seconds of the network's measured kernels with the best configurations."""
        return sum(s.calls * s.best for s in self.states if s.best < INFINITE)

    @property
    def time_before(self) -> float:
        """Seconds of the network's measured kernels with the compiler's own choices."""
        return sum(s.calls * min(s.default, 1e9) for s in self.states if max(s.best, s.default) < INFINITE)

    def share(self, state: TaskState) -> float:
        """Return the fraction of the network's time that a task takes."""
        return state.calls * state.best / self.time if state.best < INFINITE and self.time else 0.0

    def close(self) -> None:
        """End the processes of this machine that build and measure."""
        for part in self.option.values():
            if hasattr(part, "close"):
                part.close()

    def run(
        self, seconds: float = INFINITE, trials: int | None = None,
        report: Callable[[TaskState], None] | None = None,
    ) -> None:
        """Measure for `seconds` or `trials`, or until nothing is left. An interrupt loses no finished trial."""

        def one_slice(state: TaskState, left: float) -> int:
            made = self.step(state, 1 if state.default == INFINITE and not state.trials else int(min(_SLICE, left)))
            if report is not None:
                report(state)
            return made

        share_budget(self.next, one_slice, INFINITE if trials is None else trials, seconds)

    def next(self) -> TaskState | None:
        """Return the task with the largest expected gain; at first each task once, for the compiler's own choice."""
        new = next((s for s in self.states if not s.trials and not s.is_done), None)
        left = [s for s in self.states if not s.is_done]
        return new or max(left, key=lambda s: s.calls * min(s.best, 1.0) * s.gain, default=None)

    def step(self, state: TaskState, count: int) -> int:
        """Run one slice of trials of a task; return their number."""
        before = state.best

        def note(_: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
            for i, r in zip(inputs, results, strict=True):
                state.add(i.config, r)

        made = state.tuner.step(create_measure_batch(state.task, self.option, self.records), count, [note])
        if before < INFINITE and made:
            saved = max(0.0, (before - state.best) / before)
            state.recent = _REMEMBERED * state.recent + (1 - _REMEMBERED) * saved
        return made
