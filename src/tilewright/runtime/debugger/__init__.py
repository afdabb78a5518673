"""`debug_executor`: an executor that shows intermediate values and the times of steps."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.runtime.debugger import debug_executor

__all__ = ["debug_executor"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return importlib.import_module(f"tilewright.runtime.debugger.{name}")
    raise AttributeError(f"module 'tilewright.runtime.debugger' has no attribute '{name}'")
