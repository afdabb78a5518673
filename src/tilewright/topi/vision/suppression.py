"""Suppression of boxes that overlap a better one, and selection of the candidates.

A box is four coordinates: any two opposite corners. The kept boxes are stored in separate rows (left, top, right,
bottom, area), so that the comparison of a candidate with all of them is a loop without branches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te
from tilewright.base.types import DataType, OpenSize
from tilewright.scalar import expr as E
from tilewright.scalar.arith.open_sizes import memory_for, room_for, typical
from tilewright.scalar.expr import PrimExpr, Value
from tilewright.tir.ir_builder import BufferVar
from tilewright.topi.loops import Loops, Output, held, loops
from tilewright.topi.shapes import at_least, at_most
from tilewright.topi.sorting import sorted_places
from tilewright.topi.work import Step


class Kept:
    """The boxes kept so far, and the overlap test for candidates; `one` is added to the difference of a side's ends to
    get its length."""

    def __init__(self, b: Loops, most: int, dtype: DataType, one: float = 0.0) -> None:
        self.b, self.dtype, self.one = b, dtype, E.const(one, dtype)
        room = memory_for(most)
        self.sides = [b.allocate(dtype, room, f"kept_{n}") for n in ("left", "top", "right", "bottom", "area")]
        self.kinds = b.allocate(dtype, room, "kept_kind")
        self.count = b.variable("kept", "int64", 0)

    def box(self, corners: Sequence[PrimExpr]) -> list[PrimExpr]:
        """Return left, top, right, bottom and area of a box given by two corners."""
        x, y, u, v = (self.b.let(n, c) for n, c in zip("xyuv", corners, strict=True))
        sides = [
            self.b.let(n, f(p, q)) for n, f, p,
            q in (
                ("left", E.minimum, x, u), ("top", E.minimum, y, v), ("right", E.maximum, x, u),
                ("bottom", E.maximum, y, v)
            )
        ]
        left, top, right, bottom = sides
        return [*sides, self.b.let("area", (right - left + self.one) * (bottom - top + self.one))]

    def overlapped(
        self, box: Sequence[PrimExpr], kind: PrimExpr | None, threshold: PrimExpr, *, strictly: bool
    ) -> PrimExpr:
        """Return whether a kept box overlaps `box` by `threshold`. If there is a `kind`, only boxes of the same kind
        count, and none of a negative kind."""
        b, zero = self.b, E.const(0, self.dtype)
        hits = b.variable("hits", "int32", 0)
        left, top, right, bottom, area = box
        with b.for_range(0, self.count[0], "other") as k:
            other_left, other_top, other_right, other_bottom, other_area = (s[k] for s in self.sides)
            width = E.maximum(zero, E.minimum(right, other_right) - E.maximum(left, other_left) + self.one)
            height = E.maximum(zero, E.minimum(bottom, other_bottom) - E.maximum(top, other_top) + self.one)
            shared = b.let("shared", width * height)
            union = b.let("union", area + other_area - shared)
            ratio = b.let("ratio", E.if_then_else(union <= 0, zero, shared / union))
            hit = ratio > threshold if strictly else ratio >= threshold
            if kind is not None:
                hit = E.all_of(hit, E.compare(E.EQ, self.kinds[k], kind))
            hits[0] = hits[0] + E.cast("int32", hit)
        return hits[0] > 0

    def keep(self, box: Sequence[PrimExpr], kind: PrimExpr | None = None) -> None:
        """Add a box."""
        place = self.b.let("place", self.count[0])
        for side, value in zip(self.sides, box, strict=True):
            side[place] = value
        if kind is not None:
            self.kinds[place] = kind
        self.count[0] = place + 1


def get_valid_counts(
    data: te.Tensor, score_threshold: float = 0, id_index: int = 0, score_index: int = 1
) -> tuple[te.Tensor, ...]:
    """Return the number of boxes of `data` (batch, boxes, values) with scores above the threshold, these boxes in
    order, and their positions. The rest is -1."""
    batch, n, width = data.extents

    def body(b: Loops, x: BufferVar, count: BufferVar, boxes: BufferVar, places: BufferVar) -> None:
        with b.shared(batch, batch * n * width, Step.COMPARE, "image") as i:
            found = b.variable("found", "int64", 0)
            with b.for_range(0, n, "j") as j:
                valid = x[i, j, score_index] > E.const(score_threshold, data.dtype)
                if id_index >= 0:
                    valid = E.logical_and(valid, x[i, j, id_index] >= 0)
                with b.if_scope(valid):
                    to = b.let("to", found[0])
                    with b.for_range(0, width, "k") as k:
                        boxes[i, to, k] = x[i, j, k]
                    places[i, to] = E.cast("int32", j)
                    found[0] = to + 1
            count[i] = E.cast("int32", found[0])
            with b.for_range(found[0], n, "j") as j:
                with b.for_range(0, width, "k") as k:
                    boxes[i, j, k] = E.const(-1, data.dtype)
                places[i, j] = -1

    return loops(
        "get_valid_counts", [data], [((batch,), "int32"), (data.extents, data.dtype), ((batch, n), "int32")], body
    )


def non_max_suppression(
    data: te.Tensor, valid_count: te.Tensor, indices: te.Tensor, max_output_size: int = -1, iou_threshold: float = 0.5,
    force_suppress: bool = False,
    top_k: int = -1, coord_start: int = 2, score_index: int = 1, id_index: int = 0, return_indices: bool = True,
    invalid_to_bottom: bool = False,
) -> Any:
    """Return the boxes of `data` (batch, boxes, values), best first, that do not overlap a better one of their class;
    the others are replaced by -1.

    `valid_count` boxes of each image are considered, at most `top_k`, and `max_output_size` are kept. With
    `return_indices`, the result is the positions of the boxes (through `indices`), in order, and their number.
    """
    batch, n, width = data.extents

    def body(b: Loops, x: BufferVar, counts: BufferVar, where: BufferVar, *outs: BufferVar) -> None:
        with b.shared(batch, batch * n, Step.OVERLAP, "image") as i:
            valid = b.let("valid", held(counts[i], n + 1))
            number = b.variable("number", "int64", 0)
            kept = Kept(b, n, data.dtype)
            selected = b.variable("selected", "int64", 0)
            order = sorted_places(
                b, lambda k: x[i, k, score_index], valid, n, data.dtype
            ) if iou_threshold > 0 else None
            with b.for_range(0, valid, "j") as j:
                place = b.let("place_of_box", j if order is None else E.cast("int64", order[j]))
                good = b.variable("good", "int32", 1)
                if order is not None:
                    _judge(b, x, i, place, j, good, kept, selected)
                with b.if_scope(good[0] > 0):
                    to = b.let("to", number[0] if return_indices or invalid_to_bottom else j)
                    if return_indices:
                        outs[0][i, to] = E.cast("int32", where[i, place])
                    else:
                        with b.for_range(0, width, "k") as k:
                            outs[0][i, to, k] = x[i, place, k]
                    number[0] = number[0] + 1
                if not (return_indices or invalid_to_bottom):
                    with b.else_scope(), b.for_range(0, width, "k") as k:
                        outs[0][i, j, k] = E.const(-1, data.dtype)
            with b.for_range(number[0] if return_indices or invalid_to_bottom else valid, n, "j") as j:
                if return_indices:
                    outs[0][i, j] = -1
                else:
                    with b.for_range(0, width, "k") as k:
                        outs[0][i, j, k] = E.const(-1, data.dtype)
            if return_indices:
                outs[1][i, 0] = E.cast("int32", number[0])

    def _judge(
        b: Loops, x: BufferVar, i: PrimExpr, place: PrimExpr, j: PrimExpr, good: BufferVar, kept: Kept,
        selected: BufferVar
    ) -> None:
        """Decide whether box `place`, at rank j, belongs to the result."""
        outside = E.any_of(j >= top_k if top_k > 0 else False, E.compare(E.EQ, selected[0], max_output_size))
        with b.if_scope(outside):
            good[0] = 0
        with b.else_scope(), b.if_scope(x[i, place, score_index] > 0):
            box = kept.box([x[i, place, coord_start + k] for k in range(4)])
            kind = None if id_index < 0 else b.let("kind", x[i, place, id_index])
            with b.if_scope(
                kept.overlapped(
                    box, None if force_suppress else kind, E.const(iou_threshold, data.dtype), strictly=False
                )
            ):
                good[0] = 0
            with b.else_scope():
                selected[0] = selected[0] + 1
                with b.if_scope(True if kind is None else kind >= 0):
                    kept.keep(box, kind)

    results: list[Output] = [
        ((batch, n), "int32"), ((batch, 1), "int32")
    ] if return_indices else [(data.extents, data.dtype)]
    made = loops("non_max_suppression", [data, valid_count, indices], results, body)
    return made if return_indices else made[0]


def all_class_non_max_suppression(
    boxes: te.Tensor, scores: te.Tensor, max_output_boxes_per_class: int, iou_threshold: float, score_threshold: float,
    output_format: str = "onnx",
) -> tuple[te.Tensor, ...]:
    """Suppress boxes for each class separately: `boxes` (batch, boxes, 4) with `scores` (batch, classes, boxes).

    "onnx": rows (image, class, box) of all images, and their number. "tensorflow": rows (class, box) of each image,
    their scores, and their number in each image. Unused rows are zero. A negative maximum means no limit.
    """
    batch, classes, n = scores.extents
    room = memory_for(n)
    whole = room if isinstance(n, OpenSize) else n
    most = whole if max_output_boxes_per_class < 0 else at_most(whole, max_output_boxes_per_class)

    def select(b: Loops, box: BufferVar, score: BufferVar, chosen: BufferVar, counts: BufferVar) -> None:
        """Select the boxes of each image and class, in the first pass."""
        with b.shared(batch * classes, typical(batch * classes * n), Step.OVERLAP, "row") as row:
            candidates = b.allocate("int32", room, "candidates")
            valid = b.variable("valid", "int64", 0)
            with b.for_range(0, n, "j") as j, b.if_scope(score[row * n + j] > E.const(score_threshold, scores.dtype)):
                at = b.let("at", valid[0])
                candidates[at] = E.cast("int32", j)
                valid[0] = at + 1
            total = b.let("total", valid[0])
            order = sorted_places(b, lambda k: score[row * n + E.cast("int64", candidates[k])], total, n, scores.dtype)
            kept = Kept(b, most, boxes.dtype)
            with b.for_range(0, total, "j") as j, b.if_scope(kept.count[0] < most):
                place = b.let("place_of_box", E.cast("int64", candidates[E.cast("int64", order[j])]))
                candidate = kept.box([box[(E.floordiv(row, classes) * n + place) * 4 + k] for k in range(4)])
                with b.if_scope(
                    E.logical_not(kept.overlapped(candidate, None, E.const(iou_threshold, boxes.dtype), strictly=True))
                ):
                    chosen[row * most + kept.count[0]] = E.cast("int32", place)
                    kept.keep(candidate)
            counts[row] = kept.count[0]

    def emit(
        b: Loops, score: BufferVar, chosen: BufferVar, counts: BufferVar, outs: Sequence[BufferVar], onnx: bool
    ) -> None:
        """Write the rows of the result, in the second pass."""
        total = b.variable("rows", "int64", 0)
        with b.for_range(0, batch, "i") as i:
            if not onnx:
                total[0] = 0
            with b.for_range(0, classes, "c") as c, b.for_range(0, counts[i * classes + c], "k") as k:
                to, place = b.let("to", total[0]), b.let(
                    "chosen_box", E.cast("int64", chosen[(i * classes + c) * most + k])
                )
                row: list[Value] = [i, c, place] if onnx else [c, place]
                for column, value in enumerate(row):
                    outs[0][(to, column) if onnx else (i, to, column)] = value
                if not onnx:
                    outs[1][i, to] = score[i, c, place]
                total[0] = to + 1
            if not onnx:
                outs[2][i] = total[0]
                with b.for_range(total[0], classes * n, "rest") as rest:
                    outs[0][i, rest, 0] = 0
                    outs[0][i, rest, 1] = 0
                    outs[1][i, rest] = E.const(0, scores.dtype)
        if onnx:
            outs[1][0] = total[0]
            with b.for_range(total[0], room_for(batch * classes * n), "rest") as rest:
                for column in range(3):
                    outs[0][rest, column] = 0

    def body(b: Loops, box: BufferVar, score: BufferVar, *outs: BufferVar) -> None:
        rows = memory_for(batch * classes)
        chosen = b.allocate("int32", at_least(rows * most, 1), "chosen")
        counts = b.allocate("int64", rows, "counts")
        select(b, box, score, chosen, counts)
        emit(b, score, chosen, counts, outs, output_format == "onnx")

    if output_format == "onnx":
        results: list[Any] = [((room_for(batch * classes * n), 3), "int64"), ((1,), "int64")]
    else:
        results = [((batch, classes * n, 2), "int64"), ((batch, classes * n), scores.dtype), ((batch,), "int64")]
    return loops("all_class_non_max_suppression", [boxes, scores], results, body)
