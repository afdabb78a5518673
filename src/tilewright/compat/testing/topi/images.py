"""Operators on images in numpy: pools, resizes, samples and regions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.base.array_bytes import Array
from tilewright.compat.testing.topi.reference import pair, reference
from tilewright.relay.op import image, nn, vision
from tilewright.topi.vision.rois import mode_of

Sizes = int | tuple[int, ...]
_LAYOUTS = {3: "NCW", 4: "NCHW", 5: "NCDHW"}


def poolnd_python(
    np_data: Array, kernel: Sizes, strides: Sizes, dilation: Sizes, padding_before: Sequence[int],
    padding_after: Sequence[int], pool_type: str, count_include_pad: bool = True, ceil_mode: bool = False,
    dtype: str = "float32", layout: str | None = None,
) -> Array:
    """Return the "max" or "avg" of windows of 1 to 3 spatial axes."""
    layout = layout or _LAYOUTS[np_data.ndim]
    count = np_data.ndim - 2
    function = getattr(nn, f"{pool_type}_pool{count}d")
    more = {"count_include_pad": count_include_pad} if pool_type == "avg" else {}
    found: Array = reference(
        lambda x: function(
            x, pool_size=pair(kernel, count), strides=pair(strides, count), dilation=pair(dilation, count),
            padding=(*padding_before, *padding_after), layout=layout, ceil_mode=ceil_mode, **more),
        np_data)
    return found.astype(dtype)


def pool_grad_nchw(
    a_np: Array, out_grad_np: Array, pool_size: Sizes, strides: Sizes, padding: Sequence[int], pool_type: str,
    ceil_mode: bool, count_include_pad: bool = True,
) -> Array:
    """Return the gradient of the data of a pool ("max" or "avg"), for the gradient of its result."""
    function = getattr(nn, f"{pool_type}_pool2d_grad")
    more = {"count_include_pad": count_include_pad} if pool_type == "avg" else {}
    found: Array = reference(
        lambda g, x: function(g, x, pool_size=pair(pool_size), strides=pair(strides), padding=tuple(padding),
                              ceil_mode=ceil_mode, **more),
        out_grad_np.astype(a_np.dtype), a_np)
    return found


def adaptive_pool(np_data: Array, out_size: Sizes, pool_type: str, layout: str) -> Array:
    """Return the "max" or "avg" of windows that give `out_size` outputs for each spatial axis."""
    count = np_data.ndim - 2
    function = getattr(nn, f"adaptive_{pool_type}_pool{count}d")
    found: Array = reference(lambda x: function(x, output_size=pair(out_size, count), layout=layout), np_data)
    return found


def _resize(
    count: int, data: Array, scale: float | Sequence[float], layout: str, method: str, transformation: str
) -> Array:
    plain = re.sub(r"\d+[a-z]", "", layout)
    if plain != layout:  # blocks of batch and channels, after the other axes
        moved = np.moveaxis(data, range(2, 2 + count), range(-count, 0))
        flat = _resize(count, moved.reshape(1, -1, *moved.shape[-count:]), scale, plain, method, transformation)
        found: Array = flat.reshape(*moved.shape[:-count], *flat.shape[2:])
        return np.moveaxis(found, range(-count, 0), range(2, 2 + count))
    axes = [layout.index(axis) for axis in layout if axis not in "NC"]
    scales = [scale] * count if isinstance(scale, (int, float)) else list(scale)
    size = tuple(int(data.shape[a] * s + 0.5) for a, s in zip(axes, scales, strict=True))
    rounding = "round" if method == "nearest_neighbor" and transformation == "align_corners" else ""
    function = getattr(image, f"resize{count}d")
    resized: Array = reference(
        lambda x: function(
            x, size=size, layout=layout, method=method, coordinate_transformation_mode=transformation,
            rounding_method=rounding),
        data)
    return resized


def resize1d_python(
    data: Array, scale: float | Sequence[float], layout: str = "NCW", method: str = "nearest_neighbor",
    coordinate_transformation_mode: str = "align_corners",
) -> Array:
    """Return data with its width times `scale`."""
    return _resize(1, data, scale, layout, method, coordinate_transformation_mode)


def resize2d_python(
    data: Array, scale: float | Sequence[float], layout: str = "NCHW", method: str = "nearest_neighbor",
    coordinate_transformation_mode: str = "align_corners",
) -> Array:
    """Return images with height and width times `scale`."""
    return _resize(2, data, scale, layout, method, coordinate_transformation_mode)


def resize3d_python(
    data: Array, scale: float | Sequence[float], layout: str = "NCDHW", method: str = "nearest_neighbor",
    coordinate_transformation_mode: str = "align_corners",
) -> Array:
    """Return volumes with depth, height and width times `scale`."""
    return _resize(3, data, scale, layout, method, coordinate_transformation_mode)


def crop_and_resize_python(
    image: Array, boxes: Array, box_indices: Array, crop_size: tuple[int, int], layout: str,
    method: str = "bilinear", extrapolation_value: float = 0,
) -> Array:
    """Return the boxes of images, each resized to `crop_size`."""
    from tilewright.relay.op.image import crop_and_resize

    found: Array = reference(
        lambda x, b, i: crop_and_resize(
            x, b, i, crop_size=tuple(crop_size), layout=layout, method=method, extrapolation_value=extrapolation_value),
        image, boxes, np.asarray(box_indices, np.int32))
    return found


def affine_grid_python(data: Array, target_shape: tuple[int, int]) -> Array:
    """Return the sampling grid of affine transforms."""
    found: Array = reference(lambda x: image.affine_grid(x, target_shape=tuple(target_shape)), data)
    return found


def grid_sample_python(
    data: Array, grid: Array, method: str = "bilinear", layout: str = "NCHW", padding_mode: str = "zeros",
    align_corners: bool = True,
) -> Array:
    """Return images or volumes at the points of a grid."""
    found: Array = reference(
        lambda x, g: image.grid_sample(
            x, g, method=method, layout=layout, padding_mode=padding_mode, align_corners=align_corners),
        data, grid)
    return found


def grid_sample_nchw_python(data: Array, grid: Array, method: str = "bilinear") -> Array:
    """Return NCHW images at the points of a grid, by the name of TVM v0.8."""
    return grid_sample_python(data, grid, method)


def reorg_python(a_np: Array, stride: int) -> Array:
    """Return YOLO's reordering of blocks of `stride` x `stride` pixels to channels."""
    found: Array = reference(lambda x: vision.yolo_reorg(x, stride=stride), a_np)
    return found


def _roi_align(layout: str, data: Array, rois: Array, size: Sizes, scale: float, ratio: int, mode: Any) -> Array:
    found: Array = reference(
        lambda x, r: vision.roi_align(
            x, r, pooled_size=pair(size), spatial_scale=scale, sample_ratio=ratio, layout=layout, mode=mode_of(mode)),
        data, rois)
    return found


def roi_align_nchw_python(
    a_np: Array, rois_np: Array, pooled_size: Sizes, spatial_scale: float, sample_ratio: int, mode: Any = b"avg"
) -> Array:
    """Return regions of NCHW images, sampled at interpolated points."""
    return _roi_align("NCHW", a_np, rois_np, pooled_size, spatial_scale, sample_ratio, mode)


def roi_align_nhwc_python(
    a_np: Array, rois_np: Array, pooled_size: Sizes, spatial_scale: float, sample_ratio: int, mode: Any = b"avg"
) -> Array:
    """Return regions of NHWC images, sampled at interpolated points."""
    return _roi_align("NHWC", a_np, rois_np, pooled_size, spatial_scale, sample_ratio, mode)


def roi_pool_nchw_python(a_np: Array, rois_np: Array, pooled_size: Sizes, spatial_scale: float) -> Array:
    """Return the maxima of the cells of regions of NCHW images."""
    found: Array = reference(
        lambda x, r: vision.roi_pool(x, r, pooled_size=pair(pooled_size), spatial_scale=spatial_scale), a_np, rois_np)
    return found
