"""Relay execution and the choice of operator implementations, under TVM's names."""

from __future__ import annotations

import importlib
from typing import Any

from tilewright.relay.backend import interpreter


def __getattr__(name: str) -> Any:
    if name == "te_compiler":
        return importlib.import_module("tilewright.relay.backend.te_compiler")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'", name=name)


__all__ = ["interpreter"]
