"""int16 sigmoid and tanh in integer arithmetic, identical to TensorFlow Lite's reference kernels.

Both interpolate linearly in a table of 256 sigmoid values with step 1/24; tanh(x) = 2 sigmoid(2 x) - 1.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast
from tilewright.relay.frontend.tflite.node import constant

_RAISED: Final = (
    4, 8, 12, 14, 15, 16, 17, 19, 20, 21, 22, 25, 27, 28, 29, 30, 31, 33, 34, 35, 37, 39, 40, 41, 43, 44, 45, 46, 49,
    50, 54, 62, 63, 64, 66, 82, 86, 93, 100, 103, 112, 116, 135, 255,
)
"""Indices where the kernels' table is one above the nearest integer."""
_TABLE: Final = np.minimum(np.rint(65536 / (1 + np.exp(-np.arange(256) / 24))) + np.isin(np.arange(256), _RAISED),
                           65535).astype(np.int32)
_INPUT_BITS: Final = 3


def _int32(value: int) -> Constant:
    return constant(value, "int32")


def _scaled(x: Expr, scale: float, most_shift: int) -> Expr:
    """Scale int32 `x` to units of 1/12288: a shift times 3 for powers of two, else a 15-bit multiplier and a shift."""
    log = math.log2(scale)
    shift = 15 - _INPUT_BITS + round(log)
    if abs(log - round(log)) < 1e-3 and 0 <= shift <= most_shift:
        return op.multiply(x, _int32(3 << shift))
    multiplier, shift = scale * 4096.0 * 3.0, 0
    while multiplier <= 32767.0 / 2.0 and shift <= 30:
        multiplier, shift = multiplier * 2.0, shift + 1
    if multiplier >= 1 << 31:
        raise ModelError(f"the scale of its input is {scale}, which is too large for the kernel's 32-bit arithmetic; "
                         "convert the model again", code="TW0107")
    product = op.multiply(x, _int32(int(multiplier)))
    return op.right_shift(op.add(product, _int32(1 << (shift - 1))), _int32(shift)) if shift else product


def _on_line(size: Expr, bits: int, most: int) -> Expr:
    """Interpolate the table at numbers with `bits` fractional bits; `most` is the value beyond its end."""
    place = op.right_shift(size, _int32(bits))
    inside = op.minimum(place, _int32(254))
    low = op.take(Constant(_TABLE), inside, mode="fast")
    high = op.take(Constant(_TABLE), op.add(inside, _int32(1)), mode="fast")
    rest = op.bitwise_and(size, _int32((1 << bits) - 1))
    found = op.add(op.left_shift(low, _int32(bits)), op.multiply(rest, op.subtract(high, low)))
    return op.where(op.greater_equal(place, _int32(255)), _int32(most), found)


def _by_sign(x: Expr, positive: Any, negative: Any) -> Expr:
    return op.where(op.greater_equal(x, _int32(0)), positive, negative)


def logistic_16(x: Expr, scale: float) -> Expr:
    """The sigmoid of int32 numbers of `scale`: int16 in units of 1/32768."""
    data = _scaled(x, scale, 0)
    value = _on_line(op.abs(data), 9, 0x7FFF << 10)
    half = _int32(1 << 9)
    found = _by_sign(data, op.add(value, half), op.subtract(_int32((1 << 25) + (1 << 9) - 1), value))
    return cast(op.right_shift(found, _int32(10)), "int16")


def tanh_16(x: Expr, scale: float) -> Expr:
    """tanh of int32 numbers of `scale`: int16 in units of 1/32768."""
    data = _scaled(x, scale, 1)
    value = _on_line(op.abs(data), 8, 0xFFFF << 8)
    found = _by_sign(data, op.add(value, _int32((1 << 7) - (1 << 23))), op.subtract(_int32((1 << 23) + (1 << 7) - 1),
        value))
    return cast(op.right_shift(found, _int32(8)), "int16")
