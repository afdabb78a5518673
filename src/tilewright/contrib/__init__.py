"""Executors and plug-ins beside the core, each imported when it is first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

_MODULES: Final = frozenset({"debugger", "graph_executor"})

if TYPE_CHECKING:
    from tilewright.contrib import debugger, graph_executor

__all__ = ["debugger", "graph_executor"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"tilewright.contrib.{name}")
    raise AttributeError(f"module 'tilewright.contrib' has no attribute '{name}'")
