"""Bind every variable once.

    add((fn (%x) { %x })(%a), (fn (%x) { %x })(%b)), with the same %x -> the second function has another %x
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from tilewright.base.types import Type, substitute_type
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.adt import Clause, Match, Pattern, PatternConstructor, PatternTuple, PatternVar
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
)
from tilewright.relay.visitor import binders, operands, post_order, with_operands

NONE: Final[Mapping[Type, Type]] = {}
"""The empty substitution of types."""


@dataclass(frozen=True)
class DeDup(FunctionPass):
    """Rename variables that are bound in several places, so that each variable is bound once."""

    kind: ClassVar[type] = Function

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        bound: set[Var] = set()
        twice = False
        for e in post_order(function):
            for v in binders(e):
                twice = twice or v in bound
                bound.add(v)
        return _separate(function) if twice else function


def fresh_copy(expr: Expr, values: Mapping[Expr, Expr] | None = None, types: Mapping[Type, Type] | None = None) -> Expr:
    """Return a copy of `expr` that shares only constants and free variables with it.

    `values` replaces its free variables, and `types` its type variables.
    """
    new: dict[Expr, Expr] = dict(values or {})
    bound = types or {}
    order = post_order(expr)
    for e in order:
        for v in binders(e):
            new.setdefault(v, _again(v, bound))
    for e in order:
        if e not in new:
            new[e] = made = _copied(e, new, bound)
            if bound and made is not e and (known := e.known_type()) is not None:
                made.set_type(substitute_type(known, bound))
    return new[expr]


def _separate(function: Function) -> Function:
    """Give every later binder of a variable a new variable. Recursion occurs only for nested binders of one variable.
    """
    taken: set[Var] = set()
    new: dict[Expr, Expr] = {}
    for e in post_order(function):
        old = operands(e)
        now = [new.get(o, o) for o in old]
        rebuilt = e if all(a is b for a, b in zip(old, now, strict=True)) else with_operands(e, now)
        clash = [v for v in binders(e) if v in taken]
        taken.update(binders(e))
        new[e] = _rename(rebuilt, {v: _again(v, NONE) for v in clash}) if clash else rebuilt
    found = new[function]
    assert isinstance(found, Function)
    return found


def _rename(e: Expr, fresh: Mapping[Expr, Expr]) -> Expr:
    """Replace the variables that `e` binds; inner scopes that rebind a variable keep it."""
    new: dict[Expr, Expr] = dict(fresh)
    for x in post_order(e):
        if x not in new:
            old = operands(x)
            now = [new.get(o, o) for o in old]
            own = any(v in fresh for v in binders(x)) and x is e
            if own or any(a is not b for a, b in zip(old, now, strict=True)):
                new[x] = _rebound(x, now, new)
            else:
                new[x] = x
    return new[e]


def _again(v: Var, types: Mapping[Type, Type]) -> Var:
    known = v.known_type()
    new = Var(v.name_hint, None if v.type_annotation is None else substitute_type(v.type_annotation, types), v.span)
    new.set_type(None if known is None else substitute_type(known, types))
    return new


def _copied(e: Expr, new: Mapping[Expr, Expr], types: Mapping[Type, Type]) -> Expr:
    """Return a new node of the kind of `e` over the operands and variables in `new`."""
    now = [new.get(o, o) for o in operands(e)]
    match e:
        case Var() | GlobalVar() | Constant():
            return e
        case Let() | Function() | Match():
            return _rebound(e, now, new, types)
        case Call() | Tuple() | TupleGetItem() | If() | RefCreate() | RefRead() | RefWrite():
            return with_operands(e, now)
        case _:
            return e


def _rebound(e: Expr, now: list[Expr], new: Mapping[Expr, Expr], types: Mapping[Type, Type] = NONE) -> Expr:
    """Return the same node over other operands, with its bound variables replaced according to `new`."""
    match e:
        case Function():
            ret = e.declared_ret_type
            return Function([_var(p, new) for p in e.params], now[0], None if ret is None
                            else substitute_type(ret, types), e.type_params, e.attrs, e.span)
        case Let():
            return Let(_var(e.var, new), now[0], now[1], e.span)
        case Match():
            clauses = [Clause(rename_pattern(c.lhs, new), rhs) for c, rhs in zip(e.clauses, now[1:], strict=True)]
            return Match(now[0], tuple(clauses), e.complete, e.span)
        case _:
            return with_operands(e, now)


def _var(v: Var, new: Mapping[Expr, Expr]) -> Var:
    found = new.get(v, v)
    return found if isinstance(found, Var) else v


def rename_pattern(p: Pattern, new: Mapping[Expr, Expr]) -> Pattern:
    """Return a pattern with its variables replaced according to `new`."""
    match p:
        case PatternVar():
            return PatternVar(_var(p.var, new))
        case PatternTuple():
            return PatternTuple(tuple(rename_pattern(q, new) for q in p.patterns))
        case PatternConstructor():
            return PatternConstructor(p.constructor, tuple(rename_pattern(q, new) for q in p.patterns))
        case _:
            return p
