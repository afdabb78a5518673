"""The loop language, its schedules, and the builder that writes it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from tilewright.expr import floordiv as indexdiv
from tilewright.expr import floormod as indexmod

if TYPE_CHECKING:
    from tilewright.tir import ir_builder

_MODULES: Final = frozenset({"ir_builder"})


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"tilewright.tir.{name}")
    raise AttributeError(f"module 'tilewright.tir' has no attribute '{name}'")


__all__ = ["indexdiv", "indexmod", "ir_builder"]
