"""Operators of object detection: suppression of overlapping boxes, and selection of valid boxes."""

from __future__ import annotations

import importlib
from typing import Any, Final

import numpy as np

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import TensorType, TupleType, Type
from tilewright.relay.op.registry import Array, Fusion, Op, op, tensors
from tilewright.relay.op.sorting import sorted_places
from tilewright.scalar.arith.open_sizes import room_for
from tilewright.topi.shapes import Shape, differ, is_too_small, require_rank, require_same_dtype, text
from tilewright.topi.vision import suppression as topi

_COMPARED: Final = 64
"""Number of boxes compared with all others at once."""


def overlap(a: Array, b: Array, one: float = 0) -> Any:
    """The intersection over union of two boxes given by opposite corners; `one` is added to each side's length."""
    low_a, high_a, low_b, high_b = (np.minimum(a[:2], a[2:]), np.maximum(a[:2], a[2:]), np.minimum(b[:2], b[2:]),
                                    np.maximum(b[:2], b[2:]))
    kind = a.dtype.type
    width, height = np.maximum(kind(0), np.minimum(high_a, high_b) - np.maximum(low_a, low_b) + kind(one))
    shared = width * height
    areas = [(h[0] - lo[0] + kind(one)) * (h[1] - lo[1] + kind(one)) for lo, h in ((low_a, high_a), (low_b, high_b))]
    union = areas[0] + areas[1] - shared
    return kind(0) if union <= 0 else shared / union


def unsuppressed(boxes: Array, order: Array, threshold: float, most: int, one: float = 0) -> list[int]:
    """Return the indices of the first `most` boxes (-1: all) that overlap no box kept before them in `order` by more
    than `threshold`.

    Boxes are compared with all later ones in groups, to vectorize the comparison.
    """
    kind, boxes, kept = boxes.dtype.type, boxes[order], list[int]()
    low, high = np.minimum(boxes[:, :2], boxes[:, 2:4]).T, np.maximum(boxes[:, :2], boxes[:, 2:4]).T
    areas = (high[0] - low[0] + kind(one)) * (high[1] - low[1] + kind(one))
    left = np.arange(len(order))
    while len(left) and len(kept) != most:
        some = left[:_COMPARED]
        width, height = (np.maximum(kind(0), np.minimum(h[some, None], h[left]) - np.maximum(lo[some, None], lo[left])
                                    + kind(one)) for lo, h in zip(low, high, strict=True))
        shared = width * height
        union = areas[left] + areas[some, None] - shared
        with np.errstate(all="ignore"):
            apart = np.where(union <= 0, kind(0), shared / union) <= kind(threshold)
        stays = np.ones(len(left), bool)
        for k, place in enumerate(some.tolist()):
            if stays[k] and len(kept) != most:
                kept.append(int(order[place]))
                stays &= apart[k]
        left = left[len(some) :][stays[len(some) :]]
    return kept


def boxes_of(data: Type, values: int, what: str = "data") -> TensorType:
    """Return the tensor (batch, boxes, values). Raises `ShapeError` for fewer than `values` values."""
    t = require_rank(tensors(data)[0], 3, what)
    if is_too_small(t.shape[2], values):
        raise ShapeError(f"{what} {text(t.shape)} must have at least {values} values for each box")
    return t


@op("vision.get_valid_counts", kind=Fusion.OPAQUE)
class GetValidCounts(Op):
    """The number of boxes of `data` (batch, boxes, values) above the threshold; these boxes first, then -1; and their
    positions.

    Boxes of a negative class are invalid, unless `id_index` is -1.
    """

    written = ("score_threshold",)
    score_threshold: float = 0.0
    """Exclusive lower bound of the scores."""
    id_index: int = 0
    """Position of the class among the values of a box; -1 for none."""
    score_index: int = 1
    """Position of the score among the values of a box."""

    def infer(self, data: Type) -> TupleType:
        """Counts (batch,) of int32, the type of the data, and indices (batch, boxes) of int32."""
        t = boxes_of(data, max(self.score_index, self.id_index) + 1)
        return TupleType((TensorType(t.shape[:1], "int32"), t, TensorType(t.shape[:2], "int32")))

    def reference(self, data: Array) -> tuple[Array, ...]:
        boxes, places = np.full_like(data, -1), np.full(data.shape[:2], -1, np.int32)
        valid = data[..., self.score_index] > data.dtype.type(self.score_threshold)
        if self.id_index >= 0:
            valid &= data[..., self.id_index] >= 0
        for i, row in enumerate(valid):
            (found,) = np.nonzero(row)
            boxes[i, : len(found)], places[i, : len(found)] = data[i, found], found
        return valid.sum(1).astype(np.int32), boxes, places

    def compute(self, data: te.Tensor) -> tuple[te.Tensor, ...]:
        return topi.get_valid_counts(data, self.score_threshold, self.id_index, self.score_index)


@op("vision.non_max_suppression", kind=Fusion.OPAQUE)
class NonMaxSuppression(Op):
    """The boxes of `data` (batch, boxes, values) sorted by score, -1 in place of those that a better box of their class
    overlaps.

    `valid_count` (batch,) boxes of each image are considered. A box whose score is not positive overlaps none. With
    `return_indices`, the result is the entries of `indices` (batch, boxes) for the kept boxes, and their numbers.
    """

    max_output_size: int = -1
    """Largest number of boxes kept for each image; -1 means all."""
    iou_threshold: float = 0.5
    """Intersection over union from which a box is suppressed; 0 or less suppresses nothing."""
    force_suppress: bool = False
    """True compares boxes of all classes, False those of one class only."""
    top_k: int = -1
    """Number of best boxes that are considered; -1 means all."""
    coord_start: int = 2
    """Position of the first of the four coordinates among the values of a box."""
    score_index: int = 1
    """Position of the score among the values of a box."""
    id_index: int = 0
    """Position of the class among the values of a box; -1 for none."""
    return_indices: bool = True
    """True returns the indices of the kept boxes and their number, False the boxes."""
    invalid_to_bottom: bool = False
    """True moves the kept boxes to the front."""

    def infer(self, data: Type, valid_count: Type, indices: Type) -> Type:
        """The type of the data; with `return_indices` (batch, boxes) and (batch, 1), both int32."""
        t = boxes_of(data, max(self.coord_start + 4, self.score_index + 1, self.id_index + 1))
        counts, where = tensors(valid_count, indices)
        if counts.ndim != 1 or differ(counts.shape[0], t.shape[0]) or not counts.dtype.is_integer:
            raise ShapeError(f"valid_count must have one integer for each of the {t.shape[0]} images, but it is "
                             f"{counts!r}")
        if self.return_indices and (where.ndim != 2 or any(map(differ, where.shape, t.shape))
                                    or not where.dtype.is_integer):
            raise ShapeError(f"indices must have one integer for each box {text(t.shape[:2])}, but they are {where!r}")
        if self.return_indices:
            return TupleType((TensorType(t.shape[:2], "int32"), TensorType((t.shape[0], 1), "int32")))
        return t

    def reference(self, data: Array, valid_count: Array, indices: Array) -> Any:
        result, places = np.full_like(data, -1), np.full(data.shape[:2], -1, np.int32)
        number = np.zeros((data.shape[0], 1), np.int32)
        for i, rows in enumerate(data):
            chosen = self._chosen(rows[: max(valid_count[i], 0)])
            number[i] = len(chosen)
            for k, (turn, place) in enumerate(chosen):
                result[i, k if self.invalid_to_bottom else turn] = rows[place]
                places[i, k] = indices[i, place] if self.return_indices else 0
        return (places, number) if self.return_indices else result

    def _chosen(self, rows: Array) -> list[tuple[int, int]]:
        """Return the kept boxes of one image as (rank in sorted order, position)."""
        if self.iou_threshold <= 0:
            return [(k, k) for k in range(len(rows))]
        chosen, kept = [], list[int]()
        order = sorted_places(rows[:, self.score_index], 0, False)
        selected, threshold = 0, rows.dtype.type(self.iou_threshold)
        for turn, place in enumerate(order):
            row = rows[place]
            if (0 < self.top_k <= turn) or selected == self.max_output_size:
                continue
            if row[self.score_index] > 0:
                rivals = [rows[k] for k in kept if self.force_suppress or self.id_index < 0
                          or rows[k][self.id_index] == row[self.id_index]]
                if any(overlap(self._corners(row), self._corners(r)) >= threshold for r in rivals):
                    continue
                selected += 1
                if self.id_index < 0 or row[self.id_index] >= 0:
                    kept.append(place)
            chosen.append((turn, int(place)))
        return chosen

    def _corners(self, row: Array) -> Array:
        return row[self.coord_start : self.coord_start + 4]

    def compute(self, data: te.Tensor, valid_count: te.Tensor, indices: te.Tensor) -> Any:
        return topi.non_max_suppression(data, valid_count, indices, **self.attributes())


@op("vision.all_class_non_max_suppression", kind=Fusion.OPAQUE)
class AllClassNonMaxSuppression(Op):
    """Suppression within each class: `boxes` (batch, boxes, 4), `scores` (batch, classes, boxes) (ONNX
    NonMaxSuppression).

    The format "onnx" gives rows (image, class, box) and their number; "tensorflow" gives, for each image, rows (class,
    box), their scores, and their number. The results have room for all boxes; unused rows are zero.
    """

    max_output_boxes_per_class: int = -1
    """Largest number of boxes kept for each class; -1 means all."""
    iou_threshold: float = -1.0
    """Largest intersection over union of two kept boxes."""
    score_threshold: float = -1.0
    """Exclusive lower bound of the scores."""
    output_format: str = "onnx"
    """Form of the results: "onnx" or "tensorflow"."""

    def infer(self, boxes: Type, scores: Type) -> TupleType:
        """"onnx": (batch * classes * boxes, 3) and (1,), int64; "tensorflow": the same by image, with scores."""
        places, points = require_rank(tensors(boxes)[0], 3, "boxes"), require_rank(tensors(scores)[0], 3, "scores")
        require_same_dtype((places, points))
        batch, classes, n = points.shape
        if any(map(differ, places.shape, (batch, n, 4))):
            raise ShapeError(f"boxes must have the shape {text((batch, n, 4))}, and they have {text(places.shape)}")
        if self.output_format not in ("onnx", "tensorflow"):
            raise ShapeError(f"output_format '{self.output_format}' is not supported; it must be onnx or tensorflow")
        if self.output_format == "onnx":
            return TupleType((TensorType((room_for(batch * classes * n), 3), "int64"), TensorType((1,), "int64")))
        rows: Shape = (batch, classes * n)
        return (
            TupleType((TensorType((*rows, 2), "int64"), TensorType(rows, points.dtype), TensorType((batch,), "int64"))))

    def reference(self, boxes: Array, scores: Array) -> tuple[Array, ...]:
        batch, classes, n = scores.shape
        found = [[[c, p] for c in range(classes) for p in self._kept(boxes[i], scores[i, c])] for i in range(batch)]
        if self.output_format == "onnx":
            rows = [[i, *row] for i, image in enumerate(found) for row in image]
            chosen = np.zeros((batch * classes * n, 3), np.int64)
            chosen[: len(rows)] = np.asarray(rows, np.int64).reshape(-1, 3)
            return chosen, np.asarray([len(rows)])
        chosen, points = np.zeros((batch, classes * n, 2), np.int64), np.zeros((batch, classes * n), scores.dtype)
        for i, image in enumerate(found):
            for k, (c, p) in enumerate(image):
                chosen[i, k], points[i, k] = (c, p), scores[i, c, p]
        return chosen, points, np.asarray([len(image) for image in found])

    def _kept(self, boxes: Array, scores: Array) -> list[int]:
        order = sorted_places(scores, 0, False)
        order = order[scores[order] > scores.dtype.type(self.score_threshold)]
        return unsuppressed(boxes, order, self.iou_threshold, self.max_output_boxes_per_class)

    def compute(self, boxes: te.Tensor, scores: te.Tensor) -> tuple[te.Tensor, ...]:
        return topi.all_class_non_max_suppression(
            boxes, scores, self.max_output_boxes_per_class, self.iou_threshold, self.score_threshold,
            self.output_format)


def __getattr__(name: str) -> Any:
    """Forward the names of `relay.vision`."""
    return getattr(importlib.import_module("tilewright.relay.vision"), name)
