"""Schedules for processors: register tiles, vectors, cores.

Each function takes the results of a computation, a tensor or a list of them, and returns a `te.Schedule` that arranges
all loops when it is built. Convolutions and products get register tiles, windows slide in lanes of channels, and rows
are reduced in vectors. The function's name does not matter: the computation determines its schedule.

Compute and schedule inside `with tvm.target.Target(…):`, since tiles depend on the vectors of that machine, and build
for it. Raises `ScheduleError` for several anchors: convolutions, products or reductions with separate schedules.

The computations of TVM's `topi.x86` are those of `topi.nn`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te
from tilewright.base.errors import ScheduleError
from tilewright.te.schedule import Schedule
from tilewright.te.tensor import ComputeOp, Operation
from tilewright.topi.algorithms import arrange
from tilewright.topi.processor_names import X86, computation
from tilewright.topi.schedule_names import NAMES


def schedule_anchor(outs: te.Tensor | Sequence[te.Tensor], layout: str | None = None) -> Schedule:
    """Return the schedule for the anchor of the computation; for elementwise computations, vectors over all axes.
    `layout` is an argument of TVM's `schedule_pool`, without effect: the computation determines the schedule."""
    ops = list(dict.fromkeys(t.op for t in ([outs] if isinstance(outs, te.Tensor) else outs)))
    _check_one_anchor(ops)
    return Schedule(ops, arrange)


def _check_one_anchor(outputs: Sequence[Operation]) -> None:
    """Raises `ScheduleError` when the computations behind `outputs` have anchors that no one schedule arranges
    together."""
    anchors: dict[object, ComputeOp] = {}
    stack, seen = list(outputs), set(outputs)
    while stack:
        op = stack.pop()
        if isinstance(op, ComputeOp) and op.schedule is not None:
            anchors.setdefault(op.schedule, op)
        for t in op.inputs:
            if t.op not in seen:
                seen.add(t.op)
                stack.append(t.op)
    if len(anchors) > 1:
        names = " and ".join(f"'{op.name}'" for op in reversed(anchors.values()))
        raise ScheduleError(
            f"{names} each have their own schedule, but a kernel has one; build one function for each, or use "
            "topi.generic.schedule_default, which gives them plain loops"
        )


schedule_extern = schedule_anchor


def __getattr__(name: str) -> Callable[..., Any]:
    found = schedule_anchor if name in NAMES else computation(X86, name)
    if found is not None:
        return found
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'", name=name)


def __dir__() -> list[str]:
    return __all__


__all__ = ["schedule_anchor", "schedule_extern", *NAMES, *X86]  # noqa: PLE0604  they are strings
