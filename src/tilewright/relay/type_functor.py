"""TVM's visitor classes of types: `TypeFunctor`, `TypeVisitor`, `TypeMutator`.

A subclass overrides `visit_tensor_type`, `visit_tuple_type`, … and visits inner types with `self.visit`.
"""

from __future__ import annotations

from typing import Any, Final

from tilewright.base.types import (
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeRelation,
    TypeVar,
    type_children,
    with_type_children,
)
from tilewright.relay.adt import TypeData

_METHODS: Final[dict[type, str]] = {
    FuncType: "visit_func_type", GlobalTypeVar: "visit_global_type_var", RefType: "visit_ref_type",
    IncompleteType: "visit_incomplete_type", TensorType: "visit_tensor_type",
    TupleType: "visit_tuple_type", TypeCall: "visit_type_call", TypeData: "visit_type_data", TypeVar: "visit_type_var",
    TypeRelation: "visit_type_relation",
}


class TypeFunctor:
    """Dispatches on the kind of type. Raises `NotImplementedError` for a kind without a method."""

    def visit(self, typ: Any) -> Any:
        """Return the result for a type."""
        name = _METHODS.get(type(typ), "")
        method = getattr(self, name, None)
        if method is None:
            raise NotImplementedError(
                f"{type(self).__name__} has no method {name or 'for types of this kind'} to visit a "
                f"{type(typ).__name__}"
            )
        return method(typ)


class TypeVisitor(TypeFunctor):
    """Visits a type and its inner types."""

    def visit_type_var(self, tv: TypeVar) -> None:
        """Visit a type variable; like a tensor and the name of a data type, it has no inner types."""

    visit_global_type_var = visit_tensor_type = visit_incomplete_type = visit_type_var

    def visit_tuple_type(self, tt: Type) -> None:
        for t in type_children(tt):
            self.visit(t)

    visit_ref_type = visit_type_relation = visit_tuple_type

    def visit_func_type(self, ft: FuncType) -> None:
        for t in (*ft.type_params, *ft.arg_types, ft.ret_type, *ft.type_constraints):
            self.visit(t)

    def visit_type_call(self, tc: TypeCall) -> None:
        for t in (tc.func, *tc.args):
            self.visit(t)

    def visit_type_data(self, td: TypeData) -> None:
        for t in (td.header, *td.type_vars, *(i for c in td.constructors for i in c.inputs)):
            self.visit(t)


class TypeMutator(TypeFunctor):
    """Rewrites a type: each method returns the replacement of its type."""

    def visit_type_var(self, tv: TypeVar) -> Type:
        return tv

    visit_global_type_var = visit_tensor_type = visit_incomplete_type = visit_type_data = visit_type_var

    def visit_tuple_type(self, tt: Type) -> Type:
        return with_type_children(tt, [self.visit(t) for t in type_children(tt)])

    visit_ref_type = visit_type_relation = visit_tuple_type

    def visit_func_type(self, ft: FuncType) -> Type:
        return FuncType([self.visit(t) for t in ft.arg_types], self.visit(ft.ret_type),
                        [self.visit(t) for t in ft.type_params], [self.visit(t) for t in ft.type_constraints])

    def visit_type_call(self, tc: TypeCall) -> Type:
        return TypeCall(self.visit(tc.func), [self.visit(t) for t in tc.args])
