"""Resize and Upsample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final

import numpy as np

from tilewright.base.limits import MOST_BYTES
from tilewright.relay.expr import Expr
from tilewright.relay.frontend.onnx.antialias import resize_antialiased, scaled_size
from tilewright.relay.frontend.onnx.node import Node
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import axis_of, reshape, same_size, transpose
from tilewright.relay.types_of import rank, shape_of
from tilewright.scalar.arith.open_sizes import takes_open

_RESIZE: Final = {1: (op.image.resize1d, "NCW"), 2: (op.image.resize2d, "NCHW"), 3: (op.image.resize3d, "NCDHW")}
_METHODS: Final = {"nearest": "nearest_neighbor", "linear": "linear", "cubic": "cubic", "bilinear": "linear",
                   "trilinear": "linear"}
_ROUNDING: Final = {"round_prefer_floor": "round_prefer_floor", "round_prefer_ceil": "round_prefer_ceil",
                    "floor": "floor", "ceil": "ceil"}


@converter("Upsample", since=1)
def upsample_first(x: Expr, *, height_scale: float, width_scale: float, mode: str = "nearest", node: Node) -> Expr:
    return _resize(x, (1, 1, height_scale, width_scale), None, mode, "asymmetric", "floor", node)


@converter("Upsample", since=7)
def upsample_by_attribute(x: Expr, *, mode: str = "nearest", scales: tuple[float, ...], node: Node) -> Expr:
    return _resize(x, scales, None, mode, "asymmetric", "floor", node)


@converter("Upsample", since=9)
@converter("Resize", since=10)
def upsample(x: Expr, scales: Expr, *, mode: str = "nearest", node: Node) -> Expr:
    return _resize(x, node.value(scales, "scales").tolist(), None, mode, "asymmetric", "floor", node)


@converter("Resize", since=11)
def resize(
    x: Expr, roi: Expr | None = None, scales: Expr | None = None, sizes: Expr | None = None, *,
    coordinate_transformation_mode: str = "half_pixel", cubic_coeff_a: float = -0.75, exclude_outside: int = 0,
    extrapolation_value: float = 0.0, mode: str = "nearest", nearest_mode: str = "round_prefer_floor",
    antialias: int = 0, axes: tuple[int, ...] | None = None, keep_aspect_ratio_policy: str = "stretch", node: Node,
) -> Expr:
    ndim = rank(x)
    places = [axis_of(a, ndim, node) for a in axes] if axes is not None else list(range(ndim))
    factors = [] if scales is None else [float(s) for s in node.value(scales, "scales").flat]
    wanted = [] if sizes is None else list(node.dims(sizes, "sizes").flat)
    if not factors and not wanted:
        node.refuse("neither scales nor sizes are given; give one of them")
    _check_lengths(factors, wanted, len(places), node)
    region = [] if roi is None else [float(r) for r in node.value(roi, "roi").flat]
    if coordinate_transformation_mode == "tf_crop_and_resize" and (len(region) != 2 * len(places)
        or not all(map(math.isfinite, region))):
        node.refuse(f"roi is {region}; it must be {2 * len(places)} numbers: the starts of {len(places)} axes, then "
                    "their ends")
    if wanted and keep_aspect_ratio_policy != "stretch":
        wanted, factors = _kept_aspect(node.static(x, "X"), wanted, places, keep_aspect_ratio_policy, node)
    full_scales = _on_all_axes(factors, places, ndim, 1.0) if factors else None
    full_sizes = _on_all_axes(wanted, places, ndim, None) if wanted else None
    if full_sizes is not None:
        full_sizes = [s if s is not None else shape_of(x)[k] for k, s in enumerate(full_sizes)]
    if antialias and mode != "nearest":
        return resize_antialiased(x, full_scales, full_sizes, mode, coordinate_transformation_mode, cubic_coeff_a,
                                  bool(exclude_outside), node)
    box = _region(region, places, ndim) if coordinate_transformation_mode == "tf_crop_and_resize" else None
    return _resize(x, full_scales, full_sizes, mode, coordinate_transformation_mode, nearest_mode, node,
                   cubic_alpha=cubic_coeff_a, cubic_exclude=bool(exclude_outside),
                   extrapolation_value=extrapolation_value, region=box)


def _check_lengths(factors: Sequence[float], sizes: Sequence[Any], axes: int, node: Node) -> None:
    """Refuse scales and sizes that do not match the axes, or are out of range."""
    for values, what in ((factors, "scales"), (sizes, "sizes")):
        if values and len(values) != axes:
            node.refuse(f"{len(values)} {what} are given for {axes} axes")
    if not all(0 < s <= MOST_BYTES for s in factors):
        node.refuse(f"the scales are {list(factors)}; each must be a number greater than 0")
    if not all(0 <= s <= MOST_BYTES for s in sizes if isinstance(s, (int, np.integer))):
        node.refuse(f"the sizes are {list(sizes)}; sizes must not be negative")


def _on_all_axes(values: Sequence[Any], places: Sequence[int], ndim: int, default: Any) -> list[Any]:
    full = [default] * ndim
    for place, value in zip(places, values, strict=True):
        full[place] = value
    return full


def _region(region: Sequence[float], places: Sequence[int], ndim: int) -> list[float]:
    starts, ends = [0.0] * ndim, [1.0] * ndim
    half = len(region) // 2
    for k, place in enumerate(places):
        starts[place], ends[place] = region[k], region[k + half]
    return starts + ends


def _kept_aspect(dims: Sequence[int], sizes: Sequence[int], places: Sequence[int], policy: str,
                 node: Node) -> tuple[list[int], list[float]]:
    """The sizes that keep the proportions of X, and the common scale of the axes, which the coordinates depend on."""
    if policy not in ("not_larger", "not_smaller"):
        node.refuse(f"keep_aspect_ratio_policy is {policy!r}; it must be stretch, not_larger or not_smaller")
    if not all(dims[p] for p in places):
        node.refuse(f"keep_aspect_ratio_policy is {policy!r}, but X has the shape {tuple(dims)}; each size must be 1 "
                    "or more")
    ratios = [s / dims[p] for s, p in zip(sizes, places, strict=True)]
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    return [math.floor(scale * dims[p] + 0.5) for p in places], [scale] * len(places)


def _resize(
    x: Expr, scales: Sequence[float] | None, sizes: Sequence[Any] | None, mode: str, transformation: str, rounding: str,
    node: Node, cubic_alpha: float = -0.75, cubic_exclude: bool = False, extrapolation_value: float = 0.0,
    region: Sequence[float] | None = None,
) -> Expr:
    dims = shape_of(x)
    if mode not in _METHODS:
        node.refuse(f"mode is {mode!r}; it must be nearest, linear or cubic")
    if sizes is None:
        if len(scales or ()) != len(dims):
            node.refuse(f"{len(scales or ())} scales are given for {len(dims)} dimensions; give one for each")
        _check_lengths(scales or (), (), len(dims), node)
        sizes = [_scaled(d, s) for d, s in zip(dims, scales or (), strict=True)]
    sizes = [int(s) if isinstance(s, np.integer) else s for s in sizes]
    moved = [k for k, (a, b) in enumerate(zip(dims, sizes, strict=True)) if not same_size(a, b)]
    if scales is not None:
        moved = [k for k in range(len(dims)) if k in moved or scales[k] != 1]
    if region is not None:
        moved = [k for k in range(len(dims)) if k in moved or (region[k], region[k + len(dims)]) != (0.0, 1.0)]
    if not moved:
        return x
    if not takes_open() and not all(isinstance(dims[k], int) and isinstance(sizes[k], int) for k in moved):
        factors = [scales[k] if scales is not None else 0.0 for k in moved]
        if mode == "nearest" and transformation == "asymmetric" and rounding == "floor" and all(f >= 1 and f == int(f)
            for f in factors):
            for k, factor in zip(moved, factors, strict=True):
                x = op.repeat(x, repeats=int(factor), axis=k)
            return x
        node.static(x, "X")
    return _resize_axes(x, moved, sizes, mode, transformation, rounding, node, cubic_alpha, cubic_exclude,
                        extrapolation_value, region, scales)


def _scaled(size: Any, scale: float) -> Any:
    if isinstance(size, int):
        return scaled_size(size, scale)
    whole = round(scale)
    if whole == scale and whole > 0:
        return size * whole
    inverse = round(1 / scale) if scale else 0
    if inverse and 1 / inverse == scale:
        return size // inverse
    exact = Fraction(scale).limit_denominator(1 << 14)
    return size * exact.numerator // exact.denominator if takes_open() else size * scale


def _resize_axes(
    x: Expr, moved: Sequence[int], sizes: Sequence[Any], mode: str, transformation: str, rounding: str, node: Node,
    cubic_alpha: float, cubic_exclude: bool, extrapolation_value: float, region: Sequence[float] | None,
    scales: Sequence[float] | None,
) -> Expr:
    """Resize some axes as the spatial axes of an image; all other axes become batch and channels."""
    dims = shape_of(x)
    ndim = len(dims)
    spatial = list(range(2, ndim)) if min(moved) >= 2 and ndim <= 5 else list(moved)
    others = [k for k in range(ndim) if k not in spatial]
    if len(spatial) not in _RESIZE:
        node.refuse(f"resizing {len(spatial)} dimensions at once is not supported; resize 1 to 3")
    order = [*others, *spatial]
    build, layout = _RESIZE[len(spatial)]
    data = transpose(x, order)
    lead = [dims[k] for k in others]
    if len(lead) != 2:
        batch_and_channels = ([1, 1, *lead])[-2:] if len(lead) < 2 else [-1, lead[-1]]
        data = reshape(data, (*batch_and_channels, *[dims[k] for k in spatial]))
    box = None if region is None else (*[region[k] for k in spatial], *[region[k + ndim] for k in spatial])
    result: Expr = build(
        data, size=tuple(sizes[k] for k in spatial), roi=box, layout=layout, method=_METHODS[mode],
        coordinate_transformation_mode=transformation, rounding_method=_ROUNDING.get(rounding, rounding),
        cubic_alpha=cubic_alpha, cubic_exclude=cubic_exclude, extrapolation_value=extrapolation_value,
        scales=None if scales is None else tuple(scales[k] for k in spatial))
    if len(lead) != 2:
        result = reshape(result, (*lead, *[sizes[k] for k in spatial]))
    return transpose(result, [order.index(k) for k in range(ndim)])


