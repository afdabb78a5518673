"""Matrix products: fully connected layers and batched products."""

from __future__ import annotations

import math

import numpy as np

from tilewright.base.types import INT32
from tilewright.relay.expr import Expr
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast, reshape, transpose
from tilewright.relay.frontend.tflite.conv import biased, one_or_all, rounded_scales, sum_type
from tilewright.relay.frontend.tflite.hybrid import asymmetric, dequantized, is_hybrid, symmetric
from tilewright.relay.frontend.tflite.node import Node, Value, constant
from tilewright.relay.frontend.tflite.registry import converter
from tilewright.relay.frontend.tflite.rescale import activate, centred, open_requantize, to_output
from tilewright.relay.types_of import dtype_of
from tilewright.topi.shapes import broadcast_shapes


@converter("FULLY_CONNECTED")
def fully_connected(
    x: Value, w: Value, b: Value | None = None, *, fused_activation_function: int = 0, weights_format: int = 0,
    keep_num_dims: bool = False, asymmetric_quantize_inputs: bool = False, node: Node,
) -> Expr:
    if weights_format:
        node.refuse("its weights have a shuffled format, which is not supported; convert the model again")
    if w.rank != 2:
        node.refuse(f"its weights have {w.rank} dimensions, but must have 2")
    units, depth = w.shape
    rows = math.prod(x.shape) // max(depth, 1)
    if rows * depth != math.prod(x.shape):
        node.refuse(f"its input has {math.prod(x.shape)} elements, which is not a multiple of {depth}, the depth of "
                    "its weights")
    data = reshape(x.expr, (rows, depth))
    found = activate(_dense(x, data, w, b, asymmetric_quantize_inputs, node), fused_activation_function, node)
    return reshape(found, (*x.shape[:-1], units)) if keep_num_dims else found


def _dense(x: Value, data: Expr, w: Value, b: Value | None, by_range: bool, node: Node) -> Expr:
    """The product with its bias, in the type and scale of the result."""
    units = w.shape[0]
    if is_hybrid(x, w):
        whole, scale = asymmetric(data) if by_range else symmetric(data)
        product = op.nn.dense(whole, cast(w.expr, "int32"), units=units, out_dtype="int32")
        return biased(op.multiply(cast(product, "float32"),
                                  op.multiply(scale, constant(one_or_all(w.quantization.scales), "float32"))), b)
    if not x.is_quantized:
        return biased(op.nn.dense(data, cast(w.expr, x.dtype), units=units), b)
    zero_points = w.quantization.zero_points
    if x.dtype == "int16":
        kind = sum_type(b)
        total = op.nn.dense(cast(data, kind), centred(w.expr, zero_points[0], kind), units=units, out_dtype=kind)
        return _rounded_once(biased(total, b), x, w, node)
    weight_zero = zero_points[0] if len(set(zero_points)) == 1 else zero_points
    total = op.qnn.dense(
        data, w.expr, constant(x.zero_point, "int32"), constant(weight_zero, "int32"), constant(x.scale, "float32"),
        constant(one_or_all(w.quantization.scales), "float32"), units=units, out_dtype=INT32)
    return open_requantize(biased(total, b), rounded_scales(x, w), node.output, axis=1)


def _rounded_once(total: Expr, x: Value, w: Value, node: Node) -> Expr:
    """Rescale sums of 16-bit data to the result's type: times a 31-bit multiplier, rounded once, half up."""
    scales = np.asarray(w.quantization.scales, np.float64)
    scale = np.float64(np.float32(x.scale) * np.float32(scales[0])) if len(scales) == 1 else x.scale * scales
    info = np.iinfo(np.int32)
    held = total if dtype_of(total) == INT32 else cast(op.clip(total, a_min=float(info.min), a_max=float(info.max)),
        "int32")
    return to_output(held, scale, node.output, axis=1, rounding="UPWARD")


@converter("BATCH_MATMUL")
def batch_matmul(x: Value, y: Value, *, adj_x: bool = False, adj_y: bool = False, node: Node) -> Expr:
    if x.rank < 2 or y.rank < 2:
        node.refuse(f"its inputs have {x.rank} and {y.rank} dimensions, but must have 2 or more")
    lead = tuple(broadcast_shapes(x.shape[:-2], y.shape[:-2]))
    left, right = _matrices(x, x.expr, adj_x, lead), _matrices(y, dequantized(y) if is_hybrid(x, y) else y.expr,
        not adj_y, lead)
    rows, columns = left.tensor_type.shape[1], right.tensor_type.shape[1]
    if not x.is_quantized or node.output.dtype == "int32":
        kind = node.output.dtype
        found: Expr = op.nn.batch_matmul(cast(left, kind), cast(right, kind), out_dtype=kind)
    else:
        kind = "int64" if x.dtype == "int16" else "int32"
        total = op.nn.batch_matmul(centred(left, x.zero_point, kind), centred(right, y.zero_point, kind),
                                   out_dtype=kind)
        found = to_output(total, np.float64(np.float32(x.scale) * np.float32(y.scale)), node.output)
    return reshape(found, (*lead, rows, columns))


def _matrices(v: Value, x: Expr, turn: bool, lead: tuple[int, ...]) -> Expr:
    """A single batch of matrices, transposed if `turn`."""
    *_, rows, columns = v.shape
    if v.shape[:-2] != lead:
        x = op.broadcast_to(x, shape=(*lead, rows, columns))
    x = reshape(x, (math.prod(lead), rows, columns))
    return transpose(x, (0, 2, 1)) if turn else x
