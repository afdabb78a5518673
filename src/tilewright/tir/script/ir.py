"""`I`, for writing modules in Python: `from tilewright.script import ir as I`, then `@I.ir_module` on a class."""

from __future__ import annotations

from typing import Any

from tilewright.ir.module import IRModule
from tilewright.tir.stmt import PrimFunc


def ir_module(cls: type) -> IRModule:
    """Return a class of `@T.prim_func` functions as a module."""
    found: dict[str, Any] = {name: f for name, f in vars(cls).items() if isinstance(f, PrimFunc)}
    return IRModule(found)


__all__ = ["ir_module"]
