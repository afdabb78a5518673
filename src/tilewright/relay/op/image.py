"""Resampling of images: resize (ONNX Resize) and upsampling."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import DataType, TensorType, Type
from tilewright.relay.expr import Call, Expr
from tilewright.relay.op.nn_pool import Spatial
from tilewright.relay.op.registry import Array, Fusion, Precision, attributes, op, tensors
from tilewright.topi import resize as topi
from tilewright.topi.resize import Line, line_of
from tilewright.topi.shapes import Shape, is_too_small, text
from tilewright.topi.windows import per_dimension

METHODS = ("nearest_neighbor", "linear", "cubic")
ROUNDINGS = ("floor", "ceil", "round", "round_prefer_floor", "round_prefer_ceil")
MODES = ("half_pixel", "half_pixel_symmetric", "align_corners", "asymmetric", "pytorch_half_pixel",
         "tf_half_pixel_for_nn", "tf_crop_and_resize")


@attributes
class Resize(Spatial):
    """Base of the resizes of one to three spatial dimensions (ONNX Resize).

    Integer results are truncated. A `roi` and `extrapolation_value` apply to the mode "tf_crop_and_resize" only.
    """

    precision = Precision.FOLLOW
    size: tuple[int, ...]
    """Spatial shape of the result, in pixels."""
    roi: tuple[float, ...] | None = None
    """Region of interest, all starts, then all ends, as fractions of the image; used by "tf_crop_and_resize" only."""
    layout: str = "NCHW"
    method: str = "linear"
    """Interpolation: "nearest_neighbor", "linear" or "cubic"."""
    coordinate_transformation_mode: str = "half_pixel"
    """Mapping of output positions to input positions: one of `MODES`, as in ONNX Resize."""
    rounding_method: str = ""
    """Rounding of nearest positions: one of `ROUNDINGS`; "" means "floor", or "round" with "align_corners"."""
    cubic_alpha: float = -0.5
    """Coefficient of the cubic kernel."""
    cubic_exclude: int = 0
    """1 gives taps outside of the image no weight, 0 clamps them to its edge."""
    extrapolation_value: float = 0.0
    """Value of points outside of the image with "tf_crop_and_resize"."""
    out_dtype: str | None = None
    """Type of the result; None means that of the data."""
    scales: tuple[float, ...] | None = None
    """Exact scale of each spatial dimension; None means the ratio of the sizes."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", per_dimension(self.size, self.rank, "size"))

    def _dtype(self, dtype: Any) -> DataType:
        return DataType(self.out_dtype or dtype)

    def infer(self, data: Type) -> TensorType:
        """(batch, channels, *size) in `layout`; `out_dtype` or the dtype of the data."""
        named = (("method", self.method, METHODS),
                 ("coordinate_transformation_mode", self.coordinate_transformation_mode, MODES))
        for what, value, known in (*named, ("rounding_method", self.rounding_method or "floor", ROUNDINGS)):
            if value not in known:
                raise ShapeError(f"{what} '{value}' is not supported; it must be one of {', '.join(known)}")
        for what, values, n in (("scales", self.scales, self.rank), ("roi", self.roi, 2 * self.rank)):
            if values is not None and len(values) != n:
                raise ShapeError(f"{what} must have {n} numbers, and it is {text(values)}")
        shape = self._shape(data)
        if any(is_too_small(n, 1) for n in (*self.size, *shape[2:])):
            raise ShapeError(f"an image of {text(shape[2:])} cannot be resized to {text(self.size)}; all sizes must be "
                             "1 or more")
        return TensorType(self._stored((*shape[:2], *self.size)), self._dtype(tensors(data)[0].dtype))

    def _lines(self, sizes: Sequence[int]) -> list[Line]:
        n, mode = self.rank, self.coordinate_transformation_mode
        scales = self.scales or (None,) * n
        spans = list(zip(self.roi[:n], self.roi[n:], strict=True)) if self.roi else [None] * n
        return [line_of(mode, *each) for each in zip(sizes, self.size, scales, spans, strict=True)]

    def _rounding(self) -> str:
        aligned = self.coordinate_transformation_mode == "align_corners"
        return self.rounding_method or ("round" if aligned else "floor")

    def _extrapolation(self) -> float | None:
        return self.extrapolation_value if self.coordinate_transformation_mode == "tf_crop_and_resize" else None

    def reference(self, data: Array) -> Array:
        spatial = self.spatial()
        lines = self._lines([data.shape[d] for d in spatial])
        result = data
        if self.method != "nearest_neighbor":
            result = data.astype(np.float64 if data.dtype == np.float64 else np.float32)
        outside = np.zeros((1,) * data.ndim, bool)
        for axis, line, n in zip(spatial, lines, self.size, strict=True):
            position = line.a * np.arange(n) + line.b
            along = [-1 if d == axis else 1 for d in range(data.ndim)]
            size = data.shape[axis]
            outside = outside | ((position < 0) | (position > (size - 1) * line.c)).reshape(along)
            result = self._sampled(result, axis, position, line.c, along)
        value = self._extrapolation()
        if value is not None:
            result = np.where(outside, np.asarray(value, result.dtype), result)
        return np.asarray(result, self._dtype(data.dtype).numpy())

    def _sampled(self, x: Array, axis: int, position: Any, c: int, along: list[int]) -> Array:
        """Resample `x` along one dimension at the positions `position / c`."""
        size = x.shape[axis]
        low, t = position // c, ((position % c) / c).astype(x.dtype)
        if self.method == "nearest_neighbor":
            doubled, rounding = 2 * position, self._rounding()
            nearest = {"floor": low, "ceil": -(-position // c), "round_prefer_floor": (doubled + c - 1) // (2 * c)}
            index = nearest.get(rounding, (doubled + c) // (2 * c))
            return np.asarray(np.take(x, np.clip(index, 0, size - 1), axis=axis))
        if self.method == "linear":
            taps = [(low, 1 - t), (low + 1, t)]
        else:
            taps = self._cubic(low, t, size)
        total = np.zeros((), x.dtype)
        for index, weight in taps:
            total = total + np.take(x, np.clip(index, 0, size - 1), axis=axis) * weight.astype(x.dtype).reshape(along)
        return np.asarray(total)

    def _cubic(self, low: Any, t: Any, size: int) -> list[tuple[Any, Any]]:
        """Return the four taps of Keys' cubic convolution (1981)."""
        a = self.cubic_alpha
        weights = []
        for k in (-1, 0, 1, 2):
            d = np.abs(t - k)
            near, far = ((a + 2) * d - (a + 3)) * d * d + 1, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
            weights.append(np.where(d <= 1, near, far))
        if self.cubic_exclude:
            weights = [np.where((low + k >= 0) & (low + k < size), w, 0)
                       for k, w in zip((-1, 0, 1, 2), weights, strict=True)]
            weights = [w / sum(weights) for w in weights]
        return [(low + k, w) for k, w in zip((-1, 0, 1, 2), weights, strict=True)]

    def compute(self, data: te.Tensor) -> te.Tensor:
        spatial = self.spatial()
        lines = self._lines([data.extents[d] for d in spatial])
        cubic = self.cubic_alpha, bool(self.cubic_exclude)
        return topi.resize(
            data, spatial, self.size, lines, self.method, self._rounding(), cubic, self._extrapolation(),
            self._dtype(data.dtype))

    def simplify(self, call: Call) -> Expr | None:
        """A resize to the same size that reads every pixel exactly -> its input."""
        t = call.args[0].tensor_type
        if t != call.tensor_type or not t.is_static:
            return None
        lines = self._lines([t.shape[d] for d in self.spatial()])
        return call.args[0] if all(line == Line(1, 0, 1) for line in lines) else None


@op("image.resize1d", kind=Fusion.INJECTIVE)
class Resize1d(Resize):
    """Images (batch, channels, width) resampled to `size`."""

    layout: str = "NCW"
    rank = 1


@op("image.resize2d", kind=Fusion.INJECTIVE)
class Resize2d(Resize):
    """Images (batch, channels, height, width) resampled to `size`."""

    rank = 2


@op("image.resize3d", kind=Fusion.INJECTIVE)
class Resize3d(Resize):
    """Volumes (batch, channels, depth, height, width) resampled to `size`."""

    layout: str = "NCDHW"
    rank = 3


class Enlarged(Spatial):
    """Base of the upsamplings: a resize whose size is computed from factors."""

    precision = Precision.FOLLOW

    def _resize(self, t: TensorType) -> Resize:
        """Return the resize for data of type `t`."""
        raise NotImplementedError

    def _sizes(self, t: TensorType) -> Shape:
        sizes = self._shape(t)[2:]
        if not all(isinstance(n, int) for n in sizes):
            raise ShapeError(f"data of the symbolic sizes {text(sizes)} cannot be resized; give the model's inputs "
                             "fixed sizes")
        return sizes

    def infer(self, data: Type) -> TensorType:
        """(batch, channels, round(size * scale), …) for each spatial dimension; the dtype of the data."""
        (t,) = tensors(data)
        return self._resize(t).infer(t)

    def reference(self, data: Array) -> Array:
        return self._resize(TensorType(data.shape)).reference(data)

    def compute(self, data: te.Tensor) -> te.Tensor:
        return self._resize(TensorType(data.extents)).compute(data)

    def simplify(self, call: Call) -> Expr | None:
        return self._resize(call.args[0].tensor_type)(call.args[0], span=call.span)


@op("nn.upsampling", kind=Fusion.INJECTIVE)
class Upsampling(Enlarged):
    """Images (batch, channels, height, width) enlarged by `scale_h` and `scale_w`."""

    scale_h: float = 1
    """Factor of the height."""
    scale_w: float = 1
    """Factor of the width."""
    layout: str = "NCHW"
    method: str = "nearest_neighbor"
    """Interpolation: "nearest_neighbor", "bilinear" or "bicubic"."""
    align_corners: bool = False
    """True keeps the values of the corners, False maps position i to i / scale."""
    rank: ClassVar[int] = 2

    def _resize(self, t: TensorType) -> Resize2d:
        method = {"nearest_neighbor": "nearest_neighbor", "bilinear": "linear", "bicubic": "cubic"}.get(self.method)
        if method is None:
            raise ShapeError(f"method '{self.method}' is not supported; it must be nearest_neighbor, bilinear or "
                             "bicubic")
        sizes = self._sizes(t)
        target = tuple(round(n * s) for n, s in zip(sizes, (self.scale_h, self.scale_w), strict=True))
        return Resize2d(target, None, self.layout, method, "align_corners" if self.align_corners else "asymmetric")


@op("nn.upsampling3d", kind=Fusion.INJECTIVE)
class Upsampling3d(Enlarged):
    """Volumes (batch, channels, depth, height, width) enlarged by `scale_d`, `scale_h` and `scale_w`."""

    scale_d: float = 1
    """Factor of the depth."""
    scale_h: float = 1
    """Factor of the height."""
    scale_w: float = 1
    """Factor of the width."""
    layout: str = "NCDHW"
    method: str = "nearest_neighbor"
    """Interpolation: "nearest_neighbor" or "trilinear"."""
    coordinate_transformation_mode: str = "half_pixel"
    """Mapping of output positions to input positions, as in `image.resize3d`."""
    rank: ClassVar[int] = 3

    def _resize(self, t: TensorType) -> Resize3d:
        method = {"nearest_neighbor": "nearest_neighbor", "trilinear": "linear"}.get(self.method)
        if method is None:
            raise ShapeError(f"method '{self.method}' is not supported; it must be nearest_neighbor or trilinear")
        sizes = self._sizes(t)
        target = tuple(round(n * s) for n, s in zip(sizes, (self.scale_d, self.scale_h, self.scale_w), strict=True))
        return Resize3d(target, None, self.layout, method, self.coordinate_transformation_mode)


def __getattr__(name: str) -> Any:
    """Forward the names of `relay.image`."""
    return getattr(importlib.import_module("tilewright.relay.image"), name)
