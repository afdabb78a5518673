"""The parts that all programs share: modules, types, structural equality and hashing, JSON, the pass runner.

Expressions belong to a dialect, `tilewright.relay` or `tilewright.tir`. The expressions that TVM also has here
(`GlobalVar`, `Op`, `RelayExpr`), and JSON, which depends on all dialects, are imported at first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from tilewright.base.types import (
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    PointerType,
    PrimType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeKind,
    TypeRelation,
    TypeVar,
)
from tilewright.ir import container, diagnostics, instrument, transform
from tilewright.ir.affine_type import TensorAffineType, TupleAffineType
from tilewright.ir.container import Array, Map
from tilewright.ir.env_func import EnvFunc
from tilewright.ir.memory_pools import (
    ConstantMemoryPools,
    ConstantPoolInfo,
    PoolInfo,
    PoolInfoProperties,
    WorkspaceMemoryPools,
    WorkspacePoolInfo,
)
from tilewright.ir.module import IRModule
from tilewright.ir.op_attributes import register_op_attr, reset_op_attr
from tilewright.ir.source import SequentialSpan, SourceName, Span
from tilewright.ir.structural import assert_structural_equal, structural_equal, structural_hash
from tilewright.ir.structural_path import get_first_structural_mismatch
from tilewright.scalar.expr import FloatImm, IntImm, PrimExpr
from tilewright.scalar.range import Range

if TYPE_CHECKING:
    from tilewright.relay.adt import Constructor, TypeData
    from tilewright.relay.expr import Expr as RelayExpr
    from tilewright.relay.expr import GlobalVar
    from tilewright.relay.fields import make_node
    from tilewright.relay.op.registry import Op
    from tilewright.relay.serialization import load_json, save_json

_LATE: Final = {
    "Constructor": ("relay.adt", "Constructor"), "GlobalVar": ("relay.expr", "GlobalVar"),
    "Op": ("relay.op.registry", "Op"), "RelayExpr": ("relay.expr", "Expr"),
    "TypeData": ("relay.adt", "TypeData"), "load_json": ("serialization", "load_json"),
    "make_node": ("relay.fields", "make_node"), "save_json": ("serialization", "save_json"),
}
"""Name -> its module, and its name there."""

RelayRefType = RefType

__all__ = [
    "Array", "ConstantMemoryPools", "ConstantPoolInfo", "Constructor", "EnvFunc", "FloatImm", "FuncType",
    "GlobalTypeVar", "GlobalVar", "IRModule", "IncompleteType", "IntImm", "Map", "Op", "PointerType", "PoolInfo",
    "PoolInfoProperties",
    "PrimExpr", "PrimType", "Range", "RefType", "RelayExpr", "RelayRefType", "SequentialSpan", "SourceName", "Span",
    "TensorAffineType", "TensorType", "TupleAffineType", "TupleType", "Type", "TypeCall", "TypeData", "TypeKind",
    "TypeRelation", "TypeVar", "WorkspaceMemoryPools", "WorkspacePoolInfo", "assert_structural_equal", "container",
    "diagnostics", "get_first_structural_mismatch", "instrument", "load_json", "make_node", "register_op_attr",
    "reset_op_attr", "save_json", "structural_equal", "structural_hash", "transform",
]


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module 'tilewright.ir' has no attribute '{name}'")
    module, attribute = _LATE[name]
    return getattr(importlib.import_module(f"tilewright.{module}"), attribute)


def __dir__() -> list[str]:
    return __all__
