"""The names of schedule functions in `topi.generic`, `topi.x86` and `topi.arm_cpu`."""

from typing import Final

_COMPUTATIONS: Final = (
    "adaptive_pool", "argsort", "argwhere", "batch_matmul", "batch_norm", "binarize_pack", "binary_dense",
    "bitserial_conv2d_nchw",
    "bitserial_conv2d_nhwc", "bitserial_dense", "broadcast", "concatenate", "conv1d_ncw", "conv1d_nwc",
    "conv1d_transpose_ncw", "conv2d_hwcn",
    "conv2d_nchw", "conv2d_NCHWc", "conv2d_NCHWc_int8", "conv2d_nhwc", "conv2d_transpose_nchw", "conv2d_winograd_nchw",
    "conv2d_winograd_nhwc",
    "conv2d_winograd_nhwc_without_weight_transform", "conv2d_winograd_without_weight_transform", "conv3d_ncdhw",
    "conv3d_ndhwc",
    "conv3d_transpose_ncdhw", "conv3d_winograd_without_weight_transform", "correlation_nchw", "deformable_conv2d_nchw",
    "deformable_conv2d_nhwc", "dense", "dense_nopack", "dense_pack", "depthwise_conv2d_nchw", "depthwise_conv2d_NCHWc",
    "depthwise_conv2d_nhwc",
    "fast_softmax", "get_valid_counts", "group_conv1d_ncw", "group_conv1d_nwc", "group_conv2d_nchw",
    "group_conv2d_NCHWc_int8",
    "group_conv2d_nhwc", "injective", "l2_normalize", "layer_norm", "lrn", "lstm", "matmul", "matmul_pack",
    "multibox_detection",
    "multibox_prior", "multibox_transform_loc", "nms", "pool", "proposal", "reduce", "reorg", "roi_align", "roi_pool",
    "scatter", "scatter_add",
    "scatter_nd", "softmax", "sort", "sparse_conv2d", "sparse_dense", "sparse_dense_sp_lhs", "sparse_dense_sp_rhs",
    "sparse_transpose", "topk",
    "upsampling", "bitpack", "dilation2d_nchw", "dilation2d_nhwc", "einsum", "elemwise", "group_conv2d_transpose_nchw",
    "pool_grad", "sparse_fill_empty_rows", "unique", "conv2d_NHWC_quantized_interleaved",
    "conv2d_NHWC_quantized_native", "conv2d_nchw_spatial_pack", "conv2d_nchw_winograd", "conv2d_nhwc_pack_int8",
    "conv2d_nhwc_spatial_pack", "dense_dynamic", "depthwise_conv2d_nchw_spatial_pack",
)
NAMES: Final = tuple(f"schedule_{c}" for c in _COMPUTATIONS)
