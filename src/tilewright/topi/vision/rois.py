"""Regions of interest: pooling and sampling of regions of feature maps, and region proposals."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

from tilewright import te
from tilewright.scalar import expr as E
from tilewright.scalar import intrinsics as I
from tilewright.scalar.expr import PrimExpr, Value
from tilewright.tir.ir_builder import BufferVar
from tilewright.topi.elementwise import greater_of
from tilewright.topi.loops import Loops, held, loops
from tilewright.topi.sampling import real
from tilewright.topi.shapes import at_most
from tilewright.topi.sorting import sorted_places
from tilewright.topi.vision.suppression import Kept
from tilewright.topi.work import Step

_LANES: Final = 16
"""Number of channels that are computed together."""


class _Map:
    """A feature map, and the positions of its pixels in either layout."""

    def __init__(self, data: te.Tensor, layout: str) -> None:
        self.last = layout == "NHWC"
        shape = data.extents
        self.channels, self.height, self.width = (shape[3], shape[1], shape[2]) if self.last else shape[1:]
        self.dtype = data.dtype

    def at(self, image: Value, channel: Value, y: Value, x: Value) -> tuple[Any, ...]:
        return (image, y, x, channel) if self.last else (image, channel, y, x)

    def shape(self, count: int, size: Sequence[int]) -> tuple[int, ...]:
        return (count, *size, self.channels) if self.last else (count, self.channels, *size)


def roi_align(
    data: te.Tensor, rois: te.Tensor, pooled_size: Sequence[int], spatial_scale: float, sample_ratio: int = -1,
    mode: str = "avg", layout: str = "NCHW", aligned: bool = False, out_layout: str = "",
) -> te.Tensor:
    """Return averages ("avg") or maxima ("max") of bilinear samples in the cells of regions (image, x, y, x, y).

    With `aligned`, pixel centres are at half-integer positions, and small regions stay small; otherwise regions are at
    least one pixel. "max_taps" is the maximum of the weighted pixels of the samples, which is ONNX's max. The result
    has the layout `out_layout`, by default that of the data. The loop over channels is the innermost one, and fast for
    data in the layout NHWC.
    """
    m, n, (rows, columns) = _Map(data, layout), rois.extents[0], pooled_size
    made = _Map(data, layout)
    made.last = (out_layout or layout) == "NHWC"
    regions = _Regions(m, data.dtype, (rows, columns), spatial_scale, sample_ratio, mode, aligned)

    def body(b: Loops, x: BufferVar, roi: BufferVar, out: BufferVar) -> None:
        with b.shared(n * rows, n * m.channels * rows * columns, Step.SAMPLE, "line") as line:
            r, row = b.let("r", E.floordiv(line, rows)), b.let("row", E.floormod(line, rows))
            where = b.let("image", held(roi[r, 0], data.extents[0]))
            top, left, cell_h, cell_w = regions.corners(b, roi, r)
            grid_h, grid_w = regions.grid(b, "grid_h", cell_h), regions.grid(b, "grid_w", cell_w)
            samples = b.let("samples", E.cast(data.dtype, E.maximum(grid_h * grid_w, 1)))
            totals = b.allocate(data.dtype, m.channels, "totals", "local")
            with b.for_range(0, columns, "column") as column:
                for c in regions.channels(b):
                    totals[c] = regions.least
                with b.for_range(0, grid_h, "v") as v, b.for_range(0, grid_w, "w") as w:
                    at = top + E.cast(data.dtype, row) * cell_h, left + E.cast(data.dtype, column) * cell_w
                    y = at[0] + (E.cast(data.dtype, v) + 0.5) * cell_h / E.cast(data.dtype, grid_h)
                    z = at[1] + (E.cast(data.dtype, w) + 0.5) * cell_w / E.cast(data.dtype, grid_w)
                    regions.sample(b, x, where, b.let("at_y", y), b.let("at_x", z), totals)
                for c in regions.channels(b):
                    out[made.at(r, c, row, column)] = totals[c] / samples if mode == "avg" else totals[c]

    return loops("roi_align", [data, rois], [(made.shape(n, pooled_size), data.dtype)], body)[0]


class _Regions:
    """The parts of the loops of `roi_align`."""

    def __init__(
        self, m: _Map, dtype: Any, pooled_size: Sequence[int], scale: float, sample_ratio: int, mode: str, aligned: bool
    ) -> None:
        self.map, self.dtype, self.size, self.scale = m, dtype, pooled_size, scale
        self.ratio, self.mode, self.aligned = sample_ratio, mode, aligned
        self.zero, self.one = E.const(0, dtype), E.const(1, dtype)
        self.least = self.zero if mode == "avg" else te.min_value(dtype)

    def corners(self, b: Loops, roi: BufferVar, r: PrimExpr) -> tuple[PrimExpr, ...]:
        """Return the start of a region in the feature map, and the size of its cells."""
        left, top, right, bottom = (
            E.cast(self.dtype, roi[r, k]) * self.scale - (0.5 if self.aligned else 0.0) for k in range(1, 5))
        height, width = bottom - top, right - left
        if not self.aligned:
            height, width = E.maximum(height, self.one), E.maximum(width, self.one)
        values = (top, left, height / self.size[0], width / self.size[1])
        return tuple(b.let(name, v) for name, v in zip(("top", "left", "cell_h", "cell_w"), values, strict=True))

    def grid(self, b: Loops, name: str, cell: PrimExpr) -> PrimExpr:
        """Return the number of samples along a side of a cell."""
        return b.let(name, E.const(self.ratio, "int64") if self.ratio > 0 else E.cast("int64", I.ceil(cell)))

    def channels(self, b: Loops) -> Iterator[PrimExpr]:
        """Loop over the channels, in vectors where they are contiguous."""
        count = self.map.channels
        whole = count // _LANES if self.map.last else 0
        if whole:
            with b.for_range(0, whole, "block") as k, b.for_range(0, _LANES, "lane", kind="vectorize") as lane:
                yield k * _LANES + lane
        with b.for_range(whole * _LANES, count, "c") as c:
            yield c

    def sample(self, b: Loops, x: BufferVar, image: PrimExpr, y: PrimExpr, z: PrimExpr, totals: BufferVar) -> None:
        """Combine one sample of all channels into `totals`."""
        m = self.map
        inside = E.all_of(y >= -1.0, z >= -1.0, y <= real(m.height, y.dtype), z <= real(m.width, z.dtype))
        taps = []
        for name, place, size in (("y", y, m.height), ("x", z, m.width)):
            at = b.let(name, E.minimum(E.maximum(place, self.zero), E.cast(self.dtype, E.as_expr(size - 1))))
            low = b.let(name + "_low", E.cast("int64", at))
            part = b.let(name + "_part", at - E.cast(self.dtype, low))
            taps.append(((low, self.one - part), (b.let(name + "_high", E.minimum(low + 1, size - 1)), part)))
        places = [(row, column, b.let("weight", v * w)) for row, v in taps[0] for column, w in taps[1]]
        with b.if_scope(inside):
            for c in self.channels(b):
                terms = [x[m.at(image, c, row, column)] * weight for row, column, weight in places]
                whole = functools.reduce(greater_of if self.mode == "max_taps" else E.add, terms)
                totals[c] = totals[c] + whole if self.mode == "avg" else greater_of(totals[c], whole)
        if self.mode != "avg":
            with b.if_scope(E.logical_not(inside)):
                for c in self.channels(b):
                    totals[c] = greater_of(totals[c], self.zero)


def _pair(size: int | Sequence[int]) -> tuple[int, int]:
    rows, columns = (size, size) if isinstance(size, int) else size
    return rows, columns


def roi_align_nchw(
    data: te.Tensor, rois: te.Tensor, pooled_size: int | Sequence[int], spatial_scale: float, mode: str | bytes | int,
    sample_ratio: int = -1,
) -> te.Tensor:
    """Return `roi_align` of data (batch, channels, height, width), with TVM's order of arguments."""
    return roi_align(data, rois, _pair(pooled_size), spatial_scale, sample_ratio, mode_of(mode))


def roi_align_nhwc(
    data: te.Tensor, rois: te.Tensor, pooled_size: int | Sequence[int], spatial_scale: float, mode: str | bytes | int,
    sample_ratio: int = -1,
) -> te.Tensor:
    """Return `roi_align` of data (batch, height, width, channels), with TVM's order of arguments."""
    return roi_align(data, rois, _pair(pooled_size), spatial_scale, sample_ratio, mode_of(mode), "NHWC")


def mode_of(mode: str | bytes | int) -> str:
    """Return a mode of `roi_align` by its name; TVM also writes bytes, or 0 for "avg" and 1 for "max"."""
    if isinstance(mode, int):
        return ("avg", "max")[mode]
    return mode.decode() if isinstance(mode, bytes) else mode


def roi_pool_nchw(
    data: te.Tensor, rois: te.Tensor, pooled_size: int | Sequence[int], spatial_scale: float
) -> te.Tensor:
    """Return `roi_pool` of data (batch, channels, height, width)."""
    return roi_pool(data, rois, _pair(pooled_size), spatial_scale)


def roi_pool(
    data: te.Tensor, rois: te.Tensor, pooled_size: Sequence[int], spatial_scale: float, layout: str = "NCHW"
) -> te.Tensor:
    """Return the maxima in the cells of regions (image, x, y, x, y) rounded to whole pixels; an empty cell is 0."""
    m, n, (rows, columns) = _Map(data, layout), rois.extents[0], pooled_size

    def span(
        b: Loops, start: PrimExpr, end: PrimExpr, cell: PrimExpr, cells: int, size: int
    ) -> tuple[PrimExpr, PrimExpr]:
        """Return the pixel range of one cell along one dimension."""
        width = E.cast("float32", E.maximum(end - start + 1, 1)) / E.const(cells, "float32")
        at = E.cast("float32", cell)
        low = E.cast("int64", I.floor(at * width + 1e-5)) + start
        high = E.cast("int64", I.ceil((at + 1.0) * width - 1e-5)) + start
        return b.let("low", E.minimum(E.maximum(low, 0), size)), b.let("high", E.minimum(E.maximum(high, 0), size))

    def body(b: Loops, x: BufferVar, roi: BufferVar, out: BufferVar) -> None:
        with b.shared(n * m.channels, n * m.channels * rows * columns, Step.SAMPLE, "region") as region:
            r, c = b.let("r", E.floordiv(region, m.channels)), b.let("c", E.floormod(region, m.channels))
            image = b.let("image", held(roi[r, 0], data.extents[0]))
            left, top, right, bottom = (
                b.let(name, E.cast("int64", rounded(roi[r, k + 1] * spatial_scale))) for k,
                name in enumerate(("left", "top", "right", "bottom"))
            )
            with b.for_range(0, rows, "row") as row, b.for_range(0, columns, "column") as column:
                y_low, y_high = span(b, top, bottom, row, rows, m.height)
                x_low, x_high = span(b, left, right, column, columns, m.width)
                some = E.logical_and(y_low < y_high, x_low < x_high)
                most = b.variable(
                    "most", data.dtype, E.if_then_else(some, te.min_value(data.dtype), E.const(0, data.dtype))
                )
                with b.for_range(y_low, y_high, "y") as y, b.for_range(x_low, x_high, "x") as z:
                    most[0] = greater_of(most[0], x[m.at(image, c, y, z)])
                out[m.at(r, c, row, column)] = most[0]

    return loops("roi_pool", [data, rois], [(m.shape(n, pooled_size), data.dtype)], body)[0]


def rounded(x: PrimExpr) -> PrimExpr:
    """Round to the nearest integer, halves away from zero."""
    return E.if_then_else(x < 0, I.ceil(x - 0.5), I.floor(x + 0.5))


def anchors(scales: Sequence[float], ratios: Sequence[float], base: float) -> list[tuple[float, float, float, float]]:
    """Return the boxes around a cell of `base` pixels, for each ratio and scale (Ren et al., Faster R-CNN, 2015)."""
    found, center = [], 0.5 * (base - 1)
    for ratio in ratios:
        plain_w = math.floor(math.sqrt(math.floor(base * base / ratio)) + 0.5)
        for scale in scales:
            w, h = plain_w * scale, math.floor(plain_w * ratio + 0.5) * scale
            found.append(
                (center - 0.5 * (w - 1), center - 0.5 * (h - 1), center + 0.5 * (w - 1), center + 0.5 * (h - 1))
            )
    return found


def proposal(
    cls_prob: te.Tensor, bbox_pred: te.Tensor, im_info: te.Tensor, scales: Sequence[float], ratios: Sequence[float],
    feature_stride: int, threshold: float, rpn_pre_nms_top_n: int, rpn_post_nms_top_n: int, rpn_min_size: int,
    iou_loss: bool,
) -> te.Tensor:
    """Return the regions (image, x, y, x, y) of a region proposal network: the best ones without overlap, repeated to
    the required number."""
    batch, _, height, width = cls_prob.extents
    base = anchors(scales, ratios, feature_stride)
    n = height * width * len(base)
    taking, dtype = at_most(n, rpn_pre_nms_top_n) if rpn_pre_nms_top_n > 0 else n, bbox_pred.dtype

    def predict(
        b: Loops, i: PrimExpr, prob: BufferVar, deltas: BufferVar, info: BufferVar, boxes: BufferVar, scores: BufferVar
    ) -> None:
        """Compute the boxes of image `i`, moved by the predictions and clamped to the image, and their scores."""
        with b.for_range(0, height, "y") as y, b.for_range(0, width, "x") as x:
            for k, anchor in enumerate(base):
                at = b.let("at", (y * width + x) * len(base) + k)
                shifts = (x, y, x, y)
                start = [E.cast(dtype, s) * feature_stride + a for a, s in zip(anchor, shifts, strict=True)]
                box = _moved(b, start, [deltas[i, k * 4 + d, y, x] for d in range(4)], iou_loss)
                limits = [info[i, 1], info[i, 0]] * 2
                held = [
                    b.let("side", E.maximum(E.minimum(v, E.cast(dtype, most) - 1.0), 0.0)) for v,
                    most in zip(box, limits, strict=True)
                ]
                least = b.let("least", E.cast(dtype, info[i, 2]) * rpn_min_size)
                small = b.let("small", E.any_of(held[2] - held[0] + 1.0 < least, held[3] - held[1] + 1.0 < least))
                beyond = E.any_of(*(s >= E.cast("int64", info[i, d] / feature_stride) for d, s in ((0, y), (1, x))))
                for d, v in enumerate(held):
                    boxes[at * 4 + d] = E.if_then_else(small, v - least / 2.0 if d < 2 else v + least / 2.0, v)
                scores[at] = E.if_then_else(
                    E.logical_or(small, beyond), E.const(-1, dtype), prob[i, len(base) + k, y, x]
                )

    def body(b: Loops, prob: BufferVar, deltas: BufferVar, info: BufferVar, out: BufferVar) -> None:
        with b.shared(batch, batch * n, Step.PROPOSAL, "image") as i:
            boxes, scores = b.allocate(dtype, n * 4, "boxes"), b.allocate(dtype, n, "scores")
            predict(b, i, prob, deltas, info, boxes, scores)
            order = sorted_places(b, lambda k: scores[k], n, n, dtype)
            kept = Kept(b, taking, dtype, 1.0)
            with b.for_range(0, taking, "j") as j:
                place = b.let("place_of_box", E.cast("int64", order[j]))
                box = kept.box([boxes[place * 4 + d] for d in range(4)])
                with b.if_scope(E.logical_not(kept.overlapped(box, None, E.const(threshold, dtype), strictly=True))):
                    kept.keep(box)
            with b.for_range(0, rpn_post_nms_top_n, "j") as j:
                to, place = b.let("to", i * rpn_post_nms_top_n + j), b.let("kept_box", E.floormod(j, kept.count[0]))
                out[to, 0] = E.cast(dtype, i)
                for d in range(4):
                    out[to, d + 1] = kept.sides[d][place]

    return loops("proposal", [cls_prob, bbox_pred, im_info], [((batch * rpn_post_nms_top_n, 5), dtype)], body)[0]


def _moved(b: Loops, box: Sequence[PrimExpr], delta: Sequence[PrimExpr], iou_loss: bool) -> list[PrimExpr]:
    """Return a box moved by a prediction: of its corners with `iou_loss`, else of its centre and the logarithms of its
    size."""
    if iou_loss:
        return [v + d for v, d in zip(box, delta, strict=True)]
    sides = []
    for low, high, shift, growth in ((box[0], box[2], delta[0], delta[2]), (box[1], box[3], delta[1], delta[3])):
        size = high - low + 1.0
        center, half = b.let(
            "center", shift * size + low + (size - 1.0) * 0.5
        ), b.let("half", (I.exp(growth) * size - 1.0) * 0.5)
        sides.append((center - half, center + half))
    return [sides[0][0], sides[1][0], sides[0][1], sides[1][1]]
