"""`TFLite_Detection_PostProcess`: decodes boxes from anchors, and selects the best with their classes and scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.relay.expr import Constant, Expr, Tuple, TupleGetItem
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast, fields, reshape, slice_axis
from tilewright.relay.frontend.tflite.flexbuffer import numbers_of
from tilewright.relay.frontend.tflite.hybrid import dequantized
from tilewright.relay.frontend.tflite.node import Node, Value, constant
from tilewright.relay.frontend.tflite.registry import converter


@converter("TFLite_Detection_PostProcess")
def detection_postprocess(encodings: Value, scores: Value, anchors: Value, *, node: Node) -> tuple[Expr, ...]:
    said = numbers_of(node.operator.custom_options)
    missing = [n for n in ("max_detections", "nms_iou_threshold", "nms_score_threshold", "num_classes", "y_scale",
                           "x_scale", "h_scale", "w_scale") if n not in said]
    if missing:
        node.refuse(f"its options lack {', '.join(missing)}; the file is damaged: convert it again")
    if said.get("max_classes_per_detection", 1) != 1 and not said.get("use_regular_nms", False):
        node.refuse("it gives several classes for a box, which is not supported; convert it with "
                    "max_classes_per_detection=1")
    boxes = _decoded(_real(encodings), _real(anchors), said)
    n, classes = boxes.tensor_type.shape[0], int(said["num_classes"])
    background = scores.shape[-1] - classes
    if background < 0:
        node.refuse(f"it is for {classes} classes, but its scores are for {scores.shape[-1]}")
    points = slice_axis(reshape(_real(scores), (n, scores.shape[-1])), 1, background, background + classes)
    chosen = _of_each_class if said.get("use_regular_nms", False) else _best
    places, numbers, found, count = chosen(boxes, points, said)
    most = int(said["max_detections"])
    kept = op.less(Constant(np.arange(most, dtype=np.int32)), cast(reshape(count, (1,)), "int32"))
    rows = op.take(boxes, places, axis=0, mode="clip")
    zero = constant(0, "float32")
    return (
        reshape(op.where(reshape(kept, (most, 1)), rows, zero), (1, most, 4)),
        reshape(op.where(kept, numbers, zero), (1, most)), reshape(op.where(kept, found, zero), (1, most)),
        cast(reshape(count, (1,)), "float32"),
    )


def _real(v: Value) -> Expr:
    return dequantized(v) if v.is_quantized else v.expr


def _decoded(encodings: Expr, anchors: Expr, said: dict[str, Any]) -> Expr:
    """Decode centres and sizes relative to anchors to corners (n, 4)."""
    n = anchors.tensor_type.shape[0]
    y, x, h, w = (slice_axis(reshape(encodings, (n, encodings.tensor_type.shape[-1])), 1, k, k + 1) for k in range(4))
    ya, xa, ha, wa = (slice_axis(anchors, 1, k, k + 1) for k in range(4))

    def over(v: Expr, name: str) -> Expr:
        return op.divide(v, constant(said[name], "float32"))

    centre_y = op.add(op.multiply(over(y, "y_scale"), ha), ya)
    centre_x = op.add(op.multiply(over(x, "x_scale"), wa), xa)
    half = constant(0.5, "float32")
    half_h, half_w = (op.multiply(half, op.multiply(op.exp(over(v, name)), a))
                      for v, name, a in ((h, "h_scale", ha), (w, "w_scale", wa)))
    return op.concatenate(Tuple((op.subtract(centre_y, half_h), op.subtract(centre_x, half_w), op.add(centre_y, half_h),
                                 op.add(centre_x, half_w))), axis=1)


def _suppressed(boxes: Expr, scores: Expr, each: int, said: dict[str, Any]) -> list[Expr]:
    n = boxes.tensor_type.shape[0]
    whole = op.vision.all_class_non_max_suppression(
        reshape(boxes, (1, n, 4)), scores, max_output_boxes_per_class=each,
        iou_threshold=float(said["nms_iou_threshold"]),
        score_threshold=float(np.nextafter(np.float32(said["nms_score_threshold"]), np.float32(-np.inf))),
        output_format="tensorflow")
    return [TupleGetItem(whole, k) for k in range(3)]


def _best(boxes: Expr, points: Expr, said: dict[str, Any]) -> tuple[Expr, Expr, Expr, Expr]:
    """Suppression with the best class of each box: indices, classes, scores, and their number."""
    n, most = boxes.tensor_type.shape[0], int(said["max_detections"])
    best = op.max(points, axis=(1,))
    rows, found, count = _suppressed(boxes, reshape(best, (1, 1, n)), most, said)
    places = _first(cast(reshape(slice_axis(rows, 2, 1, 2), (n,)), "int32"), n, most)
    classes = op.take(cast(op.argmax(points, axis=(1,)), "float32"), places, axis=0, mode="clip")
    return places, classes, _first(reshape(found, (n,)), n, most), count


def _of_each_class(boxes: Expr, points: Expr, said: dict[str, Any]) -> tuple[Expr, Expr, Expr, Expr]:
    """Suppression per class, then the best boxes of all classes."""
    n, classes = points.tensor_type.shape
    most = int(said["max_detections"])
    scores = reshape(op.transpose(points, axes=(1, 0)), (1, classes, n))
    rows, found, count = _suppressed(boxes, scores, int(said.get("detections_per_class", 100)), said)
    total = n * classes
    values, order = fields(op.topk(_first(reshape(found, (total,)), total, max(total, most)), k=most, axis=-1), 2)
    rows = op.take(reshape(rows, (total, 2)), order, axis=0, mode="clip")
    columns = [cast(reshape(slice_axis(rows, 1, k, k + 1), (most,)), "int32") for k in range(2)]
    return columns[1], cast(columns[0], "float32"), values, op.minimum(count, constant(most, "int64"))


def _first(x: Expr, n: int, size: int) -> Expr:
    """A vector of `n` elements cropped or zero-padded to `size`."""
    if size <= n:
        return slice_axis(x, 0, 0, size)
    return op.nn.pad(x, constant(0, str(x.tensor_type.dtype)), pad_width=((0, size - n),))
