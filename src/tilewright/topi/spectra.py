"""Fourier transforms of rows, and of windows that slide over a signal.

A row whose length is a power of two is transformed in place by the radix-2 algorithm (Cooley and Tukey, 1965), any
other by the definition. Both use a table of roots of unity. Sums by the definition are float64, since they are as long
as the row.
"""

from __future__ import annotations

from math import pi, prod, sqrt
from typing import Any

from tilewright import te
from tilewright.base.types import DataType, OpenSize
from tilewright.scalar import expr as E
from tilewright.scalar import intrinsics as I
from tilewright.scalar.expr import PrimExpr
from tilewright.tir.ir_builder import BufferVar
from tilewright.topi.loops import Loops, loops
from tilewright.topi.work import Step

__all__ = ["dft", "stft"]


def is_power_of_two(n: int) -> bool:
    return n > 0 and n & (n - 1) == 0


def steps_of(n: int) -> int:
    """Return the number of steps of one transform of `n` elements."""
    return n * (n.bit_length() * 4 if is_power_of_two(n) else n)


def _roots(b: Loops, n: int, of: DataType, sign: int) -> tuple[BufferVar, BufferVar]:
    """Return cosines and sines of the n-th roots of unity, for a transform of numbers of type `of`."""
    dtype = of if is_power_of_two(n) else DataType("float64")
    cosines, sines = b.allocate(dtype, n, "cosines"), b.allocate(dtype, n, "sines")
    with b.for_range(0, n, "k") as k:
        angle = b.let("angle", E.cast("float64", k) * (sign * 2 * pi / n))
        cosines[k] = E.cast(dtype, I.cos(angle))
        sines[k] = E.cast(dtype, I.sin(angle))
    return cosines, sines


def _transformed(
    b: Loops, real: BufferVar, imaginary: BufferVar, roots: tuple[BufferVar, BufferVar], n: int
) -> tuple[BufferVar, BufferVar]:
    """Return the transform of `n` elements, which are overwritten."""
    if is_power_of_two(n):
        _reordered(b, (real, imaginary), n)
        _halves(b, real, imaginary, roots, n)
        return real, imaginary
    out = b.allocate(real.dtype, n, "out_real"), b.allocate(real.dtype, n, "out_imaginary")
    wide = roots[0].dtype
    zero = E.const(0, wide)
    with b.for_range(0, n, "to") as to:
        totals = b.variable("total_real", wide, zero), b.variable("total_imaginary", wide, zero)
        with b.for_range(0, n, "k") as k:
            at = b.let("at", E.floormod(to * k, n))
            _accumulate(b, totals, (E.cast(wide, real[k]), E.cast(wide, imaginary[k])), (roots[0][at], roots[1][at]))
        for o, t in zip(out, totals, strict=True):
            o[to] = E.cast(real.dtype, t[0])
    return out


def _accumulate(
    b: Loops, totals: tuple[BufferVar, BufferVar], x: tuple[PrimExpr, PrimExpr], w: tuple[PrimExpr, PrimExpr]
) -> None:
    totals[0][0] = totals[0][0] + x[0] * w[0] - x[1] * w[1]
    totals[1][0] = totals[1][0] + x[0] * w[1] + x[1] * w[0]


def _reordered(b: Loops, parts: tuple[BufferVar, BufferVar], n: int) -> None:
    """Permute elements by bit reversal of their indices."""
    with b.for_range(0, n, "k") as k:
        backward = E.const(0, "int64")
        for bit in range(n.bit_length() - 1):
            digit = I.bitwise_and(I.shift_right(k, E.const(bit, "int64")), E.const(1, "int64"))
            backward = backward * 2 + digit
        other = b.let("other", backward)
        with b.if_scope(k < other):
            for part in parts:
                held = b.let("held", part[k])
                part[k] = part[other]
                part[other] = held


def _halves(b: Loops, real: BufferVar, imaginary: BufferVar, roots: tuple[BufferVar, BufferVar], n: int) -> None:
    """Combine pairs of transforms into transforms of twice the length, until one is left."""
    with b.for_range(0, n.bit_length() - 1, "level") as level:
        half = b.let("half", I.shift_left(E.const(1, "int64"), level))
        step = b.let("step", E.floordiv(E.const(n // 2, "int64"), half))
        with b.for_range(0, step, "block") as block, b.for_range(0, half, "k") as k:
            low = b.let("low", block * half * 2 + k)
            high, at = b.let("high", low + half), b.let("at", k * step)
            x, y = b.let("x", real[high]), b.let("y", imaginary[high])
            u = b.let("u", x * roots[0][at] - y * roots[1][at])
            v = b.let("v", x * roots[1][at] + y * roots[0][at])
            p, q = b.let("p", real[low]), b.let("q", imaginary[low])
            real[low], imaginary[low] = p + u, q + v
            real[high], imaginary[high] = p - u, q - v


def dft(re_data: te.Tensor, im_data: te.Tensor, inverse: bool = False) -> tuple[te.Tensor, ...]:
    """Return the Fourier transform of complex rows along the last axis; with `inverse`, divided by their length."""
    shape, n, dtype = re_data.extents, re_data.extents[-1], re_data.dtype
    if isinstance(n, OpenSize):
        return _open_dft(re_data, im_data, 1 if inverse else -1)
    rows = prod(shape[:-1])

    def body(b: Loops, real: BufferVar, imaginary: BufferVar, out_real: BufferVar, out_imaginary: BufferVar) -> None:
        roots = _roots(b, n, dtype, 1 if inverse else -1)
        with b.shared(rows, rows * steps_of(n), Step.MOVE) as row:
            parts = b.allocate(dtype, n, "real"), b.allocate(dtype, n, "imaginary")
            with b.for_range(0, n, "k") as k:
                parts[0][k] = real[row * n + k]
                parts[1][k] = imaginary[row * n + k]
            found = _transformed(b, *parts, roots, n)
            with b.for_range(0, n, "k") as k:
                for out, part in zip((out_real, out_imaginary), found, strict=True):
                    out[row * n + k] = part[k] * E.const(1 / n if inverse else 1.0, dtype)

    return loops("dft", [re_data, im_data], [(shape, dtype), (shape, dtype)], body)


def _open_dft(re_data: te.Tensor, im_data: te.Tensor, sign: int) -> tuple[te.Tensor, ...]:
    """Return the transform of rows of a dynamic length, by the definition; with a `sign` of 1, the inverse."""
    n, dtype = re_data.extents[-1], re_data.dtype
    length = E.cast("float64", E.as_expr(n))

    def angle(k: PrimExpr) -> PrimExpr:
        return E.div(E.cast("float64", k) * (sign * 2 * pi), length)

    cosines = te.compute((n,), lambda k: I.cos(angle(k)), name="cosines", inline=False)
    sines = te.compute((n,), lambda k: I.sin(angle(k)), name="sines", inline=False)

    def part(first: te.Tensor, second: te.Tensor, sign_of_second: float, name: str) -> te.Tensor:
        k = te.reduce_axis((0, n), "k")

        def total(*i: PrimExpr) -> PrimExpr:
            at = E.floormod(i[-1] * k.var, E.as_expr(n))
            a, b = (E.cast("float64", x(*i[:-1], k)) for x in (first, second))
            return te.sum(a * cosines(at) + b * sines(at) * sign_of_second, axis=k)

        found = te.compute(re_data.shape, total, name=name, inline=False)
        scale = length if sign > 0 else E.const(1.0, "float64")
        return te.compute(re_data.shape, lambda *i: E.cast(dtype, E.div(found(*i), scale)), name=f"scaled_{name}")

    return part(re_data, im_data, -1.0, "real"), part(im_data, re_data, 1.0, "imaginary")


def stft(
    data: te.Tensor, n_fft: int, hop_length: int, win_length: int, window: te.Tensor, normalized: bool, onesided: bool,
    output_shape: tuple[Any, ...],
) -> te.Tensor:
    """Return the Fourier transforms (signals, frequencies, frames, 2) of windows that start every `hop_length` elements
    of rows of `data`.

    `window`, centred in `n_fft` elements, contains the weights; with `onesided`, frequencies above half are omitted.
    """
    length, dtype = data.extents[-1], data.dtype
    signals, bins, frames, _ = output_shape
    before, scale = (n_fft - win_length) // 2, 1 / sqrt(n_fft) if normalized else 1.0

    def body(b: Loops, x: BufferVar, weights: BufferVar, out: BufferVar) -> None:
        roots = _roots(b, n_fft, dtype, -1)
        with b.shared(signals * frames, signals * frames * steps_of(n_fft), Step.MOVE, "piece") as piece:
            signal, frame = b.let("signal", E.floordiv(piece, frames)), b.let("frame", E.floormod(piece, frames))
            parts = b.allocate(dtype, n_fft, "real"), b.allocate(dtype, n_fft, "imaginary")
            with b.for_range(0, n_fft, "k") as k:
                place = E.minimum(E.maximum(k - before, 0), win_length - 1)
                inside = E.all_of(k >= before, k < before + win_length)
                parts[0][k] = E.if_then_else(
                    inside, x[signal * length + frame * hop_length + k] * weights[place], E.const(0, dtype)
                )
                parts[1][k] = E.const(0, dtype)
            found = _transformed(b, *parts, roots, n_fft)
            with b.for_range(0, bins, "k") as k:
                for d, part in enumerate(found):
                    out[signal, k, frame, d] = part[k] * E.const(scale, dtype)

    return loops("stft", [data, window], [(output_shape, dtype)], body)[0]
