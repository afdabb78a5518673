"""Deformable convolutions, whose taps read the image at computed positions between pixels (Dai et al., 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import TensorType, Type
from tilewright.relay.op.nn_conv import normalized
from tilewright.relay.op.registry import Array, Fusion, Op, op, tensors
from tilewright.topi.nn import deformable as topi
from tilewright.topi.shapes import differ, inverse, is_multiple, require_rank, text
from tilewright.topi.windows import window_count

LAYOUTS = {"NCHW": ("OIHW", (0, 1, 2, 3), (0, 1, 2, 3)), "NHWC": ("HWIO", (0, 3, 1, 2), (3, 2, 0, 1))}
"""For each data layout, the kernel layout, and the permutations to NCHW and OIHW."""


@op("nn.deformable_conv2d", kind=Fusion.OPAQUE)
class DeformableConv2d(Op):
    """A convolution whose tap (ky, kx) reads the image at its own offset, in the channels of deformable group g.

    data (batch, in, height, width), offset (batch, deformable_groups * kh * kw * 2, height', width'), weight (out, in /
    groups, kh, kw). The offset holds y before x for each position of the result. The image is interpolated bilinearly
    and zero outside. Source: Dai et al., Deformable Convolutional Networks, 2017.
    """

    strides: tuple[int, ...] = (1, 1)
    """Step of the window along height and width, in pixels."""
    padding: tuple[int, ...] = (0, 0)
    """Number of zero pixels around the image: (top, left, bottom, right), or fewer numbers."""
    dilation: tuple[int, ...] = (1, 1)
    """Distance between neighbouring taps of the kernel along height and width, in pixels."""
    deformable_groups: int = 1
    """Number of groups of channels with separate offsets."""
    groups: int = 1
    """Number of groups of channels that are convolved separately."""
    channels: int | None = None
    """Number of output channels; None takes it from the weight."""
    kernel_size: tuple[int, ...] | None = None
    """Height and width of the kernel; None takes them from the weight."""
    data_layout: str = "NCHW"
    """Layout of the data: "NCHW" or "NHWC"."""
    kernel_layout: str = "OIHW"
    """Layout of the weight: "OIHW" for "NCHW", "HWIO" for "NHWC"."""
    out_layout: str = ""
    """Layout of the result; "" means that of the data, the only other choice."""
    out_dtype: str = ""
    """Type of the result; "" means that of the data."""

    def __post_init__(self) -> None:
        normalized(self, 2, "strides", "dilation", "kernel_size")

    def _orders(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        known, data, kernel = LAYOUTS.get(self.data_layout, ("", (), ()))
        if not known or self.kernel_layout != known or self.out_layout not in ("", self.data_layout):
            raise ShapeError(
                f"layouts {self.data_layout}, {self.kernel_layout} and {self.out_layout or self.data_layout} are not "
                "supported; use NCHW data and result with OIHW kernels, or NHWC with HWIO")
        return data, kernel

    def infer(self, data: Type, offset: Type, weight: Type) -> TensorType:
        """The shape of `nn.conv2d`; `out_dtype` or the dtype of the data."""
        t, moved, kernel = (require_rank(x, 4, what) for x, what in zip(tensors(data, offset, weight),
            ("data", "offset", "weight"), strict=True))
        data_order, kernel_order = self._orders()
        batch, channels, *sizes = (t.shape[d] for d in data_order)
        out_channels, depth, *taps = (kernel.shape[d] for d in kernel_order)
        out = [window_count(n, self.padding[k], self.padding[2 + k], taps[k], self.strides[k], self.dilation[k], k)
               for k, n in enumerate(sizes)]
        wanted = (batch, self.deformable_groups * taps[0] * taps[1] * 2, *out)
        given = tuple(moved.shape[d] for d in data_order)
        if any(map(differ, wanted, given)):
            raise ShapeError(f"offset {text(moved.shape)} must have the batch size {batch}, {wanted[1]} channels and "
                             f"the spatial shape {text(out)} of the result")
        if (differ(channels, depth * self.groups) or not is_multiple(channels, self.deformable_groups)
                or not is_multiple(out_channels, self.groups)):
            raise ShapeError(f"data {text(t.shape)} and weight {text(kernel.shape)} do not fit {self.groups} groups "
                             f"and {self.deformable_groups} deformable groups")
        if (self.channels is not None and differ(self.channels, out_channels)) or (self.kernel_size is not None
                and any(map(differ, self.kernel_size, taps))):
            raise ShapeError(f"channels {self.channels} and kernel_size {self.kernel_size} do not match the weight "
                             f"{text(kernel.shape)}")
        shape: list[Any] = [0] * 4
        for d, n in zip(data_order, (batch, out_channels, *out), strict=True):
            shape[d] = n
        return TensorType(shape, self.out_dtype or t.dtype)

    def infer_arguments(self, types: Sequence[Type | None]) -> Sequence[Type | None]:
        """The weight from the channels of the data, `channels` and `kernel_size`; the offset from the positions of the
        result."""
        data, offset, weight = types
        if not isinstance(data, TensorType) or self.channels is None or self.kernel_size is None:
            return types
        data_order, kernel_order = self._orders()
        batch, channels, *sizes = (data.shape[d] for d in data_order)
        plain = (self.channels, channels // self.groups, *self.kernel_size)
        places = [window_count(n, self.padding[k], self.padding[2 + k], self.kernel_size[k], self.strides[k],
                               self.dilation[k], k) for k, n in enumerate(sizes)]
        moved = (batch, self.deformable_groups * self.kernel_size[0] * self.kernel_size[1] * 2, *places)
        return (data, offset or TensorType([moved[d] for d in inverse(data_order)], data.dtype),
                weight or TensorType([plain[d] for d in inverse(kernel_order)], data.dtype))

    def reference(self, data: Array, offset: Array, weight: Array) -> Array:
        data_order, kernel_order = self._orders()
        x, moved, w = data.transpose(data_order), offset.transpose(data_order), weight.transpose(kernel_order)
        taps, out = w.shape[2:], moved.shape[2:]
        by_tap = moved.reshape(x.shape[0], self.deformable_groups, *taps, 2, *out)
        seen = np.empty((*x.shape[:2], *taps, *out), x.dtype)
        per = x.shape[1] // self.deformable_groups
        starts = [np.arange(n) * s - p for n, s, p in zip(out, self.strides, self.padding, strict=False)]
        for n, c, ky, kx in np.ndindex(x.shape[0], x.shape[1], *taps):
            at = by_tap[n, c // per, ky, kx]
            rows = (starts[0][:, None] + ky * self.dilation[0]).astype(x.dtype) + at[0]
            columns = (starts[1][None, :] + kx * self.dilation[1]).astype(x.dtype) + at[1]
            seen[n, c, ky, kx] = bilinear(x[n, c], rows, columns)
        groups = self.groups
        grouped = seen.reshape(x.shape[0], groups, x.shape[1] // groups, *taps, *out)
        result = np.einsum("ngcabyx,gocab->ngoyx", grouped, w.reshape(groups, w.shape[0] // groups, *w.shape[1:]))
        back = result.reshape(x.shape[0], w.shape[0], *out).transpose(np.argsort(data_order))
        return np.ascontiguousarray(back, self.out_dtype or data.dtype)

    def compute(self, data: te.Tensor, offset: te.Tensor, weight: te.Tensor) -> te.Tensor:
        made = topi.deformable_conv2d_nchw if self.data_layout == "NCHW" else topi.deformable_conv2d_nhwc
        sides = self.padding
        return made(data, offset, weight, self.strides, sides, self.dilation, self.deformable_groups, self.groups,
                    self.out_dtype or None)


def bilinear(image: Array, rows: Array, columns: Array) -> Array:
    """Bilinear interpolation of an image; pixels outside are zero."""
    low_y, low_x = np.floor(rows).astype(np.int64), np.floor(columns).astype(np.int64)
    total = np.zeros(rows.shape, image.dtype)
    for dy in (0, 1):
        for dx in (0, 1):
            y, x = low_y + dy, low_x + dx
            inside = (y >= 0) & (y < image.shape[0]) & (x >= 0) & (x < image.shape[1])
            share = (1 - np.abs(rows - y)) * (1 - np.abs(columns - x))
            total += np.where(inside, share * image[
                np.clip(y, 0, image.shape[0] - 1), np.clip(x, 0, image.shape[1] - 1)], 0).astype(image.dtype)
    return total
