"""Convolutions of one to three spatial dimensions in TVM's layouts.

Padding is one number, one for each dimension, `(*before, *after)`, "SAME" or "VALID". Results and sums have
`out_dtype`, by default the dtype of the data.
"""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import DataType, TensorType
from tilewright.topi import channel_blocks
from tilewright.topi.algorithms import fastest
from tilewright.topi.layouts import kernel_axes
from tilewright.topi.shapes import differ, is_multiple, require_rank, text
from tilewright.topi.tag import tagged
from tilewright.topi.windows import Ints, Padding, padding_of, per_dimension, window_count


def convolution(
    data: te.Tensor, weight: te.Tensor, strides: int | Ints, padding: Padding, dilation: int | Ints, groups: int,
    data_layout: str, kernel_layout: str, out_dtype: str | None,
) -> te.Tensor:
    """Return a convolution in layouts such as NHWC and HWIO; the result has the layout of the data. Raises
    `ShapeError`."""
    n = len(data_layout) - 2
    for t, what in ((data, "data"), (weight, "the kernel")):
        require_rank(TensorType(t.shape), n + 2, what)
    axes = kernel_axes(kernel_layout, n)
    channels, depth, *kernel = (weight.extents[d] for d in axes)
    given = data.extents[data_layout.index("C")]
    if differ(given, depth * groups) or not is_multiple(channels, groups):
        raise ShapeError(
            f"{given} input channels, {channels} output channels and {groups} groups do not fit the kernel "
            f"{text(weight.extents)} ({kernel_layout})"
        )
    every, apart = per_dimension(strides, n, "strides"), per_dimension(dilation, n, "dilation")
    sides = padding_of(padding, [(k - 1) * d + 1 for k, d in zip(kernel, apart, strict=True)])
    for k, letter in enumerate(c for c in "DHW" if c in data_layout):
        window_count(data.extents[data_layout.index(letter)], sides[k], sides[n + k], kernel[k], every[k], apart[k], k)
    dtype = DataType(out_dtype or data.dtype)
    return fastest(channel_blocks.conv)(
        data, weight, every, sides, apart, groups, data_layout, kernel_layout, data_layout, dtype
    )


_KERNELS = {
    "NCW": "OIW", "NWC": "WIO", "NCHW": "OIHW", "NHWC": "HWIO", "HWCN": "HWIO", "NCDHW": "OIDHW", "NDHWC": "DHWIO"
}


def _any(
    data: te.Tensor, kernel: te.Tensor, strides: Any, padding: Padding, dilation: Any, groups: int, layout: str,
    kernel_layout: str, out_dtype: str | None
) -> te.Tensor:
    if layout not in _KERNELS:
        raise ShapeError(f"layout '{layout}' is not supported here; it must be one of {', '.join(_KERNELS)}")
    return convolution(
        data, kernel, strides, padding, dilation, groups, layout, kernel_layout or _KERNELS[layout], out_dtype
    )


def conv(
    inp: te.Tensor, filt: te.Tensor, stride: int | Ints, padding: Padding, dilation: int | Ints, groups: int,
    data_layout: str, kernel_layout: str = "", out_dtype: str | None = None,
) -> te.Tensor:
    """Return a convolution of one to three dimensions, in any of the layouts below."""
    return _any(inp, filt, stride, padding, dilation, groups, data_layout, kernel_layout, out_dtype)


@tagged("conv1d")
def conv1d(
    data: te.Tensor, kernel: te.Tensor, strides: int | Ints = 1, padding: Padding = "VALID", dilation: int | Ints = 1,
    data_layout: str = "NCW", kernel_layout: str = "", out_dtype: str | None = None,
) -> te.Tensor:
    """Return a one-dimensional convolution: NCW with a kernel OIW, or NWC with a kernel WIO."""
    return _any(data, kernel, strides, padding, dilation, 1, data_layout, kernel_layout, out_dtype)


@tagged("conv1d_ncw")
def conv1d_ncw(
    data: te.Tensor, kernel: te.Tensor, strides: int | Ints = 1, padding: Padding = "VALID", dilation: int | Ints = 1,
    out_dtype: str | None = None
) -> te.Tensor:
    """Convolve data (batch, in, width) with a kernel (out, in, width)."""
    return _any(data, kernel, strides, padding, dilation, 1, "NCW", "", out_dtype)


@tagged("conv1d_nwc")
def conv1d_nwc(
    data: te.Tensor, kernel: te.Tensor, strides: int | Ints = 1, padding: Padding = "VALID", dilation: int | Ints = 1,
    out_dtype: str | None = None
) -> te.Tensor:
    """Convolve data (batch, width, in) with a kernel (width, in, out)."""
    return _any(data, kernel, strides, padding, dilation, 1, "NWC", "", out_dtype)


@tagged("group_conv1d_ncw")
def group_conv1d_ncw(
    data: te.Tensor, kernel: te.Tensor, strides: int | Ints = 1, padding: Padding = "VALID", dilation: int | Ints = 1,
    groups: int = 1, out_dtype: str | None = None,
) -> te.Tensor:
    """Convolve data (batch, in, width) with a kernel (out, in / groups, width)."""
    return _any(data, kernel, strides, padding, dilation, groups, "NCW", "", out_dtype)


@tagged("group_conv1d_nwc")
def group_conv1d_nwc(
    data: te.Tensor, kernel: te.Tensor, strides: int | Ints = 1, padding: Padding = "VALID", dilation: int | Ints = 1,
    groups: int = 1, out_dtype: str | None = None,
) -> te.Tensor:
    """Convolve data (batch, width, in) with a kernel (width, in / groups, out)."""
    return _any(data, kernel, strides, padding, dilation, groups, "NWC", "", out_dtype)


@tagged("conv2d")
def conv2d(
    input: te.Tensor, filter: te.Tensor, strides: int | Ints, padding: Padding, dilation: int | Ints,
    data_layout: str = "NCHW", kernel_layout: str = "", out_dtype: str | None = None,
) -> te.Tensor:
    """Return a two-dimensional convolution: NCHW with OIHW, NHWC or HWCN with HWIO, or with the given kernel layout."""
    return _any(input, filter, strides, padding, dilation, 1, data_layout, kernel_layout, out_dtype)


@tagged("conv2d_nchw")
def conv2d_nchw(
    Input: te.Tensor, Filter: te.Tensor, stride: int | Ints, padding: Padding, dilation: int | Ints,
    out_dtype: str | None = None
) -> te.Tensor:
    """Convolve data (batch, in, height, width) with a kernel (out, in, height, width)."""
    return _any(Input, Filter, stride, padding, dilation, 1, "NCHW", "", out_dtype)


@tagged("conv2d_hwcn")
def conv2d_hwcn(
    Input: te.Tensor, Filter: te.Tensor, stride: int | Ints, padding: Padding, dilation: int | Ints,
    out_dtype: str | None = None
) -> te.Tensor:
    """Convolve data (height, width, in, batch) with a kernel (height, width, in, out)."""
    return _any(Input, Filter, stride, padding, dilation, 1, "HWCN", "", out_dtype)


@tagged("conv2d_nhwc")
def conv2d_nhwc(
    Input: te.Tensor, Filter: te.Tensor, stride: int | Ints, padding: Padding, dilation: int | Ints,
    out_dtype: str | None = "float32", auto_scheduler_rewritten_layout: str = "",
    meta_schedule_original_shape: Any = None,
) -> te.Tensor:
    """Convolve data (batch, height, width, in) with a kernel (height, width, in, out). Raises `ShapeError` for kernels
    rewritten by a tuner."""
    require_plain_layout(auto_scheduler_rewritten_layout, meta_schedule_original_shape)
    return _any(Input, Filter, stride, padding, dilation, 1, "NHWC", "", out_dtype)


def require_plain_layout(rewritten: str, original: Any) -> None:
    """Raise `ShapeError` for operands in a layout changed by an auto-scheduler: Tilewright packs weights during
    compilation."""
    if rewritten or original:
        raise ShapeError(
            f"the operand was rewritten by a tuner (layout '{rewritten or original}'); pass it in its original layout: "
            "it is packed when the kernel is compiled"
        )


@tagged("group_conv2d_nchw")
def group_conv2d_nchw(
    Input: te.Tensor, Filter: te.Tensor, stride: int | Ints, padding: Padding, dilation: int | Ints, groups: int,
    out_dtype: str | None = None
) -> te.Tensor:
    """Convolve data (batch, in, height, width) with a kernel (out, in / groups, height, width)."""
    return _any(Input, Filter, stride, padding, dilation, groups, "NCHW", "", out_dtype)


@tagged("group_conv2d_nhwc")
def group_conv2d_nhwc(
    Input: te.Tensor, Filter: te.Tensor, stride: int | Ints, padding: Padding, dilation: int | Ints, groups: int,
    out_dtype: str | None = None
) -> te.Tensor:
    """Convolve data (batch, height, width, in) with a kernel (height, width, in / groups, out)."""
    return _any(Input, Filter, stride, padding, dilation, groups, "NHWC", "", out_dtype)


@tagged("conv3d_ncdhw")
def conv3d_ncdhw(
    Input: te.Tensor, Filter: te.Tensor, stride: int | Ints, padding: Padding, dilation: int | Ints, groups: int = 1,
    out_dtype: str | None = None
) -> te.Tensor:
    """Convolve data (batch, in, depth, height, width) with a kernel (out, in / groups, depth, height, width)."""
    return _any(Input, Filter, stride, padding, dilation, groups, "NCDHW", "", out_dtype)


@tagged("conv3d_ndhwc")
def conv3d_ndhwc(
    Input: te.Tensor, Filter: te.Tensor, stride: int | Ints, padding: Padding, dilation: int | Ints, groups: int = 1,
    out_dtype: str | None = "float32", auto_scheduler_rewritten_layout: str = "",
    meta_schedule_origin_shape: Any = None,
) -> te.Tensor:
    """Convolve data (batch, depth, height, width, in) with a kernel (depth, height, width, in / groups, out)."""
    require_plain_layout(auto_scheduler_rewritten_layout, meta_schedule_origin_shape)
    return _any(Input, Filter, stride, padding, dilation, groups, "NDHWC", "", out_dtype)


__all__ = [
    "conv", "conv1d", "conv1d_ncw", "conv1d_nwc", "conv2d", "conv2d_hwcn", "conv2d_nchw", "conv2d_nhwc", "conv3d_ncdhw",
    "conv3d_ndhwc", "group_conv1d_ncw",
    "group_conv1d_nwc", "group_conv2d_nchw", "group_conv2d_nhwc",
]
