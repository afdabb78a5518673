"""Determines the branch in which each value of a function is computed: the innermost one that contains all its users.

The body of a function is branch 0. Each branch of an `if` and each clause of a `match` is nested in the branch of its
node. An inner function is a value whose operands are its captured values; its body is analyzed separately. Linear in
the graph, except for the nesting depth of branches.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from tilewright.base import graphs
from tilewright.relay.adt import Match
from tilewright.relay.expr import Call, Constant, Expr, Function, If, Tuple, TupleGetItem, Var
from tilewright.relay.scopes import ATOMS, ScopeTree
from tilewright.relay.visitor import operands, post_order

KERNELS = ("Primitive", "Compiler", "Composite")
"""Attributes of functions that are computed as a unit, like operators."""


def is_kernel(e: Expr) -> bool:
    """Return whether `e` is a call of an operator, or of a function that is computed as a unit."""
    if not isinstance(e, Call):
        return False
    return not isinstance(e.op, Expr) or (isinstance(e.op, Function) and is_one_kernel(e.op))


def is_one_kernel(f: Function) -> bool:
    """Return whether a function is marked to be computed as a unit and contains no control flow."""
    return any(k in f.attrs for k in KERNELS) and all(isinstance(x, (Var, Constant, Tuple, TupleGetItem))
        or is_kernel(x) for x in post_order(f.body, inside=False))


class Branches:
    """The branches of a function with this body.

    `users[e]` are the nodes that have `e` as an operand. `hoisted[e]` are the values needed before the `if` or `match`
    `e`, because they are also used outside of its branches.
    """

    def __init__(self, body: Expr, given: Collection[Expr], sees: Callable[[Function], tuple[Expr, ...]]) -> None:
        """`given` are values known from the start; `sees` returns the captured values of an inner function."""
        self._given, self._sees = given, sees
        self.users: dict[Expr, list[Expr]] = {body: []}
        self._operands: dict[Expr, tuple[Expr, ...]] = {}
        self._tree = ScopeTree(body)
        order = self._walk(body)
        self.home = self._homes(order, body)
        self.hoisted = self._hoists(order)

    def operands(self, e: Expr) -> tuple[Expr, ...]:
        """Return the operands of `e` as a value of this function."""
        return self._operands[e]

    def _walk(self, body: Expr) -> list[Expr]:
        """Return every value, operands before users."""

        def below(e: Expr) -> tuple[Expr, ...]:
            self._operands[e] = found = self._below(e)
            for o in found:
                self.users.setdefault(o, []).append(e)
            return found

        return graphs.post_order([body], below)

    def _below(self, e: Expr) -> tuple[Expr, ...]:
        if e in self._given:
            return ()
        if isinstance(e, Function):
            return self._sees(e)
        return e.args if isinstance(e, Call) and is_kernel(e) else operands(e)

    def _used(self, e: Expr, home: int) -> Sequence[tuple[Expr, int]]:
        """Return the operands of `e`, a node of the branch `home`, each with the branch that uses it."""
        below = self._operands[e]
        if not below or not isinstance(e, (If, Match)):
            return [(o, home) for o in below]
        return [(below[0], home), *((o, self._tree.open(e, k, home)) for k, o in enumerate(below[1:]))]

    def _homes(self, order: Sequence[Expr], body: Expr) -> dict[Expr, int]:
        home = {body: 0}
        for e in reversed(order):
            for o, branch in self._used(e, home[e]):
                home[o] = self._tree.around(home[o], branch) if o in home else branch
        return home

    def _hoists(self, order: Sequence[Expr]) -> dict[Expr, list[Expr]]:
        found: dict[Expr, dict[Expr, None]] = {}
        for e in order:
            for o, branch in self._used(e, self.home[e]):
                if branch != self.home[o] and not isinstance(o, ATOMS) and o not in self._given:
                    found.setdefault(self._tree.way_in(branch, self.home[o]), {})[o] = None
        return {e: list(values) for e, values in found.items()}
