"""Scores of ai.onnx.ml's classifiers: post-transforms, binary classes, and the label of the greatest score."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from tilewright.base.array_bytes import of_strings
from tilewright.relay.expr import Constant, Expr, Tuple
from tilewright.relay.frontend.onnx.node import Node
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast, slice_axis
from tilewright.relay.types_of import scalar, shape_of

TRANSFORMS: Final = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""The post-transforms; the position is their number in TreeEnsemble."""


def transformed(scores: Expr, how: str, node: Node) -> Expr:
    """Apply a post-transform to scores (rows, classes)."""
    if how not in TRANSFORMS:
        node.refuse(f"post_transform is {how!r}; it must be one of {', '.join(TRANSFORMS)}")
    if how == "SOFTMAX":
        return op.nn.softmax(scores, axis=-1)
    if how == "LOGISTIC":
        return op.sigmoid(scores)
    if how == "SOFTMAX_ZERO":
        return _softmax_zero(scores)
    return _probit(scores) if how == "PROBIT" else scores


def _softmax_zero(scores: Expr) -> Expr:
    """Softmax that keeps scores of zero (up to 1e-7) near zero."""
    greatest = op.max(scores, axis=(-1,), keepdims=True)
    moved = op.exp(op.subtract(scores, greatest))
    kept = op.multiply(scores, op.exp(op.negative(greatest)))
    parts = op.where(op.greater(op.abs(scores), scalar(1e-7, scores)), moved, kept)
    total = op.sum(parts, axis=(-1,), keepdims=True)
    none = op.equal(total, scalar(0, total))
    return op.where(none, scalar(0.5, total), op.divide(parts, op.where(none, scalar(1, total), total)))


def _probit(p: Expr) -> Expr:
    """sqrt(2) * erf^-1(2 p - 1) by Winitzki's formula, as in ONNX Runtime."""
    x = op.subtract(op.multiply(p, scalar(2, p)), scalar(1, p))
    inside = op.multiply(op.subtract(scalar(1, p), x), op.add(scalar(1, p), x))
    log = op.log(inside)
    a = 0.147
    v = op.add(scalar(2 / (math.pi * a), p), op.multiply(log, scalar(0.5, p)))
    root = op.sqrt(op.subtract(op.sqrt(op.subtract(op.multiply(v, v), op.multiply(log, scalar(1 / a, p)))), v))
    found = op.multiply(op.multiply(op.sign(x), root), scalar(1.41421356, p))
    return op.where(op.equal(inside, scalar(0, p)), scalar(0, p), found)


def beside(first: Expr, second: Expr) -> Expr:
    """Concatenate two columns to a matrix."""
    return op.concatenate(Tuple((first, second)), axis=1)


def labels(ints: Sequence[int] | None, strings: Sequence[str] | None, node: Node) -> Constant:
    """The labels of the classes, one element each."""
    if bool(ints) == bool(strings):
        node.refuse("the labels of its classes must be given either as integers or as strings, not as both")
    return Constant(np.asarray(ints, np.int64) if ints else of_strings(list(strings or ()), (len(strings or ()),)))


def chosen(names: Constant, place: Expr) -> Expr:
    """The label (int64 or string) of each row, given its class index."""
    return op.take(names, place, axis=0)


def greatest(scores: Expr) -> Expr:
    """The index of the greatest score of each row; the first of equal ones."""
    return cast(op.argmax(scores, axis=(1,)), "int64")


def width_of(x: Expr, node: Node) -> int:
    """The number of features per row; raises `ModelError` if it is unknown."""
    width = shape_of(x)[1]
    return width if isinstance(width, int) else node.static(x, "X")[1]


def column(scores: Expr, k: int) -> Expr:
    """Column `k` as a matrix (rows, 1)."""
    return scores if shape_of(scores)[1] == 1 else slice_axis(scores, 1, k, k + 1)


def rows_of(x: Expr, node: Node, *, double: bool = True) -> Expr:
    """The input as rows of floats: a vector is one row, integers become float32, float64 is kept if `double`."""
    if x.tensor_type.ndim == 1:
        x = op.expand_dims(x, axis=0)
    if x.tensor_type.ndim != 2:
        node.refuse(f"its input has {x.tensor_type.ndim} dimensions; it must be a matrix with a row for each example")
    return x if double and x.tensor_type.dtype == "float64" else cast(x, "float32")
