"""Resampling along several dimensions, with coordinates that are exact fractions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import lcm
from typing import Any

from tilewright import te
from tilewright.base.types import OpenSize
from tilewright.scalar import expr as E
from tilewright.scalar.arith.open_sizes import limit
from tilewright.scalar.expr import PrimExpr, Value, Var
from tilewright.topi.shapes import at_least, at_most

Tap = tuple[PrimExpr, PrimExpr | None]
"""An index along one dimension, and its weight (None for one)."""


@dataclass(frozen=True)
class Line:
    """The map from output element i to the input position `(a * i + b) / c`, with integers a, b and c > 0."""

    a: int
    b: int
    c: int


def _exact(number: float) -> Fraction:
    """Return a scale as the fraction that it approximates: 0.6 is 3/5."""
    return Fraction(number).limit_denominator(1 << 14)


def line_of(mode: str, size: int, out: int, scale: float | None, roi: tuple[float, float] | None) -> Line:
    """Return the map from output elements to input positions (ONNX Resize, coordinate_transformation_mode).

    `scale` may result in a fractional length, of which `out` is the integer part. The step between two elements follows
    the scale. The modes that align corners use the result's length `out`, as the text of the specification, ONNX
    Runtime and PyTorch do.
    """
    if isinstance(size, OpenSize) or isinstance(out, OpenSize):
        return _open_line(mode, size, out, scale, roi)
    factor = Fraction(out, size) if scale is None else _exact(scale)
    gaps = out - 1
    half = Fraction(1, 2)
    step, start = 1 / factor, Fraction(0)
    if mode == "align_corners":
        step = Fraction(size - 1, gaps) if gaps > 0 else Fraction(0)
    elif mode == "tf_crop_and_resize":
        low, high = map(_exact, roi or (0, 1))
        step = (high - low) * (size - 1) / gaps if gaps > 0 else Fraction(0)
        start = low * (size - 1) if gaps > 0 else (low + high) * (size - 1) * half
    elif mode == "tf_half_pixel_for_nn":
        start = half * step
    elif mode == "half_pixel_symmetric":
        start = half * step - half + Fraction(size, 2) * (1 - Fraction(out) / (factor * size))
    elif mode == "pytorch_half_pixel" and out == 1:
        step = Fraction(0)
    elif mode != "asymmetric":
        start = half * step - half
    c = lcm(step.denominator, start.denominator)
    return Line(int(step * c), int(start * c), c)


def _open_line(mode: str, size: int, out: int, scale: float | None, roi: tuple[float, float] | None) -> Line:
    """Return the map for dynamic lengths."""
    whole = None if out % size else out // size
    factor = None if scale is None else _exact(scale)
    if factor is None and whole is not None and not isinstance(whole, OpenSize):
        factor = Fraction(int(whole))
    gaps = out - 1
    if mode == "align_corners":
        return Line(size - 1, 0, at_least(gaps, 1))
    if mode == "tf_crop_and_resize":
        return _open_crop(size, out, roi)
    if mode == "half_pixel_symmetric" and factor is not None:
        n, d = factor.numerator, factor.denominator
        return Line(2 * d, d - n + n * size - d * out, 2 * n)
    if factor is not None:
        size, out = factor.denominator, factor.numerator
    if mode == "asymmetric":
        return Line(size, 0, out)
    if mode == "tf_half_pixel_for_nn":
        return Line(2 * size, size, 2 * out)
    shift = size - out
    return Line(2 * size, shift * at_most(gaps, 1) if mode == "pytorch_half_pixel" else shift, 2 * out)


def _open_crop(size: int, out: int, roi: tuple[float, float] | None) -> Line:
    """Return the map of a part of an image of dynamic lengths."""
    low, high = map(_exact, roi or (0, 1))
    unit = lcm(low.denominator, high.denominator)
    first, last = int(low * unit), int(high * unit)
    if isinstance(out, OpenSize):
        limit(out, 2)
    elif out == 1:
        return Line(0, (first + last) * (size - 1), 2 * unit)
    return Line((last - first) * (size - 1), first * (size - 1) * (out - 1), unit * (out - 1))


def nearest_index(position: Value, c: int, rounding: str) -> PrimExpr:
    """Return `position / c` rounded by `floor`, `ceil`, or to the nearest with halves down (`round_prefer_floor`) or
    up."""
    if rounding == "floor":
        return E.floordiv(position, c)
    if rounding == "ceil":
        return E.floordiv(E.add(position, c - 1), c)
    if rounding == "round_prefer_floor":
        return E.floordiv(E.add(E.mul(position, 2), c - 1), 2 * c)
    return E.floordiv(E.add(E.mul(position, 2), c), 2 * c)


def resize(
    data: te.Tensor, spatial: Sequence[int], sizes: Sequence[int], lines: Sequence[Line], method: str, rounding: str,
    cubic: tuple[float, bool], extrapolation: float | None, dtype: str,
) -> te.Tensor:
    """Resample `data` to `sizes` along the dimensions `spatial`; points outside become `extrapolation`, unless it is
    None."""
    source = [data.extents[d] for d in spatial]
    shape: list[Value] = list(data.shape)
    for d, n in zip(spatial, sizes, strict=True):
        shape[d] = n
    work = data.dtype if method == "nearest_neighbor" else "float64" if data.dtype == "float64" else "float32"

    def taps(k: int, i: Var) -> list[Tap]:
        if isinstance(sizes[k], OpenSize) or isinstance(source[k], OpenSize):
            return _looked_up(lambda x: computed(k, x), sizes[k], i)
        return computed(k, i)

    def computed(k: int, i: Var) -> list[Tap]:
        line, last = lines[k], source[k] - 1
        position = E.add(E.mul(i, line.a), line.b)
        if method == "nearest_neighbor":
            return [(_held(nearest_index(position, line.c, rounding), last), None)]
        low = E.floordiv(position, line.c)
        t = _share(E.cast(work, E.floormod(position, line.c)), line.c, work)
        if method == "linear":
            return [(_held(low, last), E.sub(E.const(1, work), t)), (_held(low + 1, last), t)]
        return _cubic_taps(low, t, last, *cubic)

    def element(*i: Var) -> PrimExpr:
        where: list[Value] = list(i)

        def sampled(k: int) -> PrimExpr:
            if k == len(spatial):
                return E.cast(work, data(*where))
            total: PrimExpr | None = None
            for index, weight in taps(k, i[spatial[k]]):
                where[spatial[k]] = index
                value = sampled(k + 1)
                term = value if weight is None else E.mul(value, weight)
                total = term if total is None else E.add(total, term)
            return total if total is not None else E.const(0, work)

        value = sampled(0)
        if extrapolation is not None:
            value = E.if_then_else(_inside(i), value, E.const(extrapolation, work))
        return E.cast(dtype, value)

    def _inside(i: Sequence[Var]) -> PrimExpr:
        inside = E.all_of()
        for line, d, n in zip(lines, spatial, source, strict=True):
            position = E.add(E.mul(i[d], line.a), line.b)
            inside = E.all_of(inside, position >= 0, position <= (n - 1) * line.c)
        return inside

    return te.compute(shape, element, name="resize")


def _share(part: PrimExpr, whole: int, dtype: Any) -> PrimExpr:
    return E.div(part, E.cast(dtype, E.as_expr(whole)))


def _looked_up(taps: Callable[[Var], list[Tap]], size: int, i: Var) -> list[Tap]:
    """Return the taps of `i` from tables, so that positions with divisions by dynamic lengths are computed once per
    row."""

    def table(element: Callable[[Var], PrimExpr], name: str) -> PrimExpr:
        return te.compute((size,), element, name=name, inline=False)(i)

    def place(n: int, x: Var) -> PrimExpr:
        return taps(x)[n][0]

    def weight(n: int, x: Var) -> PrimExpr:
        found = taps(x)[n][1]
        assert found is not None
        return found

    return [
        (table(partial(place, n), "places"), None if w is None else table(partial(weight, n), "weights"))
        for n, (_, w) in enumerate(taps(i))
    ]


def _held(index: PrimExpr, last: int) -> PrimExpr:
    return E.maximum(E.minimum(index, last), 0)


def _cubic_taps(low: PrimExpr, t: PrimExpr, last: int, a: float, exclude: bool) -> list[Tap]:
    """Return the taps of Keys' cubic convolution; with `exclude`, taps outside have no weight, and the others sum to
    one."""
    one = E.const(1, t.dtype)

    def near(d: PrimExpr) -> PrimExpr:
        return ((a + 2) * d - (a + 3)) * d * d + one

    def far(d: PrimExpr) -> PrimExpr:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    weights = [far(t + 1.0), near(t), near(one - t), far(2.0 - t)]
    places = [low + k for k in (-1, 0, 1, 2)]
    if exclude:
        zero = E.const(0, t.dtype)
        weights = [E.if_then_else(E.all_of(p >= 0, p <= last), w, zero) for p, w in zip(places, weights, strict=True)]
        total = weights[0] + weights[1] + weights[2] + weights[3]
        weights = [E.div(w, total) for w in weights]
    return [(_held(p, last), w) for p, w in zip(places, weights, strict=True)]
