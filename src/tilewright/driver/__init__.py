"""The command lines: `tilewright` (`main.py`), and TVM's `tvmc`, which is also a Python interface."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright import build, lower
    from tilewright.driver import build_module, tvmc

__all__ = ["build", "build_module", "lower", "tvmc"]


def __getattr__(name: str) -> Any:
    if name in ("build_module", "tvmc"):
        return importlib.import_module(f"tilewright.driver.{name}")
    if name in ("build", "lower"):
        return getattr(importlib.import_module("tilewright"), name)
    raise AttributeError(f"module 'tilewright.driver' has no attribute '{name}'")
