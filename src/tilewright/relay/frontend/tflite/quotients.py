"""Fixed-point quotients and roots by Newton's method, identical to gemmlowp and TensorFlow Lite's reference kernels.

Arrays are int64 and hold 32-bit numbers. A "31-bit" number is a fraction in units of 2^-31.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.relay.qnn.numerics import fixed_point

Array = np.ndarray[Any, Any]


def high_product(a: Any, b: Any) -> Array:
    """The product of fractions, rounded half up."""
    result: Array = (a * b + (1 << 30)) >> 31
    return result


def shifted_right(x: Array, count: Any) -> Array:
    """x / 2^count, rounded half away from zero."""
    half = (np.int64(1) << np.asarray(count, np.int64)) >> 1
    result: Array = (x + half - ((x < 0) & (half > 0))) >> count
    return result


def _saturated(x: Array) -> Array:
    return np.clip(x, -(1 << 31), (1 << 31) - 1)


def reciprocal_of_one_and(x: Array) -> Array:
    """1 / (1 + x) for fractions x in [0, 1], by three Newton steps with 29 fractional bits."""
    half = (x + ((1 << 31) - 1) + 1) >> 1  # (1 + x) / 2
    guess = 1515870810 + high_product(half, -1010580540)  # 48/17 - 32/17 * half
    for _ in range(3):
        error = (1 << 29) - high_product(half, guess)
        guess = guess + _saturated(high_product(guess, error) << 2)
    return _saturated(guess << 1)


def leading_zeros(x: Array) -> Array:
    """The number of leading zero bits of positive 32-bit numbers."""
    return 32 - np.ceil(np.log2(x.astype(np.float64) + 1)).astype(np.int64)


def reciprocal(x: Array) -> tuple[Array, Array]:
    """A fraction and a right shift whose product replaces the division by positive integers."""
    zeros = leading_zeros(x)
    return reciprocal_of_one_and((x << zeros) - (1 << 31)), 31 - zeros


def inverse_roots(x: Array) -> tuple[Array, Array]:
    """1 / sqrt(x) for 0 <= x < 2^31 as fractions and right shifts, by five Newton steps with 28 fractional bits."""
    small = x <= 1
    value, shift = np.where(small, 4, x), np.full(x.shape, 11, np.int64)
    while (large := value >= 1 << 29).any():
        value, shift = np.where(large, value // 4, value), shift + large
    pairs = (leading_zeros(value) - 1) // 2 - 1
    value, shift = value << (2 * pairs), shift - pairs
    data = value >> 1
    half = shifted_right(data, 1)
    root = np.full(x.shape, 1 << 28, np.int64)
    for _ in range(5):
        square = high_product(root, root)
        cube = _saturated(high_product(square, root) << 6)
        root = _saturated((high_product(np.int64(402653184), root) - high_product(half, cube)) << 3)
    root = high_product(root, 1518500250)
    left = np.maximum(-shift, 0)
    root, shift = root << left, np.maximum(shift, 0)
    return np.where(small, (1 << 31) - 1, root), np.where(small, 0, shift)


def inverse_root_table(scale: float, zero: int, out_scale: float, out_zero: int) -> Array:
    """`1 / sqrt(x)` for all int8 x with 20 fractional bits; the largest integer for x <= 0."""
    values = np.arange(-128, 128, dtype=np.int64) - zero
    positive = np.maximum(values, 1)
    fraction, right = inverse_roots(positive)
    root = _scaled(np.ones_like(positive), fraction, 20 - right)
    multiplier, shift = fixed_point(1 / float(np.sqrt(np.float32(scale)) * np.float32(out_scale)))
    whole = _scaled(root, np.int64(multiplier), np.asarray(shift - 20)) + out_zero
    return np.where(values > 0, np.clip(whole, -128, 127), 127).astype(np.int8)


def _scaled(x: Array, fraction: Any, shift: Array) -> Array:
    """x * fraction * 2^shift for a 31-bit fraction, rounded twice."""
    return shifted_right(high_product(x << np.maximum(shift, 0), fraction), np.maximum(-shift, 0))


def _shifted_far(x: Array, count: Array) -> Array:
    """`shifted_right` with the kernels' overflow: counts >= 32 use the low five bits, and round nonnegative numbers up.
    """
    near = shifted_right(x, np.minimum(count, 31))
    return np.where(count < 32, near, (x >> (count & 31)) + (x >= 0))


def quotient_table(dtype: str, zero_a: int, zero_b: int, factor: float, zero_out: int) -> Array:
    """`a / b` for all 8-bit a (rows) and b (columns), times `factor`; saturated by the sign of a if b is zero."""
    info = np.iinfo(dtype)
    values = np.arange(info.min, info.max + 1, dtype=np.int64)
    a, b = np.broadcast_arrays((values - zero_a)[:, None], (values - zero_b)[None, :])
    by_zero = b == 0
    a, b = np.where(b < 0, -a, a), np.where(by_zero, 1, np.abs(b))
    inverse, shift = reciprocal(b)
    headroom = np.where(a == 0, 31, leading_zeros(np.maximum(np.where(a < 0, ~a, a), 1)) - 1)
    headroom = np.where(a == -1, 31, headroom)
    m, exponent = fixed_point(factor)
    scaled = high_product((a << headroom).astype(np.int32).astype(np.int64), inverse)
    found = _shifted_far(high_product(scaled, m), np.maximum(shift + headroom - exponent, 0))
    found = np.where(by_zero, np.sign(a) * 512, found)
    table: Array = np.clip(found + zero_out, info.min, info.max).astype(dtype)
    return table
