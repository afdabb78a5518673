"""Convolutions with channels last. Integers: 32-bit sums (64-bit for int16 data), bias, then rescaling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.base.types import INT32
from tilewright.relay.expr import Expr
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast, pad, reshape, transpose
from tilewright.relay.frontend.tflite.hybrid import asymmetric, dequantized, is_hybrid, symmetric
from tilewright.relay.frontend.tflite.node import Node, Value, constant
from tilewright.relay.frontend.tflite.registry import converter
from tilewright.relay.frontend.tflite.rescale import activate, centred, open_requantize, to_output
from tilewright.relay.frontend.tflite.windows import padding_of


@converter("CONV_2D")
def conv_2d(
    x: Value, w: Value, b: Value | None = None, *, padding: int = 0, stride_w: int = 0, stride_h: int = 0,
    fused_activation_function: int = 0, dilation_w_factor: int = 1, dilation_h_factor: int = 1, node: Node,
) -> Expr:
    out_channels, *kernel, depth = _shape(w, 4, node)
    channels = _shape(x, 4, node)[3]
    if depth < 1 or channels % depth:
        node.refuse(f"its input has {channels} channels, which is not a multiple of {depth}, the channels of its "
                    "filters")
    attrs = _attributes(x, out_channels, kernel, (stride_h, stride_w), (dilation_h_factor, dilation_w_factor), padding,
                        channels // depth, node)
    weight = transpose(w.expr, (1, 2, 3, 0))
    return activate(_convolution(x, w, weight, b, attrs, node), fused_activation_function, node)


@converter("DEPTHWISE_CONV_2D")
def depthwise_conv_2d(
    x: Value, w: Value, b: Value | None = None, *, padding: int = 0, stride_w: int = 0, stride_h: int = 0,
    fused_activation_function: int = 0, dilation_w_factor: int = 1, dilation_h_factor: int = 1, node: Node,
) -> Expr:
    _, *kernel, out_channels = _shape(w, 4, node)
    channels = _shape(x, 4, node)[3]
    if channels < 1 or out_channels % channels:
        node.refuse(f"its result has {out_channels} channels, which is not a multiple of {channels}, the channels of "
                    "its input")
    attrs = _attributes(x, out_channels, kernel, (stride_h, stride_w), (dilation_h_factor, dilation_w_factor), padding,
                        channels, node)
    weight = reshape(w.expr, (*kernel, 1, out_channels))
    return activate(_convolution(x, w, weight, b, attrs, node), fused_activation_function, node)


def _attributes(
    x: Value, channels: int, kernel: Sequence[int], strides: tuple[int, int], dilation: tuple[int, int], padding: int,
    groups: int, node: Node,
) -> dict[str, Any]:
    return {
        "strides": strides, "padding": padding_of(padding, x.shape[1:3], kernel, strides, dilation, node),
        "dilation": dilation, "groups": groups, "channels": channels, "kernel_size": tuple(kernel),
        "data_layout": "NHWC", "kernel_layout": "HWIO"}


def _shape(v: Value, rank: int, node: Node) -> tuple[int, ...]:
    if v.rank != rank:
        node.refuse(f"tensor '{v.tensor.name}' has {v.rank} dimensions, but must have {rank}")
    return v.shape


def _convolution(x: Value, w: Value, weight: Expr, b: Value | None, attrs: dict[str, Any], node: Node) -> Expr:
    """The convolution with its bias, in the type and scale of the result."""
    if is_hybrid(x, w):
        data, scale = asymmetric(x.expr) if w.quantization.is_per_axis else symmetric(x.expr)
        total = op.nn.conv2d(data, cast(weight, "int32"), out_dtype="int32", **attrs)
        return biased(op.multiply(cast(total, "float32"),
                                  op.multiply(scale, constant(one_or_all(w.quantization.scales), "float32"))), b)
    if not x.is_quantized:
        return biased(op.nn.conv2d(x.expr, cast(weight, x.dtype), **attrs), b)
    if x.dtype == "int16":
        kind = sum_type(b)
        total = op.nn.conv2d(cast(x.expr, kind), cast(weight, kind), out_dtype=kind, **attrs)
        return to_output(biased(total, b), product_scales(x, w), node.output, axis=3)
    zero_points = w.quantization.zero_points
    same = len(set(zero_points)) == 1
    top, left, bottom, right = attrs["padding"]
    data = pad(x.expr, ((0, 0), (top, bottom), (left, right), (0, 0)), constant(x.zero_point, "float32"))
    total = op.qnn.conv2d(
        data, weight, constant(x.zero_point, "int32"), constant(zero_points[0] if same else zero_points, "int32"),
        constant(x.scale, "float32"), constant(one_or_all(w.quantization.scales), "float32"), out_dtype=INT32,
        **{**attrs, "padding": (0, 0, 0, 0)})
    return open_requantize(biased(total, b), rounded_scales(x, w), node.output, axis=3)


def rounded_scales(x: Value, w: Value) -> Any:
    """The scale of sums of products in float32, as in TVM. The kernels' factors are in `qnn/sources.py`."""
    return np.float32(x.scale) * np.asarray(w.quantization.scales, np.float32)


def one_or_all(scales: Sequence[float]) -> Any:
    return scales[0] if len(scales) == 1 else scales


def sum_type(b: Value | None) -> str:
    """The accumulator type for 16-bit data: the type of the bias."""
    return b.dtype if b is not None else "int64"


def product_scales(x: Value, w: Value) -> Any:
    """The scale of sums of products, one for each output channel or one for all.

    It is the exact product, except for uint8 data with one scale, where it is rounded to float32.
    """
    scales = np.asarray(w.quantization.scales, np.float64)
    if len(scales) == 1 and x.dtype == "uint8":
        return np.float64(np.float32(x.scale) * np.float32(scales[0]))
    return x.scale * scales


def biased(total: Expr, b: Value | None) -> Expr:
    """Add the bias along the last dimension."""
    if b is None:
        return total
    bias, last = cast(b.expr, total.tensor_type.dtype), total.tensor_type.ndim - 1
    return (op.nn.bias_add(total, bias, axis=last) if bias.tensor_type.shape == total.tensor_type.shape[last:]
            else op.add(total, bias))


@converter("TRANSPOSE_CONV")
def transpose_conv(
    output_shape: Value, w: Value, x: Value, b: Value | None = None, *, padding: int = 0, stride_w: int = 0,
    stride_h: int = 0, fused_activation_function: int = 0, node: Node,
) -> Expr:
    wanted = node.ints(output_shape)
    out_channels, *kernel, _ = _shape(w, 4, node)
    sizes, strides = _shape(x, 4, node)[1:3], (stride_h, stride_w)
    if len(wanted) != 4:
        node.refuse(f"its output shape is {wanted}, but must have 4 sizes")
    before, after, more = transposed_padding(padding, sizes, wanted[1:3], kernel, strides, node)
    attrs = {
        "strides": strides, "padding": (*before, *after), "output_padding": more, "channels": out_channels,
        "kernel_size": tuple(kernel),
        "data_layout": "NHWC", "kernel_layout": "HWOI", "dilation": (1, 1), "groups": 1,
    }
    weight = transpose(dequantized(w) if is_hybrid(x, w) else w.expr, (1, 2, 0, 3))
    if not x.is_quantized:
        return activate(biased(op.nn.conv2d_transpose(x.expr, cast(weight, x.dtype), **attrs), b),
                        fused_activation_function, node)
    kind = "int32" if x.dtype != "int16" else sum_type(b)
    data = centred(x.expr, x.zero_point, kind)
    moved = (centred(weight, w.quantization.zero_points[0], kind) if w.quantization.zero_points[0]
             else cast(weight, kind))
    total = op.nn.conv2d_transpose(data, moved, out_dtype=kind, **attrs)
    return activate(to_output(biased(total, b), product_scales(x, w), node.output, axis=3), fused_activation_function,
                    node)


def transposed_padding(
    code: int, sizes: Sequence[int], wanted: Sequence[int], kernel: Sequence[int], strides: Sequence[int], node: Node,
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Padding before and after each dimension of a transposed convolution, and its output padding."""
    same = padding_of(code, wanted, kernel, strides, (1,) * len(kernel), node)
    before = same[: len(kernel)]
    after, more = [], []
    for n, out, k, s, first in zip(sizes, wanted, kernel, strides, before, strict=True):
        excess = (n - 1) * s + k - first - out
        after.append(max(excess, 0))
        more.append(max(-excess, 0))
    return before, tuple(after), tuple(more)


@converter("CONV_3D")
def conv_3d(
    x: Value, w: Value, b: Value | None = None, *, padding: int = 0, stride_d: int = 0, stride_w: int = 0,
    stride_h: int = 0, fused_activation_function: int = 0, dilation_d_factor: int = 1, dilation_w_factor: int = 1,
    dilation_h_factor: int = 1, node: Node,
) -> Expr:
    strides, dilation = (stride_d, stride_h, stride_w), (dilation_d_factor, dilation_h_factor, dilation_w_factor)
    *kernel, depth, out_channels = _shape(w, 5, node)
    around = padding_of(padding, _shape(x, 5, node)[1:4], kernel, strides, dilation, node)
    if depth < 1 or x.shape[4] % depth:
        node.refuse(f"its input has {x.shape[4]} channels, which is not a multiple of {depth}, the channels of its "
                    "filters")
    found = op.nn.conv3d(
        x.expr, w.expr, strides=strides, padding=around, dilation=dilation, groups=x.shape[4] // depth,
        channels=out_channels, kernel_size=tuple(kernel), data_layout="NDHWC", kernel_layout="DHWIO")
    return activate(biased(found, b), fused_activation_function, node)


@converter("CONV_3D_TRANSPOSE")
def conv_3d_transpose(
    output_shape: Value, w: Value, x: Value, b: Value | None = None, *, padding: int = 0, stride_d: int = 0,
    stride_w: int = 0, stride_h: int = 0, fused_activation_function: int = 0, dilation_d_factor: int = 1,
    dilation_w_factor: int = 1, dilation_h_factor: int = 1, node: Node,
) -> Expr:
    if (dilation_d_factor, dilation_w_factor, dilation_h_factor) != (1, 1, 1):
        node.refuse("dilation of a transposed convolution is not supported; convert the model without it")
    strides = (stride_d, stride_h, stride_w)
    *kernel, out_channels, _ = _shape(w, 5, node)
    before, after, more = transposed_padding(padding, _shape(x, 5, node)[1:4], node.ints(output_shape)[1:4], kernel,
                                             strides, node)
    found = op.nn.conv3d_transpose(
        x.expr, w.expr, strides=strides, padding=(*before, *after), output_padding=more, channels=out_channels,
        kernel_size=tuple(kernel), data_layout="NDHWC", kernel_layout="DHWOI")
    return activate(biased(found, b), fused_activation_function, node)
