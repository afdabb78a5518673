"""Hybrid quantization: float data with integer weights.

As in TensorFlow Lite, data are quantized at run time, each row or image by its own range, for integer products. The
symmetric form maps the largest magnitude to 127. The asymmetric form maps the range, extended to zero, to 255 steps.
"""

from __future__ import annotations

import numpy as np

from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast
from tilewright.relay.frontend.tflite.node import Value, constant
from tilewright.relay.frontend.tflite.rounding import rounded_away


def is_hybrid(x: Value, w: Value) -> bool:
    """Whether the weights are quantized and the data are floats."""
    return not x.is_quantized and w.is_quantized


def dequantized(w: Value) -> Expr:
    q = w.quantization
    axis = q.axis if q.is_per_axis else 0
    along = [-1 if k == axis else 1 for k in range(w.rank)] if q.is_per_axis else [1] * w.rank
    scales = np.asarray(q.scales, np.float32).reshape(along)
    zero_points = np.asarray(q.zero_points, np.int32).reshape(along)
    if isinstance(w.expr, Constant):
        return Constant((w.expr.value.astype(np.int32) - zero_points).astype(np.float32) * scales)
    return op.multiply(cast(op.subtract(cast(w.expr, "int32"), Constant(zero_points)), "float32"), Constant(scales))


def symmetric(x: Expr) -> tuple[Expr, Expr]:
    """Quantize along all dimensions but the first, symmetrically: int32 integers, and the scale of each slice."""
    axes = tuple(range(1, x.tensor_type.ndim))
    reach = op.max(op.abs(x), axis=axes, keepdims=True)
    none = op.equal(reach, constant(0, "float32"))
    held = op.where(none, constant(127, "float32"), reach)
    whole = rounded_away(op.multiply(x, op.divide(constant(127, "float32"), held)))
    return cast(op.clip(whole, a_min=-127.0, a_max=127.0), "int32"), op.divide(held, constant(127, "float32"))


def asymmetric(x: Expr) -> tuple[Expr, Expr]:
    """Quantize along all dimensions but the first, by range: integers minus the zero point, and their scales."""
    axes = tuple(range(1, x.tensor_type.ndim))
    zero, kind = constant(0, "float32"), "float64"
    least = cast(op.minimum(op.min(x, axis=axes, keepdims=True), zero), kind)
    most = cast(op.maximum(op.max(x, axis=axes, keepdims=True), zero), kind)
    none = op.equal(least, most)
    scale = op.where(none, constant(1, kind), op.divide(op.subtract(most, least), constant(255, kind)))
    low, high = op.divide(least, scale), op.divide(most, scale)
    from_low, from_high = op.subtract(constant(-128, kind), low), op.subtract(constant(127, kind), high)
    nearer = op.less(op.add(constant(128, kind), op.abs(low)), op.add(constant(127, kind), op.abs(high)))
    place = op.where(none, constant(0, kind), op.where(nearer, from_low, from_high))
    zero_point = cast(rounded_away(op.clip(place, a_min=-128.0, a_max=127.0)), "float32")
    single = cast(scale, "float32")
    scaled = op.multiply(x, op.divide(constant(1, "float32"), single))
    whole = op.clip(rounded_away(op.add(zero_point, scaled)), a_min=-128.0, a_max=127.0)
    return cast(op.subtract(whole, zero_point), "int32"), single
