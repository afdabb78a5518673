"""Operators of torchvision: regions and boxes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.base.types import INT32, INT64
from tilewright.relay.expr import Constant, Expr, TupleGetItem
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.pytorch.nn import on_axes
from tilewright.relay.frontend.pytorch.node import Node
from tilewright.relay.frontend.pytorch.registry import converter
from tilewright.relay.frontend.regions import roi_align as sampled_regions
from tilewright.relay.frontend.shaping import cast, reshape
from tilewright.relay.types_of import shape_of


@converter("torchvision::roi_align")
def roi_align(input: Expr, rois: Expr, spatial_scale: float, pooled_height: int, pooled_width: int, sampling_ratio: int,
              aligned: bool) -> Expr:
    size, ratio = (pooled_height, pooled_width), sampling_ratio if sampling_ratio > 0 else -1
    return sampled_regions(input, rois, size, spatial_scale, ratio, "avg", bool(aligned))


@converter("torchvision::nms")
def nms(dets: Expr, scores: Expr, iou_threshold: float, node: Node) -> Expr:
    """The indices of the boxes kept by non-maximum suppression, best first; their number is known only at run time."""
    count = shape_of(dets)[0]
    rows = op.concatenate((reshape(cast(scores, "float32"), (count, 1)), cast(dets, "float32")), axis=1)
    data = reshape(rows, (1, count, 5))
    all_of_them = (Constant(np.arange(count, dtype=np.int32).reshape(1, count)) if isinstance(count, int)
                   else node.static(dets, "dets"))
    valid = Constant(np.asarray([count], np.int32))
    found = op.vision.non_max_suppression(
        data, valid, all_of_them, max_output_size=-1, iou_threshold=float(iou_threshold), force_suppress=True, top_k=-1,
        coord_start=1, score_index=0, id_index=-1, return_indices=True, invalid_to_bottom=False)
    places, kept = reshape(TupleGetItem(found, 0), (count,)), reshape(TupleGetItem(found, 1), (1,))
    one, zero = Constant(np.ones(1, np.int64)), Constant(np.zeros(1, np.int64))
    return cast(op.dyn.strided_slice(cast(places, INT32), zero, cast(kept, INT64), one), INT64)


@converter("torchvision::deform_conv2d")
def deform_conv2d(
    input: Expr, weight: Expr, offset: Expr, mask: Expr, bias: Expr, stride_h: int, stride_w: int, pad_h: int,
    pad_w: int, dilation_h: int, dilation_w: int, groups: int, offset_groups: int, use_mask: bool, node: Node,
) -> Any:
    if use_mask:
        node.refuse("its input mask is not supported; use a deformable convolution without one")
    y = op.nn.deformable_conv2d(
        input, offset, weight, strides=(stride_h, stride_w), padding=on_axes((pad_h, pad_w), 2) * 2,
        dilation=(dilation_h, dilation_w), deformable_groups=offset_groups, groups=groups, channels=shape_of(weight)[0],
        kernel_size=tuple(shape_of(weight)[2:]))
    return op.nn.bias_add(y, bias, axis=1)
