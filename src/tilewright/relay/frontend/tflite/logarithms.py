"""LOG_SOFTMAX of int8 in integers, as TensorFlow Lite's reference kernel computes it with gemmlowp's fixed-point numbers.

How far an element is below the largest of its row is one of 256 differences, so its exponential is looked up. The logarithm of their sum
is computed for each row, on int64 that hold numbers of 32 bits; "Qa.b" has b bits behind the point.

Source: `reference/integer_ops/log_softmax.h` and `internal/common.h` of TensorFlow Lite; `fixedpoint.h` of gemmlowp.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast
from tilewright.relay.frontend.tflite.node import constant
from tilewright.relay.frontend.tflite.quotients import high_product, shifted_right
from tilewright.relay.qnn.numerics import fixed_point

Array = np.ndarray[Any, Any]

_ONE: Final = (1 << 31) - 1
_INPUT_BITS: Final = 5
"""Bits before the point of differences and logarithms."""
_SUM_BITS: Final = 12
"""The same of sums of exponentials."""
_OUTPUT_BITS: Final = 4
"""The same of results."""
_EIGHTHS: Final = ((-2, 1672461947), (-1, 1302514674), (0, 790015084), (1, 290630308), (2, 39332535), (3, 720401), (4, 242))
"""exp(-2^k) as fractions."""
_LOG_2: Final = 1488522236
_ROOT_HALF: Final = 1518500250
_FOURTH_ROOT_HALF: Final = 1805811301
_CUBE: Final = 117049297
_SQUARE: Final = 127690142
_CONSTANT: Final = 1057819769
_LINE: Final = 638450708
"""The last four: coefficients of the quotient of polynomials that stands for the logarithm near 1."""


def log_softmax(x: Expr, scale: float) -> Expr:
    """int8 `x` of `scale` along its last dimension: int8 in sixteenths below 127."""
    m, shift = fixed_point(min(float(np.float32(scale)) * (1 << (31 - _INPUT_BITS)), float(_ONE)))
    least = -((((1 << _INPUT_BITS) - 1) << (31 - _INPUT_BITS)) // (1 << max(shift, 0)))
    below = -np.arange(256, dtype=np.int64)
    differences = shifted_right(high_product(below << max(shift, 0), m), max(-shift, 0))
    exponentials = np.where(below >= least, shifted_right(_exponential(np.maximum(differences, -(1 << 31))), _SUM_BITS), 0)
    wide = cast(x, "int32")
    place = op.subtract(op.max(wide, axis=-1, keepdims=True), wide)
    total = op.sum(op.take(Constant(exponentials), place, mode="fast"), axis=-1, keepdims=True)
    logarithm = _logarithm(total)
    back, back_shift = fixed_point((1 << 31) / (m << max(shift, 0)) if shift >= 0 else 2.0 ** (31 - shift) / m)
    lowest = _shifted(_times(op.subtract(logarithm, _of(1 << 31)), _of(back)), max(-back_shift, 0))
    lowest = op.maximum(lowest, _of(least - 1))
    found = _shifted(op.subtract(op.take(Constant(differences), place, mode="fast"), logarithm), 31 - _INPUT_BITS - _OUTPUT_BITS)
    held = op.clip(op.add(found, _of(127)), a_min=-128, a_max=127)
    is_near = op.greater(op.negative(cast(place, "int64")), lowest)
    return cast(op.where(is_near, held, _of(-128)), "int8")


def _exponential(x: Array) -> Array:
    """exp of numbers Q5.26 up to 0, as fractions: of the part below a quarter by four terms, times that of each bit above."""
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
    return np.where(x == 0, _ONE, found)


def _logarithm(x: Expr) -> Expr:
    """The logarithm of numbers Q12.19 from 1 on, in Q5.26."""
    zeros = _leading_zeros(x)
    first = _held(op.left_shift(_times(op.left_shift(x, op.subtract(zeros, _of(1))), _of(_ROOT_HALF)), _of(1)))
    first_power = op.add(op.left_shift(op.subtract(_of(_SUM_BITS), zeros), _of(25)), _of(1 << 23))
    room = op.subtract(_leading_zeros(_times(x, _of(_ROOT_HALF))), _of(1))
    second = _held(op.left_shift(x, room))
    second_power = op.subtract(op.left_shift(op.subtract(_of(_SUM_BITS), room), _of(25)), _of(1 << 23))
    r, power = op.minimum(first, second), op.maximum(first_power, second_power)
    half = op.right_shift(op.add(r, _of(_FOURTH_ROOT_HALF + 1)), _of(1))
    q = op.multiply(op.subtract(r, _of(_FOURTH_ROOT_HALF)), _of(2))
    square = _times(q, q)
    above = op.add(_times(q, r), _times(_times(q, square), _of(_CUBE)))
    below = op.add(_times(half, op.add(op.add(q, _of(_CONSTANT)), _times(square, _of(_SQUARE)))), _times(q, _of(_LINE)))
    found = op.add(_times(power, _of(_LOG_2)), _times(_shifted(above, _INPUT_BITS + 1), _reciprocal_of_one_and(below)))
    return _held(op.left_shift(found, _of(1)))


def _reciprocal_of_one_and(x: Expr) -> Expr:
    """1 / (1 + x) of fractions, as `quotients.reciprocal_of_one_and` has it for constants."""
    half = op.right_shift(op.add(x, _of(1 << 31)), _of(1))
    guess = op.add(_times(half, _of(-1010580540)), _of(1515870810))
    for _ in range(3):
        error = op.subtract(_of(1 << 29), _times(half, guess))
        guess = op.add(guess, _held(op.left_shift(_times(guess, error), _of(2))))
    return _held(op.left_shift(guess, _of(1)))


def _of(value: int) -> Constant:
    return constant(value, "int64")


def _times(a: Expr, b: Expr) -> Expr:
    """The product of fractions, rounded with halves upward."""
    return op.right_shift(op.add(op.multiply(a, b), _of(1 << 30)), _of(31))


def _shifted(x: Expr, count: int) -> Expr:
    """Divided by a power of two, halves away from zero."""
    if not count:
        return x
    sign = op.right_shift(x, _of(63))
    return op.right_shift(op.add(op.add(x, _of(1 << (count - 1))), sign), _of(count))


def _held(x: Expr) -> Expr:
    """In 32 bits."""
    return op.maximum(op.minimum(x, _of(_ONE)), _of(-(1 << 31)))


def _leading_zeros(x: Expr) -> Expr:
    """Of positive numbers of 32 bits, as many as they lack of 32."""
    found: Expr = _of(31)
    for k in range(1, 31):
        found = op.subtract(found, cast(op.greater_equal(x, _of(1 << k)), "int64"))
    return found
