"""Resizing and sampling of images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.linear_algebra import product
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.pytorch.node import Node
from tilewright.relay.frontend.pytorch.registry import converter
from tilewright.relay.frontend.pytorch.transform import dims_of
from tilewright.relay.frontend.shaping import cast, transpose
from tilewright.relay.types_of import dtype_of, shape_of

Array = np.ndarray[Any, Any]

_RESIZE: Final = {1: (op.image.resize1d, "NCW"), 2: (op.image.resize2d, "NCHW"), 3: (op.image.resize3d, "NCDHW")}
_METHODS: Final = {"nearest": "nearest_neighbor", "linear": "linear", "bilinear": "linear", "trilinear": "linear",
                   "bicubic": "cubic"}
_CUBIC: Final = -0.75


def _sizes(x: Expr, output_size: Any, scales: Sequence[float | None],
           node: Node) -> tuple[list[int], list[float] | None]:
    """The new sizes, and the scale factors if torch computes coordinates from them instead of the sizes."""
    old = node.static(x, "input")[2:]
    if output_size is not None:
        wanted = [int(d) for d in dims_of(output_size, node)]
    else:
        wanted = [int(d * s) for d, s in zip(old, scales, strict=True) if s is not None]
    known = [s for s in scales if s]
    return wanted, [float(s) for s in known] if len(known) == len(wanted) else None


def _resized(x: Expr, output_size: Any, scales: Any, mode: str, align_corners: bool | None, node: Node,
             exact: bool = False) -> Expr:
    sizes, factors = _sizes(x, output_size, list(scales or ()), node)
    build, layout = _RESIZE[len(sizes)]
    if mode == "nearest":
        where, rounding = ("half_pixel", "round_prefer_ceil") if exact else ("asymmetric", "floor")
    else:
        where, rounding = ("align_corners" if align_corners else "half_pixel"), ""
    if list(shape_of(x)[2:]) == sizes and (factors is None or all(f == 1 for f in factors)):
        return x
    if mode != "nearest" and dtype_of(x) == "uint8":
        if len(sizes) != 2:
            node.refuse("uint8 data can be interpolated only in two dimensions; convert it to float first")
        return _of_bytes(x, [_sampling(old, new, None if factors is None else factors[k], bool(align_corners), mode)
                             for k, (old, new) in enumerate(zip(shape_of(x)[2:], sizes, strict=True))])
    return build(x, size=tuple(sizes), layout=layout, method=_METHODS[mode], coordinate_transformation_mode=where,
                 rounding_method=rounding, cubic_alpha=_CUBIC,
                 scales=None if factors is None else tuple(factors))


@converter("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d",
           "_upsample_nearest_exact2d", "_upsample_nearest_exact3d")
def upsample_nearest(
    node: Node, self: Expr | None = None, input: Expr | None = None, output_size: Any = None, scale_factors: Any = None,
    scales: float | None = None, scales_d: float | None = None, scales_h: float | None = None,
    scales_w: float | None = None,
) -> Expr:
    x = self if self is not None else input
    assert x is not None
    given = scale_factors or [s for s in (scales, scales_d, scales_h, scales_w) if s is not None]
    return _resized(x, output_size, given, "nearest", None, node, "exact" in node.name)


@converter("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d")
def upsample_smooth(
    node: Node, align_corners: bool, self: Expr | None = None, input: Expr | None = None, output_size: Any = None,
    scale_factors: Any = None, scales: float | None = None, scales_d: float | None = None,
    scales_h: float | None = None, scales_w: float | None = None,
) -> Expr:
    x = self if self is not None else input
    assert x is not None
    given = scale_factors or [s for s in (scales, scales_d, scales_h, scales_w) if s is not None]
    mode = "bicubic" if "bicubic" in node.name else "linear"
    return _resized(x, output_size, given, mode, align_corners, node)


def _triangle(x: Array) -> Array:
    return np.maximum(0.0, 1.0 - np.abs(x))


def _cubic(x: Array, a: float = -0.5) -> Array:
    d = np.abs(x)
    return np.where(d < 1, ((a + 2) * d - (a + 3)) * d * d + 1, np.where(d < 2, ((a * d - 5 * a) * d + 8 * a) * d - 4
        * a, 0.0))


def _lanczos(x: Array) -> Array:
    """The Lanczos kernel with three lobes."""
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0.0)


_KERNELS: Final[dict[str, tuple[Callable[[Array], Array], int]]] = {"bilinear": (_triangle, 1), "bicubic": (_cubic, 2),
    "lanczos": (_lanczos, 3)}
"""Antialiasing kernels and their radius, by a part of the operator's name."""


def _step(old: int, new: int, factor: float | None, align_corners: bool) -> float:
    """The distance in the image between neighbouring elements of the result."""
    if align_corners:
        return (old - 1) / (new - 1) if new > 1 else 0.0
    return 1 / factor if factor else old / new


def _sampling(old: int, new: int, factor: float | None, align_corners: bool, mode: str) -> Array:
    """Weights (new, old) of linear or cubic interpolation along one axis; elements outside take the edge's value."""
    step, reach = _step(old, new, factor, align_corners), 2 if mode == "bicubic" else 1
    weights = np.zeros((new, old))
    for k in range(new):
        place = step * k if align_corners else step * (k + 0.5) - 0.5
        place = place if mode == "bicubic" else max(place, 0.0)
        first = min(int(np.floor(place)), old - 1)
        share = min(max(place - first, 0.0), 1.0)
        for tap in range(1 - reach, reach + 1):
            distance = np.asarray(tap - share)
            weights[k, min(max(first + tap, 0), old - 1)] += _cubic(distance,
                _CUBIC) if mode == "bicubic" else _triangle(distance)
    return weights


def _of_bytes(x: Expr, weights: Sequence[Array]) -> Expr:
    """Resize an image of bytes by weights along rows, then columns, like torch's kernels.

    Both passes use fixed-point weights with as many fractional bits as fit 16 bits, and round to bytes.
    """
    down, across = weights
    found = _rounded_to_bytes(x, across, lambda v, w: product(v, transpose(w, (1, 0))))
    return _rounded_to_bytes(found, down, lambda v, w: product(w, v))


def _rounded_to_bytes(x: Expr, weights: Array, times: Callable[[Expr, Expr], Expr]) -> Expr:
    if weights.shape[0] == weights.shape[1] and (weights == np.eye(len(weights))).all():
        return x
    bits = next((b for b in range(22) if int(0.5 + weights.max() * (1 << (b + 1))) >= 1 << 15), 22)
    whole = np.trunc(weights * (1 << bits) + np.where(weights < 0, -0.5, 0.5)).astype(np.int32)
    half, shift = (Constant(np.asarray(n, np.int32)) for n in (1 << (bits - 1), bits))
    return cast(op.clip(op.right_shift(op.add(times(cast(x, "int32"), Constant(whole)), half), shift), a_min=0,
                        a_max=255), "uint8")


def _averaging(old: int, new: int, factor: float | None, align_corners: bool, kernel: Callable[[Array], Array],
               reach: int) -> Array:
    """Weights (new, old) of a resize along one axis whose kernel widens with the reduction."""
    step = _step(old, new, factor, align_corners)
    support, shrink = reach * max(step, 1.0), 1 / max(step, 1.0)
    weights = np.zeros((new, old))
    for k in range(new):
        centre = step * (k + 0.5)
        first, end = max(int(centre - support + 0.5), 0), min(int(centre + support + 0.5), old)
        weights[k, first:end] = kernel((np.arange(first, end) - centre + 0.5) * shrink)
        weights[k] /= weights[k].sum() or 1.0
    return weights


@converter("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "_upsample_lanczos2d_aa")
def upsample_averaging(
    node: Node, align_corners: bool, self: Expr | None = None, input: Expr | None = None, output_size: Any = None,
    scale_factors: Any = None, scales_h: float | None = None, scales_w: float | None = None,
) -> Expr:
    """Antialiased resize, as products with two constant matrices: along the rows, and along the columns."""
    x = self if self is not None else input
    assert x is not None
    sizes, factors = _sizes(x, output_size, list(scale_factors or (scales_h, scales_w)), node)
    kernel, reach = next(found for name, found in _KERNELS.items() if name in node.name)
    weights = [
        _averaging(old, new, None if factors is None else factors[k], bool(align_corners), kernel, reach)
        for k, (old, new) in enumerate(zip(shape_of(x)[2:], sizes, strict=True))]
    if dtype_of(x) == "uint8":
        return _of_bytes(x, weights)
    down, across = (Constant(w.astype(dtype_of(x).numpy())) for w in weights)
    return product(down, product(x, transpose(across, (1, 0))))


_MODES: Final = ("bilinear", "nearest", "bicubic")
_PADDINGS: Final = ("zeros", "border", "reflection")


@converter("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(input: Expr, grid: Expr, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Expr:
    n = len(shape_of(input)) - 2
    turned = transpose(grid, (0, n + 1, *range(1, n + 1)))
    return op.image.grid_sample(
        input, turned, method=_MODES[interpolation_mode], layout="NCHW" if n == 2 else "NCDHW",
        padding_mode=_PADDINGS[padding_mode], align_corners=bool(align_corners))


@converter("affine_grid_generator")
def affine_grid(theta: Expr, size: Any, align_corners: bool, node: Node) -> Expr:
    if len(size) != 4:
        node.refuse("it makes a grid in three dimensions; only two are supported")
    grid = op.image.affine_grid(theta, target_shape=tuple(size[2:]), align_corners=bool(align_corners))
    return transpose(grid, (0, 2, 3, 1))
