"""Runners: times of built programs, on this machine and on remote devices."""

from __future__ import annotations

from typing import Any

from tilewright.base.errors import OptionError
from tilewright.search.meta_schedule.candidates import PyRunnerFuture, RunnerFuture, RunnerInput, RunnerResult
from tilewright.search.meta_schedule.runner.config import EvaluatorConfig, PyRunner, RPCConfig, Runner
from tilewright.search.meta_schedule.runner.local_runner import LocalRunner
from tilewright.search.meta_schedule.runner.rpc_runner import RPCRunner

__all__ = [
    "EvaluatorConfig", "LocalRunner", "PyRunner", "PyRunnerFuture", "RPCConfig", "RPCRunner", "Runner", "RunnerFuture",
    "RunnerInput", "RunnerResult", "create",
]


def create(kind: Runner | str = "local", **options: Any) -> Runner:
    """Return a runner for its name, "local" or "rpc", or for itself. Raises `OptionError` for another name."""
    if isinstance(kind, Runner):
        return kind
    kinds: dict[str, Any] = {"local": LocalRunner, "rpc": RPCRunner}
    if kind not in kinds:
        raise OptionError(f"there is no runner '{kind}'; there are {', '.join(kinds)}", code="TW1103")
    made: Runner = kinds[kind](**options)
    return made
