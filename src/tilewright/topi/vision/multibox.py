"""Anchors and boxes of single-shot detectors, and YOLO's rearrangement of feature maps."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from tilewright import te
from tilewright.scalar import expr as E
from tilewright.scalar import intrinsics as I
from tilewright.scalar.expr import PrimExpr, Var
from tilewright.tir.ir_builder import BufferVar
from tilewright.topi.loops import Loops, loops
from tilewright.topi.vision.suppression import non_max_suppression
from tilewright.topi.work import Step


def half_sizes(sizes: Sequence[float], ratios: Sequence[float], height: int, width: int) -> list[tuple[float, float]]:
    """Return half the width and height of each anchor: all sizes with the first ratio, then the first size with the
    others."""
    shape = height / width
    return [(s * shape / 2, s / 2) for s in sizes] + [
        (sizes[0] * shape * sqrt(r) / 2, sizes[0] / sqrt(r) / 2) for r in ratios[1:]
    ]


def multibox_prior(
    data: te.Tensor, sizes: Sequence[float] = (1.0,), ratios: Sequence[float] = (1.0,),
    steps: Sequence[float] = (-1.0, -1.0), offsets: Sequence[float] = (0.5, 0.5), clip: bool = False,
) -> te.Tensor:
    """Return anchors (1, pixels * anchors per pixel, 4) around every pixel of a feature map, as left, top, right,
    bottom relative to the image size."""
    height, width = data.extents[2:]
    halves = half_sizes(sizes, ratios, height, width)
    step_y, step_x = (step if step > 0 else 1 / n for step, n in zip(steps, (height, width), strict=True))

    def element(_: Var, anchor: Var, side: Var) -> PrimExpr:
        pixel, kind = E.floordiv(anchor, len(halves)), E.floormod(anchor, len(halves))
        x = (E.cast("float32", E.floormod(pixel, width)) + offsets[1]) * step_x
        y = (E.cast("float32", E.floordiv(pixel, width)) + offsets[0]) * step_y
        across, down = (_chosen(kind, [h[d] for h in halves]) for d in (0, 1))
        horizontal = E.if_then_else(E.floormod(side, 2) < 1, across, down)
        moved = E.if_then_else(E.floormod(side, 2) < 1, x, y) + E.if_then_else(side < 2, -horizontal, horizontal)
        return E.minimum(E.maximum(moved, 0.0), 1.0) if clip else moved

    return te.compute((1, height * width * len(halves), 4), element, name="multibox_prior")


def _chosen(kind: PrimExpr, values: Sequence[float]) -> PrimExpr:
    """Return the element at index `kind` of a short list."""
    found = E.const(values[0], "float32")
    for k, v in enumerate(values[1:], 1):
        found = E.if_then_else(E.compare(E.EQ, kind, k), E.const(v, "float32"), found)
    return found


def multibox_transform_loc(
    cls_prob: te.Tensor, loc_pred: te.Tensor, anchor: te.Tensor, clip: bool = True, threshold: float = 0.01,
    variances: Sequence[float] = (0.1, 0.1, 0.2, 0.2), keep_background: bool = False,
) -> tuple[te.Tensor, ...]:
    """Return boxes (class, score, left, top, right, bottom) of the anchors whose best class is not the background, in
    order, and their number; the rest is -1."""
    batch, classes, n = cls_prob.extents
    dtype, first = loc_pred.dtype, 0 if keep_background else 1

    def body(b: Loops, prob: BufferVar, delta: BufferVar, box: BufferVar, out: BufferVar, count: BufferVar) -> None:
        with b.shared(batch, batch * n * (classes + 20), Step.MOVE, "image") as i:
            found = b.variable("found", "int64", 0)
            with b.for_range(0, n, "j") as j:
                best, score = b.variable("best", "int64", -1), b.variable("score", cls_prob.dtype, -1.0)
                with b.for_range(first, classes, "c") as c, b.if_scope(prob[i, c, j] > score[0]):
                    best[0] = c
                    score[0] = prob[i, c, j]
                with b.if_scope(E.all_of(best[0] >= first, score[0] >= E.const(threshold, cls_prob.dtype))):
                    to = b.let("to", found[0])
                    out[i, to, 0] = E.cast(dtype, best[0] - first)
                    out[i, to, 1] = E.cast(dtype, score[0])
                    sides = [
                        b.let("side", v) for v in decoded(
                            [box[0, j, k] for k in range(4)], [delta[i, j * 4 + k] for k in range(4)], variances
                        )
                    ]
                    for k, side in enumerate(sides):
                        out[i, to, 2 + k] = E.minimum(E.maximum(side, 0.0), 1.0) if clip else side
                    found[0] = to + 1
            count[i] = E.cast("int32", found[0])
            with b.for_range(found[0], n, "j") as j, b.for_range(0, 6, "value") as v:
                out[i, j, v] = E.const(-1, dtype)

    return loops(
        "multibox_transform_loc", [cls_prob, loc_pred, anchor], [((batch, n, 6), dtype), ((batch,), "int32")], body
    )


def decoded(anchor: Sequence[PrimExpr], delta: Sequence[PrimExpr], variances: Sequence[float]) -> list[PrimExpr]:
    """Return the corners of a box predicted relative to an anchor."""
    sides = []
    for d in (0, 1):
        low, high = anchor[d], anchor[d + 2]
        size = high - low
        center, half = delta[d] * variances[d] * size + (low + high) / 2.0, I.exp(
            delta[d + 2] * variances[d + 2]
        ) * size / 2.0
        sides.append((center - half, center + half))
    return [sides[0][0], sides[1][0], sides[0][1], sides[1][1]]


def multibox_detection(
    cls_prob: te.Tensor, loc_pred: te.Tensor, anchor: te.Tensor, clip: bool = True, threshold: float = 0.01,
    nms_threshold: float = 0.5, force_suppress: bool = False, variances: Sequence[float] = (0.1, 0.1, 0.2, 0.2),
    nms_topk: int = -1,
) -> te.Tensor:
    """Return the boxes of `multibox_transform_loc` without those that overlap a better one of their class: (batch,
    boxes, 6)."""
    boxes, count = multibox_transform_loc(cls_prob, loc_pred, anchor, clip, threshold, variances)
    found: te.Tensor = non_max_suppression(
        boxes, count, count, -1, nms_threshold, force_suppress, nms_topk, return_indices=False)
    return found


def reorg(data: te.Tensor, stride: int) -> te.Tensor:
    """Rearrange (batch, channels, height, width) to more channels of fewer pixels, with Darknet's order of elements."""
    batch, channels, height, width = data.extents
    few = channels // (stride * stride)

    shape = (batch, channels * stride * stride, height // stride, width // stride)

    def element(n: Var, c: Var, y: Var, x: Var) -> PrimExpr:
        flat = (c * shape[2] + y) * shape[3] + x
        column, row, k = E.floormod(flat, width), E.floormod(
            E.floordiv(flat, width), height
        ), E.floordiv(flat, width * height)
        small, block = E.floormod(k, few), E.floordiv(k, few)
        wide, tall = width * stride, height * stride
        source = (
            small * tall + row * stride + E.floordiv(block, stride)
        ) * wide + column * stride + E.floormod(block, stride)
        return data(
            n, E.floordiv(source, height * width), E.floormod(E.floordiv(source, width), height),
            E.floormod(source, width)
        )

    return te.compute(shape, element, name="yolo_reorg")
