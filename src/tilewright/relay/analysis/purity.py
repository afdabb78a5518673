"""Side effects of evaluating a value; they determine whether passes may move, drop or repeat it.

References are the only mutable state of programs; ends of lifetimes keep their place, too. A function value with an
unknown body may have any effect, unless the program has no references and draws no random numbers. Nontermination is
not an effect.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from tilewright.ir.module import IRModule
from tilewright.relay.adt import Constructor
from tilewright.relay.expr import Call, Expr, Function, GlobalVar, Let, RefCreate, RefRead, RefWrite, Var
from tilewright.relay.visitor import operands, post_order


class Effect(enum.IntEnum):
    """Kinds of side effects; a larger one includes the smaller."""

    NONE = 0  # can be moved, repeated, merged and dropped
    READ = 1  # can be dropped: creating or reading a reference, drawing a random number
    WRITE = 2  # must be kept in order: writing a reference, ending a lifetime


class Effects:
    """The effects of the values of a program: of `what`, and of the functions of `mod` that it may call."""

    def __init__(self, what: Expr | None = None, mod: IRModule | None = None) -> None:
        self._functions: dict[str, Any] = {}
        self._order = [] if what is None else self._reached(what, mod)
        self._deep: dict[Expr, Effect] = {}
        self._values: dict[Expr, Expr] = {}
        if any(_own(e) for e in self._order):
            self._values = {e.var: e.value for e in self._order if isinstance(e, Let)}
            while self._round():
                pass

    @property
    def free(self) -> bool:
        """Whether nothing in the program has side effects."""
        return not self._deep

    def _reached(self, what: Expr, mod: IRModule | None) -> list[Expr]:
        """Return the nodes of `what` and of the functions that it may call, operands before users."""
        order, at, seen = post_order(what), 0, {what}
        while at < len(order):
            e = order[at]
            at += 1
            if isinstance(e, GlobalVar) and mod is not None and e in mod and isinstance(f := mod[e], Function):
                self._functions[e.name_hint] = f
                if f not in seen:
                    seen.add(f)
                    order += post_order(f)
        return order

    def of(self, e: Expr) -> Effect:
        """Return the effect of evaluating `e` and its operands."""
        return self._deep.get(e, Effect.NONE)

    def own(self, e: Expr) -> Effect:
        """Return the effect of evaluating `e` when its operands are available."""
        return self._node(e) if self._deep else Effect.NONE

    def pure(self, e: Expr) -> bool:
        """Return whether evaluating `e` has no side effects."""
        return self.of(e) is Effect.NONE

    def _round(self) -> bool:
        """Propagate effects once through the program. Return whether any grew; mutual recursion then needs another
        round."""
        changed = False
        for e in self._order:
            found = self._node(e)
            if not isinstance(e, Function):
                below = [o for o in operands(e) if not (isinstance(e, Call) and o is e.op and isinstance(o, Function))]
                found = max((found, *map(self.of, below)))
            if found > self.of(e):
                self._deep[e], changed = found, True
        return changed

    def _node(self, e: Expr) -> Effect:
        if isinstance(e, Call) and isinstance(e.op, Expr):
            return self._called(e.op)
        return _own(e)

    def _called(self, callee: Expr) -> Effect:
        """Return the effect of calling a function value."""
        while isinstance(callee, Var) and callee in self._values:
            callee = self._values[callee]
        if isinstance(callee, GlobalVar):
            callee = self._functions.get(callee.name_hint, callee)
        if isinstance(callee, Function):
            return self.of(callee.body)
        return Effect.NONE if isinstance(callee, Constructor) else Effect.WRITE


def _own(e: Expr) -> Effect:
    op = e.op if isinstance(e, Call) and not isinstance(e.op, Expr) else None
    if isinstance(e, RefWrite) or (op is not None and op.kept):
        return Effect.WRITE
    if isinstance(e, (RefCreate, RefRead)) or (op is not None and not op.pure):
        return Effect.READ
    return Effect.NONE


def is_pure(expr: Expr, functions: Mapping[str, Any] | IRModule | None = None) -> bool:
    """Return whether evaluating `expr` neither creates, reads nor writes references, nor draws random numbers."""
    mod = functions if isinstance(functions, IRModule) or functions is None else IRModule(functions)
    return Effects(expr, mod).pure(expr)
