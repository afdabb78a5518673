"""Profiles: the time of each step of a program, measured so that the parts sum up to the whole.

A run is timed from begin to end, and each step between two clock reads. The time between steps is a separate row, so
the rows sum up to the time of the same runs. If the compiler is installed, native code reads the clock
(`backends/cpu/llvm/timed.py`) without slowing the run. Otherwise Python calls the steps, which adds a microsecond each.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tilewright.base.errors import OptionError
from tilewright.runtime import compiler_hooks
from tilewright.runtime.notes import Note
from tilewright.runtime.profiling import Report
from tilewright.runtime.program import OutsideStep, segments
from tilewright.runtime.roofline import Peaks, report_of
from tilewright.runtime.stepping import Subject, kernel_address, step_calls, step_name

Clock = Callable[[], int]
"""Returns a time in nanoseconds."""
NATIVE, PYTHON = "native", "python"
_CHUNKS: Final = 1 << 16
"""Capacity of a timeline in chunks of parallel loops."""
_WATCHED: Final = 3
"""Number of runs with a timeline, of which the fastest is shown."""


@dataclass(frozen=True, slots=True)
class Span:
    """A step of one part of the program, with its begin and end in nanoseconds."""

    step: int
    part: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Iterations `first` up to `last` of a parallel loop on one thread."""

    thread: int
    first: int
    last: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Run:
    """One run: begin and end in nanoseconds, the spans of its steps, and with a timeline the chunks of parallel loops.
    """

    begin: int
    end: int
    spans: tuple[Span, ...]
    chunks: tuple[Chunk, ...] = ()
    caller: int = 0
    """The calling thread."""

    @property
    def nanoseconds(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class StepTime:
    """Mean and minimum seconds of a step; `name` is its kernel or function, `origin` the nodes of the model that it
    computes."""

    name: str
    origin: str
    seconds: float
    least: float
    note: Note | None = None
    is_native: bool = True


@dataclass(frozen=True)
class Profile:
    """The steps of a program in order, and the total time of the runs in which they were timed.

    `wall` is the mean of the selected runs, in seconds; `all_runs` has every measured run. `clock` is the clock used:
    `native` or `python`.
    """

    program: str
    steps: tuple[StepTime, ...]
    wall: float
    all_runs: tuple[float, ...]
    threads: int
    clock: str
    nbytes: int
    """Bytes of constants and workspace."""
    parts: int = 1
    timeline: Run | None = None

    @property
    def seconds(self) -> float:
        """Sum of the seconds of the steps."""
        return sum(s.seconds for s in self.steps)

    @property
    def unattributed(self) -> float:
        """Seconds of a run outside all steps."""
        return self.wall - self.seconds

    def report(self, peaks: Peaks | None = None) -> Report:
        """Return the steps as rows of metrics. The machine's `peaks` add the distance from them, the limiting resource,
        and advice."""
        return report_of(self, peaks)

    def __str__(self) -> str:
        """Return the steps as a table, longest first."""
        return self.report().table(aggregate=False)


def profile_program(subject: Subject, number: int, timeline: bool = False, clock: Clock | None = None) -> Profile:
    """Run a program once unmeasured and then `number` times, timing each step; the faster half of the runs counts.

    With `timeline`, additional runs record the work of each thread. A `clock`, used in tests, makes Python call the
    steps. Raises `OptionError` for `number` < 1, `ArtifactError` if kernels are hidden in the code, `RunError` if sizes
    are dynamic.
    """
    if number < 1:
        raise OptionError(f"number={number} must be at least 1", code="TW0209")
    runner = _runner(subject, clock)
    runner.run()
    runs = [runner.run() for _ in range(number)]
    seen = (
        min((runner.run(watched=True) for _ in range(_WATCHED)), key=lambda run: run.nanoseconds) if timeline else None
    )
    return summed(subject, runs, runner.clock, seen)


def summed(subject: Subject, runs: Sequence[Run], clock: str, timeline: Run | None = None) -> Profile:
    """Return the profile of these runs."""
    manifest = subject.manifest
    kept = sorted(runs, key=lambda run: run.nanoseconds)[: (len(runs) + 1) // 2]
    times = np.zeros((len(kept), len(manifest.steps)), np.int64)
    for k, run in enumerate(kept):
        for span in run.spans:
            times[k, span.step] += span.end - span.begin
    means, least = 1e-9 * times.mean(0), 1e-9 * times.min(0)
    notes: Sequence[Note | None] = manifest.notes or [None] * len(manifest.steps)
    steps = [
        StepTime(
            step_name(step), getattr(step, "origin", ""), float(means[k]), float(least[k]), note,
            not isinstance(step, OutsideStep)
        )
        for k, (step, note) in enumerate(zip(manifest.steps, notes, strict=True))
    ]
    wall = 1e-9 * sum(run.nanoseconds for run in kept) / len(kept)
    return Profile(
        manifest.name, tuple(steps), wall, tuple(1e-9 * run.nanoseconds for run in runs), subject.threads, clock,
        manifest.constants_bytes + manifest.workspace_bytes, subject.parts, timeline,
    )


def _runner(subject: Subject, clock: Clock | None) -> _NativeRunner | _PythonRunner:
    if clock is None:
        try:
            entries = compiler_hooks.timed_entries(
                subject.manifest, lambda symbol: kernel_address(subject.code, symbol)
            )
        except ImportError:  # without the compiler, Python reads the clock; `Profile.clock` records that
            return _PythonRunner(subject, time.perf_counter_ns)
        if entries is not None:
            return _NativeRunner(subject, entries)
    return _PythonRunner(subject, clock or time.perf_counter_ns)


class _PythonRunner:
    """Calls each step from Python, and reads the clock around it."""

    clock = PYTHON

    def __init__(self, subject: Subject, clock: Clock) -> None:
        self._now = clock
        self._calls = [
            (k, part, call) for part in range(subject.parts) for k, call in enumerate(step_calls(subject, part))
        ]

    def run(self, watched: bool = False) -> Run:
        now, spans = self._now, []
        start = now()
        for step, part, call in self._calls:
            begin = now()
            call()
            spans.append(Span(step, part, begin, now()))
        return Run(start, now(), tuple(spans), caller=threading.get_ident())


class _NativeRunner:
    """Calls the steps from native code, which reads the clock around them."""

    clock = NATIVE

    def __init__(self, subject: Subject, timed: Any) -> None:
        self._subject, self._timed = subject, timed
        steps = subject.manifest.steps
        native = iter(timed.entries)
        self._plan: list[tuple[int, int, Any]] = []
        """The first step of each segment, its number of native steps, and the function that runs it (None for other
        steps)."""
        at = 0
        for part in segments(steps):
            if isinstance(part, OutsideStep):
                self._plan.append((at, 0, part))
                at += 1
            else:
                self._plan.append((at, len(part), next(native)))
                at += len(part)
        self._parts = subject.parts
        self._times = np.zeros(sum(self._parts * (count + 1) for _, count, _ in self._plan) + 1, np.int64)
        self._chunks: np.ndarray[Any, Any] | None = None

    def run(self, watched: bool = False) -> Run:
        subject, timed, now = self._subject, self._timed, time.perf_counter_ns
        context, outside = subject.context, {}
        timed.times_into(self._times)
        if watched:
            if self._chunks is None:
                self._chunks = np.zeros((_CHUNKS, 5), np.int64)
            context = timed.watched(context, self._chunks)
        start = now()
        for first, _, what in self._plan:
            if isinstance(what, OutsideStep):
                begin = now()
                subject.outside(what)
                outside[first] = Span(first, 0, begin, now())
            elif status := what(context, subject.frame):
                raise subject.failed(status)
        end = now()
        chunks = (
            self._chunks[: min(timed.chunk_count, _CHUNKS)].tolist() if watched and self._chunks is not None else []
        )
        return Run(start, end, tuple(self._spans(outside)), tuple(Chunk(*row) for row in chunks), threading.get_ident())

    def _spans(self, outside: Mapping[int, Span]) -> list[Span]:
        spans, times, at = [], self._times.tolist(), 0
        for first, count, what in self._plan:
            if isinstance(what, OutsideStep):
                spans.append(outside[first])
                continue
            for part in range(self._parts):
                spans += [Span(first + k, part, times[at + k], times[at + k + 1]) for k in range(count)]
                at += count + 1
        return spans

