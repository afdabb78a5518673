"""Constants, casts, shapes, values made from numbers, and branches."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from tilewright.relay.expr import Constant, Expr, If, Tuple
from tilewright.relay.frontend.onnx.node import Node
from tilewright.relay.frontend.onnx.operators import op
from tilewright.relay.frontend.onnx.reading import element_type
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.frontend.onnx.shaping import NOTHING, cast, dtype_of, fields, opened, rank, reshape, shape_of
from tilewright.relay.op.vision import AllClassNonMaxSuppression
from tilewright.types import DataType


@converter("Constant")
def constant(
    *, value: Any = None, value_float: float | None = None, value_floats: tuple[float, ...] | None = None, value_int: int | None = None,
    value_ints: tuple[int, ...] | None = None, node: Node,
) -> Expr:
    if value is not None:
        return Constant(value)
    for given, dtype in ((value_float, np.float32), (value_floats, np.float32), (value_int, np.int64), (value_ints, np.int64)):
        if given is not None:
            return Constant(np.asarray(given, dtype))
    return node.refuse("it has no value")


@converter("Identity")
def identity(x: Expr) -> Expr:
    return x


def _to_dtype(code: int, node: Node) -> DataType:
    return element_type(code, "attribute 'to'", node.origin)


_BY_NAME = {"FLOAT": "float32", "DOUBLE": "float64", "FLOAT16": "float16"}


@converter("Cast")
def cast_by_name(x: Expr, *, to: str, node: Node) -> Expr:
    name = _BY_NAME.get(to, to.lower())
    return cast(x, name)


@converter("Cast", since=6)
def cast_to(x: Expr, *, to: int, saturate: int = 1, round_mode: str = "up", node: Node) -> Expr:
    return cast(x, _to_dtype(to, node))


@converter("CastLike")
def cast_like(x: Expr, target_type: Expr, *, saturate: int = 1, round_mode: str = "up") -> Expr:
    return cast(x, dtype_of(target_type))


@converter("Shape")
def shape(data: Expr, *, start: int = 0, end: int | None = None) -> Expr:
    whole, dims = op.shape_of(data, dtype="int64"), shape_of(data)
    first, last, _ = slice(start, end).indices(len(dims))
    if (first, last) == (0, len(dims)):
        return whole
    return op.strided_slice(whole, begin=(first,), end=(max(first, last),), strides=(1,), axes=(0,))


@converter("Size")
def size(data: Expr) -> Expr:
    return op.ndarray_size(data, dtype="int64")


@converter("ConstantOfShape")
def constant_of_shape(shape: Expr, *, value: Any = None, node: Node) -> Expr:
    fill = np.zeros(1, np.float32) if value is None else value
    if fill.size != 1:
        node.refuse(f"attribute 'value' must be one number, and its shape is {fill.shape}")
    known = node.known(shape)
    dims = tuple(known.flat) if known is not None else node.ints(shape, "input")
    dims = tuple(int(d) if isinstance(d, np.integer) else d for d in dims)
    return op.full(Constant(fill.reshape(())), shape=dims, dtype=DataType(fill.dtype))


@converter("Range")
def range_(start: Expr, limit: Expr, delta: Expr, *, stash_type: int = 1, node: Node) -> Expr:
    first, last, step = (node.scalar(x, name) for x, name in ((start, "start"), (limit, "limit"), (delta, "delta")))
    if step == 0:
        node.refuse("delta is 0")
    return op.arange(start=first, stop=last, step=step, dtype=dtype_of(start))


@converter("EyeLike")
def eye_like(x: Expr, *, dtype: int | None = None, k: int = 0, node: Node) -> Expr:
    kind = dtype_of(x) if dtype is None else element_type(dtype, "attribute 'dtype'", node.origin)
    if rank(x) != 2:
        node.refuse(f"its input must be a matrix, and it has {rank(x)} dimensions")
    rows, columns = node.static(x, "input")
    return Constant(np.eye(rows, columns, k, dtype=kind.numpy()))


@converter("NonZero")
def nonzero(x: Expr, *, node: Node) -> Expr:
    """Its shape depends on the data, so the data must be known."""
    value = node.value(x, "X")
    return Constant(np.stack(np.nonzero(value)).astype(np.int64) if value.ndim else np.zeros((0, int(bool(value))), np.int64))


@converter("Unique")
def unique(x: Expr, *, axis: int | None = None, sorted: int = 1, node: Node) -> tuple[Expr, ...]:
    """Its shape depends on the data, so the data must be known."""
    value = node.value(x, "X")
    found, index, inverse, counts = np.unique(value, True, True, True, axis=axis)
    if not sorted:
        order = np.argsort(index)
        rank_of = np.argsort(order)
        found = np.take(found, order, axis=0 if axis is None else axis)
        index, inverse, counts = index[order], rank_of[inverse], counts[order]
    return tuple(Constant(v) for v in (found, index, inverse.reshape(-1), counts))


@converter("NonMaxSuppression", since=10)
def non_max_suppression(
    boxes: Expr, scores: Expr, max_output_boxes_per_class: Expr | None = None, iou_threshold: Expr | None = None, score_threshold: Expr | None = None,
    *, center_point_box: int = 0, node: Node,
) -> Expr:
    """Its shape depends on the data, so the data must be known."""
    places, points = node.value(boxes, "boxes"), node.value(scores, "scores")
    if center_point_box:
        center, half = places[..., :2], places[..., 2:] / 2
        places = np.concatenate([center - half, center + half], -1)
    most = int(node.scalar(max_output_boxes_per_class, "max_output_boxes_per_class", 0))
    least = float(node.scalar(score_threshold, "score_threshold", -np.inf))
    suppress = AllClassNonMaxSuppression(most, float(node.scalar(iou_threshold, "iou_threshold", 0.0)), least)
    rows, count = suppress.reference(places, points)
    return Constant(rows[: int(count[0])])


@converter("If")
def if_(cond: Expr, *, then_branch: onnx.GraphProto, else_branch: onnx.GraphProto, node: Node) -> tuple[Expr, ...]:
    known = node.known(cond)
    if known is not None:
        return tuple(node.import_graph(then_branch if known.reshape(-1)[0] else else_branch))
    if rank(cond):
        cond = reshape(cond, ())
    then, otherwise = node.import_graph(then_branch), node.import_graph(else_branch)
    for k, (a, b) in enumerate(zip(then, otherwise, strict=True)):
        if a.checked_type != b.checked_type or (a is NOTHING) != (b is NOTHING):
            found = ["nothing" if x is NOTHING else repr(x.checked_type) for x in (a, b)]
            chosen = node.value(cond, "cond", f", since output {k} is {found[0]} in one branch and {found[1]} in the other")
            return tuple(then if chosen.reshape(-1)[0] else otherwise)
    whole = If(cond, Tuple(tuple(then)), Tuple(tuple(otherwise)), node.origin) if len(then) > 1 else If(cond, then[0], otherwise[0], node.origin)
    results = fields(whole, len(then)) if len(then) > 1 else (whole,)
    return tuple(NOTHING if a is NOTHING else opened(r) for a, r in zip(then, results, strict=True))
