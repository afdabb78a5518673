"""Measures configurations of tasks by the engine of `tilewright.search`.

    option = autotvm.measure_option(builder=autotvm.LocalBuilder(), runner=autotvm.LocalRunner(number=4, repeat=3))
    results = create_measure_batch(task, option)([MeasureInput(target, task, config)])
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tilewright.backends.targets.target import Target
from tilewright.base.errors import OptionError
from tilewright.base.settings import nearest
from tilewright.base.types import DataType
from tilewright.compiler.kernel import Kernel
from tilewright.runtime.rpc.devices import check_remote, request_remote
from tilewright.search.autotvm.executor import Executor, Future, FutureError
from tilewright.search.autotvm.task.kernels import KernelTask, constant_values
from tilewright.search.autotvm.task.space import ConfigEntity, ConfigSpace
from tilewright.search.autotvm.task.task import Task, create
from tilewright.search.local import LocalBuilder, LocalRunner
from tilewright.search.measure import Builder, Candidate, Measured, MeasureErrorNo, Memory, OnMeasured, Runner
from tilewright.search.measure import measure as measure_candidates
from tilewright.search.remote import RPCRunner
from tilewright.tir.stmt import PrimFunc

__all__ = [
    "Builder", "Executor", "Future", "FutureError",
    "KernelCandidate", "LocalBuilder", "LocalRunner", "MeasureErrorNo", "MeasureInput", "MeasureResult",
    "RPCRunner", "Runner", "TaskCandidate", "at_once", "check_remote", "create_measure_batch", "measure_option",
    "request_remote",
]


class MeasureInput(NamedTuple):
    """A configuration to measure."""

    target: Target
    task: Task
    config: Any


MeasureResult = Measured


@dataclass(frozen=True, slots=True)
class TaskCandidate(Candidate):
    """A configuration of a task. Its template may be a function of a script, so it is pickled as its loops."""

    key: str
    config: str
    target: str
    is_own: bool = False
    """Whether this is the compiler's own choice; only the process that made the candidate knows."""

    @staticmethod
    def of(task: Task, config: ConfigSpace) -> TaskCandidate:
        """Return the candidate of a configuration."""
        assert isinstance(config, ConfigEntity)
        made = KernelCandidate if isinstance(task, KernelTask) else TaskCandidate
        own = task.default_config
        return made(
            task.key, json.dumps(config.to_json_dict()), task.target_text,
            own is not None and own.index == config.index)

    @property
    def task(self) -> Task:
        """The task, created again from `key`."""
        name, args, kwargs = json.loads(self.key)
        return create(name, args, self.target, kwargs=kwargs)

    def lower(self) -> PrimFunc:
        return self.task.lower(ConfigEntity.from_json_dict(json.loads(self.config)))

    def __reduce__(self) -> Any:
        from tilewright.search.building import Lowered

        return _travelled, (Lowered.of(self),)


def _travelled(candidate: Candidate) -> Candidate:
    return candidate


@dataclass(frozen=True, slots=True)
class KernelCandidate(TaskCandidate):
    """A configuration of a network's kernel. Its constants are packed in the layout of this configuration."""

    def __reduce__(self) -> Any:
        return KernelCandidate, (self.key, self.config, self.target)

    def lower(self) -> PrimFunc:
        return self._lowered()[1].func

    def default(self) -> Candidate:
        return KernelCandidate(self.key, json.dumps(ConfigEntity(-1, None, {}).to_json_dict()), self.target)

    def values(self) -> Mapping[str, np.ndarray[Any, Any]]:
        task, kernel = self._lowered()
        types = enumerate(p.tensor_type for p in task.function.params)
        return constant_values(kernel, {k: _random(k, t.shape, t.dtype) for k, t in types if task.constants[k]})

    def _lowered(self) -> tuple[KernelTask, Kernel]:
        task = self.task
        assert isinstance(task, KernelTask)
        return task, task.lowered(ConfigEntity.from_json_dict(json.loads(self.config)))


def _random(k: int, shape: Sequence[Any], dtype: DataType) -> np.ndarray[Any, Any]:
    """Return random weights: equal for argument k of every configuration, and small, so that sums stay near one."""
    rng, kind = np.random.default_rng(k), dtype.numpy()
    if dtype.is_float:
        depth = max(1, int(np.prod(shape[:-1])) if len(shape) > 1 else 1)
        return np.asarray(rng.standard_normal(shape) / np.sqrt(depth)).astype(kind)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(kind)
    info = np.iinfo(kind)
    return rng.integers(max(-64, int(info.min)), min(63, int(info.max)) + 1, shape).astype(kind)


def measure_option(builder: str | Builder, runner: str | Runner) -> dict[str, Any]:
    """Return the builder and the runner of tuners; "local" is this machine. Raises `OptionError` for another name."""
    return {
        "builder": _one("builder", builder, LocalBuilder, "build"), "runner": _one("runner", runner, LocalRunner, "run")
    }


def _one(what: str, given: Any, local: Callable[[], Any], method: str) -> Any:
    if isinstance(given, str):
        if given != "local":
            raise OptionError(
                f"there is no {what} '{given}'{nearest(given, ('local',))}; write '{what}=\"local\"', or give a "
                f"{local.__name__}(…)", code="TW1110")
        return local()
    if not callable(getattr(given, method, None)):
        raise OptionError(
            f"{what} is a {type(given).__name__}, which cannot {method}; give a {local.__name__}(…), or 'local'",
            code="TW1110")
    return given


def create_measure_batch(
    task: Task, option: Mapping[str, Any], records: Memory | None = None,
) -> Callable[..., list[MeasureResult]]:
    """Return a function that measures configurations of `task`; those in `records` are not measured again."""
    builder, runner = option["builder"], option["runner"]

    def measure_batch(inputs: Sequence[MeasureInput], on_measured: OnMeasured | None = None) -> list[MeasureResult]:
        candidates = [TaskCandidate.of(i.task, i.config) for i in inputs]
        return measure_candidates(candidates, builder, runner, records, on_measured)

    return measure_batch


def at_once(option: Mapping[str, Any]) -> int:
    """Return the number of configurations to measure in one batch."""
    return max(1, int(getattr(option["builder"], "n_parallel", 0) or 4))
