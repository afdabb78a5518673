"""Rounding half away from zero, which TensorFlow Lite uses for floats."""

from __future__ import annotations

from tilewright.relay.expr import Expr
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.tflite.node import constant


def rounded_away(x: Expr) -> Expr:
    """Round to the nearest integer, half away from zero."""
    kind = str(x.tensor_type.dtype)
    whole = op.trunc(x)
    one = op.where(op.greater_equal(op.abs(op.subtract(x, whole)), constant(0.5, kind)), op.sign(x), constant(0, kind))
    return op.add(whole, one)
