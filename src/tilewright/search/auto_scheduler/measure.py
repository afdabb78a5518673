"""Inputs of measuring, and builders and runners with Ansor's defaults; `tilewright.search` does the work.

A candidate is sent as the text of its loop program, so that builders need not import a script's workload.
Answers are compared with those of the plain loops.
"""

from __future__ import annotations

import json
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import CompileError, OptionError
from tilewright.runtime import rpc
from tilewright.search import local, remote
from tilewright.search import measure as engine
from tilewright.search.auto_scheduler.transform_step import steps_as_json
from tilewright.search.loop import Measure
from tilewright.search.measure import Built, Candidate, Measured, MeasureErrorNo, OnMeasured, failed
from tilewright.tir.legality import check_kind
from tilewright.tir.parser import parse
from tilewright.tir.stmt import PARALLEL, VECTORIZED, For, Stmt, bodies

if TYPE_CHECKING:
    from tilewright.search.auto_scheduler.search_task import SearchTask, TuningOptions
    from tilewright.tir.stmt import PrimFunc


@dataclass(frozen=True, slots=True, eq=False)
class MeasureInput:
    """A task and a state of it. `func` is the loop program of the state, if it is known already."""

    task: SearchTask
    state: Any
    func: PrimFunc | None = field(default=None, repr=False)


class Seconds(float):
    """The seconds of a call; `value` is the number, as of TVM's `FloatImm`."""

    @property
    def value(self) -> float:
        return float(self)


class _AnyResult(type):
    """The class of `MeasureResult`: every result of measuring is an instance of it."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Measured)


class MeasureResult(Measured, metaclass=_AnyResult):
    """A result, with the arguments in Ansor's order."""

    def __init__(
        self, costs: Sequence[float], error_no: int = 0, error_msg: str = "", all_cost: float = 0.0,
        timestamp: float = 0.0,
    ) -> None:
        super().__init__(tuple(map(Seconds, costs)), MeasureErrorNo(error_no), all_cost, timestamp, error_msg)


class PythonBasedMeasureCallback(ABC):
    """Base class of callbacks of tuning. A program of the user overrides `callback`."""

    @abstractmethod
    def callback(self, policy: Any, inputs: Sequence[MeasureInput], results: Sequence[Measured]) -> None:
        """Called after each batch with the search, its inputs and their results."""


MeasureCallback = PythonBasedMeasureCallback


@dataclass(frozen=True, slots=True)
class ScheduledCandidate(Candidate):
    """A loop program as text, the reference program, and the steps that made it (`config`)."""

    key: str
    config: str
    target: str
    script: str = field(repr=False)
    plain: str | None = field(default=None, repr=False)
    ansor: str = field(default="", repr=False)

    def lower(self) -> PrimFunc:
        return parse(self.script)

    def default(self) -> Candidate | None:
        return None if self.plain is None else ScheduledCandidate(self.key, "{}", self.target, self.plain)


class LocalBuilder(local.LocalBuilder):
    """Builds in `n_parallel` processes of this machine (None: one for each core)."""

    def __init__(self, timeout: float = 15, n_parallel: int | None = None, build_func: str = "default") -> None:
        super().__init__(timeout, n_parallel, build_func)

    def build(self, candidates: Sequence[Any], form: Any = ".tar") -> list[Built]:
        """Return one `Built` for each candidate or `MeasureInput`, in order; TVM's second argument is `verbose`."""
        return _build(super().build, candidates, form if isinstance(form, str) else ".tar")


class LocalRunner(local.LocalRunner):
    """Times candidates in a process of this machine: `repeat` costs, each over `number` calls or `min_repeat_ms`."""

    def __init__(
        self, timeout: float = 10, number: int = 3, repeat: int = 1, min_repeat_ms: float = 100,
        cooldown_interval: float = 0.0, enable_cpu_cache_flush: bool = False, device: int = 0,
    ) -> None:
        if device != 0:
            raise OptionError(f"device={device}: there is one CPU, device 0", code="TW1110")
        super().__init__(timeout, number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush)

    def run(self, built: Sequence[Any], on_measured: Any = None, verbose: int = 1) -> list[Measured]:
        """Return one result for each `Built`, in order. With inputs first, the `Built` are the second argument."""
        return super().run(*_run_arguments(built, on_measured))


class RPCRunner(remote.RPCRunner):
    """Times candidates on the devices of a tracker that have the key `key`, one trial at a time on each."""

    def __init__(
        self, key: str, host: str, port: int, priority: int = 1, n_parallel: int | None = None, timeout: float = 10,
        number: int = 3, repeat: int = 1, min_repeat_ms: float = 100, cooldown_interval: float = 0.0,
        enable_cpu_cache_flush: bool = False,
    ) -> None:
        super().__init__(
            key, host, port, priority, timeout, n_parallel, number, repeat, min_repeat_ms, cooldown_interval,
            enable_cpu_cache_flush)

    def run(self, built: Sequence[Any], on_measured: Any = None, verbose: int = 1) -> list[Measured]:
        """Return one result for each `Built`, in order. With inputs first, the `Built` are the second argument."""
        return super().run(*_run_arguments(built, on_measured))


class LocalRPCMeasureContext:
    """A tracker and a server of this machine, and a `runner` that times candidates on it: what measuring needs in the
    processes of a board, without a board.

        context = auto_scheduler.LocalRPCMeasureContext(min_repeat_ms=300)
        options = auto_scheduler.TuningOptions(runner=context.runner, …)

    `close`, or the end of the object, stops both. The options are those of `RPCRunner`.
    """

    def __init__(
        self, priority: int = 1, n_parallel: int | None = 1, timeout: float = 10, number: int = 3, repeat: int = 1,
        min_repeat_ms: float = 0, cooldown_interval: float = 0.0, enable_cpu_cache_flush: bool = False, device: int = 0,
    ) -> None:
        if device:
            raise OptionError(f"device={device} does not exist: this machine has one CPU, device 0", code="TW1110")
        self.tracker = rpc.Tracker(port=0)
        try:
            self.server = rpc.Server(
                port=0, key=self.tracker.host, tracker_addr=(self.tracker.host, self.tracker.port))
        except BaseException:
            self.tracker.close()
            raise
        self.runner = RPCRunner(
            self.tracker.host, self.tracker.host, self.tracker.port, priority, n_parallel, timeout, number, repeat,
            min_repeat_ms, cooldown_interval, enable_cpu_cache_flush)
        self._closed = weakref.finalize(self, _close, self.server, self.tracker)

    def close(self) -> None:
        """Stop the server and the tracker."""
        self._closed()


def _build(build: Callable[..., list[Built]], given: Sequence[Any], form: str) -> list[Built]:
    """Build candidates, and inputs as candidates. An input without a program gives a `Built` with its error."""
    made: list[Any] = []
    for one in given:
        try:
            made.append(candidate(one) if isinstance(one, MeasureInput) else one)
        except CompileError as error:
            made.append(Built(one, None, MeasureErrorNo.INSTANTIATION_ERROR, str(error)))
    built = iter(build([m for m in made if not isinstance(m, Built)], form))
    return [m if isinstance(m, Built) else next(built) for m in made]


def _run_arguments(built: Sequence[Any], given: Any) -> tuple[Sequence[Built], Any]:
    """Return what to run and whom to tell, from the arguments of our runners or of TVM's."""
    return (built, given) if given is None or callable(given) else (given, None)


def _close(*parts: Any) -> None:
    for part in parts:
        part.close()


@contextmanager
def engines(options: TuningOptions) -> Iterator[tuple[Any, Any]]:
    """Give the builder and the runner of tuning options; those that "local" stands for are closed after the `with`
    block."""
    given = ((options.builder, LocalBuilder), (options.runner, LocalRunner))
    made: list[Any] = [kind() if isinstance(part, str) else None for part, kind in given]
    try:
        yield made[0] or options.builder, made[1] or options.runner
    finally:
        for part in filter(None, made):
            part.close()


def candidate(inp: MeasureInput) -> ScheduledCandidate:
    """Return the candidate of an input. Raises `ScheduleError` for a state without a program, or with a wrong one."""
    dag = inp.task.compute_dag
    func = inp.func or dag.func(inp.state)
    check_legal(func)
    plain = dag.plain_script if inp.task.own is None else inp.task.own.script()
    config = json.dumps(steps_as_json(inp.state.transform_steps))
    task = inp.task
    return ScheduledCandidate(task.workload_key, config, task.target_text, func.script(), plain, task.record_fields)


def check_legal(func: PrimFunc) -> None:
    """Raise `ScheduleError` if the trips of a parallel or vectorized loop depend on each other."""
    stack: list[tuple[Stmt, list[Stmt]]] = [(func.body, [])]
    while stack:
        s, around = stack.pop()
        if isinstance(s, For) and s.kind in (PARALLEL, VECTORIZED):
            check_kind(func, s, s.kind, around)
        stack += [(b, [*around, s]) for b in bodies(s)]


def measure(
    inputs: Sequence[MeasureInput], builder: Any, runner: Any,
    on_measured: OnMeasured | None = None,
) -> list[Measured]:
    """Build and run inputs; one result for each, in order. A failed candidate gives an error result and raises nothing.

    `on_measured` is called with the number of an input and its result as soon as that is known.
    """
    results: list[Measured | None] = [None] * len(inputs)
    made: list[tuple[int, ScheduledCandidate]] = []

    def finished(k: int, result: Measured) -> None:
        results[k] = result
        if on_measured is not None:
            on_measured(k, result)

    for k, inp in enumerate(inputs):
        try:
            made.append((k, candidate(inp)))
        except CompileError as error:
            finished(k, failed(MeasureErrorNo.INSTANTIATION_ERROR, str(error)))
    engine.measure([c for _, c in made], builder, runner, on_measured=lambda n, m: finished(made[n][0], m))
    return [r for r in results if r is not None]


def measure_batch(builder: Any, runner: Any) -> Measure:
    """Return a function that measures inputs with this builder and runner."""
    return lambda inputs, on_measured: measure(inputs, builder, runner, on_measured)


def recover_measure_input(inp: MeasureInput, rebuild_state: bool = False) -> MeasureInput:
    """Return the input of a record with its computations; with `rebuild_state`, also with its loops.

    Raises `OptionError` when the workload is not registered, `ScheduleError` when the steps do not fit it.
    """
    dag = inp.task.compute_dag
    return MeasureInput(inp.task, dag.init_state.apply(inp.state.transform_steps) if rebuild_state else inp.state)
