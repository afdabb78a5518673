"""Schedules for Arm processors: those of `topi.x86`, which depend on the target's machine, not on its name. The
computations of TVM's `topi.arm_cpu` are those of `topi.nn`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.topi.processor_names import ARM, computation
from tilewright.topi.schedule_names import NAMES
from tilewright.topi.x86 import schedule_anchor, schedule_extern


def __getattr__(name: str) -> Callable[..., Any]:
    found = schedule_anchor if name in NAMES else computation(ARM, name)
    if found is not None:
        return found
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'", name=name)


def __dir__() -> list[str]:
    return __all__


__all__ = ["schedule_anchor", "schedule_extern", *NAMES, *ARM]  # noqa: PLE0604  they are strings
