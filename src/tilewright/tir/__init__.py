"""The loop language TIR: its programs, their printer and parser, schedules, and the IR builder."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from tilewright.scalar.expr import floordiv as indexdiv
from tilewright.scalar.expr import floormod as indexmod

if TYPE_CHECKING:
    from tilewright.scalar.expr import Buffer, FloatImm, IntImm, PrimExpr, Var, if_then_else
    from tilewright.scalar.expr import all_of as all
    from tilewright.scalar.expr import any_of as any
    from tilewright.scalar.expr import literal as const
    from tilewright.scalar.intrinsics import call_extern, call_pure_extern
    from tilewright.tir import analysis, ir_builder, transform
    from tilewright.tir.buffers import decl_buffer
    from tilewright.tir.data_layout import BijectiveLayout, Layout, bijective_layout, layout
    from tilewright.tir.index_map import IndexMap
    from tilewright.tir.module_schedule import Schedule, Trace, replay
    from tilewright.tir.parser import parse, parse_module
    from tilewright.tir.stmt import Block, For, IterVar, PrimFunc, Stmt
    from tilewright.tir.tensorize import TensorIntrin
    from tilewright.tir.transform.lower_blocks import lower_blocks
    from tilewright.tir.transform.pipeline import lower_loops

StringImm = str
"""String attributes are Python strings, where TVM has a node class."""

_MODULES: Final = frozenset({"analysis", "ir_builder", "transform"})
_NAMES: Final = {
    "Block": "tir.stmt", "Buffer": "expr", "FloatImm": "expr", "IntImm": "expr", "PrimExpr": "expr", "For": "tir.stmt",
    "IterVar": "tir.stmt", "PrimFunc": "tir.stmt", "Schedule": "tir.module_schedule",
    "Stmt": "tir.stmt", "Trace": "tir.module_schedule", "TensorIntrin": "tir.tensorize", "IndexMap": "tir.index_map",
    "Var": "expr", "lower_blocks": "tir.transform.lower_blocks",
    "lower_loops": "tir.transform.pipeline", "parse": "tir.parser", "parse_module": "tir.parser",
    "replay": "tir.module_schedule",
    "decl_buffer": "tir.buffers", "Layout": "tir.data_layout", "BijectiveLayout": "tir.data_layout",
    "layout": "tir.data_layout",
    "bijective_layout": "tir.data_layout", "call_extern": "scalar.intrinsics", "call_pure_extern": "scalar.intrinsics",
    "const": "te", "if_then_else": "scalar.expr", "all": "te", "any": "te",
}
"""Public name -> its module."""


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"tilewright.tir.{name}")
    if name in _NAMES:
        return getattr(importlib.import_module(f"tilewright.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'tilewright.tir' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__


__all__ = [
    "BijectiveLayout", "Block", "Buffer", "FloatImm", "For", "IndexMap", "IntImm", "IterVar", "Layout", "PrimExpr",
    "PrimFunc", "Schedule",
    "Stmt", "StringImm", "TensorIntrin", "Trace", "Var", "all", "analysis", "any", "bijective_layout", "call_extern",
    "call_pure_extern",
    "const", "decl_buffer", "if_then_else", "indexdiv", "indexmod", "ir_builder", "layout", "lower_blocks",
    "lower_loops", "parse",
    "parse_module", "replay", "transform",
]
