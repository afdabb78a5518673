"""Walks over graphs of any kind of node. They do not recurse: graphs of models are thousands of nodes deep."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def post_order(roots: Sequence[T], below: Callable[[T], Sequence[T]]) -> list[T]:
    """Return the nodes at and below `roots`, each once and after those that are `below` it, except around cycles."""
    order: list[T] = []
    seen: set[T] = set()
    stack = [(r, False) for r in reversed(roots)]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack += [(b, False) for b in reversed(below(node))]
    return order


def reachable(
    roots: Iterable[T], below: Callable[[T], Iterable[T]], seen: set[T] | None = None,
) -> Iterator[T]:
    """Yield the nodes at and below `roots`, each once and before those that are `below` it; the last of these first.

    Nodes in `seen` are left out, and the others are added to it.
    """
    seen = set() if seen is None else seen
    stack = [*roots]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            yield node
            stack += below(node)
