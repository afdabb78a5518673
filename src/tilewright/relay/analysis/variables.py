"""The variables and type variables of expressions, and a post-order visit of all nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tilewright.base.types import FuncType, Type, TypeVar, type_children
from tilewright.ir.module import IRModule
from tilewright.relay.adt import Pattern, pattern_vars
from tilewright.relay.expr import Expr, Function, GlobalVar, Var
from tilewright.relay.visitor import binders, post_order


def post_order_visit(expr: Expr, fvisit: Callable[[Expr], Any]) -> None:
    """Call `fvisit` once on every node below `expr`, operands before users, and parameters of a function before its
    body."""
    seen: set[Expr] = set()
    for e in post_order(expr):
        for x in (*(binders(e) if isinstance(e, Function) else ()), e):
            if x not in seen:
                seen.add(x)
                fvisit(x)


def bound_vars(expr: Expr | Pattern) -> list[Var]:
    """Return the variables that `expr`, an expression or a pattern, binds."""
    if isinstance(expr, Pattern):
        return list(pattern_vars(expr))
    return list(dict.fromkeys(v for e in post_order(expr) for v in binders(e)))


def all_vars(expr: Expr) -> list[Var]:
    """Return all variables of `expr`, bound or free."""
    return list(dict.fromkeys(v for e in post_order(expr) for v in (*binders(e), e) if isinstance(v, Var)))


def all_type_vars(expr: Expr | Type, mod: IRModule | None = None) -> list[TypeVar]:
    """Return all type variables written in `expr`, an expression or a type."""
    return list(dict.fromkeys(v for v, _ in _type_vars(expr)))


def bound_type_vars(expr: Expr | Type, mod: IRModule | None = None) -> list[TypeVar]:
    """Return the type variables bound by functions inside `expr`, or by function types inside a type."""
    return list(dict.fromkeys(v for v, bound in _type_vars(expr) if bound))


def free_type_vars(expr: Expr | Type, mod: IRModule | None = None) -> list[TypeVar]:
    """Return the type variables that nothing inside `expr`, an expression or a type, binds."""
    bound = set(bound_type_vars(expr))
    return [v for v in all_type_vars(expr) if v not in bound]


def _type_vars(what: Expr | Type) -> Iterator[tuple[TypeVar, bool]]:
    """Yield the type variables of a node's written types, and whether the node binds them."""
    if isinstance(what, Type):
        yield from _of_type(what)
        return
    for e in post_order(what):
        for v in binders(e):
            if v.type_annotation is not None:
                yield from _of_type(v.type_annotation)
        if isinstance(e, Function):
            yield from ((v, True) for v in e.type_params)
            if e.declared_ret_type is not None:
                yield from _of_type(e.declared_ret_type)
        elif isinstance(e, Var) and e.type_annotation is not None:
            yield from _of_type(e.type_annotation)


def _of_type(t: Type) -> Iterator[tuple[TypeVar, bool]]:
    if isinstance(t, TypeVar):
        yield t, False
    if isinstance(t, FuncType):
        yield from ((v, True) for v in t.type_params)
    for c in type_children(t):
        yield from _of_type(c)


def called_functions(expr: Expr) -> list[GlobalVar]:
    """Return the names of functions in `expr`, in order of first use."""
    return [e for e in post_order(expr) if isinstance(e, GlobalVar)]


