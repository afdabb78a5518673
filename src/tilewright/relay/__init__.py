"""Relay: the graphs of models. Expressions, types, and every operator as a function: `relay.add`, `relay.nn.conv2d`.

`relay.transform`, `relay.analysis`, `relay.frontend` and `relay.build` are imported when they are first used.
"""

from __future__ import annotations

import importlib
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tilewright.base.params import load_param_dict, save_param_dict
from tilewright.base.types import (
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeKind,
    TypeRelation,
    TypeVar,
    scalar_type,
)
from tilewright.ir.source import SequentialSpan, SourceName, Span
from tilewright.ir.transform import PassContext
from tilewright.relay import image, linalg, nn, op, qnn, random, special, vision
from tilewright.relay.adt import (
    Clause,
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    TypeData,
)
from tilewright.relay.compose import (
    arange,
    gather,
    logsumexp,
    matrix_set_diag,
    mean_std,
    mean_variance,
    reverse_reshape,
    segment_sum,
    sparse_to_dense,
    std,
    stft,
    strided_slice,
    unravel_index,
    variance,
)
from tilewright.relay.expr import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
    var,
)
from tilewright.relay.expr import script_const as const
from tilewright.relay.fields import TupleWrapper
from tilewright.relay.functor import ExprFunctor, ExprMutator, ExprVisitor
from tilewright.relay.op import annotation
from tilewright.relay.op.registry import operator_names, public_function
from tilewright.relay.printer import astext
from tilewright.relay.scope_builder import ScopeBuilder, bind
from tilewright.relay.type_functor import TypeFunctor, TypeMutator, TypeVisitor
from tilewright.scalar.expr import UnknownDim as Any

if TYPE_CHECKING:
    from tilewright.compiler import vm
    from tilewright.compiler.build import build
    from tilewright.compiler.build import optimize_module as optimize
    from tilewright.compiler.executor import create_executor
    from tilewright.ir.transform import PassContext as build_config
    from tilewright.relay import (
        adt,
        analysis,
        backend,
        build_module,
        collage,
        data_dep_optimization,
        dataflow_pattern,
        expr,
        expr_functor,
        frontend,
        function,
        loops,
        prelude,
        quantize,
        scope_builder,
        testing,
        transform,
        ty,
        type_functor,
    )
    from tilewright.relay.parser import fromtext, parse, parse_expr
    from tilewright.relay.prelude import Prelude
    from tilewright.relay.transform.spans import SpanCheck

_MODULES: Final = frozenset({
    "adt", "analysis", "backend", "build_module", "collage", "data_dep_optimization", "dataflow_pattern", "expr",
    "expr_functor", "frontend", "function", "loops", "parser", "prelude", "quantize", "scope_builder", "testing",
    "transform",
    "ty", "type_functor",
})

__all__ = [
    "Any", "Call", "Clause", "Constant", "Constructor", "Expr", "ExprFunctor", "ExprMutator", "ExprVisitor",
    "FuncType", "Function", "GlobalTypeVar", "GlobalVar", "If", "IncompleteType", "Let", "Match", "Pattern",
    "PatternConstructor", "PatternTuple", "PatternVar", "PatternWildcard", "Prelude", "RefCreate", "RefRead",
    "RefType", "RefWrite", "ScopeBuilder", "SequentialSpan", "SourceName", "Span", "SpanCheck", "TensorType",
    "Tuple", "TupleGetItem", "TupleType", "TupleWrapper", "Type", "TypeCall", "TypeData", "TypeFunctor",
    "TypeKind", "TypeMutator", "TypeRelation", "TypeVar", "TypeVisitor", "Var", "adt",
    "analysis", "annotation", "arange", "astext", "backend",
    "bind", "build", "build_config", "build_module", "collage", "const", "create_executor", "data_dep_optimization",
    "dataflow_pattern", "expr", "expr_functor", "fromtext", "frontend", "function", "gather", "image", "linalg",
    "load_param_dict", "logsumexp", "loops", "matrix_set_diag", "mean_std", "mean_variance", "nn", "op", "optimize",
    "parse", "parse_expr", "prelude", "qnn", "quantize", "random", "reverse_reshape", "save_param_dict",
    "scalar_type", "scope_builder", "segment_sum", "sparse_to_dense", "special", "std", "stft", "strided_slice",
    "testing", "transform", "ty", "type_functor", "unravel_index", "var", "variance", "vision", "vm",
]


def __getattr__(name: str) -> Callable[..., Call]:
    """Return the function of an operator; what else is imported late is declared above."""
    found: Callable[..., Call] = _late(name) or public_function(name, __name__)
    return found


def _late(name: str) -> typing.Any:
    """Return a module or a function that is imported at its first use; None for other names."""
    if name in _MODULES:
        return importlib.import_module(f"tilewright.relay.{name}")
    if name == "vm":
        from tilewright.compiler import vm

        return vm
    if name == "SpanCheck":
        from tilewright.relay.transform.spans import SpanCheck

        return SpanCheck
    if name == "build_config":
        return PassContext
    if name == "create_executor":
        from tilewright.compiler.executor import create_executor

        return create_executor
    if name == "optimize":
        from tilewright.compiler.build import optimize_module

        return optimize_module
    if name == "build":
        from tilewright.compiler.build import build

        return build
    if name in ("fromtext", "parse", "parse_expr"):
        from tilewright.relay import parser

        return getattr(parser, name)
    if name == "Prelude":
        from tilewright.relay.prelude import Prelude

        return Prelude
    return None


def __dir__() -> list[str]:
    return [*__all__, *operator_names("")]
