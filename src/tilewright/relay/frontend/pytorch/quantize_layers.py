"""Quantized layers whose weights are packed: convolutions of one to three dimensions, transposed ones, matrix products; and those that quantize their input as they run.

Convolutions of one dimension are those of images of one row, and those of three have the planes that a kernel reaches side by side as channels, so that each
is one `qnn.conv2d`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.relay.expr import Constant, Expr, Tuple
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.pytorch.nn import on_axes
from tilewright.relay.frontend.pytorch.node import Array, Node
from tilewright.relay.frontend.pytorch.quantize import Quantized, along, marked, parameter, parameters_of
from tilewright.relay.frontend.pytorch.registry import converter
from tilewright.relay.frontend.shaping import cast, dtype_of, pad, rank, reshape, scalar, shape_of, transpose
from tilewright.relay.qnn.numerics import limits
from tilewright.types import FLOAT32, INT32


@dataclass(frozen=True, slots=True)
class Packed:
    """What TorchScript packs of a layer: its weight as integers, how that is quantized, its bias, and the settings of a convolution."""

    weight: Array
    q: Quantized
    bias: Array | None
    window: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Sums:
    """The sums of a layer as int32, what one of them is worth by output channel, its bias, and how what comes of them gets the layer's shape."""

    total: Expr
    worth: Array
    bias: Array | None
    shaped: Callable[[Expr], Expr]


def unpacked(packed: Any, node: Node) -> Packed:
    """What is in the packed parameters of a layer."""
    import torch

    name = packed._type().qualified_name() if hasattr(packed, "_type") else type(packed).__name__
    window = None
    if "Conv" in name:
        weight, bias = packed.unpack()
        window = {k: getattr(packed, k)() for k in ("stride", "padding", "dilation", "groups", "transpose", "output_padding")}
    elif "Linear" in name:
        weight, bias = torch.ops.quantized.linear_unpack(packed)
    else:
        node.refuse(f"its parameters are packed as {name}, which is not supported")
    if weight.qscheme() in (torch.per_channel_affine, torch.per_channel_affine_float_qparams):
        q = Quantized(weight.q_per_channel_scales().numpy().astype(np.float32), weight.q_per_channel_zero_points().numpy(), weight.q_per_channel_axis())
    else:
        q = Quantized(np.asarray(weight.q_scale(), np.float32), np.asarray(weight.q_zero_point()))
    return Packed(weight.int_repr().numpy(), q, None if bias is None else bias.detach().numpy().astype(np.float32), window)


def sums_of(x: Expr, packed: Any, node: Node, q: Quantized) -> Sums:
    """The sums of a layer, of data quantized by `q`."""
    layer = unpacked(packed, node)
    parameters = (parameter(q.zero_point, np.int32), parameter(layer.q.zero_point, np.int32), parameter(q.scale, np.float32), parameter(layer.q.scale, np.float32))
    kernel = node.weight(packed, layer.weight, parameters[3], parameters[1])
    worth = (q.scale.astype(np.float32) * layer.q.scale).astype(np.float32)
    if layer.window is None:
        lead = shape_of(x)[:-1]
        rows = x if len(lead) == 1 else reshape(x, (-1, shape_of(x)[-1]))
        total: Expr = op.qnn.dense(rows, kernel, *parameters, units=layer.weight.shape[0], out_dtype=INT32)
        return Sums(total, worth, layer.bias, lambda y: y if len(lead) == 1 else reshape(y, (*lead, shape_of(y)[-1])))
    total, shaped = _convolved(x, kernel, layer, parameters, q, node)
    return Sums(total, worth, layer.bias, shaped)


def _convolved(x: Expr, kernel: Expr, layer: Packed, parameters: Sequence[Expr], q: Quantized, node: Node) -> tuple[Expr, Callable[[Expr], Expr]]:
    """The int32 sums of a convolution, of images, and how these get the shape of the layer's result."""
    window = layer.window
    assert window is not None
    n = layer.weight.ndim - 2
    stride, padding, dilation, more = (on_axes(list(window[k]), n) for k in ("stride", "padding", "dilation", "output_padding"))
    images = rank(x) == 3 and n == 2
    x = reshape(x, (*shape_of(x)[:2], 1, shape_of(x)[2])) if images else x
    back: Callable[[Expr], Expr] = (lambda y: reshape(y, (*shape_of(y)[:2], shape_of(y)[3]))) if images else (lambda y: y)
    if window["transpose"]:
        if n != 2:
            node.refuse(f"it is a transposed convolution of {n} dimensions of quantized data, and those of one and two are supported")
        around = (*padding, *padding)
        return op.qnn.conv2d_transpose(
            x, kernel, *parameters, strides=stride, padding=around, dilation=dilation, groups=window["groups"], channels=layer.weight.shape[1] * window["groups"],
            kernel_size=layer.weight.shape[2:], output_padding=more, out_dtype=INT32), back
    x = pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)], Constant(np.asarray(q.zero_point, np.float32).reshape(())))
    if n == 3:
        batch = shape_of(x)[0]
        x, planes = _planes(x, layer.weight.shape[2], stride[0], dilation[0])
        kernel = reshape(kernel, (layer.weight.shape[0], -1, *layer.weight.shape[3:]))

        def back(y: Expr) -> Expr:
            return transpose(reshape(y, (batch, planes, *shape_of(y)[1:])), (0, 2, 1, 3, 4))

    total = op.qnn.conv2d(
        x, kernel, *parameters, strides=stride[-2:], padding=(0, 0, 0, 0), dilation=dilation[-2:], groups=window["groups"], channels=layer.weight.shape[0],
        kernel_size=layer.weight.shape[-2:], out_dtype=INT32)
    return total, back


def _planes(x: Expr, size: int, stride: int, dilation: int) -> tuple[Expr, int]:
    """Volumes as images, one for each place of the kernel along the depth, whose channels have the planes that it reaches there side by side; and how many places there are."""
    batch, channels, depth, *sides = shape_of(x)
    count = (depth - dilation * (size - 1) - 1) // stride + 1
    parts = [
        op.strided_slice(x, begin=(k * dilation,), end=(k * dilation + (count - 1) * stride + 1,), strides=(stride,), axes=(2,)) for k in range(size)
    ]
    stacked = transpose(op.stack(Tuple(tuple(parts)), axis=2), (0, 3, 1, 2, 4, 5))
    return reshape(stacked, (batch * count, channels * size, *sides)), count


def layer_of(x: Expr, packed: Any, scale: Any, zero_point: Any, node: Node, relu: bool) -> Expr:
    """The sums, a bias in units of them, requantized, and held in the range of the type."""
    sums = sums_of(x, packed, node, parameters_of(x, node))
    total, units, none = sums.total, parameter(sums.worth, np.float32), Constant(np.zeros((), np.int32))
    if sums.bias is not None:
        total = op.nn.bias_add(total, node.bias(packed, sums.bias, units), axis=1)
    kind, to, zero = dtype_of(x), np.asarray(scale, np.float32), np.asarray(zero_point, np.int32)
    whole = op.qnn.requantize(total, units, none, Constant(to), Constant(zero), axis=1, out_dtype=INT32)
    low, high = limits(kind)
    y: Expr = cast(op.clip(whole, a_min=float(max(low, int(zero)) if relu else low), a_max=float(high)), kind)
    return marked(sums.shaped(y), Quantized(to, zero.astype(np.int64)), node)


@converter("quantized::linear", "quantized::linear_relu")
def quantized_linear(X: Expr, W_prepack: Any, Y_scale_i: float, Y_zero_point_i: int, node: Node) -> Expr:
    return layer_of(X, W_prepack, Y_scale_i, Y_zero_point_i, node, node.name.endswith("relu"))


@converter(
    "quantized::conv1d", "quantized::conv1d_relu", "quantized::conv2d", "quantized::conv2d_relu", "quantized::conv3d", "quantized::conv3d_relu",
    "quantized::conv2d.new", "quantized::conv2d_relu.new", "quantized::conv3d.new", "quantized::conv3d_relu.new", "quantized::conv_transpose1d",
    "quantized::conv_transpose2d",
)
def quantized_convolution(qx: Expr, packed_weight: Any, output_scale: float, output_zero_point: int, node: Node) -> Expr:
    return layer_of(qx, packed_weight, output_scale, output_zero_point, node, node.name.endswith("relu"))


@converter("quantized::linear_dynamic", "quantized::linear_relu_dynamic")
def linear_dynamic(X: Expr, W_prepack: Any, node: Node, reduce_range: bool = False) -> Expr:
    """The input is quantized by its own range, which zero belongs to, to 7 or 8 bits."""
    most = 127 if reduce_range else 255
    x = cast(X, FLOAT32)
    axes = tuple(range(rank(x)))
    low = op.minimum(op.min(x, axis=axes), scalar(0, x))
    high = op.maximum(op.max(x, axis=axes), scalar(0, x))
    span = op.divide(op.subtract(high, low), scalar(most, x))
    scale = op.where(op.equal(span, scalar(0, x)), scalar(0.1, x), span)
    inverse = op.divide(scalar(1, x), scale)
    zero = op.clip(op.round(op.negative(op.divide(low, scale))), a_min=0.0, a_max=float(most))
    integers = cast(op.clip(op.add(op.round(op.multiply(x, inverse)), zero), a_min=0.0, a_max=float(most)), "uint8")
    layer = unpacked(W_prepack, node)
    w, bias = layer.q, layer.bias
    one = Constant(np.ones((), np.float32))
    rows = integers if rank(x) == 2 else reshape(integers, (-1, shape_of(x)[-1]))
    zero_w = Constant(w.zero_point.astype(np.int32) if w.scale.size > 1 else w.zero_point.astype(np.int32).reshape(()))
    kernel = node.weight(W_prepack, layer.weight, parameter(w.scale, np.float32), zero_w)
    total: Expr = op.qnn.dense(rows, kernel, cast(zero, INT32), zero_w, one, one, units=layer.weight.shape[0])
    total = total if rank(x) == 2 else reshape(total, (*shape_of(x)[:-1], layer.weight.shape[0]))
    y = op.multiply(cast(total, FLOAT32), op.multiply(scale, along(w.scale, rank(total), -1)))
    y = y if bias is None else op.add(y, along(bias, rank(total), -1))
    return op.nn.relu(y) if "relu" in node.name else y
