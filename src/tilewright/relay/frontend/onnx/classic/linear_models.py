"""ai.onnx.ml's linear models: matrix products followed by small transformations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tilewright.relay.expr import Constant, Expr
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
from tilewright.relay.types_of import scalar

ML: Final = "ai.onnx.ml"


def product(x: Expr, coefficients: Sequence[float], intercepts: Sequence[float], outputs: int, node: Node) -> Expr:
    """x (rows, features) times coefficients (outputs, features), plus an intercept for each output."""
    features = width_of(x, node)
    if len(coefficients) != outputs * features:
        node.refuse(f"{len(coefficients)} coefficients are given, but {outputs} outputs of {features} features need "
                    f"{outputs * features}")
    y = times_matrix(x, Constant(np.asarray(coefficients, np.float32).reshape(outputs, features)))
    if not len(intercepts):
        return y
    if len(intercepts) not in (1, outputs):
        node.refuse(f"{len(intercepts)} intercepts are given for {outputs} outputs; there must be one for each")
    return op.nn.bias_add(y, Constant(np.broadcast_to(np.asarray(intercepts, np.float32), (outputs,))), axis=-1)


@converter("LinearRegressor", domain=ML)
def linear_regressor(
    x: Expr, *, coefficients: Sequence[float] = (), intercepts: Sequence[float] = (), post_transform: str = "NONE",
    targets: int = 1, node: Node,
) -> Expr:
    return transformed(product(rows_of(x, node, double=False), coefficients, intercepts, targets, node), post_transform,
                       node)


@converter("LinearClassifier", domain=ML)
def linear_classifier(
    x: Expr, *, classlabels_ints: Sequence[int] = (), classlabels_strings: Sequence[str] = (),
    coefficients: Sequence[float], intercepts: Sequence[float] = (), multi_class: int = 0, post_transform: str = "NONE",
    node: Node,
) -> tuple[Expr, ...]:
    names = labels(classlabels_ints, classlabels_strings, node)
    rows = rows_of(x, node, double=False)
    outputs = len(coefficients) // max(1, width_of(rows, node))
    score = product(rows, coefficients, intercepts, outputs, node)
    if outputs == 1 and len(names.value) <= 2:
        return _of_one(names, score, post_transform, node)
    return chosen(names, greatest(score)), transformed(score, post_transform, node)


def _of_one(names: Constant, score: Expr, how: str, node: Node) -> tuple[Expr, ...]:
    """The label and scores from one score per row.

    For two classes it is the score of the second; the first has 1 - score or -score. For one class the label is 1 or 0.
    """
    yes = cast(op.squeeze(op.greater(score, scalar(0, score)), axis=(1,)), "int64")
    if len(names.value) == 1:
        return yes, transformed(score, how, node)
    other = op.subtract(scalar(1, score), score) if how == "NONE" else op.negative(score)
    return chosen(names, yes), transformed(beside(other, score), how, node)
