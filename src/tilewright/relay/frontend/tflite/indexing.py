"""Operators that read and write at computed positions: gather, scatter, segments, diagonals, top-k, nonzero."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from ml_dtypes import finfo

from tilewright.base.types import DataType
from tilewright.relay.expr import Constant, Expr, TupleGetItem
from tilewright.relay.frontend.core.index_checks import inside
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import axis_of, cast, fields, reshape, transpose
from tilewright.relay.frontend.tflite.node import Node, Value, constant
from tilewright.relay.frontend.tflite.registry import converter
from tilewright.relay.frontend.tflite.rescale import limits
from tilewright.relay.op.selection import first_of


@converter("GATHER")
def gather(x: Value, indices: Value, *, axis: int = 0, batch_dims: int = 0, node: Node) -> Expr:
    along, batch = axis_of(axis, x.dimensions, node), batch_dims % max(indices.rank + 1, 1)
    return op.take(x.expr, inside(_known(indices, node), (x.shape[along],), node), axis=along, batch_dims=batch,
                   mode="clip")


@converter("GATHER_ND")
def gather_nd(x: Value, indices: Value, *, node: Node) -> Expr:
    return op.gather_nd(x.expr, _coordinates_first(indices, x.shape, node))


def _known(indices: Value, node: Node) -> Expr:
    """The indices, as a constant if they are known."""
    value = node.known(indices)
    return indices.expr if value is None else Constant(value)


def _coordinates_first(indices: Value, sizes: Sequence[int], node: Node) -> Expr:
    """Move the last dimension, the coordinates of points, to the front; points outside `sizes` are refused."""
    last, count = indices.rank - 1, indices.shape[-1]
    return transpose(inside(_known(indices, node), sizes[:count], node), (last, *range(last)))


@converter("SCATTER_ND")
def scatter_nd(indices: Value, updates: Value, shape: Value, *, node: Node) -> Expr:
    zeros = op.zeros(shape=node.ints(shape), dtype=updates.dtype)
    points = _coordinates_first(indices, node.ints(shape), node)
    if updates.dtype == "bool":
        wide = op.scatter_nd(cast(zeros, "int32"), points, cast(updates.expr, "int32"), mode="max")
        return cast(wide, "bool")
    return op.scatter_nd(zeros, points, updates.expr, mode="add")


@converter("SPARSE_TO_DENSE")
def sparse_to_dense(indices: Value, shape: Value, values: Value, default: Value, *, node: Node) -> Expr:
    sizes = node.ints(shape)
    points = reshape(indices.expr, (math.prod(indices.shape) // max(len(sizes), 1), len(sizes)))
    filling = op.broadcast_to(reshape(default.expr, ()), shape=sizes)
    count = points.tensor_type.shape[0]
    spread = op.broadcast_to(values.expr, shape=(count,)) if values.shape != (count,) else values.expr
    return op.scatter_nd(filling, transpose(points, (1, 0)), spread, mode="update")


@converter("ONE_HOT")
def one_hot(indices: Value, depth: Value, on: Value, off: Value, *, axis: int = 0, node: Node) -> Expr:
    place = axis_of(axis, indices.rank + 1, node)
    size = node.whole(depth)
    return op.one_hot(indices.expr, reshape(on.expr, ()), reshape(off.expr, ()), depth=size, axis=place, dtype=on.dtype)


@converter("TOPK_V2")
def topk(x: Value, k: Value, *, node: Node) -> tuple[Expr, ...]:
    if not x.rank:
        node.refuse("its input is a scalar; it must have at least 1 dimension")
    count, kind = node.whole(k), node.outputs[1].dtype
    if not 0 <= count <= x.shape[-1]:
        node.refuse(f"k is {count}, but its input has only {x.shape[-1]} elements")
    if not count:
        return tuple(op.zeros(shape=(*x.shape[:-1], 0), dtype=d) for d in (x.dtype, kind))
    values, places = fields(op.topk(x.expr, k=count, axis=-1), 2)
    return values, cast(places, kind)


@converter("WHERE")
def where(condition: Value) -> Expr:
    return op.argwhere(condition.expr, dtype="int64")


@converter("UNIQUE")
def unique(x: Value, *, idx_out_type: int = 2, node: Node) -> tuple[Expr, ...]:
    values, _, inverse, count = fields(op.unique(x.expr, is_sorted=False), 4)
    return first_of(values, count), cast(inverse, node.outputs[1].dtype)


_IDENTITIES = {"add": 0, "mul": 1}


def _unsorted(kind: str, mode: str) -> None:
    @converter(kind)
    def convert(x: Value, segments: Value, count: Value, *, node: Node) -> Expr:
        number, rest = node.whole(count), x.shape[segments.rank :]
        low, high = (-math.inf, math.inf) if DataType(x.dtype).is_float else limits(x.dtype)
        kind = DataType(x.dtype)
        finite = finfo(kind.numpy()) if kind.is_float else None  # type: ignore[no-untyped-call]
        least, most = (low, high) if finite is None else (finite.min, finite.max)
        first = {"min": most, "max": least}.get(mode, _IDENTITIES.get(mode))
        return _segments(x, segments, number, rest, mode, first)


def _segments(x: Value, segments: Value, number: int, rest: tuple[int, ...], mode: str, first: object) -> Expr:
    """Reduce rows with the same segment number; rows with a negative number are discarded."""
    count = math.prod(segments.shape)
    rows = reshape(x.expr, (count, *rest))
    numbers = cast(reshape(segments.expr, (1, count)), "int32")
    kept = op.where(op.less(numbers, constant(0, "int32")), constant(number, "int32"), numbers)
    start = Constant(np.full((number + 1, *rest), first, DataType(x.dtype).numpy()))
    found = op.scatter_nd(start, kept, rows, mode=mode)
    return op.strided_slice(found, begin=(0,), end=(number,), strides=(1,), axes=(0,))


for _kind, _mode in (("UNSORTED_SEGMENT_SUM", "add"), ("UNSORTED_SEGMENT_PROD", "mul"), ("UNSORTED_SEGMENT_MIN", "min"),
                     ("UNSORTED_SEGMENT_MAX", "max")):
    _unsorted(_kind, _mode)


@converter("SEGMENT_SUM")
def segment_sum(x: Value, segments: Value, *, node: Node) -> Expr:
    numbers = node.value(segments)
    return _segments(x, segments, int(numbers.max(initial=-1)) + 1, x.shape[1:], "add", 0)


@converter("MATRIX_DIAG")
def matrix_diag(x: Value) -> Expr:
    zeros = op.zeros(shape=(*x.shape, x.shape[-1]), dtype=x.dtype)
    return op.matrix_set_diag(zeros, x.expr)


@converter("MATRIX_SET_DIAG")
def matrix_set_diag(x: Value, diagonal: Value) -> Expr:
    return op.matrix_set_diag(x.expr, diagonal.expr)


@converter("DYNAMIC_UPDATE_SLICE")
def dynamic_update_slice(x: Value, update: Value, begin: Value, *, node: Node) -> Expr:
    known = node.known(begin)
    if not x.rank == update.rank == math.prod(begin.shape):
        node.refuse(f"its input has {x.rank} dimensions, its update {update.rank}, and the start index "
                    f"{math.prod(begin.shape)} numbers; all must be equal. The file is damaged: convert it again")
    most = [d - u for d, u in zip(x.shape, update.shape, strict=True)]
    if any(m < 0 for m in most):
        node.refuse(f"its update of shape {update.shape} is larger than its input of shape {x.shape}")
    if not math.prod(update.shape):
        return x.expr
    if known is not None:
        first = tuple(int(np.clip(b, 0, m)) for b, m in zip(known.flat, most, strict=True))
        places = np.stack(np.meshgrid(*(np.arange(b, b + u) for b, u in zip(first, update.shape, strict=True)),
                                      indexing="ij")) if first else np.zeros((0,), np.int64)
        indices: Expr = Constant(places.astype(np.int32))
    else:
        grid = np.stack(np.meshgrid(*map(np.arange, update.shape), indexing="ij")).astype(np.int32)
        held = op.minimum(op.maximum(cast(begin.expr, "int32"), constant(0, "int32")),
                          Constant(np.asarray(most, np.int32)))
        indices = op.add(Constant(grid), reshape(held, (x.rank, *[1] * x.rank)))
    if x.dtype == "bool":
        return cast(op.scatter_nd(cast(x.expr, "int8"), indices, cast(update.expr, "int8"), mode="update"), "bool")
    return op.scatter_nd(x.expr, indices, update.expr, mode="update")


@converter("EMBEDDING_LOOKUP")
def embedding_lookup(ids: Value, table: Value, *, node: Node) -> Expr:
    from tilewright.relay.frontend.tflite.hybrid import dequantized

    rows = dequantized(table) if table.is_quantized else table.expr
    return op.take(rows, inside(_known(ids, node), table.shape[:1], node), axis=0, mode="clip")


@converter("NON_MAX_SUPPRESSION_V4")
def non_max_suppression_v4(boxes: Value, scores: Value, most: Value, iou: Value, least: Value, *,
                           node: Node) -> tuple[Expr, ...]:
    places, _, count = _suppressed(boxes, scores, most, iou, least, node)
    return places, count


@converter("NON_MAX_SUPPRESSION_V5")
def non_max_suppression_v5(
    boxes: Value, scores: Value, most: Value, iou: Value, least: Value, sigma: Value, *, node: Node,
) -> tuple[Expr, ...]:
    if float(node.scalar(sigma)) != 0:
        node.refuse("its soft_nms_sigma is not zero, which is not supported; set it to zero")
    return _suppressed(boxes, scores, most, iou, least, node)


def _suppressed(boxes: Value, scores: Value, most: Value, iou: Value, least: Value,
                node: Node) -> tuple[Expr, Expr, Expr]:
    """The indices and scores of the selected boxes, zero-padded, and their number."""
    size, n = node.whole(most), boxes.shape[0]
    whole = op.vision.all_class_non_max_suppression(
        reshape(boxes.expr, (1, n, 4)), reshape(scores.expr, (1, 1, n)), max_output_boxes_per_class=size,
        iou_threshold=float(node.scalar(iou)), score_threshold=float(node.scalar(least)), output_format="tensorflow")
    rows, points, count = (TupleGetItem(whole, k) for k in range(3))
    places = reshape(op.strided_slice(rows, begin=(1,), end=(2,), strides=(1,), axes=(2,)), (n,))
    return _room_for(cast(places, "int32"), n, size), _room_for(reshape(points, (n,)), n,
        size), reshape(cast(count, "int32"), ())


def _room_for(x: Expr, n: int, size: int) -> Expr:
    """A vector of `n` elements cropped or zero-padded to `size`."""
    if size <= n:
        return op.strided_slice(x, begin=(0,), end=(size,), strides=(1,))
    return op.nn.pad(x, constant(0, str(x.tensor_type.dtype)), pad_width=((0, size - n),))
