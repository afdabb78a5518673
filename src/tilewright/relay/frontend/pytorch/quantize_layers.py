"""Quantized layers with packed weights: convolutions, transposed convolutions, matrix products, and dynamic
quantization.

All convolutions become `qnn.conv2d`. A 1-D convolution is one of an image with one row. For a 3-D convolution, the
planes that a kernel covers are concatenated as channels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.base.types import FLOAT32, INT32
from tilewright.relay.expr import Constant, Expr, Tuple
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.pytorch.linear import linear
from tilewright.relay.frontend.pytorch.nn import embedding_bag, on_axes
from tilewright.relay.frontend.pytorch.node import Array, Node
from tilewright.relay.frontend.pytorch.quantize import Quantized, along, marked, parameter, parameters_in, parameters_of
from tilewright.relay.frontend.pytorch.recurrent import CELLS, Products, network
from tilewright.relay.frontend.pytorch.registry import converter
from tilewright.relay.frontend.shaping import cast, pad, reshape, transpose
from tilewright.relay.qnn.numerics import limits
from tilewright.relay.types_of import dtype_of, rank, scalar, shape_of


@dataclass(frozen=True, slots=True)
class Packed:
    """The packed parameters of a TorchScript layer: integer weight, its quantization, bias, and settings."""

    weight: Array
    q: Quantized
    bias: Array | None
    window: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Sums:
    """Int32 sums of a layer, their scale per output channel (`worth`), its bias, and how to shape the results."""

    total: Expr
    worth: Array
    bias: Array | None
    shaped: Callable[[Expr], Expr]


def unpacked(packed: Any, node: Node) -> Packed:
    """The contents of a layer's packed parameters."""
    import torch

    name = packed._type().qualified_name() if hasattr(packed, "_type") else type(packed).__name__
    window = None
    if "Conv" in name:
        weight, bias = packed.unpack()
        window = {k: getattr(packed, k)() for k in ("stride", "padding", "dilation", "groups", "transpose",
                                                    "output_padding")}
    elif "Linear" in name:
        weight, bias = torch.ops.quantized.linear_unpack(packed)
    else:
        node.refuse(f"its parameters are packed as {name}, which is not supported")
    return Packed(weight.int_repr().numpy(), parameters_in(weight), None if bias is None
                  else bias.detach().numpy().astype(np.float32), window)


def sums_of(x: Expr, packed: Any, node: Node, q: Quantized) -> Sums:
    """The sums of a layer for data quantized by `q`."""
    layer = unpacked(packed, node)
    parameters = (parameter(q.zero_point, np.int32), parameter(layer.q.zero_point, np.int32),
                  parameter(q.scale, np.float32), parameter(layer.q.scale, np.float32))
    kernel = node.weight(packed, layer.weight, parameters[3], parameters[1])
    worth = (q.scale.astype(np.float32) * layer.q.scale).astype(np.float32)
    if layer.window is None:
        lead = shape_of(x)[:-1]
        rows = x if len(lead) == 1 else reshape(x, (-1, shape_of(x)[-1]))
        total: Expr = op.qnn.dense(rows, kernel, *parameters, units=layer.weight.shape[0], out_dtype=INT32)
        return Sums(total, worth, layer.bias, lambda y: y if len(lead) == 1 else reshape(y, (*lead, shape_of(y)[-1])))
    total, shaped = _convolved(x, kernel, layer, parameters, q, node)
    return Sums(total, worth, layer.bias, shaped)


def _convolved(x: Expr, kernel: Expr, layer: Packed, parameters: Sequence[Expr], q: Quantized,
               node: Node) -> tuple[Expr, Callable[[Expr], Expr]]:
    """The int32 sums of a convolution as images, and the function that reshapes them to the layer's result."""
    window = layer.window
    assert window is not None
    n = layer.weight.ndim - 2
    stride, padding, dilation, more = (on_axes(list(window[k]), n) for k in ("stride", "padding", "dilation",
        "output_padding"))
    images = rank(x) == 3 and n == 2
    x = reshape(x, (*shape_of(x)[:2], 1, shape_of(x)[2])) if images else x
    back: Callable[[Expr], Expr] = ((lambda y: reshape(y, (*shape_of(y)[:2], shape_of(y)[3]))) if images
        else (lambda y: y))
    if window["transpose"]:
        if n != 2:
            node.refuse(f"it is a quantized transposed convolution of {n} dimensions; 1 and 2 dimensions are supported")
        around = (*padding, *padding)
        return op.qnn.conv2d_transpose(
            x, kernel, *parameters, strides=stride, padding=around, dilation=dilation, groups=window["groups"],
            channels=layer.weight.shape[1] * window["groups"], kernel_size=layer.weight.shape[2:], output_padding=more,
            out_dtype=INT32), back
    x = pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)], Constant(np.asarray(q.zero_point, np.float32).reshape(())))
    if n == 3:
        batch = shape_of(x)[0]
        x, planes = _planes(x, layer.weight.shape[2], stride[0], dilation[0])
        kernel = reshape(kernel, (layer.weight.shape[0], -1, *layer.weight.shape[3:]))

        def back(y: Expr) -> Expr:
            return transpose(reshape(y, (batch, planes, *shape_of(y)[1:])), (0, 2, 1, 3, 4))

    total = op.qnn.conv2d(
        x, kernel, *parameters, strides=stride[-2:], padding=(0, 0, 0, 0), dilation=dilation[-2:],
        groups=window["groups"], channels=layer.weight.shape[0], kernel_size=layer.weight.shape[-2:], out_dtype=INT32)
    return total, back


def _planes(x: Expr, size: int, stride: int, dilation: int) -> tuple[Expr, int]:
    """Volumes as images, with the planes of each window as channels; and the number of windows along the depth."""
    batch, channels, depth, *sides = shape_of(x)
    count = (depth - dilation * (size - 1) - 1) // stride + 1
    parts = [
        op.strided_slice(x, begin=(k * dilation,), end=(k * dilation + (count - 1) * stride + 1,), strides=(stride,),
                         axes=(2,)) for k in range(size)]
    stacked = transpose(op.stack(Tuple(tuple(parts)), axis=2), (0, 3, 1, 2, 4, 5))
    return reshape(stacked, (batch * count, channels * size, *sides)), count


def layer_of(x: Expr, packed: Any, scale: Any, zero_point: Any, node: Node, relu: bool) -> Expr:
    """Add the bias in the scale of the sums, requantize, and clip to the range of the type."""
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
    "quantized::conv1d", "quantized::conv1d_relu", "quantized::conv2d", "quantized::conv2d_relu", "quantized::conv3d",
    "quantized::conv3d_relu", "quantized::conv2d.new", "quantized::conv2d_relu.new", "quantized::conv3d.new",
    "quantized::conv3d_relu.new", "quantized::conv_transpose1d", "quantized::conv_transpose2d")
def quantized_convolution(qx: Expr, packed_weight: Any, output_scale: float, output_zero_point: int,
                          node: Node) -> Expr:
    return layer_of(qx, packed_weight, output_scale, output_zero_point, node, node.name.endswith("relu"))


# Dynamic quantization


def dynamic_kernel(packed: Any, layer: Packed, node: Node) -> Expr:
    """The weight of a matrix product with dynamically quantized data."""
    return node.weight(packed, layer.weight, parameter(layer.q.scale, np.float32),
                       parameter(layer.q.zero_point, np.int32))


def dynamic_product(x: Expr, kernel: Expr, layer: Packed, reduce_range: bool) -> Expr:
    """Quantize `x` dynamically to 8 bits (7 if the engine reduces the range), and multiply by the weight; float result.
    """
    import torch

    most = 127 if reduce_range and torch.backends.quantized.engine != "qnnpack" else 255
    x = cast(x, FLOAT32)
    axes = tuple(range(rank(x)))
    low = op.minimum(op.min(x, axis=axes), scalar(0, x))
    high = op.maximum(op.max(x, axis=axes), scalar(0, x))
    span = op.quotient(op.subtract(high, low), scalar(most, x))
    scale = op.where(op.equal(span, scalar(0, x)), scalar(0.1, x), span)
    inverse = op.quotient(scalar(1, x), scale)
    zero = op.clip(op.round(op.negative(op.quotient(low, scale))), a_min=0.0, a_max=float(most))
    integers = cast(op.clip(op.add(op.round(op.multiply(x, inverse)), zero), a_min=0.0, a_max=float(most)), "uint8")
    one, zero_w, bias = Constant(np.ones((), np.float32)), parameter(layer.q.zero_point, np.int32), layer.bias
    units, lead = layer.weight.shape[0], shape_of(x)[:-1]
    rows = integers if len(lead) == 1 else reshape(integers, (-1, shape_of(x)[-1]))
    total: Expr = op.qnn.dense(rows, kernel, cast(zero, INT32), zero_w, one, one, units=units)
    worth = op.multiply(scale, along(layer.q.scale, 2, -1))
    whole = cast(total, FLOAT32)
    y = op.multiply(whole, worth) if bias is None else op.multiply_add(whole, worth, along(bias, 2, -1))
    return y if len(lead) == 1 else reshape(y, (*lead, units))


@converter("quantized::linear_dynamic", "quantized::linear_relu_dynamic")
def linear_dynamic(X: Expr, W_prepack: Any, node: Node, reduce_range: bool = False) -> Expr:
    layer = unpacked(W_prepack, node)
    y = dynamic_product(X, dynamic_kernel(W_prepack, layer, node), layer, reduce_range)
    return op.nn.relu(y) if "relu" in node.name else y


def half_weights(packed: Any) -> list[Expr]:
    """Weight and bias of a matrix product whose weight is stored as float16 but computed in float32."""
    import torch

    weight, bias = torch.ops.quantized.linear_unpack_fp16(packed)
    return [Constant(v.detach().to(torch.float16 if k == 0 else torch.float32).to(torch.float32).numpy())
            for k, v in enumerate((weight, bias)) if v is not None]


@converter("quantized::linear_dynamic_fp16", "quantized::linear_relu_dynamic_fp16")
def linear_of_halves(X: Expr, W_prepack: Any, node: Node) -> Expr:
    y: Expr = linear(cast(X, FLOAT32), *half_weights(W_prepack))
    return op.nn.relu(y) if "relu" in node.name else y


# Recurrent layers and embeddings


def _products(w_ih: Any, w_hh: Any, reduce_range: bool, halves: bool, node: Node) -> Products:
    """The products of a recurrent layer with 8-bit or float16 weights."""
    if halves:
        (w, *b), (u, *c) = half_weights(w_ih), half_weights(w_hh)
        return Products(lambda x: linear(x, w, *b), linear, [u, *c])
    given, state = unpacked(w_ih, node), unpacked(w_hh, node)
    kernel = dynamic_kernel(w_ih, given, node)
    return Products(lambda x: dynamic_product(x, kernel, given, reduce_range), lambda h,
                    u: dynamic_product(h, u, state, reduce_range), [dynamic_kernel(w_hh, state, node)])


@converter("quantized_lstm.input", "quantized_gru.input")
def quantized_recurrent(
    input: Expr, hx: Any, params: list[Any], has_biases: bool, num_layers: int, dropout: float, train: bool,
    bidirectional: bool, batch_first: bool, node: Node, dtype: Any = None, use_dynamic: bool = True,
) -> tuple[Expr, ...]:
    """LSTM and GRU whose products quantize their inputs dynamically."""
    products = []
    for cell in params:
        (kind, _, _, settings, (w_ih, w_hh)), _ = cell.__getstate__()
        if kind not in ("quantized_dynamic", "quantized_fp16"):
            node.refuse(f"its weights are packed as '{kind}'; only 'quantized_dynamic' and 'quantized_fp16' are "
                        "supported; quantize it with quantize_dynamic")
        products.append(_products(w_ih, w_hh, bool(settings and settings[0]), kind == "quantized_fp16", node))
    return network(input, hx, products, CELLS[node.name.removeprefix("quantized_")], dropout, train, bidirectional,
                   batch_first, node)


@converter("quantized::quantized_lstm_cell_dynamic", "quantized::quantized_gru_cell_dynamic",
           "quantized::quantized_rnn_tanh_cell_dynamic", "quantized::quantized_rnn_relu_cell_dynamic")
def quantized_cell(
    input: Expr, hx: Any, w_ih: Any, w_hh: Any, node: Node, bias_ih: Any = None, bias_hh: Any = None, b_ih: Any = None,
    b_hh: Any = None,
) -> Any:
    """One step of a recurrent layer; the biases are those packed with the weights."""
    states = hx if isinstance(hx, list) else [hx]
    products = _products(w_ih, w_hh, True, False, node)
    found = CELLS[
        node.name.removeprefix("quantized::quantized_").removesuffix("_cell_dynamic")](products.of_input(input), states,
            products.of_state(states[0], *products.weights))
    return tuple(found) if len(found) > 1 else found[0]


def _rows(packed: Any, node: Node) -> tuple[Array, Array, Array]:
    """The integers of an embedding, and the scale and bias of each row: real = integer * scale + bias."""
    import torch

    weight = torch.ops.quantized.embedding_bag_unpack(packed)
    scale, zero = (v.numpy().astype(np.float32) for v in (weight.q_per_channel_scales(),
        weight.q_per_channel_zero_points()))
    bias = -zero * scale
    whole = weight.int_repr().numpy()
    if weight.dtype is not torch.quint8:  # packed 4-bit values, low bits first, then float16 parameters
        whole = whole.reshape(weight.shape[0], -1)
        whole = np.stack([whole & 15, whole >> 4], axis=-1).reshape(weight.shape[0], -1)[:, : weight.shape[1]]
        scale, bias = (v.astype(np.float16).astype(np.float32) for v in (scale, bias))
    return np.ascontiguousarray(whole), scale.reshape(-1, 1), bias.reshape(-1, 1)


@converter("quantized::embedding_byte", "quantized::embedding_4bit")
def quantized_embedding(weight: Any, indices: Expr, node: Node, pruned_weights: bool = False) -> Expr:
    whole, scale, bias = (op.take(Constant(v), indices, axis=0) for v in _rows(weight, node))
    return op.multiply_add(cast(whole, FLOAT32), scale, bias)


@converter("quantized::embedding_bag_byte", "quantized::embedding_bag_4bit")
def quantized_embedding_bag(
    weight: Any, indices: Expr, offsets: Expr, node: Node, mode: int = 0, pruned_weights: bool = False,
    per_sample_weights: Expr | None = None, compressed_indices_mapping: Expr | None = None,
    include_last_offset: bool = False,
) -> Expr:
    """Sums of rows; torch's kernels ignore the mode."""
    whole, scale, bias = (Constant(v) for v in _rows(weight, node))
    table = op.multiply_add(cast(whole, FLOAT32), scale, bias)
    return embedding_bag(table, indices, offsets, node, 0, per_sample_weights, include_last_offset)[0]
