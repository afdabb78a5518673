"""Runs programs in a process of this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tilewright.base.errors import OptionError
from tilewright.base.nd import Device, NDArray, array, device
from tilewright.runtime.module import load_module
from tilewright.search import local
from tilewright.search.measure import Image, Measured, MeasureErrorNo
from tilewright.search.meta_schedule.candidates import RunnerFuture, RunnerInput, RunnerResult
from tilewright.search.meta_schedule.runner.config import EvaluatorConfig, Runner, costs_of, random_data
from tilewright.search.meta_schedule.utils import TimedOut, get_global_func_with_default_on_worker, in_child

Function = str | Callable[..., Any] | None


class LocalRunner(Runner):
    """Times programs one after the other, in a process of this machine.

    `f_alloc_argument(device, args_info, alloc_repeat)`, `f_run_evaluator(module, device, config, repeated_args)` and
    `f_cleanup()` replace the steps of a trial; they are functions, or names of registered ones. `initializer` runs in
    the process before. Errors begin with "LocalRunner: ".
    """

    def __init__(
        self, timeout_sec: float = 30.0, evaluator_config: EvaluatorConfig | None = None, cooldown_sec: float = 0.0,
        alloc_repeat: int = 1, f_alloc_argument: Function = None, f_run_evaluator: Function = None,
        f_cleanup: Function = None, initializer: Callable[[], Any] | None = None,
    ) -> None:
        self.timeout_sec, self.cooldown_sec, self.alloc_repeat = timeout_sec, cooldown_sec, alloc_repeat
        self.evaluator_config = evaluator_config or EvaluatorConfig()
        self.f_alloc_argument, self.f_run_evaluator = f_alloc_argument, f_run_evaluator
        self.f_cleanup, self.initializer = f_cleanup, initializer
        self._engine: local.LocalRunner | None = None

    def run(self, runner_inputs: Sequence[RunnerInput]) -> list[RunnerFuture]:
        custom = (self.f_alloc_argument, self.f_run_evaluator, self.f_cleanup, self.initializer)
        one = self._default if all(f is None for f in custom) else self._custom
        return [_finished(one(given)) for given in runner_inputs]

    def _default(self, given: RunnerInput) -> RunnerResult:
        """Run by the worker of all searches."""
        if self._engine is None:
            c = self.evaluator_config
            self._engine = local.LocalRunner(
                self.timeout_sec, c.number, c.repeat, c.min_repeat_ms, self.cooldown_sec, c.enable_cpu_cache_flush)
        try:
            code = Path(given.artifact_path).read_bytes()
        except OSError as error:
            return self._failed(str(error), timed_out=False)
        measured: Measured = self._engine.run_image(Image(code, ""), None)
        if measured.ok:
            return RunnerResult(measured.costs, None)
        return self._failed(measured.error, measured.error_no == MeasureErrorNo.RUN_TIMEOUT)

    def _custom(self, given: RunnerInput) -> RunnerResult:
        """Run by the given functions, in a forked process."""

        def run() -> list[float]:
            if self.initializer is not None:
                self.initializer()
            alloc = get_global_func_with_default_on_worker(self.f_alloc_argument, default_alloc_argument)
            evaluate = get_global_func_with_default_on_worker(self.f_run_evaluator, default_run_evaluator)
            cleanup = get_global_func_with_default_on_worker(self.f_cleanup, default_cleanup)
            try:
                module, dev = load_module(given.artifact_path), device(given.device_type, 0)
                args = alloc(dev, [a.as_json() for a in given.args_info], self.alloc_repeat)
                return [float(c) for c in evaluate(module, dev, self.evaluator_config, args)]
            finally:
                cleanup()

        try:
            return RunnerResult(in_child(run, self.timeout_sec), None)
        except TimedOut:
            return self._failed("", timed_out=True)
        except OptionError as error:
            return self._failed(error.message, timed_out=False)

    def _failed(self, error: str, timed_out: bool) -> RunnerResult:
        if timed_out:
            return RunnerResult(None, f"LocalRunner: Timeout, killed after {self.timeout_sec} seconds")
        return RunnerResult(None, f"LocalRunner: An exception occurred\n{error}")


def _finished(result: RunnerResult) -> RunnerFuture:
    return RunnerFuture(lambda: True, lambda: result)


def default_alloc_argument(device: Device, args_info: Sequence[Any], alloc_repeat: int) -> list[list[NDArray]]:
    """Return `alloc_repeat` lists of random arrays for arguments as JSON."""
    return [[array(a, device) for a in random_data(args_info, k)] for k in range(alloc_repeat)]


def default_run_evaluator(
    rt_mod: Any, device: Device, evaluator_config: EvaluatorConfig, repeated_args: Sequence[Sequence[Any]]
) -> list[float]:
    """Return the seconds of the entry function of a module, for each list of arguments."""
    c = evaluator_config
    evaluator = rt_mod.time_evaluator(
        rt_mod.entry_name, device, number=c.number, repeat=c.repeat, min_repeat_ms=c.min_repeat_ms)
    return costs_of(evaluator, repeated_args)


def default_cleanup() -> None:
    """Do nothing: the process ends with the trial."""
