"""The command lines: `tilewright` (`main.py`), and TVM's `tvmc`, which is also a Python interface."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.driver import tvmc

__all__ = ["tvmc"]


def __getattr__(name: str) -> Any:
    if name == "tvmc":
        return importlib.import_module("tilewright.driver.tvmc")
    raise AttributeError(f"module 'tilewright.driver' has no attribute '{name}'")
