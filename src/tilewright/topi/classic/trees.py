"""Ensembles of decision trees: each row of a matrix descends from the root of every tree to a leaf.

A step consists of four dependent loads, so a single descent leaves the machine idle. Therefore eight run side by side:
eight rows down one tree or, for few rows, one row down eight trees. There are no branches: a leaf is its own child, so
a descent that ends early stays there.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log2
from typing import Any, Final

from tilewright import te
from tilewright.base.types import OpenSize
from tilewright.scalar import expr as E
from tilewright.scalar.expr import PrimExpr, Value
from tilewright.tir.ir_builder import BufferVar
from tilewright.topi.elementwise import greater_of, lesser_of
from tilewright.topi.loops import Loops, loops
from tilewright.topi.work import Step

__all__ = ["AGGREGATES", "tree_ensemble"]

AGGREGATES: Final[dict[str, tuple[Any, float]]] = {
    "sum": (E.add, 0.0), "min": (lesser_of, inf), "max": (greater_of, -inf)
}
"""How leaf weights are combined, and the initial value."""

_LANES: Final = 8
_GROUPS: Final = 8
"""Number of groups of eight rows that descend one tree before the next tree."""


class _Forest:
    """The descent and its results. `tables` are the features, thresholds and children of the nodes, the roots, the
    depths, the targets, and the weights."""

    def __init__(
        self, b: Loops, tables: Sequence[BufferVar], sizes: tuple[int, int, int, int], aggregate: str, missing: bool,
        out: BufferVar
    ) -> None:
        self.b, self.out, self.missing = b, out, missing
        self.features, self.thresholds, self.children, self.roots, self.depths, self.targets, self.weights = tables
        self.width, self.trees, self.entries, self.n_targets = sizes
        self.combine, self.first = AGGREGATES[aggregate]

    def clear(self, row: PrimExpr) -> None:
        with self.b.for_range(0, self.n_targets, "target") as target:
            self.out[row * self.n_targets + target] = E.const(self.first, self.out.dtype)

    def step(self, x: BufferVar, row: Value, at: PrimExpr) -> PrimExpr:
        """Return the child of node `at` for row `row`."""
        b = self.b
        feature, threshold = b.let("feature", self.features[at]), b.let("threshold", self.thresholds[at])
        column = E.if_then_else(feature < 0, -1 - feature, feature) if self.missing else feature
        value = b.let("value", x[E.as_expr(row) * self.width + E.cast("int64", column)])
        right = E.logical_not(value <= threshold)
        if self.missing:
            right = E.logical_and(right, E.logical_or(feature >= 0, E.compare(E.EQ, value, value)))
        return E.cast("int64", self.children[at * 2 + E.cast("int64", right)])

    def walk(self, x: BufferVar, rows: Sequence[Value], trees: Sequence[Value]) -> None:
        """Descend side by side: lane k takes row `rows[k]` down tree `trees[k]`."""
        b = self.b
        lanes = [b.variable(f"node{k}", "int64", E.cast("int64", self.roots[tree])) for k, tree in enumerate(trees)]
        depth = self.depths[trees[0]]
        if len(set(trees)) > 1:
            for tree in trees[1:]:
                depth = E.maximum(depth, self.depths[tree])
        with b.for_range(0, b.let("depth", E.cast("int64", depth)), "level"):
            for lane, row in zip(lanes, rows, strict=True):
                lane[0] = self.step(x, row, b.let("at", lane[0]))
        for lane, row in zip(lanes, rows, strict=True):
            self.take(row, lane[0])

    def take(self, row: Value, leaf: PrimExpr) -> None:
        """Add the weights of a leaf to the results of a row."""
        first = self.b.let("first", leaf * self.entries)
        with self.b.for_range(0, self.entries, "entry") as entry:
            target = entry if self.entries == self.n_targets else E.cast("int64", self.targets[first + entry])
            if isinstance(self.entries, OpenSize):
                target = E.if_then_else(E.compare(E.EQ, self.entries.expr, self.n_targets), entry, target)
            where = E.as_expr(row) * self.n_targets + target
            self.out[where] = self.combine(self.out[where], self.weights[first + entry])


def tree_ensemble(
    data: te.Tensor, features: te.Tensor, thresholds: te.Tensor, children: te.Tensor, roots: te.Tensor,
    depths: te.Tensor, targets: te.Tensor, weights: te.Tensor, n_targets: int, aggregate: str = "sum",
    missing: bool = False,
) -> te.Tensor:
    """Return, for each row of `data` (rows, width), the combined weights of the leaves that it reaches, by target:
    (rows, n_targets).

    `features`, `thresholds` (nodes,) and `children` (nodes, 2) define the trees: a row goes to the first child of a
    node if its feature is at most the threshold, else to the second. With `missing`, -1 - f denotes feature f of a node
    whose first child also gets NaN. The first nodes are the leaves, which are their own children. `weights` (leaves,
    entries) are their weights for the targets `targets` (leaves, entries); these are not read if every leaf has a
    weight for each target. `roots` and `depths` (trees,) are the first node of each tree and the length of its longest
    path.
    """
    rows, width = data.extents
    trees, (_, entries) = roots.extents[0], weights.extents
    length = max(1.0, log2(features.extents[0] / max(1, trees) + 1))

    def body(b: Loops, x: BufferVar, *rest: BufferVar) -> None:
        forest = _Forest(b, rest[:-1], (width, trees, entries, n_targets), aggregate, missing, rest[-1])
        groups, left = divmod(rows, _LANES) if rows >= _LANES * _GROUPS else (0, rows)
        with b.shared(-(-groups // _GROUPS), rows * trees * length, Step.MOVE, "block") as block:
            begin = b.let("begin", block * _GROUPS)
            end = b.let("end", E.minimum(begin + _GROUPS, groups))
            with b.for_range(begin * _LANES, end * _LANES, "row") as row:
                forest.clear(row)
            with b.for_range(0, trees, "tree") as tree, b.for_range(begin, end, "group") as group:
                forest.walk(x, [group * _LANES + k for k in range(_LANES)], [tree] * _LANES)
        with b.shared(left, left * trees * length, Step.MOVE, "rest") as k:
            row = b.let("row", groups * _LANES + k)
            forest.clear(row)
            together = trees // _LANES
            with b.for_range(0, together, "group") as group:
                forest.walk(x, [row] * _LANES, [group * _LANES + k for k in range(_LANES)])
            with b.for_range(together * _LANES, trees, "tree") as tree:
                forest.walk(x, [row], [tree])

    tables = [features, thresholds, children, roots, depths, targets, weights]
    return loops("tree_ensemble", [data, *tables], [((rows, n_targets), weights.dtype)], body)[0]
