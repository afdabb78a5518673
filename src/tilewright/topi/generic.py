"""Schedules for any machine: plain loops, which steps of your own may refine.

Every one takes the results of a computation, a tensor or a list of them, and returns a `te.Schedule` in which values that are
only passed on are inlined. The schedules for processors, with tiles and vectors, are in `topi.x86` and `topi.arm_cpu`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright import te
from tilewright.te.schedule import Schedule
from tilewright.te.tensor import ComputeOp, Reduce


def default_schedule(outs: te.Tensor | Sequence[te.Tensor], auto_inline: bool = True) -> Schedule:
    """A loop nest for each computation behind `outs`; with `auto_inline`, elementwise values in between are made where they are read."""
    s = te.create_schedule([t.op for t in ([outs] if isinstance(outs, te.Tensor) else outs)])
    for stage in s.stages if auto_inline else ():
        op = stage.op
        if isinstance(op, ComputeOp) and not stage.is_output and not isinstance(op.body[0], Reduce) and not op.attrs.get("keep") and op.prepack is None:
            stage.compute_inline()
    return s


def schedule_default(outs: te.Tensor | Sequence[te.Tensor]) -> Schedule:
    """A loop nest for each computation, and values in between inlined."""
    return default_schedule(outs)


def schedule_extern(outs: te.Tensor | Sequence[te.Tensor]) -> Schedule:
    """A loop nest for each computation, and nothing inlined."""
    return default_schedule(outs, auto_inline=False)


schedule_adaptive_pool = schedule_default
schedule_argsort = schedule_default
schedule_argwhere = schedule_default
schedule_batch_matmul = schedule_default
schedule_batch_norm = schedule_default
schedule_binarize_pack = schedule_default
schedule_binary_dense = schedule_default
schedule_bitserial_conv2d_nchw = schedule_default
schedule_bitserial_conv2d_nhwc = schedule_default
schedule_bitserial_dense = schedule_default
schedule_broadcast = schedule_default
schedule_concatenate = schedule_default
schedule_conv1d_ncw = schedule_default
schedule_conv1d_nwc = schedule_default
schedule_conv1d_transpose_ncw = schedule_default
schedule_conv2d_hwcn = schedule_default
schedule_conv2d_nchw = schedule_default
schedule_conv2d_NCHWc = schedule_default
schedule_conv2d_NCHWc_int8 = schedule_default
schedule_conv2d_nhwc = schedule_default
schedule_conv2d_transpose_nchw = schedule_default
schedule_conv2d_winograd_nchw = schedule_default
schedule_conv2d_winograd_nhwc = schedule_default
schedule_conv2d_winograd_nhwc_without_weight_transform = schedule_default
schedule_conv2d_winograd_without_weight_transform = schedule_default
schedule_conv3d_ncdhw = schedule_default
schedule_conv3d_ndhwc = schedule_default
schedule_conv3d_transpose_ncdhw = schedule_default
schedule_conv3d_winograd_without_weight_transform = schedule_default
schedule_correlation_nchw = schedule_default
schedule_deformable_conv2d_nchw = schedule_default
schedule_deformable_conv2d_nhwc = schedule_default
schedule_dense = schedule_default
schedule_dense_nopack = schedule_default
schedule_dense_pack = schedule_default
schedule_depthwise_conv2d_nchw = schedule_default
schedule_depthwise_conv2d_NCHWc = schedule_default
schedule_depthwise_conv2d_nhwc = schedule_default
schedule_fast_softmax = schedule_default
schedule_get_valid_counts = schedule_default
schedule_group_conv1d_ncw = schedule_default
schedule_group_conv1d_nwc = schedule_default
schedule_group_conv2d_nchw = schedule_default
schedule_group_conv2d_NCHWc_int8 = schedule_default
schedule_group_conv2d_nhwc = schedule_default
schedule_injective = schedule_default
schedule_l2_normalize = schedule_default
schedule_layer_norm = schedule_default
schedule_lrn = schedule_default
schedule_lstm = schedule_default
schedule_matmul = schedule_default
schedule_matmul_pack = schedule_default
schedule_multibox_detection = schedule_default
schedule_multibox_prior = schedule_default
schedule_multibox_transform_loc = schedule_default
schedule_nms = schedule_default
schedule_pool = schedule_default
schedule_proposal = schedule_default
schedule_reduce = schedule_default
schedule_reorg = schedule_default
schedule_roi_align = schedule_default
schedule_roi_pool = schedule_default
schedule_scatter = schedule_default
schedule_scatter_add = schedule_default
schedule_scatter_nd = schedule_default
schedule_softmax = schedule_default
schedule_sort = schedule_default
schedule_sparse_conv2d = schedule_default
schedule_sparse_dense = schedule_default
schedule_sparse_dense_sp_lhs = schedule_default
schedule_sparse_dense_sp_rhs = schedule_default
schedule_sparse_transpose = schedule_default
schedule_topk = schedule_default
schedule_upsampling = schedule_default

__all__ = [
    "default_schedule", "schedule_adaptive_pool", "schedule_argsort", "schedule_argwhere", "schedule_batch_matmul", "schedule_batch_norm",
    "schedule_binarize_pack", "schedule_binary_dense", "schedule_bitserial_conv2d_nchw", "schedule_bitserial_conv2d_nhwc",
    "schedule_bitserial_dense", "schedule_broadcast", "schedule_concatenate", "schedule_conv1d_ncw", "schedule_conv1d_nwc",
    "schedule_conv1d_transpose_ncw", "schedule_conv2d_NCHWc", "schedule_conv2d_NCHWc_int8", "schedule_conv2d_hwcn", "schedule_conv2d_nchw",
    "schedule_conv2d_nhwc", "schedule_conv2d_transpose_nchw", "schedule_conv2d_winograd_nchw", "schedule_conv2d_winograd_nhwc",
    "schedule_conv2d_winograd_nhwc_without_weight_transform", "schedule_conv2d_winograd_without_weight_transform", "schedule_conv3d_ncdhw",
    "schedule_conv3d_ndhwc", "schedule_conv3d_transpose_ncdhw", "schedule_conv3d_winograd_without_weight_transform", "schedule_correlation_nchw",
    "schedule_default", "schedule_deformable_conv2d_nchw", "schedule_deformable_conv2d_nhwc", "schedule_dense", "schedule_dense_nopack",
    "schedule_dense_pack", "schedule_depthwise_conv2d_NCHWc", "schedule_depthwise_conv2d_nchw", "schedule_depthwise_conv2d_nhwc", "schedule_extern",
    "schedule_fast_softmax", "schedule_get_valid_counts", "schedule_group_conv1d_ncw", "schedule_group_conv1d_nwc",
    "schedule_group_conv2d_NCHWc_int8", "schedule_group_conv2d_nchw", "schedule_group_conv2d_nhwc", "schedule_injective", "schedule_l2_normalize",
    "schedule_layer_norm", "schedule_lrn", "schedule_lstm", "schedule_matmul", "schedule_matmul_pack", "schedule_multibox_detection",
    "schedule_multibox_prior", "schedule_multibox_transform_loc", "schedule_nms", "schedule_pool", "schedule_proposal", "schedule_reduce",
    "schedule_reorg", "schedule_roi_align", "schedule_roi_pool", "schedule_scatter", "schedule_scatter_add", "schedule_scatter_nd",
    "schedule_softmax", "schedule_sort", "schedule_sparse_conv2d", "schedule_sparse_dense", "schedule_sparse_dense_sp_lhs",
    "schedule_sparse_dense_sp_rhs", "schedule_sparse_transpose", "schedule_topk", "schedule_upsampling",
]
