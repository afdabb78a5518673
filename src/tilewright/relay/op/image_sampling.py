"""Operators that sample images at computed points, and morphological dilation."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import DataType, TensorType, Type
from tilewright.relay.op.nn_conv import ordered
from tilewright.relay.op.registry import Array, Fusion, Op, op, tensors
from tilewright.topi import sampling as topi
from tilewright.topi.layouts import axes_between, data_axes
from tilewright.topi.shapes import differ, inverse, is_too_small, require_rank, require_same_dtype, text
from tilewright.topi.windows import both_sides, per_dimension

Taps = list[tuple[Any, Any]]
"""Indices (-1 for a zero element) and weights along one dimension."""


def _weighted(read: Callable[..., Array], taps: Sequence[Taps]) -> Any:
    """The sum of `read` over all combinations of taps, multiplied by their weights."""
    total: Any = 0
    for chosen in itertools.product(*taps):
        outside = np.any(np.broadcast_arrays(*(i < 0 for i, _ in chosen)), axis=0)
        weight: Any = 1
        for _, w in chosen:
            weight = weight * w
        total = total + np.where(outside, 0, read(*(np.maximum(i, 0) for i, _ in chosen)) * weight)
    return total


@op("image.grid_sample", kind=Fusion.OPAQUE)
class GridSample(Op):
    """`data` (batch, channels, [depth,] height, width) sampled at the points of `grid` (batch, 2 or 3 coordinates, …).

    Coordinates are in [-1, 1], x first (ONNX GridSample).
    """

    method: str = "bilinear"
    """Interpolation: "nearest", "bilinear" or, for images, "bicubic"."""
    layout: str = "NCHW"
    """Order of the dimensions: "NCHW", or "NCDHW" for volumes."""
    padding_mode: str = "zeros"
    """Values outside of the image: "zeros", "border" or "reflection"."""
    align_corners: bool = True
    """True puts -1 and 1 at the centres of the outer pixels, False at their outer edges."""

    def infer(self, data: Type, grid: Type) -> TensorType:
        """(batch, channels, *spatial shape of the grid); the dtype of the data. The grid is floating-point."""
        t, points = tensors(data, grid)
        n = t.ndim - 2
        if (n not in (2, 3) or points.ndim != t.ndim or differ(points.shape[1], n)
                or differ(points.shape[0], t.shape[0])):
            raise ShapeError(f"data {text(t.shape)} must have 4 or 5 dimensions; the grid {text(points.shape)} must "
                             "have the same rank and batch size, and a second dimension of 2 or 3")
        methods = ("nearest", "bilinear", "bicubic")[: 5 - n]
        if self.method not in methods:
            raise ShapeError(f"method '{self.method}' is not supported for {n} dimensions; it must be "
                             f"{' or '.join(methods)}")
        if self.padding_mode not in ("zeros", "border", "reflection"):
            raise ShapeError(f"padding_mode '{self.padding_mode}' is not supported; it must be zeros, border or "
                             "reflection")
        if self.layout != ("NCHW", "NCDHW")[n - 2]:
            raise ShapeError(f"layout '{self.layout}' is not supported; for {n} dimensions it must be "
                             f"{('NCHW', 'NCDHW')[n - 2]}")
        if not points.dtype.is_float:
            raise ShapeError(f"the grid is {points.dtype}; it must have a floating-point type")
        return TensorType((*t.shape[:2], *points.shape[2:]), t.dtype)

    def reference(self, data: Array, grid: Array) -> Array:
        wide = topi.wider_float(DataType(data.dtype), DataType(grid.dtype)).numpy()
        grid, kind = grid.astype(wide), wide.type
        result = np.empty((*data.shape[:2], *grid.shape[2:]), data.dtype)
        for image, points, out in zip(data, grid, result, strict=True):
            taps = []
            for size, x in zip(image.shape[1:], points[::-1], strict=True):
                taps.append(self._taps((x + kind(1)) * kind((size - 1) / 2) if self.align_corners
                                       else (x + kind(1)) * kind(size / 2) - kind(0.5), size))
            out[...] = _weighted(lambda *i, image=image: image[(slice(None), *i)], taps)
        return result

    def _taps(self, x: Array, size: int) -> Taps:
        low = np.floor(x)
        if self.method == "bicubic":
            t, a = x - low, x.dtype.type(-0.75)
            distances = np.abs(np.stack([t + 1, t, 1 - t, 2 - t]))
            weights = np.where(distances <= 1, ((a + 2) * distances - (a + 3)) * distances**2 + 1,
                               ((a * distances - 5 * a) * distances + 8 * a) * distances - 4 * a)
            return [(self._index(low + k - 1, size), w) for k, w in enumerate(weights)]
        x = x if self.padding_mode == "zeros" else self._inside(x, size)
        if self.method == "nearest":
            return [(self._index(np.rint(x), size), 1)]
        low = np.floor(x)
        return [(self._index(low, size), 1 - (x - low)), (self._index(low + 1, size), x - low)]

    def _inside(self, x: Array, size: int) -> Array:
        if self.padding_mode == "reflection":
            start, span = (0, size - 1) if self.align_corners else (-0.5, size)
            turns, rest = np.divmod(np.abs(x - start), span) if span else (np.zeros_like(x), np.zeros_like(x))
            x = np.where(turns % 2 == 0, rest, span - rest) + x.dtype.type(start)
        return np.clip(x, 0, size - 1)

    def _index(self, place: Array, size: int) -> Array:
        """Pixel coordinates as indices; -1 for zero padding."""
        if self.padding_mode == "zeros":
            return np.where((place >= 0) & (place < size), place, -1).astype(int)
        return self._inside(place, size).astype(int)

    def compute(self, data: te.Tensor, grid: te.Tensor) -> te.Tensor:
        return topi.grid_sample(data, grid, **self.attributes())


@op("image.affine_grid", kind=Fusion.OPAQUE)
class AffineGrid(Op):
    """The points (batch, n, …), x first, of a regular grid over [-1, 1], transformed by matrices (batch, n, n + 1).

    Source: Jaderberg et al., Spatial Transformer Networks, 2015; ONNX AffineGrid.
    """

    target_shape: tuple[int, ...]
    """Spatial shape of the grid, 2 or 3 sizes."""
    align_corners: bool = True
    """True puts the outer points at -1 and 1, False at the centres of the outer cells."""

    def infer(self, data: Type) -> TensorType:
        """(batch, n, *target_shape) from (batch, n, n + 1), n being 2 or 3; the dtype of the data."""
        t, n = require_rank(tensors(data)[0], 3, "data"), len(self.target_shape)
        if n not in (2, 3) or any(map(differ, t.shape[1:], (n, n + 1))):
            raise ShapeError(f"the matrices {text(t.shape[1:])} must be (2, 3) for a target of 2 dimensions, or (3, 4) "
                             f"for 3; the target is {text(self.target_shape)}")
        return TensorType((t.shape[0], n, *self.target_shape), t.dtype)

    def reference(self, data: Array) -> Array:
        lines = []
        for size in self.target_shape:
            i = np.arange(size)
            lines.append((i * 2 / max(size - 1, 1) - 1) if self.align_corners else (2 * i + 1) / size - 1)
        points = np.stack([*np.meshgrid(*lines, indexing="ij")[::-1], np.ones(self.target_shape)]).astype(data.dtype)
        return np.asarray(np.einsum("bij,j...->bi...", data, points), data.dtype)

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.affine_grid(data, self.target_shape, self.align_corners)


@op("image.crop_and_resize", kind=Fusion.OPAQUE)
class CropAndResize(Op):
    """Regions of images, resampled to `crop_size` (TensorFlow CropAndResize).

    `boxes` (n, 4) hold top, left, bottom and right as fractions of the image; `box_indices` (n,) select the image of
    each box.
    """

    crop_size: tuple[int, ...]
    """Height and width of the result, in pixels."""
    layout: str = "NCHW"
    """Order of the dimensions: "NCHW" or "NHWC"."""
    method: str = "bilinear"
    """Interpolation: "bilinear" or "nearest_neighbor"."""
    extrapolation_value: float = 0.0
    """Value of points outside of the image."""
    out_dtype: str | None = None
    """Type of the result; None means that of the data."""

    def infer(self, data: Type, boxes: Type, box_indices: Type) -> TensorType:
        """(boxes, channels, *crop_size) in `layout`; `out_dtype` or the dtype of the data."""
        t, parts, images = require_rank(tensors(data)[0], 4, "data"), *tensors(boxes, box_indices)
        if parts.ndim != 2 or differ(parts.shape[1], 4) or images.ndim != 1 or differ(images.shape[0], parts.shape[0]):
            raise ShapeError(f"boxes {text(parts.shape)} must have 4 values each, and box_indices {text(images.shape)} "
                             "an image for each box")
        if not images.dtype.is_integer:
            raise ShapeError(f"box_indices must be integers, and they are {images.dtype}; cast them first")
        if self.layout not in ("NCHW", "NHWC"):
            raise ShapeError(f"layout '{self.layout}' is not supported; it must be NCHW or NHWC")
        if self.method not in ("bilinear", "nearest_neighbor"):
            raise ShapeError(f"method '{self.method}' is not supported; it must be bilinear or nearest_neighbor")
        axes = data_axes(self.layout, 2)
        return TensorType(ordered((parts.shape[0], ordered(t.shape, axes)[1], *self.crop_size), inverse(axes)),
                          self.out_dtype or t.dtype)

    def reference(self, data: Array, boxes: Array, box_indices: Array) -> Array:
        axes = data_axes(self.layout, 2)
        x, kind = data.transpose(axes), boxes.dtype.type
        result = np.full((len(boxes), x.shape[1], *self.crop_size), self.extrapolation_value, boxes.dtype)
        for out, box, image in zip(result, boxes, np.clip(box_indices, 0, len(data) - 1), strict=True):
            taps, inside = [], []
            for d, (size, n) in enumerate(zip(x.shape[2:], self.crop_size, strict=True)):
                low, high = box[d], box[d + 2]
                if n > 1:
                    places = (low * kind(size - 1)
                              + np.arange(n, dtype=boxes.dtype) * ((high - low) * kind((size - 1) / (n - 1))))
                else:
                    places = np.asarray([(low + high) * kind(0.5 * (size - 1))])
                inside.append((places >= 0) & (places <= size - 1))
                held = np.clip(places, 0, size - 1)
                first = np.floor(held)
                pair = [(first.astype(int), 1 - (held - first)),
                        (np.minimum(first + 1, size - 1).astype(int), held - first)]
                taps.append(pair if self.method == "bilinear"
                            else [(np.floor(held + kind(0.5)).astype(int), np.ones_like(held))])
            columns = [[(i[None] if d else i[:, None], w[None] if d else w[:, None]) for i, w in pair]
                       for d, pair in enumerate(taps)]
            values = _weighted(lambda y, z, image=image: x[image][:, y, z], columns)
            out[...] = np.where(inside[0][:, None] & inside[1][None], values, out)
        return np.ascontiguousarray(
            result.transpose(inverse(axes)).astype(DataType(self.out_dtype or data.dtype).numpy()))

    def compute(self, data: te.Tensor, boxes: te.Tensor, box_indices: te.Tensor) -> te.Tensor:
        return topi.crop_and_resize(data, boxes, box_indices, **self.attributes())


@op("image.dilation2d", kind=Fusion.OPAQUE)
class Dilation2d(Op):
    """The maximum of data + weight in each window of each channel; positions outside of the image are ignored.

    The weight is (channels, height, width) in `kernel_layout` (TensorFlow Dilation2D).
    """

    strides: Any = (1, 1)
    """Step of the window along each spatial dimension, in pixels."""
    padding: Any = (0, 0, 0, 0)
    """Number of pixels ignored around the image: (top, left, bottom, right), or fewer numbers."""
    dilations: Any = (1, 1)
    """Distance between neighbouring taps of the window, in pixels."""
    data_layout: str = "NCHW"
    """Layout of data and result: "NCHW" or "NHWC"."""
    kernel_layout: str = "IHW"
    """Layout of the weight: "IHW" or "HWI"."""
    out_dtype: str = ""
    """Type of the result; "" means that of the data."""

    def __post_init__(self) -> None:
        for name in ("strides", "dilations"):
            value = getattr(self, name)
            if isinstance(value, (tuple, list)) and len(value) == 4 and len(set(value)) == 1:  # one for each dimension
                value = value[:2]
            object.__setattr__(self, name, per_dimension(value, 2, name))
        object.__setattr__(self, "padding", both_sides(self.padding, 2))

    def _axes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return data_axes(self.data_layout, 2), axes_between(self.kernel_layout, "IHW", "kernel layout")

    def infer(self, data: Type, weight: Type) -> TensorType:
        """(batch, channels, windows, windows) in `data_layout`; `out_dtype` or the common dtype of the inputs."""
        t, w = require_rank(tensors(data)[0], 4, "data"), require_rank(tensors(weight)[0], 3, "weight")
        require_same_dtype((t, w))
        axes, of_weight = self._axes()
        (n, c, *sizes), (channels, *kernel) = ordered(t.shape, axes), ordered(w.shape, of_weight)
        if differ(c, channels):
            raise ShapeError(f"channels of data ({c}) and weight ({channels}) differ")
        out = []
        for d, (size, k) in enumerate(zip(sizes, kernel, strict=True)):
            span = size + self.padding[d] + self.padding[d + 2] - (k - 1) * self.dilations[d]
            if is_too_small(span, 1):
                raise ShapeError(f"a window of {(k - 1) * self.dilations[d] + 1} does not fit into spatial dimension "
                                 f"{d} of {size} with its padding")
            out.append((span - 1) // self.strides[d] + 1)
        return TensorType(ordered((n, c, *out), inverse(axes)), self.out_dtype or t.dtype)

    def reference(self, data: Array, weight: Array) -> Array:
        axes, of_weight = self._axes()
        x, w = data.transpose(axes), weight.transpose(of_weight)
        dtype = DataType(self.out_dtype or data.dtype).numpy()
        least = -np.inf if dtype.kind == "f" else np.iinfo(dtype).min
        top, left, bottom, right = self.padding
        widths = ((0, 0), (0, 0), (top, bottom), (left, right))
        padded, inside = np.pad(x.astype(dtype), widths), np.pad(np.ones(x.shape, bool), widths)
        shape = ordered(self.infer(TensorType(data.shape, DataType(data.dtype)),
                                   TensorType(weight.shape, DataType(weight.dtype))).shape, axes)
        result = np.full(shape, least, dtype)
        for ky, kx in np.ndindex(*w.shape[1:]):
            rows, columns = (slice(k * e, k * e + (n - 1) * s + 1, s)
                             for k, e, s, n in zip((ky, kx), self.dilations, self.strides, shape[2:], strict=True))
            term = padded[:, :, rows, columns] + w[:, ky, kx].astype(dtype)[None, :, None, None]
            result = np.maximum(result, np.where(inside[:, :, rows, columns], term, least).astype(dtype))
        return np.ascontiguousarray(result.transpose(inverse(axes)))

    def compute(self, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
        shape = self.infer(TensorType(data.shape, data.dtype), TensorType(weight.shape, weight.dtype)).shape
        return topi.dilation2d(data, weight, self._axes(), shape, self.strides, self.padding, self.dilations,
                               DataType(self.out_dtype or data.dtype))
