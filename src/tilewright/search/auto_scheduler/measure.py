"""What is measured in a search, what comes of it, and who builds and runs, under the names of the field.

The work is that of `tilewright.search`: builders and runners in processes of their own, answers compared with those of the plain
loops. A candidate travels as the text of its loop program, so that a workload of a script needs no import where it is built.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.base.errors import CompileError, OptionError
from tilewright.search import measure as engine
from tilewright.search.auto_scheduler.program import check_legal
from tilewright.search.auto_scheduler.transform_step import steps_as_json
from tilewright.search.measure import Candidate, MeasureErrorNo
from tilewright.tir.parser import parse

if TYPE_CHECKING:
    from tilewright.search.auto_scheduler.search_task import SearchTask, TuningOptions
    from tilewright.tir.stmt import PrimFunc


@dataclass(frozen=True, slots=True, eq=False)
class MeasureInput:
    """A task and a state of it."""

    task: SearchTask
    state: Any
    func: PrimFunc | None = field(default=None, repr=False)
    """The loop program, where it has been made already."""


@dataclass(frozen=True, slots=True, eq=False)
class MeasureResult:
    """Seconds of each repetition, and what went wrong, if anything: `error_no` is a number of `MeasureErrorNo`."""

    costs: tuple[float, ...]
    error_no: int = 0
    error_msg: str = ""
    all_cost: float = 0.0
    timestamp: float = 0.0

    @property
    def cost(self) -> float:
        """The median in seconds; infinite after an error."""
        return float(np.median(self.costs)) if self.error_no == 0 and self.costs else float("inf")


@dataclass(frozen=True, slots=True)
class ScheduledCandidate(Candidate):
    """A loop program as text, the plain one that it has to agree with, and the steps that made it (`config`)."""

    key: str
    config: str
    target: str
    script: str = field(repr=False)
    plain: str | None = field(default=None, repr=False)

    def lower(self) -> PrimFunc:
        return parse(self.script)

    def default(self) -> Candidate | None:
        return None if self.plain is None else ScheduledCandidate(self.key, "{}", self.target, self.plain)


class LocalBuilder:
    """Builds in `n_parallel` processes of this machine (None: one for each core)."""

    def __init__(self, timeout: float = 15, n_parallel: int | None = None, build_func: str = "default") -> None:
        from tilewright.search.local import LocalBuilder as Builder

        self.engine = Builder(timeout, n_parallel, build_func)


class LocalRunner:
    """Times candidates in a process of this machine: `repeat` figures, each of `number` calls or of as many as take `min_repeat_ms`."""

    def __init__(
        self, timeout: float = 10, number: int = 3, repeat: int = 1, min_repeat_ms: float = 100, cooldown_interval: float = 0.0,
        enable_cpu_cache_flush: bool = False, device: int = 0,
    ) -> None:
        from tilewright.search.local import LocalRunner as Runner

        if device != 0:
            raise OptionError(f"device={device}: there is one CPU, device 0", code="TW1110")
        self.engine = Runner(timeout, number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush)


class RPCRunner:
    """Times candidates on devices behind a tracker: those with the key `key`, one trial at a time on each."""

    def __init__(
        self, key: str, host: str, port: int, priority: int = 1, n_parallel: int | None = None, timeout: float = 10, number: int = 3, repeat: int = 1,
        min_repeat_ms: float = 100, cooldown_interval: float = 0.0, enable_cpu_cache_flush: bool = False,
    ) -> None:
        from tilewright.search.remote import RPCRunner as Runner

        self.engine = Runner(key, host, port, priority, timeout, n_parallel, number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush)


@contextmanager
def engines(options: TuningOptions) -> Iterator[tuple[Any, Any]]:
    """The builder and the runner of `tilewright.search` that options of tuning ask for; what "local" stands for ends its processes behind the `with` block."""
    made = [kind().engine if isinstance(given, str) else None for given, kind in ((options.builder, LocalBuilder), (options.runner, LocalRunner))]
    try:
        yield made[0] or getattr(options.builder, "engine", options.builder), made[1] or getattr(options.runner, "engine", options.runner)
    finally:
        for one in made:
            if one is not None:
                one.close()


def candidate(inp: MeasureInput) -> ScheduledCandidate:
    """What is built and run for an input. Raises `ScheduleError` for a state that makes no program, or one that would be wrong."""
    dag = inp.task.compute_dag
    func = inp.func or dag.func(inp.state)
    check_legal(func)
    plain = dag.plain_script if inp.task.own is None else inp.task.own.script()
    config = json.dumps(steps_as_json(inp.state.transform_steps))
    return ScheduledCandidate(inp.task.workload_key, config, inp.task.target_text, func.script(), plain)


def measure(inputs: Sequence[MeasureInput], builder: Any, runner: Any, on_measured: Callable[[int, MeasureResult], object] | None = None) -> list[MeasureResult]:
    """Build and run. One result for each input, in order; a candidate that fails gives an error, and nothing is raised for it.

    `on_measured` is told the number of an input and its result as soon as it is known.
    """
    results: list[MeasureResult | None] = [None] * len(inputs)
    made: list[tuple[int, ScheduledCandidate]] = []

    def finished(k: int, result: MeasureResult) -> None:
        results[k] = result
        if on_measured is not None:
            on_measured(k, result)

    for k, inp in enumerate(inputs):
        try:
            made.append((k, candidate(inp)))
        except CompileError as error:
            finished(k, MeasureResult((), int(MeasureErrorNo.INSTANTIATION_ERROR), str(error), 0.0, time.time()))
    engine.measure([c for _, c in made], builder, runner, on_measured=lambda n, m: finished(
        made[n][0], MeasureResult(m.costs, int(m.error_no), m.error, m.all_cost, m.timestamp)))
    return [r for r in results if r is not None]


def recover_measure_input(inp: MeasureInput, rebuild_state: bool = False) -> MeasureInput:
    """The input of a record with its computations; with `rebuild_state`, with its loops, too.

    Raises `OptionError` when the workload is not registered, `ScheduleError` when the steps do not fit it.
    """
    dag = inp.task.compute_dag
    return MeasureInput(inp.task, dag.init_state.apply(inp.state.transform_steps) if rebuild_state else inp.state)
