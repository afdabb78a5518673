"""Convolutions in numpy. Strides, dilations and paddings are integers or one for each axis; a padding may also be
"SAME" or "VALID". Weights have the layout of TVM's function of the same name."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.base.array_bytes import Array
from tilewright.compat.testing.topi.reference import pair, reference
from tilewright.relay.op import nn
from tilewright.topi.nn.utils import Padding, get_pad_tuple_generic

Sizes = int | tuple[int, ...]


def dilate_python(input_np: Array, strides: Sizes, dilation_value: float = 0.0, out_dtype: str | None = None) -> Array:
    """Return the input with `strides[k] - 1` elements of a value between two elements of axis k."""
    found: Array = reference(
        lambda x: nn.dilate(x, strides=pair(strides, input_np.ndim), dilation_value=dilation_value), input_np)
    return found if out_dtype is None else found.astype(out_dtype)


def dilate_np(x: Array, dilation: int) -> Array:
    """Return `x` with `dilation - 1` zeros between two elements of its last axis."""
    return dilate_python(x, (1,) * (x.ndim - 1) + (dilation,))


def _conv(
    name: str, data: Array, weight: Array, spatial: tuple[int, ...], stride: Sizes, padding: Padding, **attrs: Any
) -> Array:
    """Return a convolution with windows of the extents `spatial`; `dilation` is in `attrs` if it is not 1."""
    count = len(spatial)
    dilation = pair(attrs.pop("dilation", 1), count)
    window = tuple((k - 1) * d + 1 for k, d in zip(spatial, dilation, strict=True))
    function = getattr(nn, name)
    found: Array = reference(
        lambda x, w: function(
            x, w, strides=pair(stride, count), padding=get_pad_tuple_generic(padding, window, count), dilation=dilation,
            **attrs),
        data, weight)
    return found


def group_conv1d_ncw_python(
    a_np: Array, w_np: Array, stride: Sizes, padding: Padding, dilation: Sizes, groups: int
) -> Array:
    """Return a convolution of NCW data and OIW weights in groups."""
    return _conv("conv1d", a_np, w_np, w_np.shape[2:], stride, padding, dilation=dilation, groups=groups)


def conv1d_ncw_python(a_np: Array, w_np: Array, stride: Sizes, padding: Padding, dilation: Sizes) -> Array:
    """Return a convolution of NCW data and OIW weights."""
    return group_conv1d_ncw_python(a_np, w_np, stride, padding, dilation, 1)


def conv2d_nchw_python(a_np: Array, w_np: Array, stride: Sizes, padding: Padding, groups: int = 1) -> Array:
    """Return a convolution of NCHW data and OIHW weights."""
    return _conv("conv2d", a_np, w_np, w_np.shape[2:], stride, padding, groups=groups)


def conv2d_backward_weight_python(
    dy_np: Array, x_np: Array, kernel_size: Sizes, stride: Sizes, padding: Padding, groups: int = 1,
    channels: int | None = None,
) -> Array:
    """Return the gradient of the OIHW weights of a convolution of NCHW data, for the gradient of its result."""
    window = pair(kernel_size)
    found: Array = reference(
        lambda dy, x: nn.conv2d_backward_weight(
            dy, x, strides=pair(stride), padding=get_pad_tuple_generic(padding, window, 2), kernel_size=window,
            groups=groups, channels=channels),
        dy_np, x_np)
    return found


def conv2d_nhwc_python(a_np: Array, w_np: Array, stride: Sizes, padding: Padding, groups: int = 1) -> Array:
    """Return a convolution of NHWC data and HWIO weights."""
    return _conv(
        "conv2d", a_np, w_np, w_np.shape[:2], stride, padding, groups=groups, data_layout="NHWC", kernel_layout="HWIO")


def conv2d_hwcn_python(a_np: Array, w_np: Array, stride: Sizes, padding: Padding) -> Array:
    """Return a convolution of HWCN data and HWIO weights."""
    found = conv2d_nhwc_python(np.ascontiguousarray(a_np.transpose(3, 0, 1, 2)), w_np, stride, padding)
    return np.ascontiguousarray(found.transpose(1, 2, 3, 0))


def conv3d_ncdhw_python(a_np: Array, w_np: Array, stride: Sizes, padding: Padding, groups: int = 1) -> Array:
    """Return a convolution of NCDHW data and OIDHW weights."""
    return _conv("conv3d", a_np, w_np, w_np.shape[2:], stride, padding, groups=groups)


def conv3d_ndhwc_python(a_np: Array, w_np: Array, stride: Sizes, padding: Padding, groups: int = 1) -> Array:
    """Return a convolution of NDHWC data and DHWIO weights."""
    return _conv(
        "conv3d", a_np, w_np, w_np.shape[:3], stride, padding, groups=groups, data_layout="NDHWC",
        kernel_layout="DHWIO")


def depthwise_conv2d_python_nchw(input_np: Array, filter_np: Array, stride: Sizes, padding: Padding) -> Array:
    """Return a depthwise convolution of NCHW data; the weights are (channels, multiplier, height, width)."""
    channels, multiplier, *window = filter_np.shape
    return conv2d_nchw_python(
        input_np, filter_np.reshape(channels * multiplier, 1, *window), stride, padding, groups=channels)


def depthwise_conv2d_python_nhwc(input_np: Array, filter_np: Array, stride: Sizes, padding: Padding) -> Array:
    """Return a depthwise convolution of NHWC data; the weights are (height, width, channels, multiplier)."""
    found = depthwise_conv2d_python_nchw(
        np.ascontiguousarray(input_np.transpose(0, 3, 1, 2)), np.ascontiguousarray(filter_np.transpose(2, 3, 0, 1)),
        stride, padding)
    return np.ascontiguousarray(found.transpose(0, 2, 3, 1))


def depthwise_conv2d_python_nchwc(input_np: Array, filter_np: Array, stride: Sizes, padding: Padding) -> Array:
    """Return a depthwise convolution of NCHW[x]c data; the weights are (channels / y, 1, height, width, 1, y)."""
    n, outer, height, width, inner = input_np.shape
    data = input_np.transpose(0, 1, 4, 2, 3).reshape(n, outer * inner, height, width)
    blocks, _, kh, kw, _, block = filter_np.shape
    weight = filter_np.transpose(0, 5, 1, 4, 2, 3).reshape(blocks * block, 1, kh, kw)
    found = depthwise_conv2d_python_nchw(np.ascontiguousarray(data), np.ascontiguousarray(weight), stride, padding)
    _, _, out_height, out_width = found.shape
    return np.ascontiguousarray(
        found.reshape(n, blocks, block, out_height, out_width).transpose(0, 1, 3, 4, 2))


def conv1d_transpose_ncw_python(
    a_np: Array, w_np: Array, stride: Sizes, padding: Padding, output_padding: Sizes
) -> Array:
    """Return a transposed convolution of NCW data and IOW weights."""
    return _conv(
        "conv1d_transpose", a_np, w_np, w_np.shape[2:], stride, padding, output_padding=pair(output_padding, 1))


def conv2d_transpose_nchw_python(
    a_np: Array, w_np: Array, stride: Sizes, padding: Padding, output_padding: Sizes, groups: int = 1
) -> Array:
    """Return a transposed convolution of NCHW data and IOHW weights."""
    return _conv(
        "conv2d_transpose", a_np, w_np, w_np.shape[2:], stride, padding, output_padding=pair(output_padding),
        groups=groups)


def conv2d_transpose_nhwc_python(
    a_nhwc: Array, weight: Array, weight_format: str, stride: Sizes, padding: Padding,
    output_padding: Sizes = (0, 0),
) -> Array:
    """Return a transposed convolution of NHWC data; `weight_format` is HWIO, HWOI, OIHW or IOHW, where I are the
    channels of the data."""
    order = [weight_format.index(letter) for letter in "IOHW"]
    found = conv2d_transpose_nchw_python(
        np.ascontiguousarray(a_nhwc.transpose(0, 3, 1, 2)), np.ascontiguousarray(weight.transpose(order)), stride,
        padding, output_padding)
    return np.ascontiguousarray(found.transpose(0, 2, 3, 1))


def conv3d_transpose_ncdhw_python(
    a_np: Array, w_np: Array, stride: Sizes, padding: Padding, output_padding: Sizes
) -> Array:
    """Return a transposed convolution of NCDHW data and IODHW weights."""
    return _conv(
        "conv3d_transpose", a_np, w_np, w_np.shape[2:], stride, padding, output_padding=pair(output_padding, 3))


def deformable_conv2d_nchw_python(
    a_np: Array, offset_np: Array, w_np: Array, stride: Sizes, padding: Padding, dilation: Sizes,
    deformable_groups: int, groups: int,
) -> Array:
    """Return a deformable convolution of NCHW data, NCHW offsets and OIHW weights."""
    dilation = pair(dilation)
    window = tuple((k - 1) * d + 1 for k, d in zip(w_np.shape[2:], dilation, strict=True))
    found: Array = reference(
        lambda x, offset, w: nn.deformable_conv2d(
            x, offset, w, strides=pair(stride), padding=get_pad_tuple_generic(padding, window), dilation=dilation,
            deformable_groups=deformable_groups, groups=groups, kernel_size=w_np.shape[2:], channels=w_np.shape[0]),
        a_np, offset_np, w_np)
    return found


def deformable_conv2d_nhwc_python(
    a_np: Array, offset_np: Array, w_np: Array, stride: Sizes, padding: Padding, dilation: Sizes,
    deformable_groups: int, groups: int,
) -> Array:
    """Return a deformable convolution of NHWC data, NHWC offsets and HWIO weights."""
    data, offset = (np.ascontiguousarray(x.transpose(0, 3, 1, 2)) for x in (a_np, offset_np))
    found = deformable_conv2d_nchw_python(
        data, offset, np.ascontiguousarray(w_np.transpose(3, 2, 0, 1)), stride, padding, dilation, deformable_groups,
        groups)
    return np.ascontiguousarray(found.transpose(0, 2, 3, 1))


def correlation_nchw_python(
    data1: Array, data2: Array, kernel_size: int, max_displacement: int, stride1: int, stride2: int,
    padding: Padding, is_multiply: bool,
) -> Array:
    """Return the correlation of two NCHW images at displacements."""
    found: Array = reference(
        lambda x, y: nn.correlation(
            x, y, kernel_size=kernel_size, max_displacement=max_displacement, stride1=stride1, stride2=stride2,
            padding=padding, is_multiply=is_multiply),
        data1, data2)
    return found
