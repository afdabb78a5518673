"""Checks that a module is well formed: variables are bound once and used in scope, called functions exist, types are
known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tilewright.base.errors import CompileError, TVMError
from tilewright.base.types import GlobalTypeVar, Type, TypeCall, type_children
from tilewright.ir.module import IRModule
from tilewright.relay.adt import Constructor, Match, Pattern, PatternConstructor, pattern_children
from tilewright.relay.analysis.variable_scopes import check_variable_scopes
from tilewright.relay.expr import Expr, Function, GlobalVar
from tilewright.relay.visitor import binders, free_vars, post_order


def check_well_formed(what: Any) -> None:
    """Raise `CompileError` for the first fault of a module or a function. In other expressions, only check that no
    variable is bound twice."""
    if isinstance(what, Expr) and not isinstance(what, Function):
        _check_bound_once("the expression", post_order(what))
    functions = dict(what.items()) if isinstance(what, IRModule) else {"the function": what}
    for name, function in functions.items():
        if isinstance(function, Function):
            if isinstance(what, IRModule):
                _check(f"'{name}'", function, functions)
                _check_data_types(f"'{name}'", function, what)
            else:
                _check(name, function, None)


def _check(name: str, function: Function, functions: dict[str, Any] | None) -> None:
    for v in free_vars(function):
        raise CompileError(f"{name} uses the variable '{v.name_hint}', which is not bound", v.span, code="TW0402")
    order = post_order(function)
    _check_bound_once(name, order)
    check_variable_scopes(name, function)
    for e in order:
        if isinstance(e, GlobalVar):
            if functions is not None and e.name_hint not in functions:
                raise CompileError(f"{name} calls @{e.name_hint}, which is not in the module", e.span, code="TW0402")
        elif e.known_type() is None:
            raise CompileError(f"in {name} the type of a {type(e).__name__} is not known", e.span, code="TW0402")


def _check_bound_once(name: str, order: Iterable[Expr]) -> None:
    bound: set[Expr] = set()
    for e in order:
        for v in binders(e):
            if v in bound:
                raise CompileError(f"in {name} the variable '{v.name_hint}' is bound twice", v.span, code="TW0402")
            bound.add(v)


def _check_data_types(name: str, function: Function, mod: IRModule) -> None:
    """Check that the module defines every constructor in calls and patterns, and every data type in annotations."""
    for e in post_order(function):
        made = [e] if isinstance(e, Constructor) else [c for k in e.clauses
            for c in _constructors(k.lhs)] if isinstance(e, Match) else []
        for c in made:
            data = mod.type_definitions.get(c.belong_to)
            if data is None:
                raise CompileError(f"{name} uses {c.name_hint} of the data type {c.belong_to}, "
                                   "which is not in the module", e.span, code="TW0402")
            if not any(c is known for known in data.constructors):
                raise CompileError(f"{name} uses a {c.name_hint} that is not the constructor of the data type "
                                   f"{c.belong_to} of the module", e.span, code="TW0402")
        for v in binders(e):
            for header in _headers(v.type_annotation):
                if header not in mod.type_definitions:
                    raise CompileError(f"in {name} the variable '{v.name_hint}' is of the data type {header}, which "
                                       "is not in the module", v.span, code="TW0402")


def _constructors(p: Pattern) -> Iterator[Constructor]:
    if isinstance(p, PatternConstructor):
        yield p.constructor
    for q in pattern_children(p):
        yield from _constructors(q)


def _headers(t: Type | None) -> Iterator[GlobalTypeVar]:
    """Yield the data types in a type."""
    if isinstance(t, TypeCall):
        yield t.func
    for c in type_children(t) if t is not None else ():
        yield from _headers(c)


def well_formed(what: Any) -> bool:
    """Return whether `check_well_formed` finds no fault."""
    try:
        check_well_formed(what)
    except TVMError:
        return False
    return True
