"""com.microsoft: quantized operators as dequantize, float operator, quantize; later passes make them integer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tilewright.relay.expr import Constant, Expr, Tuple
from tilewright.relay.frontend.onnx import linear, nn, quantize
from tilewright.relay.frontend.onnx.contrib_fused import first_last, last_first
from tilewright.relay.frontend.onnx.node import Node
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.products import times_matrix
from tilewright.relay.frontend.shaping import axis_of, cast, reshape
from tilewright.relay.qnn import onnx_runtime
from tilewright.relay.qnn.affine import Quantized
from tilewright.relay.types_of import dtype_of, rank, scalar, shape_of

MICROSOFT: Final = "com.microsoft"
Array = np.ndarray[Any, Any]


def real(x: Expr, scale: Expr, zero_point: Expr | None, node: Node, axis: int = 1) -> Expr:
    """Dequantize `x`."""
    return quantize.dequantize(x, _flat(scale), None if zero_point is None else _flat(zero_point), axis=axis, node=node)


def whole(y: Expr, scale: Expr, zero_point: Expr | None, like: Expr, node: Node) -> Expr:
    """Quantize `y` to the type of the zero point or, without one, of `like`."""
    if zero_point is None:
        zero_point = Constant(np.zeros((), dtype_of(like).numpy()))
    return quantize.quantize(y, _flat(scale), _flat(zero_point), node=node)


def _flat(parameter: Expr) -> Expr:
    return reshape(parameter, ()) if rank(parameter) == 1 and shape_of(parameter) == (1,) else parameter


@converter("QuantizeLinear", domain=MICROSOFT)
def quantize_linear(x: Expr, y_scale: Expr, y_zero_point: Expr | None = None, *, axis: int = 1, node: Node) -> Expr:
    return quantize.quantize(x, y_scale, y_zero_point, axis=axis, node=node)


@converter("DequantizeLinear", domain=MICROSOFT)
def dequantize_linear(x: Expr, x_scale: Expr, x_zero_point: Expr | None = None, *, axis: int = 1, node: Node) -> Expr:
    return quantize.dequantize(x, x_scale, x_zero_point, axis=axis, node=node)


def _register_pair(name: str, build: Callable[[Expr, Expr], Expr]) -> None:
    @converter(name, domain=MICROSOFT)
    def combine(
        a: Expr, a_scale: Expr, a_zero_point: Expr | None, b: Expr, b_scale: Expr, b_zero_point: Expr | None,
        c_scale: Expr, c_zero_point: Expr | None = None, *, node: Node,
    ) -> Expr:
        found = build(real(a, a_scale, a_zero_point, node), real(b, b_scale, b_zero_point, node))
        return whole(found, c_scale, c_zero_point, a, node)


_register_pair("QLinearAdd", op.add)
_register_pair("QLinearMul", op.multiply)


@converter("QLinearSigmoid", domain=MICROSOFT)
def qlinear_sigmoid(
    x: Expr, x_scale: Expr, x_zero_point: Expr | None, y_scale: Expr, y_zero_point: Expr | None = None, *, node: Node,
) -> Expr:
    return whole(op.sigmoid(real(x, x_scale, x_zero_point, node)), y_scale, y_zero_point, x, node)


@converter("QLinearLeakyRelu", domain=MICROSOFT)
def qlinear_leaky_relu(
    x: Expr, x_scale: Expr, x_zero_point: Expr | None, y_scale: Expr, y_zero_point: Expr | None = None, *,
    alpha: float = 0.01, node: Node,
) -> Expr:
    return whole(op.nn.leaky_relu(real(x, x_scale, x_zero_point, node), alpha=alpha), y_scale, y_zero_point, x, node)


@converter("QLinearSoftmax", domain=MICROSOFT)
def qlinear_softmax(
    x: Expr, x_scale: Expr, x_zero_point: Expr | None, y_scale: Expr, y_zero_point: Expr, *, axis: int = -1, opset: int,
    node: Node,
) -> Expr:
    """Softmax of ONNX at `opset`: before 13, over all dimensions from `axis` on. Exact if 1 / y_scale is an integer."""
    dims, along = shape_of(x), axis_of(axis, rank(x), node)
    rows = x if opset >= 13 else reshape(x, (*dims[:along], -1))
    along = along if opset >= 13 else rank(rows) - 1
    y = _known_softmax(rows, (x_scale, x_zero_point), (y_scale, y_zero_point), along)
    if y is None:
        y = whole(op.nn.softmax(real(rows, x_scale, x_zero_point, node), axis=along), y_scale, y_zero_point, x, node)
    return y if opset >= 13 else reshape(y, dims)


def _known_softmax(x: Expr, given: tuple[Expr, Expr | None], wanted: tuple[Expr, Expr], axis: int) -> Expr | None:
    parameters = [p.value if isinstance(p, Constant) else None for p in (*given, *wanted)]
    if given[1] is None:
        parameters[1] = np.zeros((), np.uint8)
    found = [np.asarray(p) for p in parameters if p is not None]
    return None if len(found) < 4 else onnx_runtime.softmax(Quantized(x, found[0], found[1]),
        Quantized(x, found[2], found[3]), axis)


@converter("QLinearAveragePool", domain=MICROSOFT)
def qlinear_average_pool(
    x: Expr, x_scale: Expr, x_zero_point: Expr | None, y_scale: Expr, y_zero_point: Expr | None = None, *,
    auto_pad: str = "NOTSET", ceil_mode: int = 0, channels_last: int = 0, count_include_pad: int = 0,
    kernel_shape: tuple[int, ...], pads: tuple[int, ...] | None = None, strides: tuple[int, ...] | None = None,
    node: Node,
) -> Expr:
    value = nn.average_pool(real(last_first(x) if channels_last else x, x_scale, x_zero_point, node), auto_pad=auto_pad,
                            ceil_mode=ceil_mode,
                            count_include_pad=count_include_pad, kernel_shape=kernel_shape, pads=pads, strides=strides,
                            node=node)
    y = whole(value, y_scale, y_zero_point, x, node)
    return first_last(y) if channels_last else y


@converter("QLinearGlobalAveragePool", domain=MICROSOFT)
def qlinear_global_average_pool(
    x: Expr, x_scale: Expr, x_zero_point: Expr, y_scale: Expr, y_zero_point: Expr, *, channels_last: int = 0,
    node: Node,
) -> Expr:
    value = nn.global_average_pool(real(last_first(x) if channels_last else x, x_scale, x_zero_point, node))
    y = whole(value, y_scale, y_zero_point, x, node)
    return first_last(y) if channels_last else y


@converter("QLinearReduceMean", domain=MICROSOFT)
def qlinear_reduce_mean(
    data: Expr, data_scale: Expr, data_zero_point: Expr | None, reduced_scale: Expr,
    reduced_zero_point: Expr | None = None, *, axes: tuple[int, ...] | None = None, keepdims: int = 1, node: Node,
) -> Expr:
    mean = op.mean(real(data, data_scale, data_zero_point, node), axis=axes, keepdims=bool(keepdims))
    return whole(mean, reduced_scale, reduced_zero_point, data, node)


@converter("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(y_scale: Expr, y_zero_point: Expr, *inputs: Expr, axis: int, node: Node) -> Expr:
    """Concatenate triples of inputs: a tensor, its scale, its zero point."""
    if len(inputs) % 3 or not inputs:
        node.refuse(f"{len(inputs)} inputs follow the scale and zero point of the result; give three for each tensor: "
                    "data, scale, zero point")
    parts = tuple(real(inputs[k], inputs[k + 1], inputs[k + 2], node) for k in range(0, len(inputs), 3))
    return whole(op.concatenate(Tuple(parts), axis=axis), y_scale, y_zero_point, inputs[0], node)


@converter("QLinearWhere", domain=MICROSOFT)
def qlinear_where(
    condition: Expr, x: Expr, x_scale: Expr, x_zero_point: Expr, y: Expr, y_scale: Expr, y_zero_point: Expr,
    z_scale: Expr, z_zero_point: Expr, *, node: Node,
) -> Expr:
    chosen = op.where(condition, real(x, x_scale, x_zero_point, node), real(y, y_scale, y_zero_point, node))
    return whole(chosen, z_scale, z_zero_point, x, node)


@converter("QLinearConv", domain=MICROSOFT)
def qlinear_conv(
    x: Expr, x_scale: Expr, x_zero_point: Expr, w: Expr, w_scale: Expr, w_zero_point: Expr, y_scale: Expr,
    y_zero_point: Expr, b: Expr | None = None,
    *, auto_pad: str = "NOTSET", channels_last: int = 0, dilations: tuple[int, ...] | None = None, group: int = 1,
    kernel_shape: tuple[int, ...] | None = None, pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None, node: Node,
) -> Expr:
    data = real(last_first(x) if channels_last else x, x_scale, x_zero_point, node)
    weight = real(w, w_scale, w_zero_point, node, axis=0)
    bias = None if b is None else _bias(b, x_scale, w_scale)
    value = nn.conv(data, weight, bias, auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape,
                    pads=pads, strides=strides, node=node)
    y = whole(value, y_scale, y_zero_point, x, node)
    return first_last(y) if channels_last else y


def _bias(b: Expr, x_scale: Expr, w_scale: Expr) -> Expr:
    """Dequantize an int32 bias, whose scale is the product of the two scales."""
    return op.multiply(cast(b, "float32"), op.multiply(_flat(x_scale), _flat(w_scale)))


@converter("QGemm", domain=MICROSOFT)
def qgemm(
    a: Expr, a_scale: Expr, a_zero_point: Expr, b: Expr, b_scale: Expr, b_zero_point: Expr, c: Expr | None = None,
    y_scale: Expr | None = None, y_zero_point: Expr | None = None, *, alpha: float = 1.0, transA: int = 0,
    transB: int = 0, node: Node,
) -> Expr:
    """alpha * a @ b + c, where the scale of the int32 `c` is alpha * a_scale * b_scale; float32 without `y_scale`."""
    right = real(b, b_scale, b_zero_point, node, axis=0 if transB else 1)
    y = linear.gemm(real(a, a_scale, a_zero_point, node), right, alpha=alpha, transA=transA, transB=transB)
    if c is not None:
        bias = _bias(c, a_scale, b_scale)
        y = op.add(y, op.multiply(bias, scalar(alpha, bias)) if alpha != 1 else bias)
    return y if y_scale is None else whole(y, y_scale, y_zero_point, a, node)


@converter("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(
    a: Expr, b: Expr, a_scale: Expr, b_scale: Expr, a_zero_point: Expr | None = None, b_zero_point: Expr | None = None,
    bias: Expr | None = None, *, node: Node,
) -> Expr:
    y = linear.matmul(real(a, a_scale, a_zero_point, node, axis=0),
                      real(b, b_scale, b_zero_point, node, axis=rank(b) - 1), node=node)
    return y if bias is None else op.add(y, bias)


@converter("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(
    a: Expr, b: Expr, b_scale: Expr, b_zero_point: Expr | None = None, bias: Expr | None = None, *, node: Node,
) -> Expr:
    """Quantize `a` to uint8 over its range, then multiply by the quantized `b`."""
    rounded = quantize.dynamically_quantized(a)
    y = linear.matmul(rounded, real(b, b_scale, b_zero_point, node, axis=rank(b) - 1), node=node)
    return y if bias is None else op.add(y, bias)


@converter("MatMulInteger16", domain=MICROSOFT)
def matmul_integer16(a: Expr, b: Expr, *, node: Node) -> Expr:
    """The product of int16 or uint16 matrices, summed in int32; uint32 if both are unsigned."""
    wide = "uint32" if dtype_of(a).code == "uint" and dtype_of(b).code == "uint" else "int32"
    return cast(linear.matmul(cast(a, "int32"), cast(b, "int32"), node=node), wide)


@converter("MatMulNBits", domain=MICROSOFT)
def matmul_nbits(
    a: Expr, b: Expr, scales: Expr, zero_points: Expr | None = None, g_idx: Expr | None = None,
    bias: Expr | None = None, *, K: int, N: int, accuracy_level: int = 0, bits: int = 4, block_size: int,
    weight_prepacked: int = 0, node: Node,
) -> Expr:
    """`a` times weights (N, blocks, packed) of 2, 4 or 8 bits, dequantized at compile time with a scale per block of K.
    """
    if bits not in (2, 4, 8) or weight_prepacked:
        node.refuse(f"bits is {bits} and weight_prepacked {weight_prepacked}; bits must be 2, 4 or 8, and "
                    "weight_prepacked 0")
    blocks = -(-K // block_size)
    q = _unpacked(node.value(b, "B").reshape(N, -1), bits)[:, : blocks * block_size]
    scale = node.value(scales, "scales")
    each = scale.reshape(N, -1).astype(np.float32)
    if zero_points is None:
        zero = np.full((N, blocks), 1 << (bits - 1), np.float32)
    else:
        given = node.value(zero_points, "zero_points")
        zero = (_unpacked(given.reshape(N, -1), bits) if given.dtype == np.uint8
                else given.reshape(N, -1)).astype(np.float32)[:, :blocks]
    group = np.arange(blocks * block_size) // block_size
    if g_idx is not None:
        order = node.value(g_idx, "g_idx").reshape(-1)
        group = np.concatenate([order, np.zeros(len(group) - len(order), order.dtype)])
    weight = ((q.astype(np.float32) - zero[:, group]) * each[:, group])[:, :K].astype(scale.dtype)
    y = times_matrix(a, Constant(weight))
    return y if bias is None else op.add(y, bias)


def _unpacked(packed: Array, bits: int) -> Array:
    """Unpack (rows, bytes) to (rows, numbers); the lowest bits come first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return ((packed[:, :, None] >> shifts) & np.uint8((1 << bits) - 1)).reshape(len(packed), -1)

