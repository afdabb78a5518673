"""Candidates of a search, and the results of building and measuring them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.backends.targets.target import Target
from tilewright.ir.module import IRModule
from tilewright.search.meta_schedule.arg_info import ArgInfo
from tilewright.tir.module_schedule import Schedule


class Seconds(float):
    """A time in seconds."""

    @property
    def value(self) -> float:
        """The number."""
        return float(self)


@dataclass(frozen=True, slots=True, eq=False)
class MeasureCandidate:
    """A schedule to measure, and the arguments of its program."""

    sch: Schedule
    args_info: Sequence[ArgInfo] | None


@dataclass(frozen=True, slots=True)
class BuilderInput:
    """A program to build."""

    mod: IRModule
    target: Target
    params: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class BuilderResult:
    """The file of a built program, or the reason why there is none."""

    artifact_path: str | None
    error_msg: str | None


@dataclass(frozen=True, slots=True)
class RunnerInput:
    """A file to run on a kind of device, with arguments."""

    artifact_path: str
    device_type: str
    args_info: Sequence[ArgInfo]


@dataclass(frozen=True, slots=True, init=False)
class RunnerResult:
    """Seconds per call, one for each repetition, or the reason why there are none."""

    run_secs: list[Seconds] | None
    error_msg: str | None

    def __init__(self, run_secs: Sequence[float] | None, error_msg: str | None) -> None:
        object.__setattr__(self, "run_secs", None if run_secs is None else [Seconds(s) for s in run_secs])
        object.__setattr__(self, "error_msg", error_msg)


class RunnerFuture:
    """A result that may not be there yet: `f_done` tells whether it is, `f_result` waits for it."""

    def __init__(
        self, f_done: Callable[[], bool] | None = None, f_result: Callable[[], RunnerResult] | None = None
    ) -> None:
        self._done, self._result = f_done, f_result

    def done(self) -> bool:
        """Return whether the result is there."""
        return self._done is None or self._done()

    def result(self) -> RunnerResult:
        """Wait for the result and return it."""
        if self._result is None:
            raise NotImplementedError(f"{type(self).__name__} does not define result()")
        return self._result()


PyRunnerFuture = RunnerFuture
