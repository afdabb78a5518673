"""Sampling of images at computed points (grids, crops), and morphological dilation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.base.types import DataType, OpenSize
from tilewright.scalar import expr as E
from tilewright.scalar import intrinsics as I
from tilewright.scalar.expr import PrimExpr, Var, as_expr
from tilewright.topi.elementwise import greatest
from tilewright.topi.indexing import bounded


@dataclass(frozen=True, slots=True)
class Tap:
    """An index along one dimension, its weight (None for one), and the condition that it is inside (None for always).
    """

    index: PrimExpr
    weight: PrimExpr | None
    inside: PrimExpr | None = None


def real(size: Any, dtype: DataType) -> Any:
    """Return a size as a float: a number, or for a dynamic size an expression of type `dtype`."""
    return E.cast(dtype, size.expr) if isinstance(size, OpenSize) else float(size)


def _held(x: PrimExpr, low: float, high: Any) -> PrimExpr:
    """Clamp `x` to `[low, high]`; NaN becomes `low`."""
    end = high if isinstance(high, PrimExpr) else E.const(high, x.dtype)
    return E.minimum(E.maximum(E.const(low, x.dtype), x), end)


def unnormalized(x: PrimExpr, size: int, align_corners: bool) -> PrimExpr:
    """Convert a coordinate in [-1, 1] to a position among `size` pixels; -1 and 1 are the centres, or the outer edges,
    of the outer pixels."""
    half = real(size - 1 if align_corners else size, x.dtype) * 0.5
    middle: PrimExpr = (x + 1.0) * half
    return middle if align_corners else middle - 0.5


def reflected(x: PrimExpr, size: int, align_corners: bool) -> PrimExpr:
    """Mirror a position at the centres, or the edges, of the first and last pixel until it is inside."""
    start, span = (0.0, size - 1) if align_corners else (-0.5, size)
    if not span:
        return E.const(0, x.dtype)
    length = real(span, x.dtype)
    distance = I.fabs(x - start)
    turns = I.floor(distance / length)
    rest = distance - turns * length
    odd = turns - I.floor(turns * 0.5) * 2.0 > 0.5
    inside = E.if_then_else(odd, length - rest, rest) + start
    return E.if_then_else(as_expr(span) > 0, inside, E.const(0, x.dtype)) if isinstance(span, OpenSize) else inside


def taps_at(x: PrimExpr, size: int, method: str, padding: str, align_corners: bool) -> list[Tap]:
    """Return the pixels that contribute to a sample at position `x`."""
    last = real(size - 1, x.dtype)

    def padded(place: PrimExpr) -> PrimExpr:
        if padding == "zeros":
            return _held(place, -4.0, last + 4)
        return _held(reflected(place, size, align_corners) if padding == "reflection" else place, 0.0, last)

    def tap(place: PrimExpr, weight: PrimExpr | None) -> Tap:
        index = E.cast("int64", place)
        return Tap(index, weight, E.all_of(index >= 0, index < size) if padding == "zeros" else None)

    if method == "bicubic":
        held = _held(x, -1e6, 1e6)
        low = I.floor(held)
        weights = cubic_weights(held - low, -0.75)
        return [tap(padded(low + float(k - 1)), w) for k, w in enumerate(weights)]
    place = padded(x)
    if method == "nearest":
        return [tap(I.nearbyint(place), None)]
    low = I.floor(place)
    part = place - low
    high = low + 1.0 if padding == "zeros" else _held(low + 1.0, 0.0, last)
    return [tap(low, 1.0 - part), tap(high, part)]


def cubic_weights(t: PrimExpr, a: float) -> list[PrimExpr]:
    """Return the four weights of Keys' cubic convolution at distance `t` after the second tap."""

    def near(d: PrimExpr) -> PrimExpr:
        return ((a + 2) * d - (a + 3)) * d * d + 1.0

    def far(d: PrimExpr) -> PrimExpr:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)]


def sampled(read: Callable[..., PrimExpr], taps: Sequence[Sequence[Tap]]) -> PrimExpr:
    """Return the weighted sum of `read(i, j, …)` over all combinations of taps; those outside are 0."""

    def along(k: int, at: tuple[PrimExpr, ...], inside: PrimExpr) -> PrimExpr:
        if k == len(taps):
            value = read(*at)
            return E.if_then_else(inside, value, E.const(0, value.dtype))
        total: PrimExpr | None = None
        for t in taps[k]:
            value = along(k + 1, (*at, t.index), inside if t.inside is None else E.logical_and(inside, t.inside))
            term = value if t.weight is None else value * t.weight
            total = term if total is None else total + term
        assert total is not None
        return total

    return along(0, (), E.all_of())


def wider_float(data: DataType, grid: DataType) -> DataType:
    """Return the type in which samples of `data` at the points of `grid` are computed: the grid's, or the data's if
    that is a wider float."""
    return data if data.is_float and data.bits > grid.bits else grid


def grid_sample(
    data: te.Tensor, grid: te.Tensor, method: str = "bilinear", layout: str = "NCHW", padding_mode: str = "zeros",
    align_corners: bool = True
) -> te.Tensor:
    """Sample `data` (batch, channels, …) at the points of `grid` (batch, coordinates, …), in [-1, 1], x first. The
    result has the type of `data`."""
    wide = wider_float(data.dtype, grid.dtype)
    sizes = data.extents[2:]
    n = len(sizes)

    def element(b: Var, c: Var, *at: Var) -> PrimExpr:
        positions = [
            unnormalized(E.cast(wide, grid(b, n - 1 - d, *at)), size, align_corners) for d, size in enumerate(sizes)
        ]
        taps = [taps_at(p, size, method, padding_mode, align_corners) for p, size in zip(positions, sizes, strict=True)]
        return E.cast(data.dtype, sampled(lambda *i: E.cast(wide, data(b, c, *i)), taps))

    return te.compute((*data.extents[:2], *grid.extents[2:]), element, name="grid_sample")


def affine_grid(data: te.Tensor, target_shape: Sequence[int], align_corners: bool = True) -> te.Tensor:
    """Return the points (batch, coordinates, …), x first, that matrices (batch, n, n + 1) map a uniform grid over [-1,
    1] to."""
    n = len(target_shape)

    def element(b: Var, d: Var, *at: Var) -> PrimExpr:
        total = data(b, d, n)
        for k, (i, size) in enumerate(zip(at, target_shape, strict=True)):
            total = total + data(b, d, n - 1 - k) * _even(E.cast(data.dtype, i), size, align_corners)
        return total

    return te.compute((data.extents[0], n, *target_shape), element, name="affine_grid")


def _even(i: PrimExpr, size: int, align_corners: bool) -> PrimExpr:
    """Return point i of `size` uniform points in [-1, 1]: including the ends, or the centres of `size` intervals."""
    if align_corners:
        return i * (2 / (size - 1)) - 1.0 if size > 1 else E.const(-1, i.dtype)
    return i * (2 / size) + (1 / size - 1)


def crop_and_resize(
    data: te.Tensor, boxes: te.Tensor, box_indices: te.Tensor, crop_size: Sequence[int], layout: str = "NCHW",
    method: str = "bilinear", extrapolation_value: float = 0.0, out_dtype: str | None = None,
) -> te.Tensor:
    """Resample crops (top, left, bottom, right, in [0, 1]) of images to `crop_size`; points outside are
    `extrapolation_value`."""
    last = layout == "NHWC"
    sizes = data.extents[1:3] if last else data.extents[2:]
    channels, count, dtype = data.extents[3 if last else 1], boxes.extents[0], out_dtype or data.dtype

    def element(r: Var, *i: Var) -> PrimExpr:
        c, place = (i[2], i[:2]) if last else (i[0], i[1:])
        positions = []
        for d, (size, n) in enumerate(zip(sizes, crop_size, strict=True)):
            low, high = boxes(r, d), boxes(r, d + 2)
            step = (high - low) * (real(size - 1, low.dtype) / (n - 1)) if n > 1 else E.const(0, low.dtype)
            last_pixel = real(size - 1, low.dtype)
            start = low * last_pixel if n > 1 else (low + high) * (0.5 * last_pixel)
            positions.append(start + E.cast(low.dtype, place[d]) * step)
        inside = E.all_of(
            *(c for p, size in zip(positions, sizes, strict=True) for c in (p >= 0, p <= real(size - 1, p.dtype)))
        )
        held = [_held(p, 0.0, real(size - 1, p.dtype)) for p, size in zip(positions, sizes, strict=True)]
        if method == "nearest_neighbor":
            taps = [[Tap(E.cast("int64", I.floor(p + 0.5)), None)] for p in held]
        else:
            taps = [taps_at(p, size, "bilinear", "border", True) for p, size in zip(held, sizes, strict=True)]
        image = bounded(box_indices(r), data.extents[0], "clip")

        def read(y: PrimExpr, x: PrimExpr) -> PrimExpr:
            value = data(image, y, x, c) if last else data(image, c, y, x)
            return E.cast(boxes.dtype, value)

        return E.cast(dtype, E.if_then_else(inside, sampled(read, taps), E.const(extrapolation_value, boxes.dtype)))

    shape = (count, *crop_size, channels) if last else (count, channels, *crop_size)
    return te.compute(shape, element, name="crop_and_resize")


def dilation2d(
    data: te.Tensor, weight: te.Tensor, axes: tuple[Sequence[int], Sequence[int]], shape: Sequence[int],
    strides: Sequence[int], padding: Sequence[int], dilations: Sequence[int], dtype: Any,
) -> te.Tensor:
    """Return the maximum of data + weight in each window. `axes` are the dimensions (n, c, y, x) of data and (c, y, x)
    of weight; `shape` is that of the result."""
    n_axis, c_axis, *spatial = axes[0]
    sizes = [data.extents[d] for d in spatial]
    windows = [te.reduce_axis((0, weight.extents[d]), name) for d, name in zip(axes[1][1:], ("ky", "kx"), strict=True)]

    def element(*i: Var) -> PrimExpr:
        places = [
            i[d] * s + k.var * e - p for d, s, k, e,
            p in zip(spatial, strides, windows, dilations, padding[:2], strict=True)
        ]
        at: list[Any] = [None] * 4
        of_weight: list[Any] = [None] * 3
        for d, value in zip(axes[0], (i[n_axis], i[c_axis], *places), strict=True):
            at[d] = value
        for d, value in zip(axes[1], (i[c_axis], *(w.var for w in windows)), strict=True):
            of_weight[d] = value
        inside = E.all_of(*(c for p, size in zip(places, sizes, strict=True) for c in (p >= 0, p < size)))
        term = E.cast(dtype, data(*at)) + E.cast(dtype, weight(*of_weight))
        return greatest(E.if_then_else(inside, term, te.min_value(dtype)), axis=windows)

    return te.compute(shape, element, name="dilation2d")
