"""Operators of object detection over feature maps: pooling of regions, proposals, anchors, and YOLO's rearrangement."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import TensorType, TupleType, Type
from tilewright.relay.op.nn_conv import ordered
from tilewright.relay.op.registry import Array, Fusion, Op, op, tensors
from tilewright.relay.op.sorting import sorted_places
from tilewright.relay.op.vision import unsuppressed
from tilewright.topi.layouts import data_axes
from tilewright.topi.shapes import Shape, differ, inverse, is_multiple, require_rank, text
from tilewright.topi.vision import multibox
from tilewright.topi.vision import rois as regions
from tilewright.topi.windows import per_dimension


class OfRegions(Op):
    """Base of the operators that pool regions (image, x, y, x, y) of feature maps."""

    pooled_size: Any
    """Height and width of the result for each region, in cells."""
    spatial_scale: float
    """Factor from the coordinates of a region to those of the feature map."""
    layout: str
    """Layout of the feature map: "NCHW" or "NHWC"."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "pooled_size", per_dimension(self.pooled_size, 2, "pooled_size"))

    def infer(self, data: Type, rois: Type) -> TensorType:
        """(regions, channels, *pooled_size) in `layout`; the dtype of the data. Regions are (n, 5)."""
        t, boxes = require_rank(tensors(data)[0], 4, "data"), require_rank(tensors(rois)[0], 2, "rois")
        for layout in (self.layout, self.result_layout):
            if layout not in ("NCHW", "NHWC"):
                raise ShapeError(f"layout '{layout}' is not supported; it must be NCHW or NHWC")
        if differ(boxes.shape[1], 5):
            raise ShapeError(f"rois must have 5 values each (image, x, y, x, y), and they are {text(boxes.shape)}")
        axes = data_axes(self.layout, 2)
        channels = ordered(t.shape, axes)[1]
        made = data_axes(self.result_layout, 2)
        return TensorType(ordered((boxes.shape[0], channels, *self.pooled_size), inverse(made)), t.dtype)

    def reference(self, data: Array, rois: Array) -> Array:
        axes = data_axes(self.layout, 2)
        x = data.transpose(axes)
        found = [self._cells(x[int(np.clip(r[0], 0, len(x) - 1))], r[1:]) for r in rois]
        stacked = np.stack(found) if found else np.zeros((0, x.shape[1], *self.pooled_size))
        made = data_axes(self.result_layout, 2)
        return np.ascontiguousarray(stacked.transpose(inverse(made)).astype(data.dtype))

    @property
    def result_layout(self) -> str:
        """Layout of the result."""
        return getattr(self, "out_layout", "") or self.layout

    def _cells(self, x: Array, corners: Array) -> Array:
        """Return the cells of one region of (channels, height, width)."""
        raise NotImplementedError


@op("vision.roi_align", kind=Fusion.OPAQUE)
class RoiAlign(OfRegions):
    """Bilinear samples in the cells of regions, averaged or their maximum (He et al., Mask R-CNN, 2017; ONNX RoiAlign).
    """

    pooled_size: Any
    spatial_scale: float
    sample_ratio: int = -1
    """Number of samples along each side of a cell; 0 or less means one for each pixel of it."""
    layout: str = "NCHW"
    mode: str = "avg"
    """Combination of the samples: "avg", "max", or "max_taps" (maximum of the weighted pixels)."""
    aligned: bool = False
    """True puts the centres of pixels at half coordinates; False makes regions at least one pixel wide."""
    out_layout: str = ""
    """Layout of the result; by default that of the feature map."""

    def infer(self, data: Type, rois: Type) -> TensorType:
        """(regions, channels, *pooled_size) in `out_layout`; the dtype of the data."""
        if self.mode not in ("avg", "max", "max_taps"):
            raise ShapeError(f"mode '{self.mode}' is not supported; it must be avg, max or max_taps")
        return super().infer(data, rois)

    def _cells(self, x: Array, corners: Array) -> Array:
        kind = x.dtype.type
        left, top, right, bottom = corners.astype(x.dtype) * kind(self.spatial_scale) - kind(0.5 if self.aligned else 0)
        sides = [bottom - top, right - left] if self.aligned else [max(bottom - top, kind(1)),
            max(right - left, kind(1))]
        rows, columns = self.pooled_size
        cells = [sides[0] / kind(rows), sides[1] / kind(columns)]
        grid = [self.sample_ratio if self.sample_ratio > 0 else int(np.ceil(c)) for c in cells]
        lines = [
            (start + np.arange(n)[:, None] * cell + (np.arange(g)[None] + 0.5) * cell / max(g, 1)).astype(x.dtype)
            for start, n, cell, g in zip((top, left), (rows, columns), cells, grid, strict=True)]
        taps = self._taps(x, lines[0].reshape(-1), lines[1].reshape(-1)).reshape(4, x.shape[0], rows, grid[0], columns,
            grid[1])
        if self.mode == "avg":
            return np.asarray(taps.sum(0).sum((2, 4)) / max(1, grid[0] * grid[1]))
        return np.asarray((taps.max(0) if self.mode == "max_taps" else taps.sum(0)).max((2, 4)))

    def _taps(self, x: Array, ys: Array, xs: Array) -> Array:
        """Return the four weighted pixels of each sample."""
        parts = []
        for places, size in ((ys, x.shape[1]), (xs, x.shape[2])):
            inside = (places >= -1) & (places <= size)
            held = np.clip(places, 0, size - 1)
            low = held.astype(int)
            part = held - low
            parts.append([(low, (1 - part) * inside), (np.minimum(low + 1, size - 1), part * inside)])
        return np.stack(
            [x[:, r][:, :, c] * (v[:, None] * w[None]) for r, v in parts[0] for c, w in parts[1]]).astype(x.dtype)

    def compute(self, data: te.Tensor, rois: te.Tensor) -> te.Tensor:
        return regions.roi_align(data, rois, **self.attributes())


@op("vision.roi_pool", kind=Fusion.OPAQUE)
class RoiPool(OfRegions):
    """The maxima in the cells of regions rounded to whole pixels; 0 for an empty cell.

    Source: Girshick, Fast R-CNN, 2015; ONNX MaxRoiPool.
    """

    pooled_size: Any
    spatial_scale: float
    layout: str = "NCHW"

    def _cells(self, x: Array, corners: Array) -> Array:
        scaled = corners * corners.dtype.type(self.spatial_scale)
        left, top, right, bottom = (np.where(scaled < 0, np.ceil(scaled - 0.5), np.floor(scaled + 0.5))).astype(int)
        result = np.zeros((x.shape[0], *self.pooled_size), x.dtype)
        rows = self._spans(top, bottom, self.pooled_size[0], x.shape[1])
        columns = self._spans(left, right, self.pooled_size[1], x.shape[2])
        for r, (y0, y1) in enumerate(rows):
            for c, (x0, x1) in enumerate(columns):
                if y0 < y1 and x0 < x1:
                    result[:, r, c] = x[:, y0:y1, x0:x1].max((1, 2))
        return result

    def _spans(self, start: int, end: int, cells: int, size: int) -> list[tuple[int, int]]:
        """The first pixel of each cell along one dimension, and the one after its last."""
        width = np.float32(max(end - start + 1, 1)) / np.float32(cells)
        small, k = np.float32(1e-5), np.arange(cells, dtype=np.float32)
        low, high = (np.floor(k * width + small).astype(int) + start, np.ceil((k + 1) * width - small).astype(int)
                     + start)
        return list(zip(np.clip(low, 0, size).tolist(), np.clip(high, 0, size).tolist(), strict=True))

    def compute(self, data: te.Tensor, rois: te.Tensor) -> te.Tensor:
        return regions.roi_pool(data, rois, **self.attributes())


@op("vision.proposal", kind=Fusion.OPAQUE)
class Proposal(Op):
    """Regions (image, x, y, x, y) proposed by a region proposal network (Ren et al., Faster R-CNN, 2015).

    `cls_prob` (batch, 2 * anchors, height, width) holds the scores of background, then those of objects. `bbox_pred`
    (batch, 4 * anchors, height, width) holds the offsets of boxes from the anchors. `im_info` (batch, 3) holds the
    height, width and scale of each image. If fewer than `rpn_post_nms_top_n` boxes remain, they are repeated.
    """

    scales: tuple[float, ...]
    """Scales of the anchors, relative to `feature_stride`."""
    ratios: tuple[float, ...]
    """Aspect ratios (height / width) of the anchors."""
    feature_stride: int
    """Distance between neighbouring positions of the feature map, in pixels of the image."""
    threshold: float
    """Intersection over union above which a box is suppressed."""
    rpn_pre_nms_top_n: int
    """Number of best boxes before suppression; 0 or less means all."""
    rpn_post_nms_top_n: int
    """Number of boxes of the result for each image."""
    rpn_min_size: int
    """Smallest side of a box, in pixels at scale 1."""
    iou_loss: bool = False
    """True when `bbox_pred` holds offsets of the corners, False of centre and size."""

    def infer(self, cls_prob: Type, bbox_pred: Type, im_info: Type) -> TensorType:
        """(batch * rpn_post_nms_top_n, 5); the dtype of `bbox_pred`."""
        prob, deltas, info = tensors(cls_prob, bbox_pred, im_info)
        count = len(self.scales) * len(self.ratios)
        batch, _, height, width = require_rank(prob, 4, "cls_prob").shape
        for what, t, wanted in (
            ("cls_prob", prob, (batch, 2 * count, height, width)),
            ("bbox_pred", deltas, (batch, 4 * count, height, width)), ("im_info", info, (batch, 3)),
        ):
            if t.ndim != len(wanted) or any(map(differ, t.shape, wanted)):
                raise ShapeError(f"{what} must have the shape {text(wanted)} for {count} anchors, and it has "
                                 f"{text(t.shape)}")
        return TensorType((batch * self.rpn_post_nms_top_n, 5), deltas.dtype)

    def reference(self, cls_prob: Array, bbox_pred: Array, im_info: Array) -> Array:
        rows = []
        for i, (prob, deltas, info) in enumerate(zip(cls_prob, bbox_pred, im_info, strict=True)):
            boxes, scores = self._boxes(prob, deltas, info)
            order = sorted_places(scores, 0, False)[: self.rpn_pre_nms_top_n if self.rpn_pre_nms_top_n > 0 else None]
            kept = unsuppressed(boxes, order, self.threshold, -1, 1)
            rows += [[i, *boxes[kept[k % len(kept)]]] for k in range(self.rpn_post_nms_top_n)]
        return np.asarray(rows, bbox_pred.dtype)

    def _boxes(self, prob: Array, deltas: Array, info: Array) -> tuple[Array, Array]:
        """Return the boxes of one image and their scores."""
        base, (_, height, width) = np.asarray(regions.anchors(self.scales, self.ratios, self.feature_stride),
            deltas.dtype), prob.shape
        y, x = (v.astype(deltas.dtype) for v in np.indices((height, width)))
        start = base[None, None] + (np.stack([x, y, x, y], -1) * self.feature_stride)[:, :, None]
        delta = deltas.reshape(len(base), 4, height, width).transpose(2, 3, 0, 1)
        if self.iou_loss:
            boxes = start + delta
        else:
            size = start[..., 2:] - start[..., :2] + 1
            center, half = (delta[..., :2] * size + start[..., :2] + (size - 1) * 0.5,
                            (np.exp(delta[..., 2:]) * size - 1) * 0.5)
            boxes = np.concatenate([center - half, center + half], -1)
        boxes = np.maximum(np.minimum(boxes, np.asarray([info[1], info[0]] * 2) - 1), 0)
        least = info[2] * self.rpn_min_size
        small = ((boxes[..., 2:] - boxes[..., :2] + 1) < least).any(-1)
        beyond = (y >= int(info[0] / self.feature_stride)) | (x >= int(info[1] / self.feature_stride))
        boxes = np.where(small[..., None], boxes + least / 2 * np.asarray([-1, -1, 1, 1], boxes.dtype), boxes)
        scores = np.where(small | beyond[..., None], -1, prob[len(base) :].transpose(1, 2, 0))
        return boxes.reshape(-1, 4).astype(deltas.dtype), scores.reshape(-1).astype(deltas.dtype)

    def compute(self, cls_prob: te.Tensor, bbox_pred: te.Tensor, im_info: te.Tensor) -> te.Tensor:
        return regions.proposal(cls_prob, bbox_pred, im_info, **self.attributes())


@op("vision.multibox_prior", kind=Fusion.INJECTIVE)
class MultiboxPrior(Op):
    """Anchors (left, top, right, bottom), as fractions of the image, around every pixel of a feature map (Liu et al.,
    SSD, 2016).

    The anchors of a pixel have all `sizes` with the first ratio, then the first size with the other ratios.
    """

    sizes: tuple[float, ...] = (1.0,)
    """Sizes of the anchors, as fractions of the image."""
    ratios: tuple[float, ...] = (1.0,)
    """Aspect ratios (width / height) of the anchors."""
    steps: tuple[float, ...] = (-1.0, -1.0)
    """Distance between neighbouring centres (y, x), as fractions of the image; negative means one pixel."""
    offsets: tuple[float, ...] = (0.5, 0.5)
    """Offset of the centres (y, x) within a pixel, in pixels."""
    clip: bool = False
    """True clamps the coordinates to [0, 1]."""

    def infer(self, data: Type) -> TensorType:
        """(1, height * width * (sizes + ratios - 1), 4); float32."""
        height, width = require_rank(tensors(data)[0], 4, "data").shape[2:]
        return TensorType((1, height * width * (len(self.sizes) + len(self.ratios) - 1), 4), "float32")

    def reference(self, data: Array) -> Array:
        height, width = data.shape[2:]
        halves = np.asarray(multibox.half_sizes(self.sizes, self.ratios, height, width))
        steps = [s if s > 0 else 1 / n for s, n in zip(self.steps, (height, width), strict=True)]
        y, x = ((v + o) * s for v, o, s in zip(np.indices((height, width)), self.offsets, steps, strict=True))
        center = np.stack([x, y], -1)[:, :, None]
        found = np.concatenate([center - halves, center + halves], -1).reshape(1, -1, 4)
        return np.asarray(np.clip(found, 0, 1) if self.clip else found, np.float32)

    def compute(self, data: te.Tensor) -> te.Tensor:
        return multibox.multibox_prior(data, **self.attributes())


@op("vision.multibox_transform_loc", kind=Fusion.OPAQUE)
class MultiboxTransformLoc(Op):
    """Boxes (class, score, left, top, right, bottom) of the anchors whose best class is not the background, and their
    number.

    `cls_prob` is (batch, classes, anchors), background first, `loc_pred` (batch, 4 * anchors), `anchor` (1, anchors,
    4). Rows after the last box are -1.
    """

    clip: bool = True
    """True clamps the coordinates to [0, 1]."""
    threshold: float = 0.01
    """Smallest score of a kept box."""
    variances: tuple[float, ...] = (0.1, 0.1, 0.2, 0.2)
    """Factors of the four predicted offsets (x, y, width, height)."""
    keep_background: bool = False
    """True treats the first class as an object, not as the background."""

    def infer(self, cls_prob: Type, loc_pred: Type, anchor: Type) -> TupleType:
        """Boxes (batch, anchors, 6) of the dtype of `loc_pred`, and counts (batch,) of int32."""
        prob, deltas, boxes = tensors(cls_prob, loc_pred, anchor)
        batch, _, n = require_rank(prob, 3, "cls_prob").shape
        for what, t, wanted in (("loc_pred", deltas, (batch, 4 * n)), ("anchor", boxes, (1, n, 4))):
            if t.ndim != len(wanted) or any(map(differ, t.shape, wanted)):
                raise ShapeError(f"{what} must have the shape {text(wanted)} for {n} anchors, and it has "
                                 f"{text(t.shape)}")
        return TupleType((TensorType((batch, n, 6), deltas.dtype), TensorType((batch,), "int32")))

    def reference(self, cls_prob: Array, loc_pred: Array, anchor: Array) -> tuple[Array, ...]:
        batch, _, n = cls_prob.shape
        first, result, counts = (int(not self.keep_background), np.full((batch, n, 6), -1, loc_pred.dtype),
                                 np.zeros(batch, np.int32))
        delta, variance = loc_pred.reshape(batch, n, 4), np.asarray(self.variances, loc_pred.dtype)
        size, middle = anchor[..., 2:] - anchor[..., :2], (anchor[..., :2] + anchor[..., 2:]) / 2
        center, half = delta[..., :2] * variance[:2] * size + middle, np.exp(delta[..., 2:] * variance[2:]) * size / 2
        boxes = np.concatenate([center - half, center + half], -1)
        boxes = np.clip(boxes, 0, 1) if self.clip else boxes
        kinds, scores = cls_prob[:, first:].argmax(1), cls_prob[:, first:].max(1)
        for i in range(batch):
            (found,) = np.nonzero(scores[i] >= cls_prob.dtype.type(self.threshold))
            counts[i] = len(found)
            result[i, : len(found)] = np.concatenate([kinds[i, found, None], scores[i, found, None], boxes[i, found]],
                -1)
        return result, counts

    def compute(self, cls_prob: te.Tensor, loc_pred: te.Tensor, anchor: te.Tensor) -> tuple[te.Tensor, ...]:
        return multibox.multibox_transform_loc(cls_prob, loc_pred, anchor, **self.attributes())


@op("vision.yolo_reorg", kind=Fusion.INJECTIVE)
class YoloReorg(Op):
    """Darknet's rearrangement of pixels into `stride`^2 times as many channels, in the order of Darknet's memory."""

    stride: int = 1
    """Factor by which height and width shrink."""

    def infer(self, data: Type) -> TensorType:
        """(batch, channels * stride^2, height / stride, width / stride); the dtype of the data."""
        t = require_rank(tensors(data)[0], 4, "data")
        batch, channels, height, width = t.shape
        for what, size, by in (("channels", channels, self.stride**2), ("height", height, self.stride),
                               ("width", width, self.stride)):
            if not is_multiple(size, by):
                raise ShapeError(f"the {what} ({size}) must be a multiple of {by}")
        shape: Shape = (batch, channels * self.stride**2, height // self.stride, width // self.stride)
        return TensorType(shape, t.dtype)

    def reference(self, data: Array) -> Array:
        (batch, channels, height, width), s = data.shape, self.stride
        pixels = data.reshape(batch, channels // s**2, height, s, width, s)
        return np.ascontiguousarray(pixels.transpose(0, 3, 5, 1, 2, 4)).reshape(batch, channels * s * s, height // s,
            width // s)

    def compute(self, data: te.Tensor) -> te.Tensor:
        return multibox.reorg(data, self.stride)
