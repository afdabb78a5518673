"""Floats to integers of a scale, back, and from one scale to another."""

from __future__ import annotations

import numpy as np

from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast
from tilewright.relay.frontend.tflite.hybrid import dequantized
from tilewright.relay.frontend.tflite.node import Node, Value, constant, is_quantized, scale_of, zero_point_of
from tilewright.relay.frontend.tflite.registry import converter
from tilewright.relay.frontend.tflite.rescale import centred, limits, requantize
from tilewright.relay.frontend.tflite.rounding import rounded_away
from tilewright.types import DataType


@converter("QUANTIZE")
def quantize(x: Value, *, node: Node) -> Expr:
    t = node.output
    if not is_quantized(t):
        node.refuse(f"its result is {t.dtype} without a scale; convert the model again")
    if x.is_quantized:
        factor = float(np.float64(np.float32(x.scale)) / np.float64(np.float32(scale_of(t))))
        return requantize(centred(x.expr, x.zero_point), factor, 1.0, zero_point_of(t), t.dtype)
    scales, zero_points = np.asarray(t.quantization.scales, np.float32), np.asarray(t.quantization.zero_points, np.int32)  # type: ignore[union-attr]
    along = [-1 if k == t.quantization.axis else 1 for k in range(x.rank)] if len(scales) > 1 else []  # type: ignore[union-attr]
    low, high = limits(t.dtype)
    whole = op.add(rounded_away(op.divide(cast(x.expr, "float32"), Constant(scales.reshape(along)))), Constant(zero_points.reshape(along).astype(np.float32)))
    return cast(op.clip(whole, a_min=float(low), a_max=float(high)), t.dtype)


@converter("DEQUANTIZE")
def dequantize(x: Value, *, node: Node) -> Expr:
    if DataType(x.dtype).is_float:
        return cast(x.expr, node.output.dtype)
    if isinstance(x.expr, Constant) or x.quantization.is_per_axis:
        return dequantized(x)
    return op.multiply(cast(centred(x.expr, x.zero_point), "float32"), constant(x.scale, "float32"))


@converter("FAKE_QUANT")
def fake_quant(x: Value, *, min: float = 0.0, max: float = 0.0, num_bits: int = 0, narrow_range: bool = False, node: Node) -> Expr:
    if not 2 <= num_bits <= 16 or not min < max:
        node.refuse(f"it quantizes numbers from {min} to {max} to {num_bits} bits, which makes no sense")
    single = np.float32
    least, most = single(1 if narrow_range else 0), single((1 << num_bits) - 1)
    scale = (single(max) - single(min)) / (most - least)
    zero = least - single(min) / scale
    nudged = np.clip(np.floor(zero + single(0.5)), least, most)
    low, high = (least - nudged) * scale, (most - nudged) * scale
    steps = op.divide(op.subtract(op.clip(x.expr, a_min=float(low), a_max=float(high)), constant(low, "float32")), constant(scale, "float32"))
    return op.add(op.multiply(rounded_away(steps), constant(scale, "float32")), constant(low, "float32"))
