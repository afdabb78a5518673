"""Float data and integer weights: networks whose weights alone are quantized."""

from __future__ import annotations

import numpy as np

from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast
from tilewright.relay.frontend.tflite.node import Value


def is_hybrid(x: Value, w: Value) -> bool:
    """Whether weights are integers of a scale, and the data floats."""
    return not x.is_quantized and w.is_quantized


def dequantized(w: Value) -> Expr:
    """Weights of a scale as the numbers that they stand for."""
    q = w.quantization
    axis = q.axis if q.is_per_axis else 0
    along = [-1 if k == axis else 1 for k in range(w.rank)] if q.is_per_axis else [1] * w.rank
    scales = np.asarray(q.scales, np.float32).reshape(along)
    zero_points = np.asarray(q.zero_points, np.int32).reshape(along)
    if isinstance(w.expr, Constant):
        return Constant((w.expr.value.astype(np.int32) - zero_points).astype(np.float32) * scales)
    return op.multiply(cast(op.subtract(cast(w.expr, "int32"), Constant(zero_points)), "float32"), Constant(scales))
