"""`check_kind`: the kind of a type, after checking the kinds of the types inside it."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.base.errors import CompileError
from tilewright.base.types import (
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    TupleType,
    Type,
    TypeCall,
    TypeKind,
    TypeRelation,
    TypeVar,
)
from tilewright.ir.module import IRModule
from tilewright.relay.adt import TypeData


def check_kind(t: Type | TypeData, mod: IRModule | None = None) -> TypeKind:
    """Return the kind of a type. `mod` has the definitions of data types, whose numbers of type arguments are checked.

    Raises `CompileError` if a type inside `t` has a kind that is not allowed there, such as a shape as the field of a
    tuple.
    """
    match t:
        case TypeVar() | GlobalTypeVar() | IncompleteType():
            return t.kind
        case TypeData():
            _check_definition(t, mod)
            return TypeKind.TypeData
        case TypeRelation():
            _expect(t.args, TypeKind.Type, t, mod)
            return TypeKind.Constraint
        case TypeCall():
            _check_call(t, mod)
        case FuncType():
            _expect([*t.type_params, *t.arg_types, t.ret_type], TypeKind.Type, t, mod)
            _expect(t.type_constraints, TypeKind.Constraint, t, mod)
        case TupleType():
            _expect(t.fields, TypeKind.Type, t, mod)
        case RefType():
            _expect([t.value], TypeKind.Type, t, mod)
    return TypeKind.Type


def _expect(parts: Sequence[Type | TypeData], wanted: TypeKind, whole: Type | TypeData, mod: IRModule | None) -> None:
    for part in parts:
        kind = check_kind(part, mod)
        if kind is not wanted:
            raise CompileError(
                f"the type {part!r} inside {whole!r} has the kind {kind.name}, and only {wanted.name} is allowed there",
                code="TW0402")


def _check_call(t: TypeCall, mod: IRModule | None) -> None:
    _expect([t.func], TypeKind.AdtHandle, t, mod)
    _expect(t.args, TypeKind.Type, t, mod)
    data = mod.type_definitions.get(t.func) if mod is not None else None
    if data is not None and len(data.type_vars) != len(t.args):
        raise CompileError(
            f"{t!r} has {len(t.args)} type arguments, but the data type {t.func!r} takes {len(data.type_vars)}",
            code="TW0402")


def _check_definition(t: TypeData, mod: IRModule | None) -> None:
    _expect([t.header], TypeKind.AdtHandle, t, mod)
    _expect(t.type_vars, TypeKind.Type, t, mod)
    for constructor in t.constructors:
        _expect(constructor.inputs, TypeKind.Type, t, mod)
