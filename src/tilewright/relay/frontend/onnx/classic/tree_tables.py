"""Decision trees as tables of the operator `tree_ensemble`, from nodes of every mode.

The operator only compares x <= threshold. All other modes are rewritten to it, exactly:

    x < t            ->  x <= the number before t
    x >= t, x > t    ->  x < t, x <= t, with the children exchanged
    x == t           ->  two nodes: not x < t, then x <= t
    x in {a, b, …}   ->  a search among a, b, …, then x == the number found
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tilewright.relay.expr import Call, Constant, Expr
from tilewright.relay.frontend.onnx.node import Node
from tilewright.relay.op.classic.ensembles import TreeEnsemble

Array = np.ndarray[Any, Any]

LEQ, LT, GTE, GT, EQ, NEQ, MEMBER = range(7)
MODES: Final = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
"""Names of the modes; the position is the number."""


@dataclass
class Nodes:
    """Inner nodes of trees: one array element per node. A child is a node number, or -1 - leaf."""

    feature: Array
    mode: Array
    value: Array
    missing: Array
    """Whether NaN goes to the true child."""
    true: Array
    false: Array
    roots: Array

    def compared(self, members: dict[int, list[float]]) -> None:
        """Rewrite every node to the LEQ comparison. `members` holds the sets of the nodes of mode MEMBER."""
        real = ~np.isnan(self.value)
        self.missing[self.mode == NEQ] = True  # NaN equals nothing
        below = np.isin(self.mode, (LT, GTE))
        self.value[below] = before(self.value[below])
        self._exchange(np.isin(self.mode, (GTE, GT, NEQ)) & (real | (self.mode == NEQ)))
        never = ~real & (self.mode == NEQ)
        self.true[never] = self.false[never]
        self._split({int(k): members.get(int(k), [float(self.value[k])])
                     for k in np.flatnonzero(np.isin(self.mode, (EQ, NEQ, MEMBER)))})

    def _exchange(self, which: Array) -> None:
        self.true[which], self.false[which] = self.false[which], self.true[which]
        self.missing[which] = ~self.missing[which]

    def _split(self, sets: dict[int, list[float]]) -> None:
        """Replace each node by a search of its set; node k stays the first, and new nodes are appended."""
        new: list[tuple[int, float, bool, int, int]] = []
        count, dtype = len(self.feature), self.value.dtype.type
        for k, members in sets.items():
            found = sorted({dtype(m) for m in members if not np.isnan(m)})
            feature, yes, no, missing = int(
                self.feature[k]), int(self.true[k]), int(self.false[k]), bool(self.missing[k])
            if not found:
                self.value[k] = np.nan
                continue
            pending: list[tuple[int, int, int]] = [(k, 0, len(found))]
            while pending:
                place, low, high = pending.pop()
                first = count + len(new)
                if high - low > 1:
                    middle = (low + high) // 2
                    made = (feature, found[middle - 1], False, first, first + 1)
                    new += [made, made]
                    pending += [(first, low, middle), (first + 1, middle, high)]
                else:
                    made = (feature, before(np.asarray([found[low]]))[0], False, no, first)
                    new.append((feature, found[low], missing, yes, no))
                self._put(new, place, made, count)
        if new:
            columns = list(zip(*new, strict=True))
            for name, column in zip(("feature", "value", "missing", "true", "false"), columns, strict=True):
                old: Array = getattr(self, name)
                setattr(self, name, np.concatenate([old, np.asarray(column, old.dtype)]))

    def _put(self, new: list[tuple[int, float, bool, int, int]], place: int, made: tuple[int, float, bool, int, int],
             count: int) -> None:
        if place >= count:
            new[place - count] = made
            return
        self.feature[place], self.value[place], self.missing[place], self.true[place], self.false[place] = made


def before(x: Array) -> Array:
    """The greatest number less than each element; NaN for -inf."""
    found: Array = np.where(x == -np.inf, np.nan, np.nextafter(x, np.asarray(-np.inf, x.dtype)))
    return found.astype(x.dtype)


@dataclass(frozen=True)
class Leaves:
    """The entries of leaves: leaf `leaf[k]` has `weight[k]` for target `target[k]`."""

    count: int
    leaf: Array
    target: Array
    weight: Array

    def tables(self, n_targets: int, aggregate: str) -> tuple[Array, Array]:
        """Targets and weights as (leaves, entries), padded with neutral entries; one entry per target is in target
        order.
        """
        fill, combine = {"sum": (0, np.add), "min": (np.inf, np.minimum), "max": (-np.inf, np.maximum)}[aggregate]
        pairs, where = np.unique(self.leaf * n_targets + self.target, return_inverse=True)
        weight = np.full(len(pairs), fill, self.weight.dtype)
        combine.at(weight, where, self.weight)
        leaf, target = np.divmod(pairs, n_targets)
        place = np.arange(len(pairs)) - np.searchsorted(leaf, leaf)
        entries = max(1, int(place.max(initial=0)) + 1)
        if entries == n_targets:
            place = target
        weights, targets = np.full((self.count, entries), fill, self.weight.dtype), np.zeros((self.count, entries),
            np.int32)
        weights[leaf, place], targets[leaf, place] = weight, target
        return targets, weights


def ensemble(x: Expr, nodes: Nodes, leaves: Leaves, n_targets: int, aggregate: str, node: Node) -> Call:
    """The operator `tree_ensemble` applied to `x` (rows, features); all nodes must be LEQ."""
    first = leaves.count
    children = np.stack([nodes.true, nodes.false], axis=1)
    inner = np.where(children < 0, -1 - children, children + first)
    children = np.concatenate([np.repeat(np.arange(first)[:, None], 2, axis=1), inner]).astype(np.int32)
    roots = np.where(nodes.roots < 0, -1 - nodes.roots, nodes.roots + first).astype(np.int32)
    width = x.tensor_type.shape[1]
    if nodes.feature.size and (nodes.feature.min() < 0 or (isinstance(width, int) and nodes.feature.max() >= width)):
        node.refuse(f"its trees use features {nodes.feature.min()} to {nodes.feature.max()}, but its input has {width} "
                    "features")
    feature = np.where(nodes.missing, -1 - nodes.feature, nodes.feature)
    feature = np.concatenate([np.zeros(first, np.int32), feature]).astype(np.int32)
    threshold = np.concatenate([np.zeros(first, nodes.value.dtype), nodes.value])
    targets, weights = leaves.tables(n_targets, aggregate)
    tables = (feature, threshold, children, roots, _depths(children, roots, first, node), targets, weights)
    return TreeEnsemble(n_targets, aggregate, bool(nodes.missing.any()))(x, *map(Constant, tables))


def _depths(children: Array, roots: Array, first: int, node: Node) -> Array:
    """The longest path of each tree, in steps, found level by level for all trees at once."""
    depths = np.zeros(len(roots), np.int32)
    tree, at = np.arange(len(roots)), roots
    level = 0
    while len(at):
        level += 1
        inner = at >= first
        tree, at = tree[inner], at[inner]
        depths[tree] = level
        both = np.unique(np.concatenate([tree, tree]) * len(children) + children[at].T.reshape(-1))
        tree, at = np.divmod(both, len(children))
        if level > len(children):
            node.refuse("the nodes of a tree form a cycle; export the model again")
    return depths
