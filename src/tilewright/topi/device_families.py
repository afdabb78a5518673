"""TVM's computations and schedules for GPUs and other accelerators. Their names exist, since scripts list them in
tables by target; a call raises `ScheduleError` and names the alternative."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tilewright.base.errors import ScheduleError

FAMILIES: Final = frozenset({"adreno", "bifrost", "cuda", "gpu", "hexagon", "hls", "intel_graphics", "mali", "rocm"})


class Family:
    """A namespace such as `topi.cuda`: every public name exists, and raises `ScheduleError` when called."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(f"topi.{self.name} has no attribute '{name}'", name=name)
        is_schedule = name.startswith("schedule_")
        what = "binds loops to GPU threads" if is_schedule else "computes on a GPU"
        instead = (
            f"topi.x86.{name} or topi.arm_cpu.{name}, or topi.generic.{name} for plain loops" if is_schedule
            else "the function of topi or topi.nn, for all targets"
        )

        def refuse(*args: Any, **named: Any) -> Any:
            raise ScheduleError(
                f"topi.{self.name}.{name} {what}, but Tilewright generates code for CPUs; use {instead}"
            )

        refuse.__name__ = refuse.__qualname__ = name
        refuse.__doc__ = f"Raise `ScheduleError`: TVM's function {what}."
        return refuse

    def __repr__(self) -> str:
        return f"topi.{self.name}"
