"""Sigmoid and tanh of 16-bit fixed-point numbers, which the gates of integer LSTMs go through: tables of all 65,536
values.

Each entry has the bits of gemmlowp's fixed-point functions: the exponential of a negative number by a polynomial and by
its bits, then a quotient by Newton's method, everything in numbers of 16 bits. "Qa.b" has a bits before the point and b
behind it.

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
"""exp(-2^k) as fractions of 31 bits."""
SIGMOID_BITS: Final = 3
"""Bits before the point of what gates add up."""
MOST_BITS: Final = 6
"""The most bits before the point that tanh is defined for."""


def by_sigmoid(x: Expr) -> Expr:
    """The sigmoid of int16 numbers Q3.12 in integers of any type, as Q0.15: int32."""
    return _looked_up(x, _sigmoid_table())


def by_tanh(x: Expr, bits: int) -> Expr:
    """tanh of int16 numbers with `bits` before the point, as Q0.15: int32."""
    return _looked_up(x, _tanh_table(bits))


def _looked_up(x: Expr, table: Array) -> Expr:
    return cast(op.take(Constant(table), op.add(cast(x, "int32"), constant(1 << 15, "int32")), mode="fast"), "int32")


@functools.cache
def _sigmoid_table() -> Array:
    """1 / (1 + exp(-x)) of the size of x; below zero it is one less that."""
    size = -np.abs(_ALL)
    found = _saturated(_newton(_exponential(size, SIGMOID_BITS)) << 1)
    found = np.where(_ALL > 0, found, _ONE - found)
    return np.where(_ALL == 0, 1 << 14, found).astype(np.int16)


@functools.cache
def _tanh_table(bits: int) -> Array:
    """(1 - e) / (1 + e) of e = exp(-2 |x|) with the sign of x; 2 x has the same bits, one more before the point."""
    size = -np.abs(_ALL)
    found = _saturated((_newton(_exponential(size, bits + 1)) - (1 << 13)) << 2)
    return (np.sign(_ALL) * found).astype(np.int16)


def _product(a: Any, b: Any) -> Array:
    """The product of fractions, rounded with halves upward."""
    result: Array = (a * b + (1 << 14)) >> 15
    return result


def _short(fraction: int) -> int:
    """A fraction of 31 bits as one of 15."""
    return int(shifted_right(np.asarray(fraction, np.int64), 16))


def _saturated(x: Array) -> Array:
    return np.clip(x, -(1 << 15), _ONE)


def _exponential(x: Array, bits: int) -> Array:
    """exp of x <= 0 with `bits` integer bits: a quarter's remainder by four terms, times a factor per higher bit."""
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
    """2 / (1 + x) of fractions x, with two bits before the point."""
    half = (x + _ONE + 1) >> 1
    guess = _short(1515870810) + _product(half, _short(-1010580540))
    for _ in range(3):
        error = (1 << 13) - _product(half, guess)
        guess = guess + _saturated(_product(guess, error) << 2)
    return guess
