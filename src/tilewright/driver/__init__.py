"""The command lines: `tilewright` (`main.py`), and TVM's `tvmc`, which is also a Python interface."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright import build, lower
    from tilewright.driver import tvmc

__all__ = ["build", "lower", "tvmc"]


def __getattr__(name: str) -> Any:
    if name == "tvmc":
        return importlib.import_module("tilewright.driver.tvmc")
    if name in ("build", "lower"):
        return getattr(importlib.import_module("tilewright"), name)
    raise AttributeError(f"module 'tilewright.driver' has no attribute '{name}'")
