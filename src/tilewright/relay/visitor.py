"""Iterative walks and rewriting of Relay graphs, which may be thousands of calls deep.

Every walk visits each node once, operands before users. The operand of a function is its body. A walk that starts at a
function visits its body; with `inside=False`, it skips the bodies of called functions. TVM's visitor classes are in
`relay/functor.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, Final

from tilewright.base.errors import InternalError
from tilewright.base.graphs import reachable
from tilewright.base.type_matching import bind_types
from tilewright.relay.adt import Clause, Match, pattern_vars
from tilewright.relay.expr import Call, Expr, Function, If, Let, RefCreate, RefRead, RefWrite, Tuple, TupleGetItem, Var

Rule = Callable[[Expr], "Expr | None"]


def _call_operands(e: Call) -> tuple[Expr, ...]:
    return (e.op, *e.args) if isinstance(e.op, Expr) else e.args


_OPERANDS: Final[dict[type, Callable[[Any], tuple[Expr, ...]]]] = {
    Call: _call_operands,
    Tuple: lambda e: e.fields,
    TupleGetItem: lambda e: (e.tuple_value,),
    Function: lambda e: (e.body,),
    If: lambda e: (e.cond, e.true_branch, e.false_branch),
    Let: lambda e: (e.value, e.body),
    RefCreate: lambda e: (e.value,),
    RefRead: lambda e: (e.ref,),
    RefWrite: lambda e: (e.ref, e.value),
    Match: lambda e: (e.data, *(c.rhs for c in e.clauses)),
}


def operands(e: Expr) -> tuple[Expr, ...]:
    """Return the direct operands of `e`, without the variables that it binds."""
    get = _OPERANDS.get(type(e))
    return get(e) if get is not None else ()


def with_operands(e: Expr, new: Sequence[Expr]) -> Expr:
    """Return the same kind of node over other operands; the type of a call is inferred again."""
    match e:
        case Call():
            return (Call(new[0], new[1:], e.own_attrs, span=e.span) if isinstance(e.op, Expr)
                    else Call(e.op, new, span=e.span))
        case Tuple():
            return Tuple(tuple(new), e.span)
        case TupleGetItem():
            return TupleGetItem(new[0], e.index, e.span)
        case Function():
            return e.with_body(new[0])
        case If():
            return If(new[0], new[1], new[2], e.span)
        case Let():
            return Let(e.var, new[0], new[1], e.span)
        case RefCreate():
            return RefCreate(new[0], e.span)
        case RefRead():
            return RefRead(new[0], e.span)
        case RefWrite():
            return RefWrite(new[0], new[1], e.span)
        case Match():
            clauses = [Clause(c.lhs, rhs) for c, rhs in zip(e.clauses, new[1:], strict=True)]
            return Match(new[0], tuple(clauses), e.complete, e.span)
        case _:
            return e


def post_order(*roots: Expr, inside: bool = True, without: Iterable[Expr] = ()) -> list[Expr]:
    """Return every node below `roots`, operands before users; `inside`: whether to visit the bodies of called
    functions.

    Nodes of `without`, and nodes below them only, are skipped.
    """
    order: list[Expr] = []
    seen: set[Expr] = set(without)
    stack: list[tuple[Expr, bool]] = [(r, False) for r in reversed(roots)]
    while stack:
        e, done = stack.pop()
        if done:
            order.append(e)
            continue
        if e in seen:
            continue
        seen.add(e)
        below: tuple[Expr, ...] = e.args if not inside and isinstance(e, Call) else operands(e)
        if not below:
            order.append(e)
            continue
        stack.append((e, True))
        stack.extend((o, False) for o in reversed(below) if o not in seen)
    return order


def calls(root: Expr, *, inside: bool = True) -> list[Call]:
    """Return the calls below `root`, operands before users."""
    return [e for e in post_order(root, inside=inside) if isinstance(e, Call)]


def consumers(order: Sequence[Expr]) -> dict[Expr, list[Expr]]:
    """Return the users of every node of a walk; a user that uses a value twice is listed twice."""
    users: dict[Expr, list[Expr]] = {e: [] for e in order}
    for e in order:
        for o in operands(e):
            if o in users:
                users[o].append(e)
    return users


def binders(e: Expr) -> tuple[Var, ...]:
    """Return the variables that the node `e` itself binds."""
    match e:
        case Function():
            return e.params
        case Let():
            return (e.var,)
        case Match():
            return tuple(v for c in e.clauses for v in pattern_vars(c.lhs))
        case _:
            return ()


def free_vars(root: Expr) -> list[Var]:
    """Return the unbound variables below `root`, in order of first use."""
    return [v for v in free_values(root, ()) if isinstance(v, Var)]


def free_values(root: Expr, outside: Container[Expr]) -> list[Expr]:
    """Return the free variables of `root`, and the values among `outside` that it uses, in order of first use."""
    bound: set[Expr] = set()
    found: list[Expr] = []

    def is_value(e: Expr) -> bool:
        return isinstance(e, Var) or e in outside

    for e in reachable([root], lambda e: () if is_value(e) else reversed(operands(e))):
        if is_value(e):
            found.append(e)
        else:
            bound.update(binders(e))
    return [e for e in found if e not in bound] if bound else found


def rewrite(
    root: Expr, rule: Rule, *, inside: bool = False, memo: dict[Expr, Expr] | None = None, origin: dict[Expr, Expr]
    | None = None
) -> Expr:
    """Rewrite bottom up: `rule` receives each node over its new operands and returns its replacement, or None to keep
    it.

    Unchanged nodes are kept. A replacement must have the type of the original, or more known dimensions; otherwise
    `InternalError`. `origin` receives the old node of each new one.
    """
    new = {} if memo is None else memo
    for e in post_order(root, inside=inside):
        if e in new:
            continue
        old = operands(e)
        rebuilt = e
        if old:
            now = [new.get(o, o) for o in old]
            if any(a is not b for a, b in zip(old, now, strict=True)):
                rebuilt = with_operands(e, now)
                if origin is not None:
                    origin[rebuilt] = e
        replaced = rule(rebuilt)
        if replaced is not None and replaced is not rebuilt:
            _check_type(rebuilt, replaced, rule)
            rebuilt = replaced
            if origin is not None:
                origin.setdefault(rebuilt, e)
        new[e] = rebuilt
    return new[root]


def _check_type(old: Expr, new: Expr, rule: Rule) -> None:
    before, after = old.known_type(), new.known_type()
    if before is not None and after is not None and before != after and not bind_types(before, after, frozenset(), {}):
        name = getattr(rule, "__qualname__", repr(rule))
        raise InternalError(f"the rule {name} replaced a value of type {before!r} by one of type {after!r}, at "
                            f"{old.span or type(old).__name__}")


def substitute(root: Expr, mapping: dict[Expr, Expr]) -> Expr:
    """Replace nodes (usually variables) by `mapping`; replacements are not searched."""
    if not mapping:
        return root
    return rewrite(root, lambda e: None, inside=True, memo=dict(mapping))
