"""Convolutions and transposed convolutions of one to three spatial dimensions.

Padding is stored as all numbers before, then all numbers after: (top, left, bottom, right). Strides, dilation and
kernel sizes are stored as one number per spatial dimension; a single number applies to all.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from tilewright import te
from tilewright.backends.cpu.strategies import planes
from tilewright.base.errors import Origin, ShapeError
from tilewright.base.types import DataType, TensorType, Type
from tilewright.relay.expr import Call, Constant
from tilewright.relay.op.nn_matmul import accumulator, multiplied, product_dtype
from tilewright.relay.op.registry import Array, Fusion, Op, Precision, Relaid, attributes, op, tensors
from tilewright.tir.data_layout import bijective_layout
from tilewright.topi import channel_blocks
from tilewright.topi import conv_transpose as topi_transpose
from tilewright.topi.channel_blocks import is_blocked, plain_data, plain_kernel
from tilewright.topi.layouts import SPATIAL, axes_between, channels_first, channels_last, data_axes, kernel_axes
from tilewright.topi.shapes import (
    Perm,
    Shape,
    differ,
    inverse,
    is_multiple,
    is_too_small,
    last_channels,
    require_rank,
    text,
)
from tilewright.topi.windows import both_sides, per_dimension, window_count

Ints = Sequence[int]


def normalized(self: Any, n: int, *names: str) -> None:
    """Expand the named attributes, and `padding`, to one number for each of `n` dimensions."""
    for name in names:
        value = getattr(self, name)
        if value is not None:
            object.__setattr__(self, name, per_dimension(value, n, name))
    object.__setattr__(self, "padding", both_sides(self.padding, n))


def ordered(shape: Sequence[Any], axes: Perm) -> tuple[Any, ...]:
    return tuple(shape[a] for a in axes)


@attributes
class Convolution(Op):
    """Base of convolutions and transposed convolutions: attributes and layouts."""

    precision = Precision.ALWAYS
    rank: ClassVar[int]
    transposed: ClassVar[bool] = False

    strides: tuple[int, ...] = (1,)
    """Step of the window along each spatial dimension, in elements."""
    padding: tuple[int, ...] = (0,)
    """Number of zeros around the data: one for all sides, one for each dimension, or `(*before, *after)`."""
    dilation: tuple[int, ...] = (1,)
    """Distance between neighbouring taps of the kernel along each spatial dimension, in elements."""
    groups: int = 1
    """Number of groups of channels that are convolved separately; it divides both channel counts."""
    channels: int | None = None
    """Number of output channels; None takes it from the weight."""
    kernel_size: tuple[int, ...] | None = None
    """Spatial shape of the kernel; None takes it from the weight."""
    data_layout: str = "NCHW"
    """Layout of the data, such as "NCHW", "NHWC" or "NCHW8c"."""
    kernel_layout: str = "OIHW"
    """Layout of the weight, such as "OIHW" or "HWIO"."""
    out_layout: str = ""
    """Layout of the result; "" means that of the data."""

    def __post_init__(self) -> None:
        normalized(self, self.rank, "strides", "dilation", "kernel_size")

    def axes(self) -> tuple[Perm, Perm, Perm]:
        """Return the axes that permute data to NC…, the kernel to OI… (IO… when transposed), and the result from NC….
        """
        out = inverse(data_axes(self.out_layout or self.data_layout, self.rank))
        return data_axes(self.data_layout, self.rank), kernel_axes(self.kernel_layout, self.rank, self.transposed), out

    @property
    def blocked(self) -> bool:
        """Whether any layout is blocked, such as NCHW8c."""
        return is_blocked(self.data_layout, self.kernel_layout, self.out_layout)

    def kernel_shape(self, weight: TensorType) -> Shape:
        """Return the shape of the kernel in OI… order (IO… when transposed)."""
        if not self.blocked:
            w = require_rank(weight, self.rank + 2, "weight")
            return ordered(w.shape, kernel_axes(self.kernel_layout, self.rank, self.transposed))
        way = plain_kernel(self.kernel_layout, self.rank)
        way.src.require_shape(weight.shape, "a weight")
        return tuple(way.forward_shape(weight.shape))

    def infer_arguments(self, types: Sequence[Type | None]) -> Sequence[Type | None]:
        """The weight from the channels of the data, `channels` and `kernel_size`; not for quantized convolutions, whose
        weights may have another dtype than the data."""
        data, weight, *scales = types
        if scales or weight is not None or not isinstance(data, TensorType):
            return types
        if self.channels is None or self.kernel_size is None:
            return types
        if self.blocked:
            channels = plain_data(self.data_layout, self.rank).forward_shape(data.shape)[1]
        else:
            channels = ordered(data.shape, data_axes(self.data_layout, self.rank))[1]
        first, second = (channels, self.channels) if self.transposed else (self.channels, channels)
        plain = (first, second if self.groups == 1 else second // self.groups, *self.kernel_size)
        shape = (
            plain_kernel(self.kernel_layout, self.rank).backward_shape(plain) if self.blocked
            else ordered(plain, inverse(kernel_axes(self.kernel_layout, self.rank, self.transposed))))
        return data, TensorType(shape, data.dtype)

    def _checked(self, data: Type, weight: Type, out_dtype: str) -> tuple[Shape, Shape, DataType]:
        """Return the shapes in NC… and OI… order (IO… when transposed), and the dtype of the result."""
        d, w = tensors(data, weight)
        kernel = self.kernel_shape(w)
        if self.kernel_size is not None and any(map(differ, self.kernel_size, kernel[2:])):
            raise ShapeError(f"kernel_size is {text(self.kernel_size)}, and the weight {text(w.shape)} "
                             f"({self.kernel_layout}) has {text(kernel[2:])}")
        if self.blocked:
            way = plain_data(self.data_layout, self.rank)
            way.src.require_shape(d.shape, "data")
            shape = tuple(way.forward_shape(d.shape))
        else:
            shape = ordered(require_rank(d, self.rank + 2, "data").shape, data_axes(self.data_layout, self.rank))
        return shape, kernel, product_dtype(d.dtype, w.dtype, out_dtype)

    def _placed(self, shape: Shape) -> Shape:
        """Return the shape of a result, given in NC… order, in its own layout."""
        layout = self.out_layout or self.data_layout
        if not self.blocked:
            return ordered(shape, inverse(data_axes(layout, self.rank)))
        way = plain_data(layout, self.rank)
        block = max(1, way.src.factor_of("C"))
        if not is_multiple(shape[1], block):
            raise ShapeError(f"the {shape[1]} output channels cannot be divided into the blocks of {block} that the "
                             f"layout {layout} has")
        return tuple(way.backward_shape(shape))

    def _channels(self, found: Any) -> Any:
        if self.channels is not None and differ(self.channels, found):
            raise ShapeError(f"channels is {self.channels}, but the weight has {found} output channels")
        return found

    def relayout(self, perms: Sequence[Perm | None]) -> Relaid | None:
        """Channels-first data in any order -> channels-last data and HWIO kernels, also for groups and depthwise."""
        first, last = channels_first(self.rank), channels_last(self.rank)
        if self.data_layout != first or self.out_layout not in ("", first) or self.blocked:
            return (self, (None, None), None) if perms[0] is None else None
        perm = last_channels(self.rank + 2)
        kernel_layout = first[2:] + ("OI" if self.transposed else "IO")
        kernel_perm = axes_between(self.kernel_layout, kernel_layout, "kernel layout")
        attrs = {**self.attributes(), "data_layout": last, "kernel_layout": kernel_layout, "out_layout": ""}
        return type(self)(**attrs), (perm, kernel_perm), perm


@attributes
class Conv(Convolution):
    """Base of the convolutions that are not transposed."""

    out_dtype: str = ""
    """Type of the sums and of the result; "" means that of the data."""

    def infer(self, data: Type, weight: Type) -> TensorType:
        """(batch, out channels, (size + padding - reach) // stride + 1, …), reach = (kernel - 1) * dilation + 1."""
        shape, kernel, dtype = self._checked(data, weight, self.out_dtype)
        if self.groups < 1:
            raise ShapeError(f"groups is {self.groups}; it must be 1 or more")
        if differ(shape[1], kernel[1] * self.groups):
            groups = f" in {self.groups} groups" if self.groups != 1 else ""
            raise ShapeError(f"channels of data ({shape[1]}) and weight ({kernel[1]}{groups}) differ")
        if not is_multiple(kernel[0], self.groups):
            raise ShapeError(f"the {kernel[0]} output channels cannot be divided among {self.groups} groups")
        n = self.rank
        sizes = [
            window_count(shape[2 + k], self.padding[k], self.padding[n + k], kernel[2 + k], self.strides[k],
                         self.dilation[k], k) for k in range(n)
        ]
        return TensorType(self._placed((shape[0], self._channels(kernel[0]), *sizes)), dtype)

    def reads_once(self, argument: int) -> bool:
        return (argument == 1 and not self.blocked and self.groups == 1 and self.kernel_size is not None
                and all(d == 1 for d in self.kernel_size))

    def mixed_precision(self, types: Sequence[Type]) -> Precision:
        """16 bits pay off if pairs of channels or rows of planes are multiplied; others follow their inputs."""
        _, depth, *ksize = self.kernel_shape(tensors(types[1])[0])
        pairs = isinstance(depth, int) and (
            depth % 2 == 0 or planes.multiplies_neighbours(self.data_layout, ksize, self.dilation, self.groups))
        return Precision.ALWAYS if pairs else Precision.FOLLOW

    def reference(self, data: Array, weight: Array) -> Array:
        n, out_layout = self.rank, self.out_layout or self.data_layout
        x = bijective_layout(self.data_layout, channels_first(n)).forward(data)
        w = bijective_layout(self.kernel_layout, "OI" + SPATIAL[n]).forward(weight)
        result = convolve(x, w, self.strides, (self.padding[:n], self.padding[n:]), self.dilation, self.groups)
        dtype = product_dtype(DataType(data.dtype), DataType(weight.dtype), self.out_dtype)
        return bijective_layout(channels_first(n), out_layout).forward(narrowed(result, dtype))

    def compute(self, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
        return channel_blocks.conv(data, weight, *self.window(data, weight))

    def window(self, data: te.Tensor, weight: te.Tensor) -> tuple[Ints, Ints, Ints, int, str, str, str, DataType]:
        """Return strides, padding, dilation, groups, the three layouts, and the dtype of the result."""
        layouts = self.data_layout, self.kernel_layout, self.out_layout or self.data_layout
        return (self.strides, self.padding, self.dilation, self.groups, *layouts,
                product_dtype(data.dtype, weight.dtype, self.out_dtype))


def narrowed(result: Array, dtype: DataType) -> Array:
    """Return an accumulated result in its own dtype; integers wrap around."""
    if dtype.is_integer and result.dtype.kind == "f":
        result = result.astype(np.int64)
    return np.ascontiguousarray(result.astype(dtype.numpy()))


def _at(whole: int, *where: Any) -> tuple[Any, ...]:
    """An index of `whole` full slices, then `where`."""
    return (*(slice(None),) * whole, *where)


def convolve(x: Array, w: Array, strides: Ints, padding: tuple[Ints, Ints], dilation: Ints, groups: int) -> Array:
    """Convolve NC… data with an OI… kernel in the accumulator's dtype: one matrix product for each tap."""
    kernel = w.shape[2:]
    padded = np.pad(x, [(0, 0), (0, 0), *zip(*padding, strict=True)]).astype(accumulator(x.dtype, w.dtype))
    out = [(m - (k - 1) * d - 1) // s + 1
           for m, k, d, s in zip(padded.shape[2:], kernel, dilation, strides, strict=True)]
    per_group = w.reshape(groups, w.shape[0] // groups, *w.shape[1:]).astype(padded.dtype)
    pixels = int(np.prod(out))
    total = np.zeros((x.shape[0], groups, per_group.shape[1], pixels), padded.dtype)
    for tap in itertools.product(*map(range, kernel)):
        window = tuple(slice(t * d, t * d + (n - 1) * s + 1, s)
                       for t, d, n, s in zip(tap, dilation, out, strides, strict=True))
        seen = padded[_at(2, *window)].reshape(x.shape[0], groups, x.shape[1] // groups, pixels)
        total += multiplied(per_group[_at(3, *tap)], seen)
    return total.reshape(x.shape[0], w.shape[0], *out)


@op("nn.conv1d", kind=Fusion.OUT_FUSABLE)
class Conv1d(Conv):
    """One-dimensional convolution: data (batch, in, width), weight (out, in / groups, kernel)."""

    padding: tuple[int, ...] = (0, 0)
    data_layout: str = "NCW"
    kernel_layout: str = "OIW"
    rank = 1


@op("nn.conv2d", kind=Fusion.OUT_FUSABLE)
class Conv2d(Conv):
    """Two-dimensional convolution: data (batch, in, height, width), weight (out, in / groups, kh, kw).

    `groups` equal to the input channels is a depthwise convolution. Integer sums wrap around in `out_dtype`. Constant
    depthwise weights in HWOI, (kh, kw, in, multiplier), are stored as HWIO, (kh, kw, 1, in * multiplier).
    """

    rank = 2

    def __call__(self, *args: Any, span: Origin | None = None) -> Call:
        weight = args[1] if len(args) > 1 else None
        if self.kernel_layout == "HWOI" and self.groups > 1 and isinstance(weight, Constant) and weight.value.ndim == 4:
            height, width, channels, multiplier = weight.value.shape
            if channels == self.groups and multiplier > 1 and self.channels == channels * multiplier:
                plain = type(self)(**{**self.attributes(), "kernel_layout": "HWIO"})
                stored = Constant(weight.value.reshape(height, width, 1, channels * multiplier), weight.span)
                return plain(args[0], stored, *args[2:], span=span)
        return super().__call__(*args, span=span)


@op("nn.conv3d", kind=Fusion.OUT_FUSABLE)
class Conv3d(Conv):
    """Three-dimensional convolution: data (batch, in, depth, height, width), weight (out, in / groups, kd, kh, kw)."""

    data_layout: str = "NCDHW"
    kernel_layout: str = "OIDHW"
    rank = 3


@attributes
class ConvTranspose(Convolution):
    """Base of the transposed convolutions (gradients of convolutions), whose kernels are (in, out / groups, …)."""

    transposed = True
    kernel_layout: str = "IOHW"
    """Layout of the weight, such as "IOHW"; I are the channels of the data."""
    output_padding: tuple[int, ...] = (0,)
    """Number of elements added after the result along each spatial dimension, less than the stride or dilation."""
    out_dtype: str = ""
    """Type of the sums and of the result; "" means that of the data."""

    def __post_init__(self) -> None:
        more = self.output_padding
        if self.rank == 1 and isinstance(more, (tuple, list)) and len(set(more)) == 1:  # TVM's importers give pairs
            object.__setattr__(self, "output_padding", (more[0],))
        normalized(self, self.rank, "strides", "dilation", "kernel_size", "output_padding")

    def _sizes(self, shape: Shape, kernel: Shape) -> list[Any]:
        n = self.rank
        return [
            (shape[k] - 1) * self.strides[k] - self.padding[k] - self.padding[n + k]
            + (kernel[k] - 1) * self.dilation[k] + 1 + self.output_padding[k]
            for k in range(n)
        ]

    def infer(self, data: Type, weight: Type) -> TensorType:
        """(batch, out channels, (size - 1) * stride - padding + (kernel - 1) * dilation + 1 + output_padding, …)."""
        self.axes()
        shape, kernel, dtype = self._checked(data, weight, self.out_dtype)
        if differ(shape[1], kernel[0]):
            raise ShapeError(f"channels of data ({shape[1]}) and weight ({kernel[0]}) differ")
        for k, (more, stride, dilation) in enumerate(
                zip(self.output_padding, self.strides, self.dilation, strict=True)):
            if more >= max(stride, dilation):
                raise ShapeError(f"output_padding {more} must be less than the stride {stride} or the dilation "
                                 f"{dilation} of dimension {k}")
        sizes = self._sizes(shape[2:], kernel[2:])
        if any(is_too_small(n, 1) for n in sizes):
            raise ShapeError(f"the padding {text(self.padding)} makes the result empty: its spatial shape is "
                             f"{text(sizes)}")
        return TensorType(self._placed((shape[0], self._channels(kernel[1] * self.groups), *sizes)), dtype)

    def reference(self, data: Array, weight: Array) -> Array:
        data_order, kernel_order, out_order = self.axes()
        x, w = data.transpose(data_order), weight.transpose(kernel_order)
        acc = accumulator(x.dtype, w.dtype)
        batch, channels, kernel, g = x.shape[0], x.shape[1], w.shape[2:], self.groups
        lowered = w.reshape(g, channels // g, *w.shape[1:]).swapaxes(1, 2).astype(acc)
        pixels = x.reshape(batch, g, channels // g, int(np.prod(x.shape[2:]))).astype(acc)
        out = self._sizes(x.shape[2:], kernel)
        whole = [p + n + q for p, n, q in zip(self.padding[: self.rank], out, self.padding[self.rank :], strict=True)]
        total = np.zeros((batch, w.shape[1] * g, *whole), acc)
        for tap in itertools.product(*map(range, kernel)):
            added = multiplied(lowered[_at(3, *tap)], pixels).reshape(batch, w.shape[1] * g, *x.shape[2:])
            place = tuple(
                slice(t * d, t * d + (n - 1) * s + 1, s)
                for t, d, n, s in zip(tap, self.dilation, x.shape[2:], self.strides, strict=True)
            )
            total[_at(2, *place)] += added
        inside = tuple(slice(p, p + n) for p, n in zip(self.padding, out, strict=False))
        dtype = product_dtype(DataType(data.dtype), DataType(weight.dtype), self.out_dtype)
        return narrowed(total[_at(2, *inside)], dtype).transpose(out_order)

    def compute(self, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
        axes = data_order, kernel_order, _ = self.axes()
        sizes = self._sizes(ordered(data.extents, data_order)[2:], ordered(weight.extents, kernel_order)[2:])
        dtype = product_dtype(data.dtype, weight.dtype, self.out_dtype)
        return topi_transpose.conv_transpose(
            data, weight, self.strides, self.padding[: self.rank], self.dilation, self.groups, sizes, *axes, dtype
        )


@op("nn.conv1d_transpose", kind=Fusion.OUT_FUSABLE)
class Conv1dTranspose(ConvTranspose):
    """Transposed one-dimensional convolution: data (batch, in, width), weight (in, out / groups, kernel)."""

    padding: tuple[int, ...] = (0, 0)
    data_layout: str = "NCW"
    kernel_layout: str = "IOW"
    rank = 1


@op("nn.conv2d_transpose", kind=Fusion.OUT_FUSABLE)
class Conv2dTranspose(ConvTranspose):
    """Transposed two-dimensional convolution: data (batch, in, height, width), weight (in, out / groups, kh, kw).

    Each element of the data adds a scaled copy of the kernel to the result, `strides` apart. `padding` is cut off the
    result, then `output_padding` is added after it.
    """

    rank = 2


@op("nn.conv3d_transpose", kind=Fusion.OUT_FUSABLE)
class Conv3dTranspose(ConvTranspose):
    """Transposed three-dimensional convolution: data (batch, in, depth, height, width), weight (in, out / groups, kd,
    kh, kw).
    """

    data_layout: str = "NCDHW"
    kernel_layout: str = "IODHW"
    rank = 3
