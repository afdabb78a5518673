"""The meaning of instructions in numpy: sums of products without rounding, and fixed-point scaling of quantized values.

Everything is exact for integers of at most 16 bits and sums of at most 52 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def windows(
    x: Array, kernel: tuple[int, int], strides: tuple[int, int] = (1, 1), dilation: tuple[int, int] = (1, 1)
) -> Array:
    """Return the windows of images (n, h, w, c), without padding, as a view (n, rows, columns, kh, kw, c)."""
    n, height, width, c = x.shape
    rows, columns = (
        (size - (k - 1) * d - 1) // s + 1
        for size, k, s, d in zip((height, width), kernel, strides, dilation, strict=True))
    a, b, d, e = x.strides
    shape = (n, max(rows, 0), max(columns, 0), *kernel, c)
    steps = (a, b * strides[0], d * strides[1], b * dilation[0], d * dilation[1], e)
    return np.lib.stride_tricks.as_strided(x, shape, steps, writeable=False)


def convolve(x: Array, weight: Array, strides: tuple[int, int] = (1, 1), dilation: tuple[int, int] = (1, 1)) -> Array:
    """Convolve (n, h, w, ci) with a weight (kh, kw, ci, co); return int64 sums."""
    kh, kw, depth, channels = weight.shape
    views = windows(np.asarray(x, np.float64), (kh, kw), strides, dilation)
    total = np.zeros((*views.shape[:3], channels))
    for i in range(kh):
        for j in range(kw):
            tap = views[:, :, :, i, j].reshape(-1, depth)
            total += (tap @ weight[i, j].astype(np.float64)).reshape(total.shape)
    return total.astype(np.int64)


def convolve_depthwise(
    x: Array, weight: Array, strides: tuple[int, int] = (1, 1), dilation: tuple[int, int] = (1, 1)
) -> Array:
    """Convolve each channel of (n, h, w, c) with its own weight in (kh, kw, c); return int64 sums."""
    kh, kw, _ = weight.shape
    views = windows(np.asarray(x, np.int32), (kh, kw), strides, dilation)
    total = np.zeros((*views.shape[:3], views.shape[-1]), np.int64)
    for i in range(kh):
        for j in range(kw):
            total += views[:, :, :, i, j] * weight[i, j].astype(np.int32)
    return total


def rescaled(x: Array, multiplier: Any, exponent: Any, once: int = 0) -> Array:
    """Return integers times `multiplier * 2^(exponent - 31)`.

    The result is rounded twice, as in TensorFlow Lite's reference kernels: to a product of 32 bits with halves upward,
    then with halves away from zero. With `once`, it is rounded once, with halves upward.
    """
    m, e = np.asarray(multiplier, np.int64), np.asarray(exponent, np.int64)
    shifted = np.asarray(x, np.int64) << np.maximum(e, 0)
    right = -np.minimum(e, 0)
    if once:
        result: Array = (shifted * m + (np.int64(1) << (30 + right))) >> (31 + right)
        return result
    whole = (shifted * m + (1 << 30)) >> 31
    half = (np.int64(1) << right) >> 1
    return (whole + half + np.where(right > 0, whole >> 63, 0)) >> right


def scaled(x: Array, factor: Any) -> Array:
    """Return integers times a real factor, each product rounded to float32 and then to the nearest integer, ties to
    even."""
    return np.rint(np.asarray(x, np.float32) * np.asarray(factor, np.float32)).astype(np.int64)


def saturated(x: Array, low: int, high: int, dtype: Any) -> Array:
    """Clip to `[low, high]` and convert to `dtype`."""
    return np.clip(x, low, high).astype(dtype)


def rounded_quotient(x: Array, count: int) -> Array:
    """Return integers divided by a count, with halves rounded away from zero."""
    half = count // 2
    result: Array = np.sign(x) * ((np.abs(x) + half) // count)
    return result


def fixed_point(real: float) -> tuple[int, int]:
    """Return `(m, e)` for `rescaled` with `real = m * 2^(e - 31)`, m of 31 bits."""
    from tilewright.relay.qnn import numerics

    return numerics.fixed_point(real)
