"""Quantization, dequantization and requantization."""

from __future__ import annotations

import numpy as np

from tilewright.base.types import DataType
from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast
from tilewright.relay.frontend.tflite.conv import one_or_all
from tilewright.relay.frontend.tflite.hybrid import dequantized
from tilewright.relay.frontend.tflite.node import (
    Node,
    Value,
    constant,
    is_quantized,
    parameters_of,
    quantization_of,
    scale_of,
    zero_point_of,
)
from tilewright.relay.frontend.tflite.registry import converter
from tilewright.relay.frontend.tflite.rescale import centred, requantize
from tilewright.relay.frontend.tflite.rounding import rounded_away


@converter("QUANTIZE")
def quantize(x: Value, *, node: Node) -> Expr:
    t = node.output
    if not is_quantized(t):
        node.refuse(f"its result is {t.dtype} without a scale; convert the model again")
    if x.is_quantized or (x.dtype == "int32" and x.tensor.quantization is not None
                          and any(x.tensor.quantization.scales)):
        factor = float(np.float64(np.float32(x.scale)) / np.float64(np.float32(scale_of(t))))
        return requantize(centred(x.expr, x.zero_point), factor, 1.0, zero_point_of(t), t.dtype)
    q = quantization_of(t)
    scales, zero_points = (constant(one_or_all(p), kind)
                           for p, kind in ((q.scales, "float32"), (q.zero_points, "int32")))
    axis = q.axis if len(q.scales) > 1 else x.rank - 1
    return op.qnn.quantize(cast(x.expr, "float32"), scales, zero_points, axis=axis, out_dtype=DataType(t.dtype))


@converter("DEQUANTIZE")
def dequantize(x: Value, *, node: Node) -> Expr:
    if DataType(x.dtype).is_float:
        return cast(x.expr, node.output.dtype)
    if isinstance(x.expr, Constant) or x.quantization.is_per_axis:
        return dequantized(x)
    return op.qnn.dequantize(x.expr, *parameters_of(x.tensor))


@converter("FAKE_QUANT")
def fake_quant(x: Value, *, min: float = 0.0, max: float = 0.0, num_bits: int = 0, narrow_range: bool = False,
               node: Node) -> Expr:
    if not 2 <= num_bits <= 16 or not min < max:
        node.refuse(f"it quantizes numbers from {min} to {max} to {num_bits} bits, which is not valid")
    single = np.float32
    least, most = single(1 if narrow_range else 0), single((1 << num_bits) - 1)
    scale = (single(max) - single(min)) / (most - least)
    zero = least - single(min) / scale
    nudged = np.clip(np.floor(zero + single(0.5)), least, most)
    low, high = (least - nudged) * scale, (most - nudged) * scale
    steps = op.divide(op.subtract(op.clip(x.expr, a_min=float(low), a_max=float(high)), constant(low, "float32")),
                      constant(scale, "float32"))
    return op.add(op.multiply(rounded_away(steps), constant(scale, "float32")), constant(low, "float32"))
