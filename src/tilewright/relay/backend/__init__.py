"""Relay execution and the choice of operator implementations, under TVM's names."""

from __future__ import annotations

import importlib
from typing import Any

from tilewright.relay.backend import interpreter
from tilewright.relay.backend.executors import Executor, Runtime


def __getattr__(name: str) -> Any:
    if name in ("aot", "executor_factory", "name_transforms", "te_compiler", "utils", "vm"):
        return importlib.import_module(f"tilewright.relay.backend.{name}")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'", name=name)


__all__ = ["Executor", "Runtime", "interpreter"]
