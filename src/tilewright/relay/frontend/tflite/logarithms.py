"""int8 LOG_SOFTMAX in integer arithmetic, identical to TensorFlow Lite's reference kernel with gemmlowp's fixed point.

There are 256 possible differences to a row's maximum, so exponentials are looked up. The logarithm of their sum is
computed per row, on int64 expressions of 32-bit numbers. "Qa.b" has b fractional bits.

Source: `reference/integer_ops/log_softmax.h` and `internal/common.h` of TensorFlow Lite; `fixedpoint.h` of gemmlowp.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast
from tilewright.relay.frontend.tflite.fractions import ONE, counted, held, of, shifted, times
from tilewright.relay.frontend.tflite.quotients import high_product, shifted_right
from tilewright.relay.qnn.numerics import fixed_point

Array = np.ndarray[Any, Any]

_INPUT_BITS: Final = 5
"""Integer bits of differences and logarithms."""
_SUM_BITS: Final = 12
"""Integer bits of sums of exponentials."""
_OUTPUT_BITS: Final = 4
"""Integer bits of results."""
_EIGHTHS: Final = ((-2, 1672461947), (-1, 1302514674), (0, 790015084), (1, 290630308), (2, 39332535), (3, 720401),
                   (4, 242))
"""exp(-2^k) as 31-bit fractions."""
_LOG_2: Final = 1488522236
_ROOT_HALF: Final = 1518500250
_FOURTH_ROOT_HALF: Final = 1805811301
_CUBE: Final = 117049297
_SQUARE: Final = 127690142
_CONSTANT: Final = 1057819769
_LINE: Final = 638450708
"""With the constants above, the coefficients of the rational approximation of the logarithm near 1."""


def log_softmax(x: Expr, scale: float) -> Expr:
    """Log-softmax of int8 `x` of `scale` along its last dimension: int8 in units of 1/16, with 127 for zero."""
    m, shift = fixed_point(min(float(np.float32(scale)) * (1 << (31 - _INPUT_BITS)), float(ONE)))
    least = -((((1 << _INPUT_BITS) - 1) << (31 - _INPUT_BITS)) // (1 << max(shift, 0)))
    below = -np.arange(256, dtype=np.int64)
    differences = shifted_right(high_product(below << max(shift, 0), m), max(-shift, 0))
    exponentials = np.where(below >= least, shifted_right(_exponential(np.maximum(differences, -(1 << 31))), _SUM_BITS),
                            0)
    wide = cast(x, "int32")
    place = op.subtract(op.max(wide, axis=-1, keepdims=True), wide)
    total = op.sum(op.take(Constant(exponentials), place, mode="fast"), axis=-1, keepdims=True)
    logarithm = _logarithm(total)
    back, back_shift = fixed_point((1 << 31) / (m << max(shift, 0)) if shift >= 0 else 2.0 ** (31 - shift) / m)
    lowest = shifted(times(op.subtract(logarithm, of(1 << 31)), of(back)), max(-back_shift, 0))
    lowest = op.maximum(lowest, of(least - 1))
    found = shifted(op.subtract(op.take(Constant(differences), place, mode="fast"), logarithm), 31 - _INPUT_BITS
                    - _OUTPUT_BITS)
    kept = op.clip(op.add(found, of(127)), a_min=-128, a_max=127)
    is_near = op.greater(op.negative(cast(place, "int64")), lowest)
    return cast(op.where(is_near, kept, of(-128)), "int8")


def _exponential(x: Array) -> Array:
    """exp of Q5.26 numbers up to 0, as fractions: four series terms for the remainder mod 1/4, times a factor per bit.
    """
    quarter = 1 << (31 - _INPUT_BITS - 2)
    part = (x & (quarter - 1)) - quarter
    near = (part << _INPUT_BITS) + (1 << 28)
    square = high_product(near, near)
    cube, fourth = high_product(square, near), high_product(square, square)
    terms = shifted_right(high_product(shifted_right(fourth, 2) + cube, 715827883) + square, 1)
    found = 1895147668 + high_product(np.int64(1895147668), near + terms)
    rest = part - x
    for exponent, factor in _EIGHTHS:
        bit = 1 << (31 - _INPUT_BITS + exponent)
        found = np.where(rest & bit, high_product(found, factor), found)
    return np.where(x == 0, ONE, found)


def _logarithm(x: Expr) -> Expr:
    """The logarithm of Q12.19 numbers >= 1, in Q5.26."""
    zeros = _leading_zeros(x)
    first = held(op.left_shift(times(op.left_shift(x, op.subtract(zeros, of(1))), of(_ROOT_HALF)), of(1)))
    first_power = op.add(op.left_shift(op.subtract(of(_SUM_BITS), zeros), of(25)), of(1 << 23))
    room = op.subtract(_leading_zeros(times(x, of(_ROOT_HALF))), of(1))
    second = held(op.left_shift(x, room))
    second_power = op.subtract(op.left_shift(op.subtract(of(_SUM_BITS), room), of(25)), of(1 << 23))
    r, power = op.minimum(first, second), op.maximum(first_power, second_power)
    half = op.right_shift(op.add(r, of(_FOURTH_ROOT_HALF + 1)), of(1))
    q = op.multiply(op.subtract(r, of(_FOURTH_ROOT_HALF)), of(2))
    square = times(q, q)
    above = op.add(times(q, r), times(times(q, square), of(_CUBE)))
    below = op.add(times(half, op.add(op.add(q, of(_CONSTANT)), times(square, of(_SQUARE)))), times(q, of(_LINE)))
    found = op.add(times(power, of(_LOG_2)), times(shifted(above, _INPUT_BITS + 1), _reciprocal_of_one_and(below)))
    return held(op.left_shift(found, of(1)))


def _reciprocal_of_one_and(x: Expr) -> Expr:
    """1 / (1 + x) of fractions, like `quotients.reciprocal_of_one_and` for constants."""
    half = op.right_shift(op.add(x, of(1 << 31)), of(1))
    guess = op.add(times(half, of(-1010580540)), of(1515870810))
    for _ in range(3):
        error = op.subtract(of(1 << 29), times(half, guess))
        guess = op.add(guess, held(op.left_shift(times(guess, error), of(2))))
    return held(op.left_shift(guess, of(1)))


def _leading_zeros(x: Expr) -> Expr:
    """The number of leading zero bits of positive 32-bit numbers."""
    return op.subtract(of(31), counted([op.greater_equal(x, of(1 << k)) for k in range(1, 31)]))
