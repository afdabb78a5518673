"""Schedules for any machine: plain loops, which users can refine with further steps.

Each function takes the results of a computation, a tensor or a list of them, and returns a `te.Schedule` in which
intermediate elementwise values are inlined. The schedules for processors, with tiles and vectors, are in `topi.x86` and
`topi.arm_cpu`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright import te
from tilewright.te.schedule import Schedule
from tilewright.te.tensor import ComputeOp
from tilewright.topi.schedule_names import NAMES


def default_schedule(outs: te.Tensor | Sequence[te.Tensor], auto_inline: bool = True) -> Schedule:
    """Return a schedule with a loop nest for each computation of `outs`; with `auto_inline`, intermediate elementwise
    values are inlined."""
    s = te.create_schedule([t.op for t in ([outs] if isinstance(outs, te.Tensor) else outs)])
    for stage in s.stages if auto_inline else ():
        op = stage.op
        if isinstance(op, ComputeOp) and not stage.is_output and op.may_inline:
            stage.compute_inline()
    return s


def schedule_default(outs: te.Tensor | Sequence[te.Tensor], layout: str | None = None) -> Schedule:
    """Return a schedule with a loop nest for each computation, and intermediate elementwise values inlined. `layout` is
    an argument of TVM's `schedule_pool`, without effect."""
    return default_schedule(outs)


def schedule_extern(outs: te.Tensor | Sequence[te.Tensor]) -> Schedule:
    """Return a schedule with a loop nest for each computation, without inlining."""
    return default_schedule(outs, auto_inline=False)


def __getattr__(name: str) -> Callable[..., Schedule]:
    if name in NAMES:
        return schedule_default
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'", name=name)


def __dir__() -> list[str]:
    return __all__


__all__ = ["default_schedule", "schedule_default", "schedule_extern", *NAMES]  # noqa: PLE0604  they are strings
