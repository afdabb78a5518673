"""Relay execution and the choice of operator implementations, under TVM's names."""

from __future__ import annotations

import importlib
from typing import Any

from tilewright.relay.backend import interpreter


def __getattr__(name: str) -> Any:
    if name in ("te_compiler", "vm"):
        return importlib.import_module(f"tilewright.relay.backend.{name}")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'", name=name)


__all__ = ["interpreter"]
