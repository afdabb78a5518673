"""Schedules for processors: tiles in registers, vectors, cores.

Every one takes the results of a computation, a tensor or a list of them, and returns a `te.Schedule` that arranges all loops
when it is built, by what the computation is: a convolution or product is cut into register tiles, a window slides in lanes of
channels, rows are reduced in vectors. The name says which computation a script expects; the computation itself decides.

Compute and schedule inside `with tvm.target.Target(…):`, since tiles are cut to the vectors of that machine, and build for it.
`ScheduleError` when the computations have several anchors: convolutions, products or reductions that each have a schedule.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright import te
from tilewright.te.schedule import Schedule
from tilewright.topi.schedules.arrange import arrange, check_one_anchor


def schedule_anchor(outs: te.Tensor | Sequence[te.Tensor]) -> Schedule:
    """The schedule that the anchor of the computation asks for; of elementwise ones, vectors over all axes."""
    ops = list(dict.fromkeys(t.op for t in ([outs] if isinstance(outs, te.Tensor) else outs)))
    check_one_anchor(ops)
    return Schedule(ops, arrange)


schedule_adaptive_pool = schedule_anchor
schedule_argsort = schedule_anchor
schedule_argwhere = schedule_anchor
schedule_batch_matmul = schedule_anchor
schedule_batch_norm = schedule_anchor
schedule_binarize_pack = schedule_anchor
schedule_binary_dense = schedule_anchor
schedule_bitserial_conv2d_nchw = schedule_anchor
schedule_bitserial_conv2d_nhwc = schedule_anchor
schedule_bitserial_dense = schedule_anchor
schedule_broadcast = schedule_anchor
schedule_concatenate = schedule_anchor
schedule_conv1d_ncw = schedule_anchor
schedule_conv1d_nwc = schedule_anchor
schedule_conv1d_transpose_ncw = schedule_anchor
schedule_conv2d_hwcn = schedule_anchor
schedule_conv2d_nchw = schedule_anchor
schedule_conv2d_NCHWc = schedule_anchor
schedule_conv2d_NCHWc_int8 = schedule_anchor
schedule_conv2d_nhwc = schedule_anchor
schedule_conv2d_transpose_nchw = schedule_anchor
schedule_conv2d_winograd_nchw = schedule_anchor
schedule_conv2d_winograd_nhwc = schedule_anchor
schedule_conv2d_winograd_nhwc_without_weight_transform = schedule_anchor
schedule_conv2d_winograd_without_weight_transform = schedule_anchor
schedule_conv3d_ncdhw = schedule_anchor
schedule_conv3d_ndhwc = schedule_anchor
schedule_conv3d_transpose_ncdhw = schedule_anchor
schedule_conv3d_winograd_without_weight_transform = schedule_anchor
schedule_correlation_nchw = schedule_anchor
schedule_deformable_conv2d_nchw = schedule_anchor
schedule_deformable_conv2d_nhwc = schedule_anchor
schedule_dense = schedule_anchor
schedule_dense_nopack = schedule_anchor
schedule_dense_pack = schedule_anchor
schedule_depthwise_conv2d_nchw = schedule_anchor
schedule_depthwise_conv2d_NCHWc = schedule_anchor
schedule_depthwise_conv2d_nhwc = schedule_anchor
schedule_extern = schedule_anchor
schedule_fast_softmax = schedule_anchor
schedule_get_valid_counts = schedule_anchor
schedule_group_conv1d_ncw = schedule_anchor
schedule_group_conv1d_nwc = schedule_anchor
schedule_group_conv2d_nchw = schedule_anchor
schedule_group_conv2d_NCHWc_int8 = schedule_anchor
schedule_group_conv2d_nhwc = schedule_anchor
schedule_injective = schedule_anchor
schedule_l2_normalize = schedule_anchor
schedule_layer_norm = schedule_anchor
schedule_lrn = schedule_anchor
schedule_lstm = schedule_anchor
schedule_matmul = schedule_anchor
schedule_matmul_pack = schedule_anchor
schedule_multibox_detection = schedule_anchor
schedule_multibox_prior = schedule_anchor
schedule_multibox_transform_loc = schedule_anchor
schedule_nms = schedule_anchor
schedule_pool = schedule_anchor
schedule_proposal = schedule_anchor
schedule_reduce = schedule_anchor
schedule_reorg = schedule_anchor
schedule_roi_align = schedule_anchor
schedule_roi_pool = schedule_anchor
schedule_scatter = schedule_anchor
schedule_scatter_add = schedule_anchor
schedule_scatter_nd = schedule_anchor
schedule_softmax = schedule_anchor
schedule_sort = schedule_anchor
schedule_sparse_conv2d = schedule_anchor
schedule_sparse_dense = schedule_anchor
schedule_sparse_dense_sp_lhs = schedule_anchor
schedule_sparse_dense_sp_rhs = schedule_anchor
schedule_sparse_transpose = schedule_anchor
schedule_topk = schedule_anchor
schedule_upsampling = schedule_anchor

__all__ = [
    "schedule_adaptive_pool", "schedule_anchor", "schedule_argsort", "schedule_argwhere", "schedule_batch_matmul", "schedule_batch_norm",
    "schedule_binarize_pack", "schedule_binary_dense", "schedule_bitserial_conv2d_nchw", "schedule_bitserial_conv2d_nhwc",
    "schedule_bitserial_dense", "schedule_broadcast", "schedule_concatenate", "schedule_conv1d_ncw", "schedule_conv1d_nwc",
    "schedule_conv1d_transpose_ncw", "schedule_conv2d_NCHWc", "schedule_conv2d_NCHWc_int8", "schedule_conv2d_hwcn", "schedule_conv2d_nchw",
    "schedule_conv2d_nhwc", "schedule_conv2d_transpose_nchw", "schedule_conv2d_winograd_nchw", "schedule_conv2d_winograd_nhwc",
    "schedule_conv2d_winograd_nhwc_without_weight_transform", "schedule_conv2d_winograd_without_weight_transform", "schedule_conv3d_ncdhw",
    "schedule_conv3d_ndhwc", "schedule_conv3d_transpose_ncdhw", "schedule_conv3d_winograd_without_weight_transform", "schedule_correlation_nchw",
    "schedule_deformable_conv2d_nchw", "schedule_deformable_conv2d_nhwc", "schedule_dense", "schedule_dense_nopack", "schedule_dense_pack",
    "schedule_depthwise_conv2d_NCHWc", "schedule_depthwise_conv2d_nchw", "schedule_depthwise_conv2d_nhwc", "schedule_extern",
    "schedule_fast_softmax", "schedule_get_valid_counts", "schedule_group_conv1d_ncw", "schedule_group_conv1d_nwc",
    "schedule_group_conv2d_NCHWc_int8", "schedule_group_conv2d_nchw", "schedule_group_conv2d_nhwc", "schedule_injective", "schedule_l2_normalize",
    "schedule_layer_norm", "schedule_lrn", "schedule_lstm", "schedule_matmul", "schedule_matmul_pack", "schedule_multibox_detection",
    "schedule_multibox_prior", "schedule_multibox_transform_loc", "schedule_nms", "schedule_pool", "schedule_proposal", "schedule_reduce",
    "schedule_reorg", "schedule_roi_align", "schedule_roi_pool", "schedule_scatter", "schedule_scatter_add", "schedule_scatter_nd",
    "schedule_softmax", "schedule_sort", "schedule_sparse_conv2d", "schedule_sparse_dense", "schedule_sparse_dense_sp_lhs",
    "schedule_sparse_dense_sp_rhs", "schedule_sparse_transpose", "schedule_topk", "schedule_upsampling",
]
