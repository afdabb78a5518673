"""Bind every value to a name, in the order of evaluation.

    add(nn.relu(%x), 1f) -> let %x1 = nn.relu(%x); let %x2 = 1f; let %x3 = add(%x1, %x2); %x3

A value that several scopes use is named in the innermost scope around them (`relay/scopes.py`), so no value is computed
more often than before. Accesses to references are named where they were evaluated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.adt import Constructor, Match
from tilewright.relay.expr import Constant, Expr, Function, GlobalVar, If, Let, Var
from tilewright.relay.scopes import Scopes
from tilewright.relay.visitor import free_vars, operands, with_operands

ATOMS = (Var, GlobalVar, Constructor)
"""Node kinds that are not named."""


@dataclass(frozen=True)
class ToANormalForm(FunctionPass):
    """Rewrite bodies to lets of one step each and a final variable. A function marked `Primitive` counts as one step.
    """

    kind: ClassVar[type] = Function

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        return Sequencer(function, lambda e: True).function(function)


class Sequencer:
    """Binds the values that `named` selects in each scope, in evaluation order."""

    def __init__(self, root: Expr, named: Callable[[Expr], bool]) -> None:
        self.named = named
        self.hoisted = Scopes(root).hoisted
        self.shared = {o for values in self.hoisted.values() for o in values}
        self.new: dict[Expr, Expr] = {}
        self._constants: list[Expr] = []

    def function(self, f: Function) -> Function:
        """Return the function with its body as a sequence of lets."""
        if f.attrs.get("Primitive") and not free_vars(f):
            return f
        body = self.scope(f.body)
        return f if body is f.body else f.with_body(body)

    def scope(self, body: Expr) -> Expr:
        """Return a scope as lets around its value."""
        bound: list[tuple[Var, Expr, Let | None]] = []
        outer, self._constants = self._constants, []
        result = self._sequence(body, bound)
        for e in self._constants:
            del self.new[e]  # constants are named in every scope that uses them
        self._constants = outer
        for var, value, old in reversed(bound):
            same = old is not None and old.value is value and old.body is result
            result = old if same and old is not None else Let(var, value, result, None if old is None else old.span)
        return result

    def _sequence(self, root: Expr, bound: list[tuple[Var, Expr, Let | None]]) -> Expr:
        """Add the names that `root` needs to `bound`, in order; return the rest of `root`."""
        stack: list[tuple[Expr, bool, Let | None]] = [(root, False, None)]
        while stack:
            e, ready, named_by = stack.pop()
            if e in self.new or isinstance(e, ATOMS):
                self._bind_again(e, named_by, bound)
            elif isinstance(e, Let):
                self._let(e, ready, named_by, stack, bound)
            elif not ready:
                stack.append((e, True, named_by))
                below = (*self.hoisted.get(e, ()), *_here(e))
                stack.extend((o, False, None) for o in reversed(below))
            else:
                self._bind(e, self._rebuilt(e), named_by, bound)
        return self.new.get(root, root)

    def _let(self, e: Let, ready: bool, named_by: Let | None, stack: list[Any], bound: list[Any]) -> None:
        if not ready:
            stack += [(e, True, named_by), (e.body, False, None), (e.value, False, e)]
            return
        self.new[e] = self.new.get(e.body, e.body)
        self._bind_again(e, named_by, bound)

    def _bind_again(self, e: Expr, named_by: Let | None, bound: list[Any]) -> None:
        """Bind another name to a value that already has one."""
        if named_by is not None:
            bound.append((named_by.var, self.new.get(e, e), named_by))

    def _bind(self, e: Expr, value: Expr, named_by: Let | None, bound: list[Any]) -> None:
        if isinstance(e, Constant):
            self._constants.append(e)
        if named_by is not None:
            bound.append((named_by.var, value, named_by))
            self.new[e] = named_by.var
        elif e in self.shared or self.named(e):
            var = Var("x")
            var.set_type(value.known_type())
            bound.append((var, value, None))
            self.new[e] = var
        else:
            self.new[e] = value

    def _rebuilt(self, e: Expr) -> Expr:
        match e:
            case Function():
                return self.function(e)
            case If():
                new: list[Expr] = [self._at(e.cond), self.scope(e.true_branch), self.scope(e.false_branch)]
            case Match():
                new = [self._at(e.data), *(self.scope(c.rhs) for c in e.clauses)]
            case _:
                new = [self._at(o) for o in operands(e)]
        same = all(a is b for a, b in zip(new, operands(e), strict=True))
        return e if same else with_operands(e, new)

    def _at(self, e: Expr) -> Expr:
        return self.new.get(e, e)


def _here(e: Expr) -> tuple[Expr, ...]:
    """Return the operands of `e` in its own scope."""
    if isinstance(e, Function):
        return ()
    return operands(e)[:1] if isinstance(e, (If, Match)) else operands(e)


