"""The scope in which the text of a graph names a value: once, in the innermost scope that contains all its users.

Scopes are the body of a function, each branch of an `if`, each clause of a `match`, and a `let` that is an operand. A
`let` at the end of a scope continues it. Linear in the graph, except for the nesting depth.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Final

from tilewright.relay.adt import Constructor, Match
from tilewright.relay.expr import Constant, Expr, Function, GlobalVar, If, Let, Var
from tilewright.relay.visitor import free_values, operands, post_order

ATOMS: Final = (Var, GlobalVar, Constant, Constructor)
"""Nodes whose text is written at every use instead of being named."""


class ScopeTree:
    """Nested scopes, numbered from 0 for the outermost. A scope is identified by its node and the index of the operand.
    """

    def __init__(self, root: Expr) -> None:
        self.parent: list[int] = [-1]
        self.depth: list[int] = [0]
        self._jump: list[int] = [0]
        self._owner: list[Expr] = [root]
        self._opened: dict[tuple[Expr, int], int] = {}

    def open(self, e: Expr, place: int, parent: int) -> int:
        """Return the scope that `e`, a node of the scope `parent`, opens at this operand."""
        known = self._opened.get((e, place))
        if known is None:
            known = self._opened[e, place] = len(self.parent)
            self.parent.append(parent)
            self.depth.append(self.depth[parent] + 1)
            self._jump.append(self._far(parent))
            self._owner.append(e)
        return known

    def opened(self, e: Expr, place: int) -> int | None:
        """Return the scope of this operand of `e`, or None if it was not opened."""
        return self._opened.get((e, place))

    def _far(self, parent: int) -> int:
        """Return the jump pointer of a new scope inside `parent`, so that every ancestor is O(log n) jumps away (Myers,
        An applicative random-access stack, 1983)."""
        near, depth = self._jump[parent], self.depth
        far = self._jump[near]
        return far if depth[parent] - depth[near] == depth[near] - depth[far] else parent

    def out_to(self, scope: int, depth: int) -> int:
        """Return the ancestor of `scope` (or itself) at `depth`."""
        while self.depth[scope] > depth:
            jump = self._jump[scope]
            scope = jump if self.depth[jump] >= depth else self.parent[scope]
        return scope

    def within(self, scope: int, outer: int) -> bool:
        """Return whether `scope` is `outer` or lies inside it."""
        return self.out_to(scope, self.depth[outer]) == outer

    def around(self, a: int, b: int) -> int:
        """Return the innermost scope that contains both."""
        a, b = self.out_to(a, self.depth[b]), self.out_to(b, self.depth[a])
        while a != b:
            near = self._jump[a] == self._jump[b]
            a, b = (self.parent[a], self.parent[b]) if near else (self._jump[a], self._jump[b])
        return a

    def way_in(self, scope: int, home: int) -> Expr:
        """Return the node of the scope `home` that opens the path to the inner scope `scope`."""
        return self._owner[self.out_to(scope, self.depth[home] + 1)]


class Scopes:
    """The scopes below `root`.

    `uses` counts the uses of each value. `hoisted[e]` are the values that must be named before `e`, which opens scopes,
    because they are also used outside of it.
    """

    def __init__(self, root: Expr) -> None:
        self.uses: dict[Expr, int] = {root: 1}
        self.hoisted: dict[Expr, tuple[Expr, ...]] = {}
        self._order = post_order(root)
        self._ends: set[Expr] = {root}
        self._tree = ScopeTree(root)
        self._count()
        self._home = self._homes(root)
        self._hoist(self._home)
        self._captured: dict[Function, tuple[Expr, ...]] = {}
        self._outside: dict[int, Set[Expr]] = {}

    @property
    def depth(self) -> int:
        """Return the nesting depth."""
        return max(self._tree.depth)

    def continues(self, e: Expr) -> bool:
        """Return whether `e` is a `let` that continues its scope."""
        return isinstance(e, Let) and e in self._ends and self.uses[e] == 1

    def captured(self, function: Function) -> tuple[Expr, ...]:
        """Return the variables and named values of outer scopes that a function below `root` uses."""
        found = self._captured.get(function)
        if found is None:
            inside = self._tree.opened(function, 0)
            depth = 0 if inside is None else self._tree.depth[inside]
            own = frozenset(function.params)
            found = self._captured[function] = tuple(v for v in free_values(function.body, self._above(depth))
                if v not in own)
        return found

    def _above(self, depth: int) -> Set[Expr]:
        """Return the values at a smaller depth than `depth` that deeper nodes need.

        A value used in a scope belongs to that scope or an outer one, so its depth tells whether it is outside.
        """
        found = self._outside.get(depth)
        if found is None:
            shared = (o for values in self.hoisted.values() for o in values)
            found = self._outside[depth] = {o for o in shared if self._tree.depth[self._home[o]] < depth}
        return found

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
        """Yield the operands of `e`, a node of the scope `home`, each with the scope that uses it."""
        below = operands(e)
        first = _first_inside(e)
        if isinstance(e, Let) and not self.continues(e):
            inside = self._tree.open(e, 0, home)
            yield from ((o, inside) for o in below)
            return
        for i, o in enumerate(below):
            yield o, home if first is None or i < first else self._tree.open(e, i, home)

    def _homes(self, root: Expr) -> dict[Expr, int]:
        """Return the innermost scope around all uses of each value."""
        home: dict[Expr, int] = {root: 0}
        for e in reversed(self._order):
            for o, scope in self._used(e, home[e]):
                if not isinstance(o, ATOMS):
                    home[o] = self._tree.around(home[o], scope) if o in home else scope
                else:
                    home[o] = 0
        return home

    def _hoist(self, home: dict[Expr, int]) -> None:
        found: dict[Expr, dict[Expr, None]] = {}
        for e in self._order:
            for o, scope in self._used(e, home[e]):
                if scope != home[o] and not isinstance(o, ATOMS):
                    found.setdefault(self._tree.way_in(scope, home[o]), {})[o] = None
        self.hoisted = {e: tuple(values) for e, values in found.items()}


def _first_inside(e: Expr) -> int | None:
    """Return the index of the first operand of `e` that has its own scope, as all later ones do, or None.
    """
    if isinstance(e, Function):
        return 0
    return 1 if isinstance(e, (If, Match)) else None
