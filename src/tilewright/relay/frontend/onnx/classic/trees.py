"""ai.onnx.ml's tree ensembles: TreeEnsemble, and the earlier TreeEnsembleRegressor and TreeEnsembleClassifier."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.onnx.classic.scores import (
    TRANSFORMS,
    beside,
    chosen,
    column,
    greatest,
    labels,
    rows_of,
    transformed,
)
from tilewright.relay.frontend.onnx.classic.tree_tables import MEMBER, MODES, Array, Leaves, Nodes, ensemble
from tilewright.relay.frontend.onnx.node import Node
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast
from tilewright.relay.types_of import dtype_of, scalar

ML: Final = "ai.onnx.ml"
_AGGREGATES: Final = ("AVERAGE", "SUM", "MIN", "MAX")
Numbers = Sequence[float]
Whole = Sequence[int]


@converter("TreeEnsemble", since=5, domain=ML)
def tree_ensemble(
    x: Expr, *, aggregate_function: int = 1, leaf_targetids: Whole, leaf_weights: Array,
    membership_values: Array | None = None, n_targets: int | None = None, nodes_falseleafs: Whole,
    nodes_falsenodeids: Whole, nodes_featureids: Whole, nodes_hitrates: Array | None = None,
    nodes_missing_value_tracks_true: Whole | None = None, nodes_modes: Array, nodes_splits: Array,
    nodes_trueleafs: Whole, nodes_truenodeids: Whole, post_transform: int = 0, tree_roots: Whole, node: Node,
) -> Expr:
    if not 0 <= aggregate_function < len(_AGGREGATES) or not 0 <= post_transform < len(TRANSFORMS):
        node.refuse(f"aggregate_function {aggregate_function} or post_transform {post_transform} is not one of the "
                    f"{len(_AGGREGATES)} aggregates and {len(TRANSFORMS)} transforms; both are numbered from 0")
    data = rows_of(x, node)
    dtype = dtype_of(data).numpy()
    true, false, roots = (np.asarray(v, np.int64) for v in (nodes_truenodeids, nodes_falsenodeids, tree_roots))
    true_leaf, false_leaf = np.asarray(nodes_trueleafs, bool), np.asarray(nodes_falseleafs, bool)
    for name, ids, leaf in (("nodes_truenodeids", true, true_leaf), ("nodes_falsenodeids", false, false_leaf)):
        outside = ((ids < 0) | (ids >= np.where(leaf, len(leaf_targetids), len(true))) if len(ids) == len(leaf)
                   else np.zeros(0, bool))
        if outside.any():
            node.refuse(f"{name} has {ids[outside][0]}; it must be from 0 to {len(leaf_targetids) - 1} for a leaf, and "
                        f"to {len(true) - 1} for a node")
    lone = true_leaf[roots] & false_leaf[roots] & (true[roots] == false[roots])
    missing = (np.asarray(nodes_missing_value_tracks_true, bool) if nodes_missing_value_tracks_true
               else np.zeros(len(true), bool))
    nodes = Nodes(
        np.asarray(nodes_featureids, np.int64), np.array(nodes_modes, np.int64), nodes_splits.astype(dtype), missing,
        np.where(true_leaf, -1 - true, true), np.where(false_leaf, -1 - false, false),
        np.where(lone, -1 - true[roots], roots))
    nodes.compared(_members(nodes, membership_values, node))
    targets = np.asarray(leaf_targetids, np.int64)
    leaves = Leaves(len(targets), np.arange(len(targets)), targets, leaf_weights.astype(dtype))
    wanted = n_targets or int(targets.max(initial=0)) + 1
    return transformed(_aggregated(data, nodes, leaves, wanted, _AGGREGATES[aggregate_function], node),
                       TRANSFORMS[post_transform], node)


def _members(nodes: Nodes, values: Array | None, node: Node) -> dict[int, list[float]]:
    """The set of each MEMBER node, by node number; a NaN ends each set."""
    which = np.flatnonzero(nodes.mode == MEMBER)
    sets: list[list[float]] = [[]]
    for v in () if values is None else values.tolist():
        if math.isnan(v):
            sets.append([])
        else:
            sets[-1].append(v)
    if len(which) != len(sets) - 1 or sets[-1]:
        node.refuse(f"{len(which)} of its nodes test membership in a set, but membership_values has {len(sets) - 1} "
                    "sets, each ended by NaN")
    return dict(zip(map(int, which), sets, strict=False))


@converter("TreeEnsembleRegressor", since=1, domain=ML)
def tree_ensemble_regressor(
    x: Expr, *, aggregate_function: str = "SUM", base_values: Numbers = (), base_values_as_tensor: Array | None = None,
    n_targets: int = 1, nodes_falsenodeids: Whole = (), nodes_featureids: Whole = (), nodes_hitrates: Numbers = (),
    nodes_hitrates_as_tensor: Array | None = None, nodes_missing_value_tracks_true: Whole = (),
    nodes_modes: Sequence[str] = (), nodes_nodeids: Whole = (), nodes_treeids: Whole = (),
    nodes_truenodeids: Whole = (), nodes_values: Numbers = (), nodes_values_as_tensor: Array | None = None,
    post_transform: str = "NONE", target_ids: Whole = (), target_nodeids: Whole = (), target_treeids: Whole = (),
    target_weights: Numbers = (), target_weights_as_tensor: Array | None = None, node: Node,
) -> Expr:
    if aggregate_function not in _AGGREGATES:
        node.refuse(f"aggregate_function is {aggregate_function!r}; it must be one of {', '.join(_AGGREGATES)}")
    weights = _tensor(target_weights, target_weights_as_tensor)
    data = rows_of(x, node)
    nodes, number = _nodes(nodes_treeids, nodes_nodeids, nodes_modes, nodes_featureids,
                           _tensor(nodes_values, nodes_values_as_tensor),
                           nodes_truenodeids, nodes_falsenodeids, nodes_missing_value_tracks_true, data, node)
    leaves = _leaves(number, target_treeids, target_nodeids, target_ids, weights.astype(dtype_of(data).numpy()), node)
    result = _aggregated(data, nodes, leaves, n_targets, aggregate_function, node)
    base = _tensor(base_values, base_values_as_tensor)
    if base.size:
        result = op.add(result, Constant(base.astype(dtype_of(result).numpy())))
    return cast(transformed(result, post_transform, node), "float32")


def _aggregated(data: Expr, nodes: Nodes, leaves: Leaves, n_targets: int, how: str, node: Node) -> Expr:
    """The aggregated results of the trees; 0 for a target without entries."""
    result: Expr = ensemble(data, nodes, leaves, n_targets, "sum" if how == "AVERAGE" else how.lower(), node)
    if how == "AVERAGE":
        return op.divide(result, scalar(len(nodes.roots), result))
    if how == "SUM":
        return result
    return op.where(op.isinf(result), scalar(0, result), result)


def _tensor(floats: Numbers, tensor: Array | None) -> Array:
    """An attribute given as floats or as a tensor, which may be float64."""
    return np.asarray(floats, np.float32) if tensor is None else tensor.reshape(-1)


def _nodes(
    trees: Whole, ids: Whole, modes: Sequence[str], features: Whole, values: Array, true: Whole, false: Whole,
    missing: Whole, data: Expr, node: Node,
) -> tuple[Nodes, dict[tuple[int, int], int]]:
    """The inner nodes of the two older operators, and the leaf number of each (tree, node)."""
    table = {name: k for k, name in enumerate(MODES[:MEMBER])} | {"LEAF": -1}
    unknown = set(modes) - set(table)
    if unknown or not len(modes):
        node.refuse(f"nodes_modes has {', '.join(sorted(unknown)) or 'nothing'}; the modes are {', '.join(table)}")
    count = len(modes)
    for what, given in (("nodes_treeids", trees), ("nodes_nodeids", ids), ("nodes_featureids", features),
                        ("nodes_values", values),
                        ("nodes_truenodeids", true), ("nodes_falsenodeids", false)):
        if len(given) != count:
            node.refuse(f"{what} has {len(given)} elements, but nodes_modes has {count}; each must have one for every "
                        "node")
    mode = np.asarray([table[m] for m in modes])
    is_leaf = mode < 0
    number = np.where(is_leaf, 0 - np.cumsum(is_leaf), np.cumsum(~is_leaf) - 1)
    tree = np.asarray(trees, np.int64)
    at = dict(zip(zip(trees, ids, strict=True), number.tolist(), strict=True))
    inner = ~is_leaf
    try:
        children = [np.asarray([at[t, k] for t, k, i in zip(trees, to, inner.tolist(), strict=True) if i], np.int64)
                    for to in (true, false)]
    except KeyError as error:
        node.refuse(f"a node of tree {error.args[0][0]} has the child {error.args[0][1]}, which does not exist; export "
                    "the model again")
    flags = np.asarray(missing, bool)[inner] if len(missing) == count else np.zeros(int(inner.sum()), bool)
    nodes = Nodes(
        np.asarray(features, np.int64)[inner], mode[inner], values[inner].astype(dtype_of(data).numpy()), flags,
        children[0], children[1], number[np.unique(tree, return_index=True)[1]])
    nodes.compared({})
    return nodes, {place: -1 - n for place, n in at.items() if n < 0}


def _leaves(number: dict[tuple[int, int], int], trees: Whole, ids: Whole, targets: Whole, weights: Array,
            node: Node) -> Leaves:
    if not len(trees) == len(ids) == len(targets) == len(weights):
        node.refuse(f"{len(trees)}, {len(ids)}, {len(targets)} and {len(weights)} trees, nodes, targets and weights of "
                    "leaves are given; the four numbers must be equal")
    try:
        leaf = np.asarray([number[place] for place in zip(trees, ids, strict=True)], np.int64)
    except KeyError as error:
        node.refuse(f"a weight is given for node {error.args[0][1]} of tree {error.args[0][0]}, which is not a leaf; "
                    "export the model again")
    return Leaves(len(number), leaf, np.asarray(targets, np.int64), weights)


@converter("TreeEnsembleClassifier", since=1, domain=ML)
def tree_ensemble_classifier(
    x: Expr, *, base_values: Numbers = (), base_values_as_tensor: Array | None = None, class_ids: Whole = (),
    class_nodeids: Whole = (), class_treeids: Whole = (), class_weights: Numbers = (),
    class_weights_as_tensor: Array | None = None, classlabels_int64s: Whole = (),
    classlabels_strings: Sequence[str] = (), nodes_falsenodeids: Whole = (), nodes_featureids: Whole = (),
    nodes_hitrates: Numbers = (), nodes_hitrates_as_tensor: Array | None = None,
    nodes_missing_value_tracks_true: Whole = (), nodes_modes: Sequence[str] = (), nodes_nodeids: Whole = (),
    nodes_treeids: Whole = (), nodes_truenodeids: Whole = (), nodes_values: Numbers = (),
    nodes_values_as_tensor: Array | None = None, post_transform: str = "NONE", node: Node,
) -> tuple[Expr, ...]:
    names = labels(classlabels_int64s, classlabels_strings, node)
    weights = _tensor(class_weights, class_weights_as_tensor)
    data = rows_of(x, node)
    nodes, number = _nodes(nodes_treeids, nodes_nodeids, nodes_modes, nodes_featureids,
                           _tensor(nodes_values, nodes_values_as_tensor),
                           nodes_truenodeids, nodes_falsenodeids, nodes_missing_value_tracks_true, data, node)
    classes = len(names.value)
    base, dtype = _tensor(base_values, base_values_as_tensor), dtype_of(data).numpy()
    one_sided = classes <= 2 and set(class_ids) == {0}
    leaves = _leaves(number, class_treeids, class_nodeids, class_ids, weights.astype(dtype), node)
    scores: Expr = ensemble(data, nodes, leaves, 1 if one_sided else classes, "sum", node)
    if one_sided:
        if base.size:
            scores = op.add(scores, scalar(base[0], scores))
        return _of_two(names, scores, bool((weights >= 0).all()), post_transform, node)
    if base.size:
        scores = op.add(scores, Constant(np.broadcast_to(base, (classes,)).astype(dtype)))
    if classes == 2 and set(class_ids) == {1}:
        place = op.greater(op.squeeze(column(scores, 1), axis=(1,)), scalar(0.5 if (weights >= 0).all() else 0, scores))
        return chosen(names, cast(place, "int64")), cast(transformed(scores, post_transform, node), "float32")
    return chosen(names, greatest(scores)), cast(transformed(scores, post_transform, node), "float32")


def _of_two(names: Constant, score: Expr, positive: bool, how: str, node: Node) -> tuple[Expr, ...]:
    """The label and scores if the trees score only the second class.

    The first class gets 1 - score if no weight is negative, otherwise -score. The specification does not define this;
    ONNX Runtime is followed, except that it applies no softmax. A single class gives the label 1 or 0.
    """
    flat = op.squeeze(score, axis=(1,))
    if len(names.value) == 1:
        return cast(op.greater(flat, scalar(0, flat)), "int64"), cast(transformed(score, how, node), "float32")
    place = cast(op.greater(flat, scalar(0.5 if positive else 0, flat)), "int64")
    complement = how == "PROBIT" or (how == "NONE" and positive)
    other = op.subtract(scalar(1, score), score) if complement else op.negative(score)
    return chosen(names, place), cast(transformed(beside(other, score), how, node), "float32")
