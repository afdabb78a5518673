"""Transposed convolutions: each data element adds a scaled copy of the kernel to the result, at distances of `strides`.
"""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import DataType, TensorType
from tilewright.topi import conv_transpose as of
from tilewright.topi.shapes import differ, is_multiple, require_rank, text
from tilewright.topi.tag import tagged
from tilewright.topi.windows import Ints, Padding, padding_of, per_dimension


def _transposed(
    data: te.Tensor, kernel: te.Tensor, stride: Any, padding: Padding, out_dtype: str | None, output_padding: Any,
    groups: int, rank: int
) -> te.Tensor:
    """Return a channels-first transposed convolution; the kernel is (in, out / groups, …). Raises `ShapeError`."""
    for t, what in ((data, "data"), (kernel, "the kernel")):
        require_rank(TensorType(t.shape), rank + 2, what)
    strides, more = per_dimension(stride, rank, "strides"), per_dimension(output_padding, rank, "output_padding")
    taps = kernel.extents[2:]
    sides = padding_of(padding, taps)
    if differ(data.extents[1], kernel.extents[0]) or not is_multiple(data.extents[1], groups):
        raise ShapeError(
            f"channels of data {text(data.extents)} and the kernel {text(kernel.extents)}, in {groups} groups, do not "
            "fit"
        )
    if any(a >= s for a, s in zip(more, strides, strict=True)):
        raise ShapeError(f"output_padding {text(more)} must be less than the strides {text(strides)}")
    sizes = [
        (n - 1) * s - sides[k] - sides[rank + k] + taps[k] + more[k] for k,
        (n, s) in enumerate(zip(data.extents[2:], strides, strict=True))
    ]
    if min(sizes) < 1:
        raise ShapeError(f"the padding {text(sides)} leaves an empty result: its spatial shape is {text(sizes)}")
    order = range(rank + 2)
    return of.conv_transpose(
        data, kernel, strides, sides[:rank], (1,) * rank, groups, sizes, order, order, order,
        DataType(out_dtype or data.dtype)
    )


@tagged("conv1d_transpose_ncw")
def conv1d_transpose_ncw(
    data: te.Tensor, kernel: te.Tensor, stride: int | Ints, padding: Padding, out_dtype: str | None = None,
    output_padding: int | Ints = 0
) -> te.Tensor:
    """Convolve data (batch, in, width) with a kernel (in, out, width), transposed."""
    return _transposed(data, kernel, stride, padding, out_dtype, output_padding, 1, 1)


@tagged("group_conv1d_transpose_ncw")
def group_conv1d_transpose_ncw(
    data: te.Tensor, kernel: te.Tensor, stride: int | Ints, padding: Padding, out_dtype: str | None,
    output_padding: int | Ints, groups: int
) -> te.Tensor:
    """Convolve data (batch, in, width) with a kernel (in, out / groups, width), transposed."""
    return _transposed(data, kernel, stride, padding, out_dtype, output_padding, groups, 1)


@tagged("conv2d_transpose_nchw")
def conv2d_transpose_nchw(
    Input: te.Tensor, Filter: te.Tensor, strides: int | Ints, padding: Padding, out_dtype: str | None = None,
    output_padding: int | Ints = 0
) -> te.Tensor:
    """Convolve data (batch, in, height, width) with a kernel (in, out, height, width), transposed."""
    return _transposed(Input, Filter, strides, padding, out_dtype, output_padding, 1, 2)


@tagged("group_conv2d_transpose_nchw")
def group_conv2d_transpose_nchw(
    data: te.Tensor, kernel: te.Tensor, stride: int | Ints, padding: Padding, out_dtype: str | None,
    output_padding: int | Ints, groups: int
) -> te.Tensor:
    """Convolve data (batch, in, height, width) with a kernel (in, out / groups, height, width), transposed."""
    return _transposed(data, kernel, stride, padding, out_dtype, output_padding, groups, 2)


@tagged("conv3d_transpose_ncdhw")
def conv3d_transpose_ncdhw(
    Input: te.Tensor, Filter: te.Tensor, strides: int | Ints, padding: Padding, out_dtype: str | None = None,
    output_padding: int | Ints = 0
) -> te.Tensor:
    """Convolve data (batch, in, depth, height, width) with a kernel (in, out, depth, height, width), transposed."""
    return _transposed(Input, Filter, strides, padding, out_dtype, output_padding, 1, 3)


@tagged("group_conv3d_transpose_ncdhw")
def group_conv3d_transpose_ncdhw(
    data: te.Tensor, kernel: te.Tensor, strides: int | Ints, padding: Padding, out_dtype: str | None,
    output_padding: int | Ints, groups: int
) -> te.Tensor:
    """Convolve data (batch, in, depth, height, width) with a kernel (in, out / groups, depth, height, width),
    transposed."""
    return _transposed(data, kernel, strides, padding, out_dtype, output_padding, groups, 3)


__all__ = [
    "conv1d_transpose_ncw", "conv2d_transpose_nchw", "conv3d_transpose_ncdhw", "group_conv1d_transpose_ncw",
    "group_conv2d_transpose_nchw",
    "group_conv3d_transpose_ncdhw",
]
