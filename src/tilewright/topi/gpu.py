"""TVM's schedules for GPUs and other accelerators; a call raises `ScheduleError` and names the alternative."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tilewright.base.errors import ScheduleError

FAMILIES: Final = frozenset({"adreno", "bifrost", "cuda", "gpu", "hexagon", "hls", "intel_graphics", "mali", "rocm"})


class Family:
    """A namespace such as `topi.cuda`: every name `schedule_…` exists, and raises `ScheduleError` when called."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name.startswith("schedule_"):
            raise AttributeError(
                f"topi.{self.name} has no '{name}': computations are in topi and topi.nn, for all targets", name=name
            )

        def refuse(*args: Any, **named: Any) -> Any:
            raise ScheduleError(
                f"topi.{self.name}.{name} binds loops to GPU threads, but Tilewright generates code for CPUs; use "
                f"topi.x86.{name} or topi.arm_cpu.{name}, or topi.generic.{name} for plain loops"
            )

        return refuse

    def __repr__(self) -> str:
        return f"topi.{self.name}"
