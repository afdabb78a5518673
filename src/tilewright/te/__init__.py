"""Tensor expressions (`placeholder`, `compute`, reductions, `scan`, `extern`, `hybrid`) and their schedules
(`create_schedule`)."""

import importlib
from typing import TYPE_CHECKING, Any

from tilewright.scalar.expr import add, floordiv, floormod, truncdiv, truncmod
from tilewright.scalar.expr import all_of as all
from tilewright.scalar.expr import any_of as any
from tilewright.scalar.expr import div as div
from tilewright.scalar.expr import floordiv as indexdiv
from tilewright.scalar.expr import floormod as indexmod
from tilewright.scalar.expr import literal as const
from tilewright.scalar.expr import mul as multiply
from tilewright.scalar.expr import sub as subtract
from tilewright.scalar.intrinsics import (
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atanh,
    call_extern,
    call_pure_extern,
    ceil,
    cos,
    cosh,
    erf,
    exp,
    floor,
    fma,
    fmod,
    isinf,
    isnan,
    log,
    log2,
    nearbyint,
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
from tilewright.te.create import tensors_as_prim_func as create_prim_func
from tilewright.te.extern import ExternOp, extern, extern_primfunc
from tilewright.te.gradient import gradient
from tilewright.te.scan import ScanOp, scan
from tilewright.te.schedule import Schedule, create_schedule
from tilewright.te.specialized import SpecializedCondition
from tilewright.te.stage import Stage
from tilewright.te.tag import tag_scope
from tilewright.te.tensor import (
    Combiner,
    ComputeOp,
    Operation,
    PlaceholderOp,
    Reduce,
    Tensor,
    TensorElem,
    TensorSlice,
    comm_reducer,
    compute,
    if_then_else,
    max,
    max_value,
    min,
    min_value,
    placeholder,
    prod,
    reduce_axis,
    size_var,
    sum,
    var,
)
from tilewright.te.tensor_intrin import decl_tensor_intrin
from tilewright.te.thread import ThreadAxis, thread_axis
from tilewright.tir.functions import isfinite, log10, popcount
from tilewright.tir.index_map import AXIS_SEPARATOR
from tilewright.tir.packed_calls import trace
from tilewright.tir.tensorize import TensorIntrin

__all__ = [
    "AXIS_SEPARATOR",
    "Combiner",
    "ComputeOp",
    "ExternOp",
    "Operation",
    "PlaceholderOp",
    "Reduce",
    "ScanOp",
    "Schedule",
    "SpecializedCondition",
    "Stage",
    "Tensor",
    "TensorElem",
    "TensorIntrin",
    "TensorSlice",
    "ThreadAxis",
    "abs",
    "acos",
    "acosh",
    "add",
    "all",
    "any",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "call_extern",
    "call_pure_extern",
    "ceil",
    "comm_reducer",
    "compute",
    "const",
    "cos",
    "cosh",
    "create_prim_func",
    "create_schedule",
    "decl_tensor_intrin",
    "div",
    "erf",
    "exp",
    "extern",
    "extern_primfunc",
    "floor",
    "floordiv",
    "floormod",
    "fma",
    "fmod",
    "gradient",
    "hybrid",
    "if_then_else",
    "indexdiv",
    "indexmod",
    "isfinite",
    "isinf",
    "isnan",
    "log",
    "log2",
    "log10",
    "max",
    "max_value",
    "min",
    "min_value",
    "multiply",
    "nearbyint",
    "placeholder",
    "popcount",
    "power",
    "prod",
    "reduce_axis",
    "round",
    "rsqrt",
    "scan",
    "sigmoid",
    "sin",
    "sinh",
    "size_var",
    "sqrt",
    "subtract",
    "sum",
    "tag_scope",
    "tan",
    "tanh",
    "thread_axis",
    "trace",
    "trunc",
    "truncdiv",
    "truncmod",
    "var",
]

if TYPE_CHECKING:
    from tilewright.te import hybrid


def __getattr__(name: str) -> Any:
    """Return the module `hybrid`, which is imported at its first use. Raises `AttributeError` for other names."""
    if name != "hybrid":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.hybrid")
