"""Runs programs on devices behind a tracker."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tilewright.base.nd import Device, NDArray, array
from tilewright.runtime import rpc
from tilewright.search.meta_schedule.candidates import RunnerFuture, RunnerInput, RunnerResult
from tilewright.search.meta_schedule.runner.config import EvaluatorConfig, RPCConfig, Runner, costs_of, random_data
from tilewright.search.meta_schedule.utils import get_global_func_with_default_on_worker

Function = str | Callable[..., Any] | None
T_ARG_INFO_JSON_OBJ = list[Any]
T_ARG_INFO_JSON_OBJ_LIST = list[T_ARG_INFO_JSON_OBJ]
T_ARGUMENT = Any
T_ARGUMENT_LIST = list[T_ARGUMENT]


class RPCRunner(Runner):
    """Times programs on devices behind a tracker, `max_workers` at once.

    `f_create_session(config)`, `f_upload_module(session, local_path, remote_path)`,
    `f_alloc_argument(session, device, args_info, alloc_repeat)`,
    `f_run_evaluator(session, module, device, config, repeated_args)` and `f_cleanup(session, remote_path)` replace the
    steps of a trial; they are functions, or names of registered ones. `initializer` runs once, before the first trial.
    Errors begin with "RPCRunner: ".
    """

    def __init__(
        self, rpc_config: RPCConfig | None = None, evaluator_config: EvaluatorConfig | None = None,
        cooldown_sec: float = 0.0, alloc_repeat: int = 1, f_create_session: Function = None,
        f_upload_module: Function = None, f_alloc_argument: Function = None, f_run_evaluator: Function = None,
        f_cleanup: Function = None, max_workers: int | None = None, initializer: Callable[[], Any] | None = None,
    ) -> None:
        self.rpc_config, self.evaluator_config = rpc_config or RPCConfig(), evaluator_config or EvaluatorConfig()
        self.cooldown_sec, self.alloc_repeat = cooldown_sec, alloc_repeat
        self.f_create_session, self.f_upload_module = f_create_session, f_upload_module
        self.f_alloc_argument, self.f_run_evaluator, self.f_cleanup = f_alloc_argument, f_run_evaluator, f_cleanup
        self.rpc_config.complete()
        if initializer is not None:
            initializer()
        self._threads = ThreadPoolExecutor(max_workers or 1, "tilewright-rpc-runner")

    def run(self, runner_inputs: Sequence[RunnerInput]) -> list[RunnerFuture]:
        return [RPCRunnerFuture(self._threads.submit(self._one, given)) for given in runner_inputs]

    def _one(self, given: RunnerInput) -> RunnerResult:
        try:
            return RunnerResult(self._costs(given), None)
        except Exception:
            return RunnerResult(None, f"RPCRunner: An exception occurred\n{traceback.format_exc()}")

    def _costs(self, given: RunnerInput) -> list[float]:
        get = get_global_func_with_default_on_worker
        session = get(self.f_create_session, default_create_session)(self.rpc_config)
        remote_path = Path(given.artifact_path).name
        try:
            module = get(self.f_upload_module, default_upload_module)(session, given.artifact_path, remote_path)
            dev = session.device(given.device_type, 0)
            args = get(self.f_alloc_argument, default_alloc_argument)(
                session, dev, [a.as_json() for a in given.args_info], self.alloc_repeat)
            evaluate = get(self.f_run_evaluator, default_run_evaluator)
            return [float(c) for c in evaluate(session, module, dev, self.evaluator_config, args)]
        finally:
            get(self.f_cleanup, default_cleanup)(session, remote_path)


class RPCRunnerFuture(RunnerFuture):
    """The result of a trial on a device."""

    def __init__(self, future: Future[RunnerResult]) -> None:
        super().__init__(future.done, future.result)


def default_create_session(rpc_config: RPCConfig) -> rpc.RPCSession:
    """Return a session on a device of the tracker."""
    return rpc_config.connect_server()


def default_upload_module(session: rpc.RPCSession, local_path: str, remote_path: str) -> Any:
    """Send a file to a device, and return the module there."""
    session.upload(local_path, remote_path)
    return session.load_module(remote_path)


def default_alloc_argument(
    session: rpc.RPCSession, device: Device, args_info: Sequence[Any], alloc_repeat: int
) -> list[list[NDArray]]:
    """Return `alloc_repeat` lists of random arrays for arguments as JSON."""
    return [[array(a, device) for a in random_data(args_info, k)] for k in range(alloc_repeat)]


def default_run_evaluator(
    session: rpc.RPCSession, rt_mod: Any, device: Device, evaluator_config: EvaluatorConfig,
    repeated_args: Sequence[Sequence[Any]],
) -> list[float]:
    """Return the seconds of the entry function of a module, for each list of arguments."""
    c = evaluator_config
    evaluator = rt_mod.time_evaluator(
        rt_mod.entry_name, device, number=c.number, repeat=c.repeat, min_repeat_ms=c.min_repeat_ms)
    return costs_of(evaluator, repeated_args)


def default_cleanup(session: rpc.RPCSession | None, remote_path: str | None) -> None:
    """Remove the file on the device, and end the session."""
    if session is not None:
        if remote_path is not None:
            session.remove(remote_path)
        session.close()
