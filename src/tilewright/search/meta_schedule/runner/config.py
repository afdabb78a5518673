"""The base of runners, and their settings."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.base.errors import OptionError
from tilewright.base.types import DataType
from tilewright.runtime import rpc
from tilewright.search.meta_schedule.candidates import RunnerFuture, RunnerInput
from tilewright.search.meta_schedule.utils import Extensible


class Runner(Extensible):
    """Base of runners."""

    def run(self, runner_inputs: Sequence[RunnerInput]) -> list[RunnerFuture]:
        """Start to run each input, and return their future results, in order."""
        raise NotImplementedError(f"{type(self).__name__} does not define run")

    @staticmethod
    def create(kind: Runner | str = "local", **options: Any) -> Runner:
        """Return a runner for its name, or for itself."""
        from tilewright.search.meta_schedule.runner import create

        return create(kind, **options)


PyRunner = Runner


@dataclass(frozen=True, slots=True)
class EvaluatorConfig:
    """How a program is timed: `repeat` times, each the mean of `number` calls or of enough to take `min_repeat_ms`."""

    number: int = 3
    repeat: int = 1
    min_repeat_ms: int = 100
    enable_cpu_cache_flush: bool = False


@dataclass(frozen=True, slots=True)
class RPCConfig:
    """A tracker, and the devices behind it. Missing settings are read from TVM_TRACKER_HOST, _PORT and _KEY."""

    tracker_host: str | None = None
    tracker_port: int | None = None
    tracker_key: str | None = None
    session_priority: int = 1
    session_timeout_sec: int = 10

    def complete(self) -> tuple[str, int, str]:
        """Return the host, the port and the key. Raises `OptionError` for a missing one."""
        host = self.tracker_host or os.environ.get("TVM_TRACKER_HOST")
        port = self.tracker_port or os.environ.get("TVM_TRACKER_PORT")
        key = self.tracker_key or os.environ.get("TVM_TRACKER_KEY")
        if not host or not port or not key:
            raise OptionError(
                "an RPCConfig needs tracker_host, tracker_port and tracker_key, or the environment variables "
                "TVM_TRACKER_HOST, TVM_TRACKER_PORT and TVM_TRACKER_KEY", code="TW1110")
        return host, int(port), key

    def connect_tracker(self) -> rpc.TrackerSession:
        """Return a connection to the tracker."""
        host, port, _ = self.complete()
        return rpc.connect_tracker(host, port)

    def connect_server(self) -> rpc.RPCSession:
        """Return a session on a device of the tracker."""
        _, _, key = self.complete()
        with self.connect_tracker() as tracker:
            return tracker.request(
                key, self.session_priority, self.session_timeout_sec, patience=max(1, self.session_timeout_sec))


def random_data(args_info: Sequence[Any], seed: int = 0) -> list[np.ndarray[Any, Any]]:
    """Return random arrays for arguments as JSON, `["TENSOR", dtype, shape]`."""
    rng = np.random.default_rng(seed)
    found = []
    for _, dtype, shape in args_info:
        kind = DataType(dtype)
        values = rng.uniform(-1, 1, shape) if kind.is_float else rng.integers(0, 2, shape)
        found.append(np.asarray(values).astype(kind.numpy()))
    return found


def costs_of(evaluator: Any, repeated_args: Sequence[Sequence[Any]]) -> list[float]:
    """Return the seconds of a timing function for each list of arguments."""
    return [float(c) for c in itertools.chain.from_iterable(evaluator(*args).results for args in repeated_args)]
