"""The computations that TVM has in `topi.x86` and `topi.arm_cpu`: here, those of `topi.nn` for all targets."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from tilewright import te

X86: Final[Mapping[str, str]] = {
    **{name: f"nn.{name}" for name in (
        "batch_matmul", "bitserial_conv2d_nchw", "bitserial_conv2d_nhwc", "bitserial_dense", "conv2d_NCHWc",
        "conv2d_NCHWc_int8", "conv2d_transpose_nchw", "conv3d_ncdhw", "conv3d_ndhwc", "conv3d_transpose_ncdhw",
        "depthwise_conv2d_NCHWc", "depthwise_conv2d_nchw")},
    "dense_dynamic": "nn.dense", "dense_nopack": "nn.dense", "dense_pack": "processor_names.dense_pack",
    "roi_align_nchw": "vision.roi_align_nchw",
}
ARM: Final[Mapping[str, str]] = {
    **{name: f"nn.{name}" for name in (
        "bitserial_conv2d_nhwc", "bitserial_dense", "conv2d_NCHWc_int8", "conv2d_transpose_nchw",
        "depthwise_conv2d_nchw")},
    "compute_conv2d_NHWC_quantized_interleaved": "nn.conv2d_nhwc",
    "compute_conv2d_NHWC_quantized_native": "nn.conv2d_nhwc",
    "compute_depthwise_conv2d_nhwc": "processor_names.depthwise_conv2d_nhwc", "conv2d_nchw_int8": "nn.conv2d_nchw",
    "conv2d_nchw_spatial_pack": "nn.conv2d_nchw", "conv2d_nchw_winograd": "nn.conv2d_nchw",
    "conv2d_nhwc_spatial_pack": "nn.conv2d_nhwc", "depthwise_conv2d_nchw_spatial_pack": "nn.depthwise_conv2d_nchw",
}
"""TVM's name -> module and function below `topi`. The compiler packs operands itself, and a schedule chooses the
algorithm, so that names with and without packing are one computation."""


def computation(table: Mapping[str, str], name: str) -> Callable[..., Any] | None:
    """Return the function with TVM's `name`, or None."""
    if name not in table:
        return None
    module, _, function = table[name].partition(".")
    found: Callable[..., Any] = getattr(importlib.import_module(f"tilewright.topi.{module}"), function)
    return found


def dense_pack(
    data: te.Tensor, weight: te.Tensor, bias: te.Tensor | None = None, out_dtype: str | None = None
) -> te.Tensor:
    """Return a dense product; the weight has the shape (units, in), or is in panels, (units / x, in, x)."""
    from tilewright.topi.nn.multiplication import dense
    from tilewright.topi.nn.multiplication import dense_pack as packed

    return (packed if weight.ndim == 3 else dense)(data, weight, bias, out_dtype)


def depthwise_conv2d_nhwc(
    data: te.Tensor, kernel: te.Tensor, strides: Any, padding: Any, dilation: Any, out_dtype: str | None = None
) -> te.Tensor:
    """Convolve each channel with its own kernel (height, width, in, multiplier)."""
    from tilewright.topi.nn.depthwise import depthwise_conv2d_nhwc as plain

    return plain(data, kernel, strides, padding, dilation, out_dtype=out_dtype)
