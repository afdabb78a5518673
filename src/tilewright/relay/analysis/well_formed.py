"""Is a module well formed: every variable bound once and used where it is bound, every called function there, every type known."""

from __future__ import annotations

from typing import Any

from tilewright.errors import CompileError, TVMError
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Expr, Function, GlobalVar
from tilewright.relay.visitor import binders, free_vars, post_order


def check_well_formed(what: Any) -> None:
    """Raises `CompileError` naming the first fault of a module or a function."""
    functions = dict(what.items()) if isinstance(what, IRModule) else {"the function": what}
    for name, function in functions.items():
        if isinstance(function, Function):
            _check(name, function, functions if isinstance(what, IRModule) else None)


def _check(name: str, function: Function, functions: dict[str, Any] | None) -> None:
    for v in free_vars(function):
        raise CompileError(f"'{name}' uses the variable '{v.name_hint}', which nothing binds", v.span)
    bound: set[Expr] = set()
    for e in post_order(function):
        if isinstance(e, GlobalVar):
            if functions is not None and e.name_hint not in functions:
                raise CompileError(f"'{name}' calls @{e.name_hint}, which is not in the module", e.span)
            continue
        if e.known_type() is None:
            raise CompileError(f"in '{name}' the type of a {type(e).__name__} is not known", e.span)
        for v in binders(e):
            if v in bound:
                raise CompileError(f"in '{name}' the variable '{v.name_hint}' is bound twice", v.span)
            bound.add(v)


def well_formed(what: Any) -> bool:
    """True when `check_well_formed` finds no fault."""
    try:
        check_well_formed(what)
    except TVMError:
        return False
    return True
