"""Resizing and sampling of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tilewright.relay.expr import Expr
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.pytorch.node import Node
from tilewright.relay.frontend.pytorch.registry import converter
from tilewright.relay.frontend.pytorch.transform import dims_of
from tilewright.relay.frontend.shaping import shape_of, transpose

_RESIZE: Final = {1: (op.image.resize1d, "NCW"), 2: (op.image.resize2d, "NCHW"), 3: (op.image.resize3d, "NCDHW")}
_METHODS: Final = {"nearest": "nearest_neighbor", "linear": "linear", "bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}
_CUBIC: Final = -0.75


def _sizes(x: Expr, output_size: Any, scales: Sequence[float | None], node: Node) -> tuple[list[int], list[float] | None]:
    """The new sizes, and the factors where those decide: torch maps places by them and not by the sizes."""
    old = node.static(x, "input")[2:]
    if output_size is not None:
        wanted = [int(d) for d in dims_of(output_size, node)]
    else:
        wanted = [int(d * s) for d, s in zip(old, scales, strict=True) if s is not None]
    known = [s for s in scales if s]
    return wanted, [float(s) for s in known] if len(known) == len(wanted) else None


def _resized(x: Expr, output_size: Any, scales: Any, mode: str, align_corners: bool | None, node: Node, exact: bool = False) -> Expr:
    sizes, factors = _sizes(x, output_size, list(scales or ()), node)
    build, layout = _RESIZE[len(sizes)]
    if mode == "nearest":
        where, rounding = ("half_pixel", "round_prefer_ceil") if exact else ("asymmetric", "floor")
    else:
        where, rounding = ("align_corners" if align_corners else "half_pixel"), ""
    if list(shape_of(x)[2:]) == sizes and (factors is None or all(f == 1 for f in factors)):
        return x
    return build(x, size=tuple(sizes), layout=layout, method=_METHODS[mode], coordinate_transformation_mode=where, rounding_method=rounding, cubic_alpha=_CUBIC,
                 scales=None if factors is None else tuple(factors))


@converter("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d")
def upsample_nearest(
    node: Node, self: Expr | None = None, input: Expr | None = None, output_size: Any = None, scale_factors: Any = None, scales: float | None = None,
    scales_d: float | None = None, scales_h: float | None = None, scales_w: float | None = None,
) -> Expr:
    x = self if self is not None else input
    assert x is not None
    given = scale_factors or [s for s in (scales, scales_d, scales_h, scales_w) if s is not None]
    return _resized(x, output_size, given, "nearest", None, node, "exact" in node.name)


@converter("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d")
def upsample_smooth(
    node: Node, align_corners: bool, self: Expr | None = None, input: Expr | None = None, output_size: Any = None, scale_factors: Any = None,
    scales: float | None = None, scales_d: float | None = None, scales_h: float | None = None, scales_w: float | None = None,
) -> Expr:
    x = self if self is not None else input
    assert x is not None
    given = scale_factors or [s for s in (scales, scales_d, scales_h, scales_w) if s is not None]
    mode = "bicubic" if "bicubic" in node.name else "linear"
    return _resized(x, output_size, given, mode, align_corners, node)


_MODES: Final = ("bilinear", "nearest", "bicubic")
_PADDINGS: Final = ("zeros", "border", "reflection")


@converter("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(input: Expr, grid: Expr, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Expr:
    n = len(shape_of(input)) - 2
    turned = transpose(grid, (0, n + 1, *range(1, n + 1)))
    return op.image.grid_sample(
        input, turned, method=_MODES[interpolation_mode], layout="NCHW" if n == 2 else "NCDHW", padding_mode=_PADDINGS[padding_mode], align_corners=bool(align_corners))


@converter("affine_grid_generator")
def affine_grid(theta: Expr, size: Any, align_corners: bool, node: Node) -> Expr:
    if len(size) != 4:
        node.refuse("it makes a grid in three dimensions, and two are supported")
    grid = op.image.affine_grid(theta, target_shape=tuple(size[2:]), align_corners=bool(align_corners))
    return transpose(grid, (0, 2, 3, 1))
