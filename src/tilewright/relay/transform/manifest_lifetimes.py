"""Write the end of each variable's lifetime into the program.

    let %y = add(%x, %x); let %z = exp(%y); %z
    -> let %y = add(%x, %x); let %_ = memory.kill(%x); let %z = exp(%y); let %_1 = memory.kill(%y); %z
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.adt import Clause, Match
from tilewright.relay.expr import Call, Expr, Function, If, Let, Var
from tilewright.relay.op.memory import MemoryKill
from tilewright.relay.visitor import free_vars, operands, post_order

_KERNEL = ("Primitive", "Compiler")
"""Attributes of functions that run as one kernel, so that their bodies have no lifetimes."""


@dataclass(frozen=True)
class ManifestLifetimes(FunctionPass):
    """Insert `memory.kill` after the last use of each parameter and each variable of a `let`. Run it after
    `ToANormalForm`, so that values have names.

    A variable that is used last in a branch is killed there. It is not killed in the other branches. A variable that is
    part of the result is not killed. A function does not kill the variables that it captures.
    Kills that are already in the program are replaced.
    """

    kind: ClassVar[type] = Function

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        uses = Counter(o for e in post_order(function) for o in operands(e))
        return _Scopes({e for e, n in uses.items() if n > 1}).function(function)


@dataclass(frozen=True)
class _Scopes:
    """Inserts the kills of one function of a module. `shared` are the nodes with several uses: they stay as they are,
    since each use may end other lifetimes."""

    shared: set[Expr]

    def function(self, function: Function) -> Function:
        if any(function.attrs.get(name) for name in _KERNEL):
            return function
        body = self.ended(function.body, function.params, ())
        return function if body is function.body else function.with_body(body)

    def ended(self, body: Expr, own: Iterable[Var], later: Container[Var]) -> Expr:
        """Return a chain of `let` with kills of the variables `own`, and of its own, that `later` does not contain."""
        chain: list[Let] = []
        tail = body
        while isinstance(tail, Let) and tail not in self.shared:
            chain.append(tail)
            tail = tail.body
        mortal = {v for v in own if v not in later} | {e.var for e in chain}
        live = set(free_vars(tail))
        new = self.inside(tail, mortal, ())
        for e in reversed(chain):
            if _is_kill(e.value) and e.var not in live:
                continue
            for v in reversed(_used(e.value)):
                if v in mortal and v not in live:
                    new = Let(Var("_"), MemoryKill()(v), new)
            value = self.inside(e.value, mortal, live)
            new = e if value is e.value and new is e.body else Let(e.var, value, new, e.span)
            live.update(free_vars(e.value))
        return new

    def inside(self, e: Expr, mortal: set[Var], later: Container[Var]) -> Expr:
        """Return a value with kills inside of its branches, or of its function."""
        if e in self.shared:
            return e
        if isinstance(e, Function):
            return self.function(e)
        return _with_branches(e, lambda body: self.ended(body, mortal, later))


def _is_kill(value: Expr) -> bool:
    return isinstance(value, Call) and isinstance(value.op, MemoryKill)


def _used(value: Expr) -> list[Var]:
    """Return the variables that a value uses outside of branches only, in order of first use."""
    branches = _branches(value)
    inside = {v for b in branches for v in free_vars(b)}
    return [v for v in free_vars(value) if v not in inside]


def _branches(e: Expr) -> tuple[Expr, ...]:
    if isinstance(e, If):
        return e.true_branch, e.false_branch
    return tuple(c.rhs for c in e.clauses) if isinstance(e, Match) else ()


def _with_branches(e: Expr, change: Callable[[Expr], Expr]) -> Expr:
    old = _branches(e)
    new = tuple(map(change, old))
    if all(a is b for a, b in zip(old, new, strict=True)):
        return e
    if isinstance(e, If):
        return If(e.cond, new[0], new[1], e.span)
    assert isinstance(e, Match)
    clauses = [Clause(c.lhs, rhs) for c, rhs in zip(e.clauses, new, strict=True)]
    return Match(e.data, clauses, e.complete, e.span)
