"""Tuning tasks of functions that compute and schedule operators: `autotvm.register_topi_compute` and
`register_topi_schedule`.

    @autotvm.register_topi_compute("dense.mine")
    def dense(cfg, data, weight, bias=None, out_dtype=None): …

    @autotvm.register_topi_schedule("dense.mine")
    def schedule_dense(cfg, outs): …

Both are called without `cfg`, which is the configuration that the current dispatch context has for the task and its
arguments. The two together are the template of the task `dense.mine`, so `autotvm.task.create("dense.mine", args,
target)` tunes it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

from tilewright.backends.targets.target import Target
from tilewright.base.errors import OptionError
from tilewright.relay.op.strategy import workload_of
from tilewright.search.autotvm.task.dispatcher import DispatchContext, Workload
from tilewright.search.autotvm.task.task import args_to_workload, template
from tilewright.te.schedule import Schedule
from tilewright.te.tensor import ComputeOp, Tensor

Function = Callable[..., Any]
_COMPUTES: Final[dict[str, Function]] = {}
"""The registered computations by task, filled while modules are imported and by programs."""


def register_topi_compute(task_name: str, func: Function | None = None) -> Function:
    """Register `func(cfg, *args)` as the computation of a task, and return the same function of `args`; without `func`,
    a decorator."""

    def register(f: Function) -> Function:
        @functools.wraps(f)
        def call(*args: Any) -> Any:
            workload = args_to_workload(args, task_name)
            made = f(DispatchContext.current.query(Target.current(), workload), *args)
            for t in _listed(made):
                if isinstance(t.op, ComputeOp):
                    t.op.attrs["workload"] = workload
            return made

        _COMPUTES[task_name] = call
        return call

    return register if func is None else register(func)


def register_topi_schedule(task_name: str, func: Function | None = None) -> Function:
    """Register `func(cfg, outs)` as the schedule of a task, and return the same function of `outs`; without `func`, a
    decorator.

    The returned function raises `OptionError` for tensors that the registered computation did not make.
    """

    def register(f: Function) -> Function:
        @functools.wraps(f)
        def call(outs: Tensor | Sequence[Tensor]) -> Schedule:
            workload = get_workload(_listed(outs), task_name)
            schedule: Schedule = f(DispatchContext.current.query(Target.current(), workload), outs)
            return schedule

        @functools.wraps(f)
        def made(*args: Any) -> tuple[Schedule, list[Tensor]]:
            outs = _listed(_COMPUTES[task_name](*args))
            return call(outs), [*(t for a in args for t in _listed(a) if isinstance(t, Tensor)), *outs]

        template(task_name, made)
        return call

    return register if func is None else register(func)


def get_workload(outs: Sequence[Tensor], task_name: str | None = None) -> Workload:
    """Return the workload of the task that computed `outs`. Raises `OptionError` if none did."""
    workload = workload_of(outs, task_name)
    if workload is None:
        names = ", ".join(t.name for t in outs)
        raise OptionError(
            f"the task '{task_name}' did not compute {names}; call its function from register_topi_compute first",
            code="TW1105")
    return workload


def _listed(x: Any) -> list[Any]:
    return list(x) if isinstance(x, (list, tuple)) else [x]
