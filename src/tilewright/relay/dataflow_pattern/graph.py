"""A graph in evaluation order, indexed by kind of node, with the users of every value, for matching."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilewright.base.forks import lazy_attribute
from tilewright.base.graphs import reachable
from tilewright.relay.expr import Call, Expr, Function
from tilewright.relay.op.registry import Op
from tilewright.relay.visitor import consumers, operands, post_order

Key = type[Any]
"""Index key of a node: the class of a call's operator, else the class of the node."""


def key_of(e: Expr) -> Key:
    """Return the key of an expression."""
    return type(e.op) if isinstance(e, Call) and isinstance(e.op, Op) else type(e)


class Graph:
    """The nodes below `root`, including those inside functions and branches. Everything but the order is computed on
    first use."""

    def __init__(self, root: Expr) -> None:
        self.root = root
        self.order = post_order(root)

    @lazy_attribute
    def position(self) -> dict[Expr, int]:
        """The index of each node in evaluation order."""
        return {e: i for i, e in enumerate(self.order)}

    @lazy_attribute
    def users(self) -> dict[Expr, list[Expr]]:
        """The users of each node."""
        return consumers(self.order)

    @lazy_attribute
    def by_key(self) -> dict[Key, list[Expr]]:
        """The nodes of each key, in order."""
        found: dict[Key, list[Expr]] = {}
        for e in self.order:
            found.setdefault(key_of(e), []).append(e)
        return found

    @lazy_attribute
    def closed(self) -> set[Expr]:
        """The nodes inside finished functions: outlined by a partition, or primitive."""
        done = [f for f in self.by_key.get(Function, []) if isinstance(f, Function)
                and ("PartitionedFromPattern" in f.attrs or f.attrs.get("Primitive"))]
        return set(post_order(*done)) if done else set()

    def last_first(self, keys: Iterable[Key] | None) -> list[Expr]:
        """Return the nodes of these keys (None: all), those nearest to the root first."""
        if keys is None:
            return self.order[::-1]
        lists = [found for k in keys if (found := self.by_key.get(k))]
        if len(lists) < 2:
            return lists[0][::-1] if lists else []
        return sorted((e for nodes in lists for e in nodes), key=self.position.__getitem__, reverse=True)

    def dominates(self, end: Expr, e: Expr) -> bool:
        """Return whether every path from `e` ends in `end`, without other uses."""
        last, position, users = self.position[end], self.position, self.users
        made = reachable([e], lambda now: () if now is end else users[now])
        return all(now is end or (users[now] and position[now] <= last) for now in made)

    def depends(self, e: Expr, on: Expr) -> bool:
        """Return whether `e` depends on `on`."""
        first, position = self.position[on], self.position
        return any(x is on for x in reachable([e], lambda x: (o for o in operands(x) if position[o] >= first)))
