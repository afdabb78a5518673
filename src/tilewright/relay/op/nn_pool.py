"""Pooling: maxima and means over windows, over whole images, and to a given size."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import DataType, TensorType, Type
from tilewright.relay.op.nn_conv import normalized, ordered
from tilewright.relay.op.registry import Array, Fusion, Op, Precision, Relaid, attributes, op, tensors
from tilewright.tir.data_layout import bijective_layout, layout
from tilewright.topi import pool as topi
from tilewright.topi import transform as topi_moves
from tilewright.topi.adaptive import adaptive_pool
from tilewright.topi.channel_blocks import is_blocked, plain_data
from tilewright.topi.layouts import SPATIAL, channels_first, channels_last, data_axes
from tilewright.topi.math import cast
from tilewright.topi.nn.pooling import pool_grad
from tilewright.topi.orders import Order, block, layout_of
from tilewright.topi.shapes import (
    Perm,
    Shape,
    differ,
    inverse,
    is_too_small,
    last_channels,
    require_rank,
    require_same_dtype,
    text,
)
from tilewright.topi.windows import per_dimension, pooled_size, reaching


class Spatial(Op):
    """Base of the operators over the spatial dimensions of one tensor."""

    rank: ClassVar[int]
    layout: str
    """Layout of the data, such as "NCHW", "NHWC" or "NCHW8c"."""

    def _shape(self, data: Type) -> Shape:
        """Return the shape of the data in NC… order."""
        (t,) = tensors(data)
        if not is_blocked(self.layout):
            return ordered(require_rank(t, self.rank + 2, "data").shape, data_axes(self.layout, self.rank))
        way = plain_data(self.layout, self.rank)
        way.src.require_shape(t.shape, "data")
        return tuple(way.forward_shape(t.shape))

    def _stored(self, shape: Shape) -> Shape:
        """Return a shape in NC… order in the layout of the result."""
        name: str = self.attributes().get("out_layout") or self.layout
        if not is_blocked(name, self.layout):
            return ordered(shape, inverse(data_axes(name, self.rank)))
        way = plain_data(name, self.rank)
        found = way.backward_shape(shape)
        if differ(way.forward_shape(found)[1], shape[1]):
            raise ShapeError(f"the {shape[1]} channels cannot be divided into the blocks of {way.src.factor_of('C')} "
                             f"that the layout {name} has")
        return tuple(found)

    def spatial(self) -> tuple[int, ...]:
        """Return the axes of the spatial dimensions."""
        known = plain_data(self.layout, self.rank).src
        return tuple(known.index_of(c) for c in SPATIAL[self.rank])

    def _plain(self, data: Array) -> Array:
        """Return data in NC… order."""
        return bijective_layout(self.layout, channels_first(self.rank)).forward(data)

    def _placed(self, result: Array) -> Array:
        """Return a result in NC… order in its own layout."""
        return bijective_layout(channels_first(self.rank), self.attributes().get("out_layout")
                                or self.layout).forward(result)

    def relayout(self, perms: Sequence[Perm | None]) -> Relaid | None:
        """Channels-first stored channels-last -> the other layout."""
        if perms[0] is None:
            return self, (None,), None
        perm = last_channels(self.rank + 2)
        if perms[0] != perm or self.layout != channels_first(self.rank) or self.attributes().get("out_layout"):
            return None
        attrs = {**self.attributes(), "layout": channels_last(self.rank)}
        return type(self)(**attrs), (perm,), perm

    def reblock(self, orders: Sequence[Order | None], types: Sequence[TensorType]) -> Relaid | None:
        """Batch and channels in blocks -> the blocked layout."""
        order, known = orders[0], layout(self.layout)
        if (order is None or known.blocked or self.attributes().get("out_layout")
                or any(block(order, known.index_of(c)) > 1 for c in SPATIAL[self.rank])):
            return None
        return type(self)(**{**self.attributes(), "layout": layout_of(order, self.layout)}), (order,), order


def identity_of_max(dtype: np.dtype[Any]) -> Any:
    """Return the neutral element of the maximum."""
    kind = DataType(dtype)
    return -np.inf if kind.is_float else 0 if kind.code in ("uint", "bool") else np.iinfo(dtype).min


def padded(x: Array, padding: Sequence[int], fill: Any) -> Array:
    """Return NC… data with `padding`, `(*before, *after)`, around the spatial dimensions."""
    n = x.ndim - 2
    return np.pad(x, [(0, 0), (0, 0), *zip(padding[:n], padding[n:], strict=True)], constant_values=fill)


@attributes
class Pool(Spatial):
    """Base of the pools over windows.

    With `ceil_mode`, a last window that starts within the data or the padding before it may reach past the end;
    positions there are ignored (PyTorch, ONNX).
    """

    precision = Precision.FOLLOW
    written = ("pool_size",)
    pool_size: tuple[int, ...] = (1,)
    """Spatial shape of the window, in elements."""
    strides: tuple[int, ...] = (1,)
    """Step of the window along each spatial dimension, in elements."""
    dilation: tuple[int, ...] = (1,)
    """Distance between neighbouring taps of the window along each spatial dimension, in elements."""
    padding: tuple[int, ...] = (0,)
    """Number of elements around the data: one for all sides, one for each dimension, or `(*before, *after)`."""
    layout: str = "NCHW"
    out_layout: str = ""
    """Layout of the result; "" means that of the data."""
    ceil_mode: bool = False
    """True rounds the number of windows up; the last window may reach past the end."""

    def __post_init__(self) -> None:
        normalized(self, self.rank, "pool_size", "strides", "dilation")

    def _sizes(self, shape: Shape) -> list[Any]:
        """Return the spatial shape of the result."""
        return [self._size(shape[k], k) for k in range(self.rank)]

    def _size(self, size: Any, k: int) -> Any:
        return pooled_size(size, self.pool_size[k], self.strides[k], self.dilation[k], self.padding[k],
                           self.padding[self.rank + k], self.ceil_mode, k)

    def _reaching(self, shape: Shape) -> tuple[int, ...]:
        """Return the padding, enlarged for the last windows of `ceil_mode`."""
        return reaching(shape, self._sizes(shape), self.pool_size, self.strides, self.dilation, self.padding,
                        self.ceil_mode)

    def infer(self, data: Type) -> TensorType:
        """(batch, channels, windows, …); the dtype of the data. Window counts are rounded down (`ceil_mode`: up)."""
        shape = self._shape(data)
        return TensorType(self._stored((*shape[:2], *self._sizes(shape[2:]))), tensors(data)[0].dtype)

    def _windows(self, x: Array, fill: Any) -> list[Array]:
        """The view of NC… data, padded with `fill`, that each tap of the window reads."""
        return self._taps(padded(x, self._reaching(x.shape[2:]), fill), self._sizes(x.shape[2:]))

    def _taps(self, x: Array, out: Sequence[int]) -> list[Array]:
        """The view of the padded data that each tap of the window reads."""
        seen = []
        for tap in itertools.product(*map(range, self.pool_size)):
            where = (slice(t * d, t * d + (n - 1) * s + 1, s)
                     for t, d, n, s in zip(tap, self.dilation, out, self.strides, strict=True))
            index: tuple[Any, ...] = (..., *where)
            seen.append(x[index])
        return seen

    def _counts(self, shape: Sequence[int], count_include_pad: bool) -> Array:
        """Return the number of elements that each window averages."""
        inner = self.padding if count_include_pad else (0,) * len(self.padding)
        beyond = [a - b for a, b in zip(self._reaching(tuple(shape)), inner, strict=True)]
        counted = padded(padded(np.ones((1, 1, *shape)), inner, 1), beyond, 0)
        return np.maximum(sum(self._taps(counted, self._sizes(tuple(shape)))), 1)


class MaxPool(Pool):
    """Base of the maximum pools; padding is never the maximum."""

    def reference(self, data: Array) -> Array:
        x = self._plain(data)
        first, *others = self._windows(x, identity_of_max(data.dtype))
        result = first.copy()
        for seen in others:
            np.maximum(result, seen, out=result)
        return self._placed(result)

    def compute(self, data: te.Tensor) -> te.Tensor:
        return self.pooled(data, topi.max_pool)

    def pooled(self, data: te.Tensor, pool: Callable[..., te.Tensor]) -> te.Tensor:
        """Return the pool as tensor expressions, where `pool` computes what `topi.pool.max_pool` defines."""
        sizes = self._shape(TensorType(data.extents))[2:]
        found = pool(data, self.pool_size, self.strides, self._reaching(sizes), self.dilation, self.layout)
        return topi_moves.layout_transform(found, self.layout, self.out_layout) if self.out_layout else found


@attributes
class AvgPool(Pool):
    """Base of the average pools."""

    count_include_pad: bool = False
    """True counts padding as zeros in the mean, False ignores it."""

    def reference(self, data: Array) -> Array:
        x = self._plain(data)
        wide = (np.float32 if DataType(data.dtype).is_float and data.dtype.itemsize < 4 else np.int64
                if data.dtype.kind in "iu" else data.dtype)
        total: Array = sum(self._windows(x.astype(wide), 0))  # type: ignore[assignment]
        counts = self._counts(x.shape[2:], self.count_include_pad).astype(wide)
        mean = total / counts if DataType(data.dtype).is_float else np.trunc(total / counts)
        return self._placed(mean.astype(data.dtype))

    def compute(self, data: te.Tensor) -> te.Tensor:
        return self.pooled(data, topi.avg_pool)

    def pooled(self, data: te.Tensor, pool: Callable[..., te.Tensor]) -> te.Tensor:
        """Return the pool as tensor expressions, where `pool` computes what `topi.pool.avg_pool` defines."""
        sizes = self._shape(TensorType(data.extents))[2:]
        narrow = data.dtype.is_integer and data.dtype.bits < 32  # a sum of bytes exceeds a byte
        found = pool(cast(data, "int32") if narrow else data, self.pool_size, self.strides, self._reaching(sizes),
                     self.dilation, self.layout, self.count_include_pad, self.padding)
        found = cast(found, data.dtype) if narrow else found
        return topi_moves.layout_transform(found, self.layout, self.out_layout) if self.out_layout else found


@op("nn.max_pool1d", kind=Fusion.OUT_FUSABLE)
class MaxPool1d(MaxPool):
    """The maximum of each window of (batch, channels, width)."""

    layout: str = "NCW"
    rank = 1


@op("nn.max_pool2d", kind=Fusion.OUT_FUSABLE)
class MaxPool2d(MaxPool):
    """The maximum of each window of (batch, channels, height, width)."""

    rank = 2


@op("nn.max_pool3d", kind=Fusion.OUT_FUSABLE)
class MaxPool3d(MaxPool):
    """The maximum of each window of (batch, channels, depth, height, width)."""

    layout: str = "NCDHW"
    rank = 3


@op("nn.avg_pool1d", kind=Fusion.OUT_FUSABLE)
class AvgPool1d(AvgPool):
    """The mean of each window of (batch, channels, width)."""

    layout: str = "NCW"
    rank = 1


@op("nn.avg_pool2d", kind=Fusion.OUT_FUSABLE)
class AvgPool2d(AvgPool):
    """The mean of each window of (batch, channels, height, width)."""

    rank = 2


@op("nn.avg_pool3d", kind=Fusion.OUT_FUSABLE)
class AvgPool3d(AvgPool):
    """The mean of each window of (batch, channels, depth, height, width)."""

    layout: str = "NCDHW"
    rank = 3


class PoolGrad(Pool):
    """Base of the gradients of two-dimensional pools, from that of the result and the data."""

    rank = 2
    relayout = Op.relayout
    reblock = Op.reblock
    pool_type: ClassVar[str]

    def infer(self, out_grad: Type, data: Type) -> TensorType:  # type: ignore[override]
        """The type of the data; `out_grad` has the shape and dtype of the pool's result."""
        g, t = tensors(out_grad, data)
        if any(d != 1 for d in self.dilation):
            raise ShapeError(f"dilation {text(self.dilation)} is not supported; it must be 1")
        shape = self._shape(t)
        wanted = self._stored((*shape[:2], *self._sizes(shape[2:])))
        require_same_dtype((g, t))
        if g.ndim != len(wanted) or any(map(differ, g.shape, wanted)):
            raise ShapeError(f"the gradient {text(g.shape)} must have the shape of the pool's result, {text(wanted)}")
        return t

    def reference(self, out_grad: Array, data: Array) -> Array:
        x = self._plain(data)
        g = bijective_layout(self.out_layout or self.layout, channels_first(2)).forward(out_grad)
        reach, out = self._reaching(x.shape[2:]), self._sizes(x.shape[2:])
        wide = np.float32 if x.dtype.itemsize < 4 else x.dtype
        total = padded(np.zeros(x.shape, wide), reach, 0)
        for place, share in zip(self._taps(total, out), self._shares(g.astype(wide), x), strict=True):
            place += share
        inside = total[:, :, reach[0] : reach[0] + x.shape[2], reach[1] : reach[1] + x.shape[3]]
        return bijective_layout(channels_first(2), self.layout).forward(np.ascontiguousarray(inside, data.dtype))

    def _shares(self, g: Array, x: Array) -> list[Array]:
        """Return the part of the gradient of each window that each of its taps gets."""
        raise NotImplementedError

    def compute(self, out_grad: te.Tensor, data: te.Tensor) -> te.Tensor:
        grads = (topi_moves.layout_transform(out_grad, self.out_layout, self.layout) if self.out_layout else out_grad)
        return pool_grad(grads, data, self.pool_size, self.strides, self.padding, self.pool_type, self.ceil_mode,
                         self.layout, bool(self.attributes().get("count_include_pad", True)))


@op("nn.max_pool2d_grad", kind=Fusion.OPAQUE)
class MaxPool2dGrad(PoolGrad):
    """The gradient of the data of `nn.max_pool2d`: that of each window goes to its first maximal element."""

    precision = Precision.NEVER
    pool_type = "max"

    def _shares(self, g: Array, x: Array) -> list[Array]:
        seen = self._windows(x, identity_of_max(x.dtype))
        most = np.maximum.reduce(seen)
        taken, found = np.zeros(g.shape, bool), []
        for values in seen:
            first = (values == most) & ~taken
            taken |= first
            found.append(np.where(first, g, np.zeros((), g.dtype)))
        return found


@op("nn.avg_pool2d_grad", kind=Fusion.OPAQUE)
class AvgPool2dGrad(PoolGrad):
    """The gradient of the data of `nn.avg_pool2d`: that of each window in equal shares for its elements."""

    precision = Precision.NEVER
    pool_type = "avg"
    count_include_pad: bool = False
    """True counts padding as zeros in the mean, False ignores it."""

    def _shares(self, g: Array, x: Array) -> list[Array]:
        share = g / self._counts(x.shape[2:], self.count_include_pad).astype(g.dtype)
        return [share] * (self.pool_size[0] * self.pool_size[1])


class Adaptive(Spatial):
    """Base of the pools to a given size; window i of n covers [floor(i size / n), ceil((i + 1) size / n))."""

    precision = Precision.FOLLOW
    mean: ClassVar[bool]

    def output(self) -> tuple[int, ...]:
        """Return the spatial shape of the result."""
        return (1,) * self.rank

    def infer(self, data: Type) -> TensorType:
        """(batch, channels, *output size); the dtype of the data."""
        shape = self._shape(data)
        for k, (size, out) in enumerate(zip(shape[2:], self.output(), strict=True)):
            if is_too_small(out, 1) or is_too_small(size, 1):
                raise ShapeError(f"spatial dimension {k} of {size} cannot be pooled to {out}; both must be 1 or more")
        return TensorType(self._stored((*shape[:2], *self.output())), tensors(data)[0].dtype)

    def reference(self, data: Array) -> Array:
        x = self._plain(data)
        reduced = x.astype(np.float32) if DataType(x.dtype).is_float and x.dtype.itemsize < 4 else x
        result = np.empty((*x.shape[:2], *self.output()), reduced.dtype)
        spatial = tuple(range(2, x.ndim))
        for point in itertools.product(*map(range, self.output())):
            window: tuple[Any, ...] = tuple(slice(i * n // o, -(-(i + 1) * n // o))
                                            for i, n, o in zip(point, x.shape[2:], self.output(), strict=True))
            seen = reduced[:, :, *window]
            at: tuple[Any, ...] = (..., *point)
            result[at] = seen.mean(axis=spatial, dtype=reduced.dtype) if self.mean else seen.max(axis=spatial)
        return self._placed(result.astype(data.dtype))

    def compute(self, data: te.Tensor) -> te.Tensor:
        found = adaptive_pool(data, self.spatial(), self.output(), self.mean)
        other = self.attributes().get("out_layout")
        return topi_moves.layout_transform(found, self.layout, other) if other else found


@attributes
class AdaptiveTo(Adaptive):
    """Base of the pools with an `output_size`."""

    output_size: tuple[int, ...] | None = None
    """Spatial shape of the result; None means all ones."""
    layout: str = "NCHW"
    out_layout: str = ""
    """Layout of the result; "" means that of the data."""

    def __post_init__(self) -> None:
        if self.output_size is not None:
            object.__setattr__(self, "output_size", per_dimension(self.output_size, self.rank, "output_size"))

    def output(self) -> tuple[int, ...]:
        return self.output_size or (1,) * self.rank


@op("nn.adaptive_avg_pool2d", kind=Fusion.OUT_FUSABLE)
class AdaptiveAvgPool2d(AdaptiveTo):
    """The means of `output_size` windows over (batch, channels, height, width)."""

    rank = 2
    mean = True


@op("nn.adaptive_max_pool2d", kind=Fusion.OUT_FUSABLE)
class AdaptiveMaxPool2d(AdaptiveTo):
    """The maxima of `output_size` windows over (batch, channels, height, width)."""

    rank = 2
    mean = False


@op("nn.global_avg_pool2d", kind=Fusion.OUT_FUSABLE)
class GlobalAvgPool2d(Adaptive):
    """The mean of each channel of an image: (batch, channels, 1, 1)."""

    layout: str = "NCHW"
    out_layout: str = ""
    """Layout of the result; "" means that of the data."""
    rank = 2
    mean = True


@op("nn.global_max_pool2d", kind=Fusion.OUT_FUSABLE)
class GlobalMaxPool2d(Adaptive):
    """The maximum of each channel of an image: (batch, channels, 1, 1)."""

    layout: str = "NCHW"
    out_layout: str = ""
    """Layout of the result; "" means that of the data."""
    rank = 2
    mean = False


@op("nn.adaptive_avg_pool1d", kind=Fusion.OUT_FUSABLE)
class AdaptiveAvgPool1d(AdaptiveTo):
    """The means of `output_size` windows over (batch, channels, width)."""

    layout: str = "NCW"
    rank = 1
    mean = True


@op("nn.adaptive_max_pool1d", kind=Fusion.OUT_FUSABLE)
class AdaptiveMaxPool1d(AdaptiveTo):
    """The maxima of `output_size` windows over (batch, channels, width)."""

    layout: str = "NCW"
    rank = 1
    mean = False


@op("nn.adaptive_avg_pool3d", kind=Fusion.OUT_FUSABLE)
class AdaptiveAvgPool3d(AdaptiveTo):
    """The means of `output_size` windows over (batch, channels, depth, height, width)."""

    layout: str = "NCDHW"
    rank = 3
    mean = True


@op("nn.adaptive_max_pool3d", kind=Fusion.OUT_FUSABLE)
class AdaptiveMaxPool3d(AdaptiveTo):
    """The maxima of `output_size` windows over (batch, channels, depth, height, width)."""

    layout: str = "NCDHW"
    rank = 3
    mean = False
