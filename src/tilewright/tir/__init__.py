"""The loop language TIR: programs, their printer and parser, schedules, the IR builder, and TVM's names of nodes."""

from __future__ import annotations

import functools
import importlib
import typing
from typing import TYPE_CHECKING, Final

from tilewright.scalar.expr import UnknownDim as Any

if TYPE_CHECKING:
    from tilewright.base.errors import ScheduleError
    from tilewright.scalar.buffer_region import BufferRegion
    from tilewright.scalar.expr import (
        EQ,
        GE,
        GT,
        LE,
        LT,
        NE,
        Add,
        And,
        Broadcast,
        Buffer,
        Call,
        Cast,
        Div,
        FloatImm,
        FloorDiv,
        FloorMod,
        IntImm,
        Max,
        Min,
        Mul,
        Not,
        Or,
        PrimExpr,
        Ramp,
        Select,
        Sub,
        Var,
        add,
        if_then_else,
    )
    from tilewright.scalar.expr import EQ as EqualOp
    from tilewright.scalar.expr import NE as NotEqualOp
    from tilewright.scalar.expr import Load as BufferLoad
    from tilewright.scalar.expr import TruncMod as Mod
    from tilewright.scalar.expr import Var as SizeVar
    from tilewright.scalar.expr import literal as const
    from tilewright.scalar.expr import mul as multiply
    from tilewright.scalar.expr import sub as subtract
    from tilewright.scalar.intrinsics import (
        acos,
        acosh,
        address_of,
        asin,
        asinh,
        atan,
        atanh,
        call_extern,
        call_llvm_intrin,
        call_llvm_pure_intrin,
        call_pure_extern,
        ceil,
        cos,
        cosh,
        erf,
        exp,
        exp2,
        floor,
        fma,
        fmod,
        isinf,
        isnan,
        log,
        log2,
        nearbyint,
        pow,
        ret,
        rsqrt,
        sigmoid,
        sin,
        sinh,
        sqrt,
        tan,
        tanh,
        trunc,
    )
    from tilewright.scalar.intrinsics import fabs as abs
    from tilewright.scalar.intrinsics import nearbyint as round
    from tilewright.scalar.intrinsics import pow as power
    from tilewright.te.tensor import Reduce, comm_reducer, max, max_value, min, min_value, sum
    from tilewright.tir import analysis, ir_builder, stmt_functor, transform
    from tilewright.tir.block_scope import BlockDependenceInfo, BlockScope, Dependency, DepKind, StmtSRef
    from tilewright.tir.buffers import decl_buffer
    from tilewright.tir.data_layout import BijectiveLayout, Layout, bijective_layout, layout
    from tilewright.tir.functions import (
        Let,
        all,
        any,
        atan2,
        bitwise_and,
        bitwise_not,
        bitwise_or,
        bitwise_xor,
        call_intrin,
        ceildiv,
        clz,
        copysign,
        div,
        exp10,
        floordiv,
        floormod,
        hypot,
        infinity,
        isfinite,
        ldexp,
        likely,
        log1p,
        log10,
        nextafter,
        popcount,
        q_multiply_shift,
        q_multiply_shift_per_axis,
        reinterpret,
        shift_left,
        shift_right,
        stmt_list,
        stmt_seq,
        truncdiv,
        truncmod,
    )
    from tilewright.tir.functions import floordiv as indexdiv
    from tilewright.tir.functions import floormod as indexmod
    from tilewright.tir.index_map import IndexMap
    from tilewright.tir.module_schedule import Schedule, Trace, replay
    from tilewright.tir.packed_calls import call_packed, trace
    from tilewright.tir.parser import parse, parse_module
    from tilewright.tir.schedule_state import ScheduleState
    from tilewright.tir.stmt import (
        Allocate,
        AllocateConst,
        AssertStmt,
        AttrStmt,
        Block,
        BlockRealize,
        BufferStore,
        Evaluate,
        For,
        ForKind,
        IfThenElse,
        IterVar,
        LetStmt,
        PrimFunc,
        ProducerRealize,
        SeqStmt,
        Stmt,
        While,
    )
    from tilewright.tir.tensorize import TensorIntrin
    from tilewright.tir.transform.lower_blocks import lower_blocks
    from tilewright.tir.transform.pipeline import lower_loops

StringImm = str
"""String attributes are Python strings, where TVM has a node class."""

_MODULES: Final = frozenset({
    "analysis", "ir_builder", "schedule", "stmt_functor", "tensor_intrin", "transform", "usmp"})
_MEMBERS: Final = {
    "errors": ("ScheduleError",),
    "expr": (
        "Add", "And", "Broadcast", "Buffer", "Call", "Cast", "Div", "EQ", "FloatImm", "FloorDiv", "FloorMod", "GE",
        "GT", "IntImm", "LE", "LT", "Max", "Min", "Mul", "NE", "Not", "Or", "PrimExpr", "Ramp", "Select", "Sub", "Var",
        "add", "if_then_else"),
    "te": ("abs", "const", "max", "max_value", "min", "min_value", "power", "round", "sum"),
    "te.tensor": ("Reduce", "comm_reducer"),
    "scalar.intrinsics": (
        "acos", "acosh", "address_of", "asin", "asinh", "atan", "atanh", "call_extern", "call_llvm_intrin",
        "call_llvm_pure_intrin", "call_pure_extern", "ceil",
        "cos", "cosh", "erf", "exp", "exp2", "floor", "fma", "fmod", "isinf", "isnan", "log", "log2", "nearbyint",
        "pow", "ret", "rsqrt", "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh", "trunc"),
    "tir.block_regions": ("BufferRegion",),
    "tir.block_scope": ("BlockDependenceInfo", "BlockScope", "DepKind", "Dependency", "StmtSRef"),
    "tir.buffers": ("decl_buffer",),
    "tir.data_layout": ("BijectiveLayout", "Layout", "bijective_layout", "layout"),
    "tir.functions": (
        "Let", "all", "any", "atan2", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "call_intrin",
        "ceildiv", "clz", "copysign", "div", "exp10", "floordiv", "floormod", "hypot", "infinity", "isfinite",
        "ldexp", "likely", "log10", "log1p", "nextafter", "popcount", "q_multiply_shift",
        "q_multiply_shift_per_axis", "reinterpret", "shift_left", "shift_right", "stmt_list", "stmt_seq",
        "truncdiv", "truncmod"),
    "tir.index_map": ("IndexMap",),
    "tir.module_schedule": ("Schedule", "Trace", "replay"),
    "tir.packed_calls": ("call_packed", "trace"),
    "tir.parser": ("parse", "parse_module"),
    "tir.schedule_state": ("ScheduleState",),
    "tir.stmt": (
        "Allocate", "AllocateConst", "AssertStmt", "AttrStmt", "Block", "BlockRealize", "BufferStore", "Evaluate",
        "For", "ForKind", "IfThenElse", "IterVar", "LetStmt", "PrimFunc",
        "ProducerRealize", "SeqStmt", "Stmt", "While"),
    "tir.tensorize": ("TensorIntrin",),
    "tir.transform.lower_blocks": ("lower_blocks",),
    "tir.transform.pipeline": ("lower_loops",),
}
"""Module -> its members that have the same name here."""
_RENAMED: Final = {
    "BufferLoad": ("expr", "Load"), "EqualOp": ("expr", "EQ"),
    "NotEqualOp": ("expr", "NE"),
    "Mod": ("expr", "TruncMod"), "ProducerLoad": ("te.tensor", "TensorElem"), "SizeVar": ("expr", "Var"),
    "indexdiv": ("tir.functions", "floordiv"), "indexmod": ("tir.functions", "floormod"), "multiply": ("expr", "mul"),
    "subtract": ("expr", "sub"),
}
"""Public name -> its module, and its name there."""
_NAMES: Final = {**{name: (module, name) for module, names in _MEMBERS.items() for name in names}, **_RENAMED}


def __getattr__(name: str) -> typing.Any:
    if name in _MODULES:
        return importlib.import_module(f"tilewright.tir.{name}")
    if name in _NAMES:
        module, member = _NAMES[name]
        return getattr(importlib.import_module(f"tilewright.{module}"), member)
    intrinsics = importlib.import_module("tilewright.scalar.intrinsics")
    if name in intrinsics.OPAQUE:  # built-in functions for other devices, which are read but not compiled
        return functools.partial(intrinsics.call_opaque, name)
    raise AttributeError(f"module 'tilewright.tir' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__


__all__ = [
    "EQ",
    "GE",
    "GT",
    "LE",
    "LT",
    "NE",
    "Add",
    "Allocate",
    "AllocateConst",
    "And",
    "Any",
    "AssertStmt",
    "AttrStmt",
    "BijectiveLayout",
    "Block",
    "BlockDependenceInfo",
    "BlockRealize",
    "BlockScope",
    "Broadcast",
    "Buffer",
    "BufferLoad",
    "BufferRegion",
    "BufferStore",
    "Call",
    "Cast",
    "DepKind",
    "Dependency",
    "Div",
    "EqualOp",
    "Evaluate",
    "FloatImm",
    "FloorDiv",
    "FloorMod",
    "For",
    "ForKind",
    "IfThenElse",
    "IndexMap",
    "IntImm",
    "IterVar",
    "Layout",
    "Let",
    "LetStmt",
    "Max",
    "Min",
    "Mod",
    "Mul",
    "Not",
    "NotEqualOp",
    "Or",
    "PrimExpr",
    "PrimFunc",
    "ProducerLoad",
    "ProducerRealize",
    "Ramp",
    "Reduce",
    "Schedule",
    "ScheduleError",
    "ScheduleState",
    "Select",
    "SeqStmt",
    "SizeVar",
    "Stmt",
    "StmtSRef",
    "StringImm",
    "Sub",
    "TensorIntrin",
    "Trace",
    "Var",
    "While",
    "abs",
    "acos",
    "acosh",
    "add",
    "address_of",
    "all",
    "analysis",
    "any",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bijective_layout",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "call_extern",
    "call_intrin",
    "call_llvm_intrin",
    "call_llvm_pure_intrin",
    "call_packed",
    "call_pure_extern",
    "ceil",
    "ceildiv",
    "clz",
    "comm_reducer",
    "const",
    "copysign",
    "cos",
    "cosh",
    "decl_buffer",
    "div",
    "erf",
    "exp",
    "exp2",
    "exp10",
    "floor",
    "floordiv",
    "floormod",
    "fma",
    "fmod",
    "hypot",
    "if_then_else",
    "indexdiv",
    "indexmod",
    "infinity",
    "ir_builder",
    "isfinite",
    "isinf",
    "isnan",
    "layout",
    "ldexp",
    "likely",
    "log",
    "log1p",
    "log2",
    "log10",
    "lower_blocks",
    "lower_loops",
    "max",
    "max_value",
    "min",
    "min_value",
    "multiply",
    "nearbyint",
    "nextafter",
    "parse",
    "parse_module",
    "popcount",
    "pow",
    "power",
    "q_multiply_shift",
    "q_multiply_shift_per_axis",
    "reinterpret",
    "replay",
    "ret",
    "round",
    "rsqrt",
    "schedule",
    "shift_left",
    "shift_right",
    "sigmoid",
    "sin",
    "sinh",
    "sqrt",
    "stmt_functor",
    "stmt_list",
    "stmt_seq",
    "subtract",
    "sum",
    "tan",
    "tanh",
    "trace",
    "transform",
    "trunc",
    "truncdiv",
    "truncmod",
]
