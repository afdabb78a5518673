"""Lookup tables of int16 sigmoid and tanh for the gates of integer LSTMs, with all 65,536 entries.

Entries are identical to gemmlowp's fixed-point functions, in 16-bit arithmetic. The exponential of a negative number is
a polynomial times a factor per bit, and the quotient uses Newton's method. "Qa.b" has a integer and b fractional bits.

Source: `fixedpoint.h` of gemmlowp.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import numpy as np

from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast
from tilewright.relay.frontend.tflite.node import constant
from tilewright.relay.frontend.tflite.quotients import shifted_right

Array = np.ndarray[Any, Any]

_ONE: Final = (1 << 15) - 1
_ALL: Final = np.arange(-(1 << 15), 1 << 15, dtype=np.int64)
_POWERS: Final = ((-2, 1672461947), (-1, 1302514674), (0, 790015084), (1, 290630308), (2, 39332535), (3, 720401),
                  (4, 242))
"""exp(-2^k) as 31-bit fractions."""
SIGMOID_BITS: Final = 3
"""Integer bits of the inputs of gates' activations."""
MOST_BITS: Final = 6
"""Largest number of integer bits of tanh's input."""


def by_sigmoid(x: Expr) -> Expr:
    """The sigmoid of Q3.12 values in integers of any type: int32 in Q0.15."""
    return _looked_up(x, _sigmoid_table())


def by_tanh(x: Expr, bits: int) -> Expr:
    """tanh of int16 values with `bits` integer bits: int32 in Q0.15."""
    return _looked_up(x, _tanh_table(bits))


def _looked_up(x: Expr, table: Array) -> Expr:
    return cast(op.take(Constant(table), op.add(cast(x, "int32"), constant(1 << 15, "int32")), mode="fast"), "int32")


@functools.cache
def _sigmoid_table() -> Array:
    """1 / (1 + exp(-|x|)), mirrored for negative x."""
    size = -np.abs(_ALL)
    found = _saturated(_newton(_exponential(size, SIGMOID_BITS)) << 1)
    found = np.where(_ALL > 0, found, _ONE - found)
    return np.where(_ALL == 0, 1 << 14, found).astype(np.int16)


@functools.cache
def _tanh_table(bits: int) -> Array:
    """(1 - e) / (1 + e) with e = exp(-2 |x|), with the sign of x; 2 x has the bits of x and one more integer bit."""
    size = -np.abs(_ALL)
    found = _saturated((_newton(_exponential(size, bits + 1)) - (1 << 13)) << 2)
    return (np.sign(_ALL) * found).astype(np.int16)


def _product(a: Any, b: Any) -> Array:
    """The product of 15-bit fractions, rounded half up."""
    result: Array = (a * b + (1 << 14)) >> 15
    return result


def _short(fraction: int) -> int:
    """A 31-bit fraction rounded to 15 bits."""
    return int(shifted_right(np.asarray(fraction, np.int64), 16))


def _saturated(x: Array) -> Array:
    return np.clip(x, -(1 << 15), _ONE)


def _exponential(x: Array, bits: int) -> Array:
    """exp of x <= 0 with `bits` integer bits: four series terms for the remainder mod 1/4, then a factor per bit."""
    quarter = 1 << (13 - bits)
    part = (x & (quarter - 1)) - quarter
    near = (part << bits) + (1 << 12)
    square = _product(near, near)
    cube, fourth = _product(square, near), _product(square, square)
    terms = shifted_right(_product(shifted_right(fourth, 2) + cube, _short(715827883)) + square, 1)
    centre = _short(1895147668)
    found = _saturated(centre + _product(centre, near + terms))
    rest = part - x
    for exponent, factor in _POWERS:
        if bits > exponent:
            found = np.where(rest & (1 << (15 - bits + exponent)), _product(found, _short(factor)), found)
    if bits > 5:
        found = np.where(x < -(1 << (20 - bits)), 0, found)
    return np.where(x == 0, _ONE, found)


def _newton(x: Array) -> Array:
    """2 / (1 + x) for fractions x, with two integer bits."""
    half = (x + _ONE + 1) >> 1
    guess = _short(1515870810) + _product(half, _short(-1010580540))
    for _ in range(3):
        error = (1 << 13) - _product(half, guess)
        guess = guess + _saturated(_product(guess, error) << 2)
    return guess
