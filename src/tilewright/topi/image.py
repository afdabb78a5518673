"""Computations on images: resampling to other sizes, at grid points, and of crops; dilation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te
from tilewright.topi.resize import line_of, resize
from tilewright.topi.sampling import affine_grid, crop_and_resize, grid_sample
from tilewright.topi.sampling import dilation2d as _dilation2d

__all__ = [
    "affine_grid", "crop_and_resize", "dilation2d_nchw", "dilation2d_nhwc", "grid_sample", "resize1d", "resize2d",
    "resize3d"
]


def _resized(
    data: te.Tensor, roi: Sequence[float] | None, size: Sequence[int], layout: str, method: str,
    coordinate_transformation_mode: str, rounding_method: str, cubic: tuple[float, bool], extrapolation_value: float,
    out_dtype: str | None,
) -> te.Tensor:
    spatial = [layout.index(letter) for letter in "DHW" if letter in layout]
    n, crops = len(spatial), coordinate_transformation_mode == "tf_crop_and_resize"
    spans = list(zip(roi[:n], roi[n:], strict=True)) if crops and roi else [None] * n
    lines = [
        line_of(coordinate_transformation_mode, data.extents[d], s, None, span) for d, s,
        span in zip(spatial, size, spans, strict=True)
    ]
    rounding = rounding_method or ("round" if coordinate_transformation_mode == "align_corners" else "floor")
    return resize(
        data, spatial, size, lines, method, rounding, cubic, extrapolation_value if crops else None,
        out_dtype or data.dtype
    )


def resize1d(
    data: te.Tensor, roi: Sequence[float] | None, size: Sequence[int], layout: str = "NCW", method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel", rounding_method: str = "", bicubic_alpha: float = -0.5,
    bicubic_exclude: int = 0, extrapolation_value: float = 0.0, out_dtype: str | None = None,
) -> te.Tensor:
    """Return rows of `data` resampled to `size`; see the operator image.resize1d."""
    cubic = bicubic_alpha, bool(bicubic_exclude)
    return _resized(
        data, roi, size, layout, method, coordinate_transformation_mode, rounding_method, cubic, extrapolation_value,
        out_dtype
    )


def resize2d(
    data: te.Tensor, roi: Sequence[float] | None, size: Sequence[int], layout: str = "NCHW", method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel", rounding_method: str = "", bicubic_alpha: float = -0.5,
    bicubic_exclude: int = 0, extrapolation_value: float = 0.0, out_dtype: str | None = None,
) -> te.Tensor:
    """Return images of `data` resampled to `size`; see the operator image.resize2d."""
    cubic = bicubic_alpha, bool(bicubic_exclude)
    return _resized(
        data, roi, size, layout, method, coordinate_transformation_mode, rounding_method, cubic, extrapolation_value,
        out_dtype
    )


def resize3d(
    data: te.Tensor, roi: Sequence[float] | None, size: Sequence[int], layout: str = "NCDHW", method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel", rounding_method: str = "", bicubic_alpha: float = -0.5,
    bicubic_exclude: int = 0, extrapolation_value: float = 0.0, out_dtype: str | None = None,
) -> te.Tensor:
    """Return volumes of `data` resampled to `size`; see the operator image.resize3d."""
    cubic = bicubic_alpha, bool(bicubic_exclude)
    return _resized(
        data, roi, size, layout, method, coordinate_transformation_mode, rounding_method, cubic, extrapolation_value,
        out_dtype
    )


def dilation2d_nchw(
    input: te.Tensor, filter: te.Tensor, stride: Any, padding: Any, dilations: Any, out_dtype: str | None = None,
) -> te.Tensor:
    """Return the maximum of input (batch, channels, height, width) + filter (channels, height, width) in each window.
    """
    return _dilated(input, filter, ((0, 1, 2, 3), (0, 1, 2)), stride, padding, dilations, out_dtype)


def dilation2d_nhwc(
    input: te.Tensor, filter: te.Tensor, stride: Any, padding: Any, dilations: Any, out_dtype: str | None = None,
) -> te.Tensor:
    """Return the maximum of input (batch, height, width, channels) + filter (height, width, channels) in each window.
    """
    return _dilated(input, filter, ((0, 3, 1, 2), (2, 0, 1)), stride, padding, dilations, out_dtype)


def _dilated(
    x: te.Tensor, w: te.Tensor, axes: Any, stride: Any, padding: Any, dilations: Any, out_dtype: str | None
) -> te.Tensor:
    strides, spread = (tuple(v) if isinstance(v, Sequence) else (v, v) for v in (stride, dilations))
    pads = tuple(padding) if isinstance(padding, Sequence) else (padding,) * 4
    pads = pads * 2 if len(pads) == 2 else pads
    shape = list(x.extents)
    for d, (axis, of_weight) in enumerate(zip(axes[0][2:], axes[1][1:], strict=True)):
        span = x.extents[axis] + pads[d] + pads[d + 2] - (w.extents[of_weight] - 1) * spread[d]
        shape[axis] = (span - 1) // strides[d] + 1
    return _dilation2d(x, w, axes, shape, strides, pads, spread, out_dtype or x.dtype)
