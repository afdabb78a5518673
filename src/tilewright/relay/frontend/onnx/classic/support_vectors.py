"""ai.onnx.ml's support vector machines: kernels between rows and support vectors, then matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.onnx.classic.linear_models import product
from tilewright.relay.frontend.onnx.classic.scores import (
    beside,
    chosen,
    greatest,
    labels,
    rows_of,
    transformed,
    width_of,
)
from tilewright.relay.frontend.onnx.node import Node
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.products import times_matrix
from tilewright.relay.frontend.shaping import cast
from tilewright.relay.types_of import scalar, shape_of

ML: Final = "ai.onnx.ml"
Array = np.ndarray[Any, Any]


def _kernel(x: Expr, vectors: Array, kind: str, parameters: Sequence[float], node: Node) -> Expr:
    """The kernel between each row of `x` and each support vector: (rows, vectors)."""
    if vectors.shape[1] != width_of(x, node):
        node.refuse(f"its support vectors have {vectors.shape[1]} features, but its input has {shape_of(x)[1]}")
    gamma, offset, degree = parameters if len(parameters) == 3 else (0.0, 0.0, 0.0)
    if kind == "RBF":
        difference = op.subtract(op.expand_dims(x, axis=1), Constant(vectors))
        distance = op.sum(op.multiply(difference, difference), axis=(2,))
        return op.exp(op.multiply(distance, scalar(-gamma, distance)))
    dot = times_matrix(x, Constant(vectors))
    if kind == "LINEAR":
        return dot
    moved = op.add(op.multiply(dot, scalar(gamma, dot)), scalar(offset, dot))
    if kind == "POLY":
        return op.power(moved, scalar(degree, moved))
    if kind != "SIGMOID":
        node.refuse(f"kernel_type is {kind!r}; it must be LINEAR, POLY, RBF or SIGMOID")
    return op.tanh(moved)


@converter("SVMRegressor", domain=ML)
def svm_regressor(
    x: Expr, *, coefficients: Sequence[float] = (), kernel_params: Sequence[float] = (), kernel_type: str = "LINEAR",
    n_supports: int = 0, one_class: int = 0, post_transform: str = "NONE", rho: Sequence[float] = (),
    support_vectors: Sequence[float] = (), node: Node,
) -> Expr:
    rows = rows_of(x, node, double=False)
    if n_supports:
        vectors = np.asarray(support_vectors, np.float32).reshape(n_supports, -1)
        rows = _kernel(rows, vectors, kernel_type, kernel_params, node)
    score = product(rows, coefficients, rho[:1], 1, node)
    if one_class:
        score = op.where(op.greater(score, scalar(0, score)), scalar(1, score), scalar(-1, score))
    return transformed(score, post_transform, node)


@converter("SVMClassifier", domain=ML)
def svm_classifier(
    x: Expr, *, classlabels_ints: Sequence[int] = (), classlabels_strings: Sequence[str] = (),
    coefficients: Sequence[float] = (), kernel_params: Sequence[float] = (), kernel_type: str = "LINEAR",
    post_transform: str = "NONE", prob_a: Sequence[float] = (), prob_b: Sequence[float] = (), rho: Sequence[float] = (),
    support_vectors: Sequence[float] = (), vectors_per_class: Sequence[int] = (), node: Node,
) -> tuple[Expr, ...]:
    names = labels(classlabels_ints, classlabels_strings, node)
    rows, classes = rows_of(x, node, double=False), len(names.value)
    if not vectors_per_class:
        score = product(rows, coefficients, rho[:1], classes, node)
        return _chosen_of(names, score, post_transform, node)
    if len(vectors_per_class) != classes or len(rho) != classes * (classes - 1) // 2:
        node.refuse(f"{classes} classes need {classes} elements of vectors_per_class and "
                    f"{classes * (classes - 1) // 2} of rho, one for each pair; they have lengths "
                    f"{len(vectors_per_class)} and {len(rho)}")
    count = sum(vectors_per_class)
    vectors = np.asarray(support_vectors, np.float32).reshape(count, -1)
    kernel = _kernel(rows, vectors, kernel_type, kernel_params, node)
    weights = _pairs(np.asarray(coefficients, np.float32).reshape(classes - 1, count), vectors_per_class)
    decision = op.nn.bias_add(times_matrix(kernel, Constant(weights)), Constant(np.asarray(rho, np.float32)), axis=-1)
    votes = _votes(decision, classes)
    if prob_a:
        slope, offset = (Constant(np.asarray(p, np.float32)) for p in (prob_a, prob_b))
        likely = op.sigmoid(op.negative(op.add(op.multiply(decision, slope), offset)))
        score = op.pairwise_coupling(op.clip(likely, a_min=1e-7, a_max=1 - 1e-7), classes=classes)
        return chosen(names, greatest(votes)), transformed(score, post_transform, node)
    if classes == 2:
        return chosen(names, greatest(votes)), transformed(beside(op.negative(decision), decision), post_transform,
            node)
    return chosen(names, greatest(votes)), transformed(decision, post_transform, node)


def _chosen_of(names: Constant, score: Expr, how: str, node: Node) -> tuple[Expr, ...]:
    if len(names.value) == 1:
        yes = op.squeeze(op.greater(score, scalar(0, score)), axis=(1,))
        return cast(yes, "int64"), transformed(score, how, node)
    return chosen(names, greatest(score)), transformed(score, how, node)


def _pairs(coefficients: Array, per_class: Sequence[int]) -> Array:
    """Coefficients (classes - 1, vectors) as a row per pair of classes i < j, zero for vectors of other classes."""
    ends = np.cumsum(per_class)
    of = [slice(int(end) - n, int(end)) for end, n in zip(ends, per_class, strict=True)]
    rows = []
    for i in range(len(per_class)):
        for j in range(i + 1, len(per_class)):
            row = np.zeros(coefficients.shape[1], np.float32)
            row[of[i]] = coefficients[j - 1, of[i]]
            row[of[j]] = coefficients[i, of[j]]
            rows.append(row)
    return np.stack(rows)


def _votes(decision: Expr, classes: int) -> Expr:
    """The number of pairs each class wins: pair i < j goes to i if its decision is positive, otherwise to j."""
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    wins, losses = (np.zeros((classes, len(pairs)), np.float32) for _ in range(2))
    for k, (i, j) in enumerate(pairs):
        wins[i, k], losses[j, k] = 1, 1
    first = cast(op.greater(decision, scalar(0, decision)), "float32")
    return op.nn.bias_add(times_matrix(first, Constant(wins - losses)), Constant(losses.sum(axis=1)), axis=-1)
