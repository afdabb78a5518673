"""Where a value of a graph is named in its text: once, in the innermost scope that all its users stand in.

The body of a function, each branch of an `if`, each clause of a `match`, and a `let` that is an operand are scopes. A `let` that
ends a scope goes on in it. Linear in the graph, but for the depth of scopes within each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tilewright.relay.adt import Constructor, Match
from tilewright.relay.expr import Constant, Expr, Function, GlobalVar, If, Let, Var
from tilewright.relay.visitor import operands, post_order

ATOMS: Final = (Var, GlobalVar, Constant, Constructor)
"""What is written where it is used, however often that is."""


class Scopes:
    """The scopes below `root`.

    `uses` counts the places a value is used in; `hoisted[e]` are the values that `e`, which opens scopes, needs named before it,
    since something outside uses them as well.
    """

    def __init__(self, root: Expr) -> None:
        self.uses: dict[Expr, int] = {root: 1}
        self.hoisted: dict[Expr, tuple[Expr, ...]] = {}
        self._order = post_order(root)
        self._ends: set[Expr] = {root}
        self._parent: list[int] = [-1]
        self._depth: list[int] = [0]
        self._owner: list[Expr] = [root]
        self._below: dict[tuple[Expr, int], int] = {}
        self._count()
        self._home = self._homes(root)
        self._hoist(self._home)

    @property
    def depth(self) -> int:
        """How many scopes stand within each other."""
        return max(self._depth)

    def continues(self, e: Expr) -> bool:
        """Whether `e` is a `let` that goes on in the scope that it ends."""
        return isinstance(e, Let) and e in self._ends and self.uses[e] == 1

    def stands_in(self, e: Expr, function: Function) -> bool:
        """Whether `e` is named in the body of `function`, or in a scope within it."""
        body, scope = self._below.get((function, 0)), self._home[e]
        while scope >= 0 and scope != body:
            scope = self._parent[scope]
        return scope >= 0

    def _count(self) -> None:
        for e in self._order:
            for o in operands(e):
                self.uses[o] = self.uses.get(o, 0) + 1
            first = _first_inside(e)
            if first is not None:
                self._ends.update(operands(e)[first:])
            if isinstance(e, Let):
                self._ends.add(e.body)

    def _used(self, e: Expr, home: int) -> Iterator[tuple[Expr, int]]:
        """The operands of `e`, which stands in the scope `home`, each with the scope that it is used in."""
        below = operands(e)
        first = _first_inside(e)
        if isinstance(e, Let) and not self.continues(e):
            inside = self._open(e, 0, home)
            yield from ((o, inside) for o in below)
            return
        for i, o in enumerate(below):
            yield o, home if first is None or i < first else self._open(e, i, home)

    def _open(self, e: Expr, place: int, parent: int) -> int:
        known = self._below.get((e, place))
        if known is None:
            known = self._below[e, place] = len(self._parent)
            self._parent.append(parent)
            self._depth.append(self._depth[parent] + 1)
            self._owner.append(e)
        return known

    def _homes(self, root: Expr) -> dict[Expr, int]:
        """The innermost scope around all uses of each value."""
        home: dict[Expr, int] = {root: 0}
        for e in reversed(self._order):
            for o, scope in self._used(e, home[e]):
                if not isinstance(o, ATOMS):
                    home[o] = self._around(home[o], scope) if o in home else scope
                else:
                    home[o] = 0
        return home

    def _around(self, a: int, b: int) -> int:
        while a != b:
            if self._depth[a] >= self._depth[b]:
                a = self._parent[a]
            else:
                b = self._parent[b]
        return a

    def _hoist(self, home: dict[Expr, int]) -> None:
        found: dict[Expr, dict[Expr, None]] = {}
        for e in self._order:
            for o, scope in self._used(e, home[e]):
                if scope == home[o] or isinstance(o, ATOMS):
                    continue
                while self._parent[scope] != home[o]:
                    scope = self._parent[scope]
                found.setdefault(self._owner[scope], {})[o] = None
        self.hoisted = {e: tuple(values) for e, values in found.items()}


def _first_inside(e: Expr) -> int | None:
    """The first operand of `e` that stands in a scope of its own, as all after it do; None when there is none."""
    if isinstance(e, Function):
        return 0
    return 1 if isinstance(e, (If, Match)) else None
