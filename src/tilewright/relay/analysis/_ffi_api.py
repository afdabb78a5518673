"""Functions of `relay.analysis` that TVM registers without a Python wrapper.

    solver = _test_type_solver()                 the solver of `InferType`, for types that are not those of a program
    solver("Unify")(a, b)                        two types with holes (`IncompleteType`) made equal
    solver("AddConstraint")(relation)            a `TypeRelation`: its function maps the types, except the last, to that
    solver("Solve")(), solver("Resolve")(t)      whether all relations hold, and a type with the found ones in it
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.base.errors import CompileError, OptionError
from tilewright.base.types import (
    FuncType,
    IncompleteType,
    Type,
    TypeRelation,
    TypeVar,
    type_children,
    with_type_children,
)
from tilewright.relay.transform.type_solver import Hole, Solver


class TypeSolver:
    """Unification of types, and relations between them. `solver(name)` is a method under TVM's name."""

    def __init__(self) -> None:
        self.solver = Solver()
        self.holes: dict[IncompleteType, Hole] = {}
        self.names: dict[Hole, IncompleteType] = {}
        self.open: list[TypeRelation] = []

    def __call__(self, name: str) -> Callable[..., Any]:
        methods: dict[str, Callable[..., Any]] = {
            "AddConstraint": self.add_constraint, "Resolve": self.resolve, "Solve": self.solve, "Unify": self.unify}
        if name not in methods:
            raise OptionError(f"a type solver has no method '{name}'; it has {', '.join(methods)}", code="TW0213")
        return methods[name]

    def unify(self, a: Type, b: Type) -> Type:
        """Make two types equal, and return the result. Raises `CompileError` if that is impossible.

        Functions with different numbers of type parameters get new ones, for the types that remain free.
        """
        left, right = self._inside(a), self._inside(b)
        generic = isinstance(left, FuncType) and isinstance(right, FuncType) and len(left.type_params) != len(
            right.type_params)
        if generic and isinstance(left, FuncType) and isinstance(right, FuncType):
            left, right = self.solver.instantiate(left), self.solver.instantiate(right)
        if not self.solver.unify(left, right):
            raise CompileError(f"the types {a!r} and {b!r} cannot be made equal", code="TW0301")
        found = self._outside(left)
        return self._generalized(found, left) if generic and isinstance(found, FuncType) else found

    def add_constraint(self, relation: TypeRelation) -> None:
        """Add a relation, which `solve` checks."""
        self.open.append(relation.with_args([self._inside(t) for t in relation.args]))

    def solve(self) -> bool:
        """Apply relations until nothing changes; return whether all of them hold. Raises `CompileError` for types that
        contradict one."""
        before = -1
        while before != len(self.open):
            before = len(self.open)
            self.open = [r for r in self.open if not self._applied(r)]
        return not self.open

    def resolve(self, t: Type) -> Type:
        """Return a type with the holes that are known replaced."""
        return self._outside(self._inside(t))

    def _applied(self, relation: TypeRelation) -> bool:
        """Give the last type of a relation the type that its function computes from the others; return False if it
        cannot do so with the holes that these have."""
        *inputs, result = map(self.solver.expand, relation.args)
        try:
            found = relation.func(inputs, relation.attrs)
        except CompileError:
            if any(self.solver.hole_in(t) is not None for t in inputs):
                return False
            raise
        if not self.solver.unify(result, found):
            raise CompileError(
                f"{relation!r} gives the type {found!r}, which cannot be made equal to {result!r}", code="TW0301")
        return True

    def _inside(self, t: Type) -> Type:
        """Return a type with the holes of the solver."""
        if isinstance(t, IncompleteType):
            if t not in self.holes:
                hole = self.holes[t] = Hole()
                self.names[hole] = t
            return self.holes[t]
        old = type_children(t)
        new = [self._inside(c) for c in old]
        return t if all(a is b for a, b in zip(old, new, strict=True)) else with_type_children(t, new)

    def _outside(self, t: Type) -> Type:
        """Return a type with the holes that a caller knows."""
        t = self.solver.resolve(t)
        if isinstance(t, Hole):
            return self.names.setdefault(t, IncompleteType())
        old = type_children(t)
        new = [self._outside(c) for c in old]
        return t if all(a is b for a, b in zip(old, new, strict=True)) else with_type_children(t, new)

    def _generalized(self, t: FuncType, inner: Type) -> FuncType:
        """Return a function type whose free holes are type parameters, as far as no caller knows them."""
        free: dict[IncompleteType, TypeVar] = {}

        def visit(x: Type) -> Type:
            if isinstance(x, IncompleteType) and x not in self.holes:
                return free.setdefault(x, TypeVar(f"t{len(free)}"))
            old = type_children(x)
            return with_type_children(x, [visit(c) for c in old]) if old else x

        made = visit(t)
        assert isinstance(made, FuncType)
        return FuncType(made.arg_types, made.ret_type, [*made.type_params, *free.values()])


def _test_type_solver() -> TypeSolver:
    """Return a new solver."""
    return TypeSolver()


__all__ = ["_test_type_solver"]
