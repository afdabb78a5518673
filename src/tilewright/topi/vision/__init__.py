"""Computations for object detection: box suppression, regions of interest, anchors."""

from tilewright.topi.vision.multibox import multibox_detection, multibox_prior, multibox_transform_loc, reorg
from tilewright.topi.vision.rois import (
    proposal,
    roi_align,
    roi_align_nchw,
    roi_align_nhwc,
    roi_pool,
    roi_pool_nchw,
)
from tilewright.topi.vision.suppression import all_class_non_max_suppression, get_valid_counts, non_max_suppression

__all__ = [
    "all_class_non_max_suppression", "get_valid_counts", "multibox_detection", "multibox_prior",
    "multibox_transform_loc", "non_max_suppression", "proposal", "reorg", "roi_align", "roi_align_nchw",
    "roi_align_nhwc", "roi_pool", "roi_pool_nchw",
]
