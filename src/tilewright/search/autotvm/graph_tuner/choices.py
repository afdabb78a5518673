"""A choice for each of several nodes, so that the sum of their costs, and of the costs between neighbours, is least.

This is a partitioned Boolean quadratic problem (PBQP). Nodes are eliminated one by one: the best choice of a node is
noted for each combination of its neighbours' choices, and the least cost becomes a cost between these neighbours
(bucket elimination, R. Dechter 1999). It is exact, and its tables grow with the number of neighbours at a time. The
heuristic of Hames and Scholz (2006) instead fixes a node of three or more neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.errors import OptionError

Array = np.ndarray[Any, Any]
Factor = tuple[tuple[int, ...], Array]
"""Nodes, and a table of costs with an axis for each."""
_LARGEST_TABLE: Final = 20_000_000
"""Elements of the largest table of the exact solution."""
_FEW: Final = 2
"""Neighbours up to which eliminating a node makes no table of more than two nodes."""


class Choices:
    """The costs of a problem; `solve` finds the choices."""

    def __init__(self, costs: Mapping[int, Sequence[float]]) -> None:
        """`costs` has the cost of each choice by node."""
        self._sizes = {node: len(c) for node, c in costs.items()}
        self._factors: list[Factor] = [((node,), np.asarray(c, float)) for node, c in costs.items()]

    def couple(self, a: int, b: int, costs: Array) -> None:
        """Add the cost `costs[i, j]` of choice i at the node `a` together with choice j at the node `b`."""
        self._factors.append(((a, b), costs))

    def cost(self, choice: Mapping[int, int]) -> float:
        """Return the cost of choices for all nodes."""
        return float(sum(table[tuple(choice[n] for n in nodes)] for nodes, table in self._factors))

    def solve(self, exact: bool = True) -> dict[int, int]:
        """Return the best choice by node, or with `exact` false a good one. Raises `OptionError` if the tables of the
        exact solution are too large, or if the result costs infinitely much."""
        factors, left, steps = list(self._factors), set(self._sizes), list[tuple[int, tuple[int, ...], Array]]()
        around: dict[int, set[int]] = {n: set() for n in left}
        for nodes, _ in factors:
            for n in nodes:
                around[n] |= {*nodes} - {n}
        while left:
            node = min(left, key=lambda n: (len(around[n]), n))
            if not exact and len(around[node]) > _FEW:
                node = max(left, key=lambda n: (len(around[n]), -n))
                mine, factors = _split(factors, node)
                state = int(sum(_least(f, node) for f in mine).argmin())  # type: ignore[union-attr]
                factors += [_fixed(f, node, state) for f in mine]
                steps.append((node, (), np.asarray(state)))
            else:
                mine, factors = _split(factors, node)
                neighbours = tuple(sorted(around[node]))
                table = self._joined((node, *neighbours), mine)
                steps.append((node, neighbours, table.argmin(axis=0)))
                factors.append((neighbours, table.min(axis=0)))
                for n in neighbours:
                    around[n] |= {*neighbours} - {n}
            left.discard(node)
            for n in around.pop(node):
                around[n].discard(node)
        found: dict[int, int] = {}
        for node, neighbours, best in reversed(steps):
            found[node] = int(best[tuple(found[n] for n in neighbours)])
        if not math.isfinite(self.cost(found)):
            raise OptionError(
                "no combination of the records has layouts that fit together; add records with other blocks of "
                "channels",
                code="TW1102")
        return dict(sorted(found.items()))

    def _joined(self, nodes: tuple[int, ...], factors: Sequence[Factor]) -> Array:
        """Return the sum of tables as one table with an axis for each of `nodes`."""
        shape = [self._sizes[n] for n in nodes]
        if math.prod(shape) > _LARGEST_TABLE:
            raise OptionError(
                f"the exact solution needs a table of {math.prod(shape)} costs, because {len(nodes)} nodes depend on "
                "each other; use PBQPTuner, or a smaller max_sch_num", code="TW1104")
        total = np.zeros(shape)
        for own, table in factors:
            order = sorted(range(len(own)), key=lambda k: nodes.index(own[k]))
            sizes = [self._sizes[n] if n in own else 1 for n in nodes]
            total = total + table.transpose(order).reshape(sizes)
        return total


def _split(factors: Sequence[Factor], node: int) -> tuple[list[Factor], list[Factor]]:
    """Return the tables that have a node, and those that do not."""
    return [f for f in factors if node in f[0]], [f for f in factors if node not in f[0]]


def _least(factor: Factor, node: int) -> Array:
    """Return the least cost of a table for each choice at a node."""
    nodes, table = factor
    least: Array = table.min(axis=tuple(k for k, n in enumerate(nodes) if n != node))
    return least


def _fixed(factor: Factor, node: int, state: int) -> Factor:
    """Return a table for one choice at a node."""
    nodes, table = factor
    return tuple(n for n in nodes if n != node), table.take(state, axis=nodes.index(node))
