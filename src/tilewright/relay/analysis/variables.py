"""The variables and type variables of expressions, and a post-order visit of all nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tilewright.base.types import FuncType, Type, TypeVar, type_children
from tilewright.ir.module import IRModule
from tilewright.relay.adt import Match, Pattern, pattern_vars
from tilewright.relay.expr import Expr, Function, GlobalVar, Var
from tilewright.relay.visitor import binders, operands, post_order


def post_order_visit(expr: Expr, fvisit: Callable[[Expr], Any]) -> None:
    """Call `fvisit` once on every node below `expr`, operands before users, and parameters of a function before its
    body."""
    seen: set[Expr] = set()
    stack: list[tuple[Expr, bool]] = [(expr, False)]
    while stack:
        e, done = stack.pop()
        if done:
            fvisit(e)
        elif e not in seen:
            seen.add(e)
            below = (*(binders(e) if isinstance(e, Function) else ()), *operands(e))
            stack.append((e, True))
            stack.extend((o, False) for o in reversed(below))


def bound_vars(expr: Expr | Pattern) -> list[Var]:
    """Return the variables that `expr`, an expression or a pattern, binds, from the outside in."""
    if isinstance(expr, Pattern):
        return list(pattern_vars(expr))
    return list(dict.fromkeys(v for v, binds in _variables(expr) if binds))


def all_vars(expr: Expr) -> list[Var]:
    """Return all variables of `expr`, bound or free, from the outside in."""
    return list(dict.fromkeys(v for v, _ in _variables(expr)))


def _variables(expr: Expr) -> Iterator[tuple[Var, bool]]:
    """Yield the variables of `expr`, and whether this is where they are bound, in the order of its text."""
    seen: set[Expr] = set()
    work: list[Expr | Pattern] = [expr]
    while work:
        e = work.pop()
        if isinstance(e, Pattern):
            yield from ((v, True) for v in pattern_vars(e))
        elif e not in seen:
            seen.add(e)
            if isinstance(e, Match):
                work.extend(reversed([e.data, *(part for c in e.clauses for part in (c.lhs, c.rhs))]))
                continue
            yield from ((v, True) for v in binders(e))
            if isinstance(e, Var):
                yield e, False
            work.extend(reversed(operands(e)))


def _pre_order(expr: Expr) -> Iterator[Expr]:
    """Yield every node below `expr` once, users before operands."""
    seen: set[Expr] = set()
    work = [expr]
    while work:
        e = work.pop()
        if e not in seen:
            seen.add(e)
            yield e
            work.extend(reversed(operands(e)))


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
    for e in _pre_order(what):
        if isinstance(e, Function):
            yield from ((v, True) for v in e.type_params)
        for v in binders(e):
            if v.type_annotation is not None:
                yield from _of_type(v.type_annotation)
        if isinstance(e, Function):
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


