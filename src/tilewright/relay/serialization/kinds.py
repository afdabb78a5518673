"""The serializable node classes by name, with the fields that construct a node and the type of each field.

For dataclasses these follow from the class; other classes are listed. A new kind of node is one entry in `_DATACLASSES`
or `_LISTED`.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import numpy as np

from tilewright.base.errors import Origin, ParseError
from tilewright.base.types import (
    DataType,
    FuncType,
    GlobalTypeVar,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeKind,
    TypeVar,
)
from tilewright.relay import adt
from tilewright.relay import expr as graph
from tilewright.relay.op.registry import Op
from tilewright.scalar import expr as scalar
from tilewright.tir import stmt

Dim = int | scalar.PrimExpr
Scalars = tuple[scalar.PrimExpr, ...]
Span = Origin | None


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of node: its class, and for each constructor argument the attribute with its value and the permitted type.
    """

    name: str
    cls: type
    fields: Mapping[str, tuple[str, Any]]
    build: Callable[..., Any]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Values of the fields that are written only if their values differ from these."""

    def values(self, x: Any) -> dict[str, Any]:
        """Return the constructor arguments of `x` that differ from the defaults."""
        found = {name: getattr(x, attribute) for name, (attribute, _) in self.fields.items()}
        return {n: v for n, v in found.items() if n not in self.defaults or v != self.defaults[n]}


def _constructor(
    name_hint: str, inputs: Sequence[Type], belong_to: GlobalTypeVar, span: Span, tag: int, type_vars: Sequence[TypeVar]
) -> adt.Constructor:
    made = adt.Constructor(name_hint, inputs, belong_to, span)
    if tag >= 0:
        made.tag, made.type_vars = tag, tuple(type_vars)
        made.set_type(FuncType(made.inputs, TypeCall(belong_to, made.type_vars), made.type_vars))
    return made


def _type_kind(kind: int) -> TypeKind:
    if kind not in list(TypeKind):
        raise ParseError(f"{kind} is not the kind of a type; kinds are 0 to {max(TypeKind).value}", code="TW0406")
    return TypeKind(kind)


def _type_variable(name_hint: str, kind: int = TypeKind.Type) -> TypeVar:
    return TypeVar(name_hint, _type_kind(kind))


def _type_name(name_hint: str, kind: int = TypeKind.AdtHandle) -> GlobalTypeVar:
    return GlobalTypeVar(name_hint, _type_kind(kind))


def _intrinsic_call(dtype: DataType, op: scalar.Intrinsic, args: Scalars) -> scalar.PrimExpr:
    return scalar.Call(dtype, op, args)


_DATACLASSES: Final[dict[str, tuple[type, ...]]] = {
    "relay": (
        graph.Var, graph.GlobalVar, graph.Constant, graph.Tuple, graph.TupleGetItem, graph.If, graph.Let,
        graph.RefCreate, graph.RefRead, graph.RefWrite,
        adt.PatternWildcard, adt.PatternVar, adt.PatternTuple, adt.PatternConstructor, adt.Clause, adt.Match,
        adt.TypeData, RefType,
    ),
    "tir": (
        stmt.For, stmt.IfThenElse, stmt.Store, stmt.Seq, stmt.Allocate, stmt.Evaluate, stmt.IterVar, stmt.Reducer,
        stmt.Block, stmt.PrimFunc,
    ),
}
_BINARY: Final = (
    scalar.Add, scalar.Sub, scalar.Mul, scalar.Div, scalar.FloorDiv, scalar.FloorMod, scalar.TruncDiv, scalar.TruncMod,
    scalar.Min, scalar.Max,
    scalar.EQ, scalar.NE, scalar.LT, scalar.LE, scalar.GT, scalar.GE, scalar.And, scalar.Or,
)
_LISTED: Final[tuple[tuple[str, type, dict[str, Any]], ...]] = (
    ("relay.Call", graph.Call, {
        "op": Op | graph.Expr, "args": tuple[graph.Expr, ...], "attrs": dict[str, Any] | None, "span": Span,
    }),
    ("relay.Function", graph.Function, {
        "params": tuple[graph.Var, ...], "body": graph.Expr, "ret_type": Type | None,
        "type_params": tuple[TypeVar, ...], "attrs": dict[str, Any], "span": Span,
    }),
    ("relay.Constructor", adt.Constructor, {
        "name_hint": str, "inputs": tuple[Type, ...], "belong_to": GlobalTypeVar, "span": Span, "tag": int,
        "type_vars": tuple[TypeVar, ...],
    }),
    ("relay.TensorType", TensorType, {"shape": tuple[Dim, ...], "dtype": DataType}),
    ("relay.TupleType", TupleType, {"fields": tuple[Type, ...]}),
    ("relay.FuncType", FuncType, {"arg_types": tuple[Type, ...], "ret_type": Type, "type_params": tuple[TypeVar, ...]}),
    ("relay.TypeVar", TypeVar, {"name_hint": str, "kind": int}),
    ("relay.GlobalTypeVar", GlobalTypeVar, {"name_hint": str, "kind": int}),
    ("relay.TypeCall", TypeCall, {"func": GlobalTypeVar, "args": tuple[Type, ...]}),
    ("tir.Var", scalar.Var, {"name": str, "dtype": DataType}),
    ("tir.Any", scalar.UnknownDim, {}),
    (
        "tir.Buffer", scalar.Buffer,
        {"name": str, "shape": tuple[Dim, ...], "dtype": DataType, "scope": str, "strides": tuple[Dim, ...]}
    ),
    ("tir.IntImm", scalar.IntImm, {"dtype": DataType, "value": int}),
    ("tir.FloatImm", scalar.FloatImm, {"dtype": DataType, "value": float}),
    *((f"tir.{c.__name__}", c, {"a": scalar.PrimExpr, "b": scalar.PrimExpr}) for c in _BINARY),
    ("tir.Not", scalar.Not, {"a": scalar.PrimExpr}),
    ("tir.Cast", scalar.Cast, {"dtype": DataType, "value": scalar.PrimExpr}),
    (
        "tir.Select", scalar.Select,
        {"condition": scalar.PrimExpr, "true_value": scalar.PrimExpr, "false_value": scalar.PrimExpr}
    ),
    ("tir.Call", scalar.Call, {"dtype": DataType, "op": scalar.Intrinsic, "args": Scalars}),
    ("tir.Load", scalar.Load, {"buffer": scalar.Buffer, "indices": Scalars}),
    ("tir.Ramp", scalar.Ramp, {"base": scalar.PrimExpr, "stride": scalar.PrimExpr, "lanes": int}),
    ("tir.Broadcast", scalar.Broadcast, {"value": scalar.PrimExpr, "lanes": int}),
    ("tir.LetStmt", stmt.Let, {"var": scalar.Var, "value": scalar.PrimExpr, "body": stmt.Stmt}),
)
_ATTRIBUTE: Final = {("relay.Function", "ret_type"): "_declared", ("relay.Call", "attrs"): "own_attrs"}
_BUILD: Final[dict[str, Callable[..., Any]]] = {
    "relay.Constructor": _constructor, "relay.GlobalTypeVar": _type_name, "relay.TypeVar": _type_variable,
}
_DEFAULTS: Final[dict[str, dict[str, Any]]] = {
    "relay.Call": {"attrs": None}, "relay.Var": {"virtual_device": None},
    "relay.GlobalTypeVar": {"kind": TypeKind.AdtHandle}, "relay.TypeVar": {"kind": TypeKind.Type},
}
MAXIMUM_LANES: Final = 1 << 16


def _tables() -> tuple[dict[str, Kind], dict[type, Kind]]:
    kinds = []
    for room, classes in _DATACLASSES.items():
        for cls in classes:
            hints = typing.get_type_hints(cls)
            fields = {f.name: (f.name, hints[f.name]) for f in dataclasses.fields(cls)}
            name = f"{room}.{cls.__name__}"
            kinds.append(Kind(name, cls, fields, cls, _DEFAULTS.get(name, {})))
    for name, cls, holds in _LISTED:
        fields = {n: (_ATTRIBUTE.get((name, n), n), hint) for n, hint in holds.items()}
        kinds.append(Kind(name, cls, fields, _BUILD.get(name, cls), _DEFAULTS.get(name, {})))
    return {k.name: k for k in kinds}, {k.cls: k for k in kinds}


@cache
def kinds_by_name() -> dict[str, Kind]:
    """Return the kinds by the name used in texts."""
    return _tables()[0]


@cache
def kinds_by_class() -> dict[type, Kind]:
    """Return the kinds by node class."""
    return {k.cls: k for k in kinds_by_name().values()}


def fits(value: Any, hint: Any) -> bool:
    """Return whether a value, including every element of a container, has the type of an annotation."""
    if hint is Any:
        return True
    origin = typing.get_origin(hint)
    if origin is None:
        if hint is None or hint is type(None):
            return value is None
        return isinstance(value, hint) and not (hint is int and isinstance(value, bool))
    inner = typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return any(fits(value, h) for h in inner)
    if origin is tuple:
        return isinstance(value, tuple) and all(fits(v, inner[0]) for v in value)
    if origin is dict:
        return isinstance(value, dict) and all(isinstance(k, inner[0]) for k in value)
    return isinstance(value, np.ndarray if origin is np.ndarray else origin)


def hint_text(hint: Any) -> str:
    """Return an annotation in words, for messages."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(map(hint_text, inner))
    if origin is tuple:
        return f"a list of {hint_text(inner[0])}"
    if hint is None or hint is type(None):
        return "null"
    return getattr(origin or hint, "__name__", str(hint))
