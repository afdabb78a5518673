"""Convolutions of tensors with blocked channels: data (batch, in / x, height, width, x), the layout NCHW[x]c."""

from __future__ import annotations

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import DataType
from tilewright.scalar.expr import cast, floordiv, floormod
from tilewright.topi import channel_blocks as of
from tilewright.topi.shapes import text
from tilewright.topi.tag import INJECTIVE, tagged
from tilewright.topi.windows import Ints, Padding, padding_of, per_dimension, window_count


def _block_of(layout: str) -> int:
    found = "".join(c for c in layout if c.isdigit())
    if layout != f"NCHW{found}c" or not found:
        raise ShapeError(
            f"layout '{layout}' has no blocks of channels; give for example NCHW8c, where 8 is the size of a block"
        )
    return int(found)


def _conv(
    data: te.Tensor, kernel: te.Tensor, stride: int | Ints, padding: Padding, dilation: int | Ints, groups: int,
    layouts: tuple[str, str, str], out_dtype: str | None, name: str,
) -> te.Tensor:
    every, apart = per_dimension(stride, 2, "stride"), per_dimension(dilation, 2, "dilation")
    taps = kernel.extents[2:4]
    sides = padding_of(padding, [(k - 1) * d + 1 for k, d in zip(taps, apart, strict=True)])
    for k in range(2):
        window_count(data.extents[2 + k], sides[k], sides[2 + k], taps[k], every[k], apart[k], k)
    return of.conv(data, kernel, every, sides, apart, groups, *layouts, DataType(out_dtype or data.dtype), name)


@tagged("conv2d_NCHWc")
def conv2d_NCHWc(
    data: te.Tensor, kernel: te.Tensor, stride: int | Ints, padding: Padding, dilation: int | Ints, layout: str,
    out_layout: str, out_dtype: str | None = "float32",
) -> te.Tensor:
    """Convolve data NCHW[x]c with a kernel OIHW[x]i[y]o to a result NCHW[y]c; grouped if the kernel has fewer channels
    than the data."""
    chunks, depth, _, _, inner, block = kernel.extents
    channels = data.extents[1] * data.extents[4]
    groups = channels // (depth * inner)
    if inner != data.extents[4] or inner != _block_of(layout) or block != _block_of(out_layout) or channels % (
        depth * inner
    ) or chunks * block % groups:
        raise ShapeError(
            f"data {text(data.extents)} ({layout}) and the kernel {text(kernel.extents)} do not fit the output layout "
            f"{out_layout}"
        )
    return _conv(
        data, kernel, stride, padding, dilation, groups, (layout, f"OIHW{inner}i{block}o", out_layout), out_dtype,
        "conv2d_NCHWc"
    )


@tagged("conv2d_NCHWc_int8")
def conv2d_NCHWc_int8(
    data: te.Tensor, kernel: te.Tensor, stride: int | Ints, padding: Padding, dilation: int | Ints, layout: str,
    out_layout: str, out_dtype: str | None = "int32", n_elems: int = 4,
) -> te.Tensor:
    """Convolve small integers as `conv2d_NCHWc` does, with a kernel OIHW[x / n]i[y]o[n]i: `n_elems` input channels are
    adjacent."""
    _, _, _, _, outer, block, together = kernel.extents
    if together != n_elems:
        raise ShapeError(
            f"{n_elems} input channels must be adjacent, but in the kernel {text(kernel.extents)} it is {together}"
        )
    groups = data.extents[1] * data.extents[4] // (kernel.extents[1] * outer * together)
    layouts = (layout, f"OIHW{outer}i{block}o{together}i", out_layout)
    return _conv(data, kernel, stride, padding, dilation, groups, layouts, out_dtype, "conv2d_NCHWc_int8")


@tagged("depthwise_conv2d_NCHWc")
def depthwise_conv2d_NCHWc(
    Input: te.Tensor, Filter: te.Tensor, stride: int | Ints, padding: Padding, dilation: int | Ints, layout: str,
    out_layout: str, out_dtype: str | None = None,
) -> te.Tensor:
    """Convolve data NCHW[x]c depthwise with a kernel (out / y, 1, height, width, 1, y) to a result NCHW[y]c."""
    chunks, *_, block = Filter.extents
    channels = Input.extents[1] * Input.extents[4]
    if block != _block_of(out_layout) or Input.extents[4] != _block_of(layout) or chunks * block % channels:
        raise ShapeError(
            f"data {text(Input.extents)} ({layout}) and the kernel {text(Filter.extents)} do not fit the output layout "
            f"{out_layout}"
        )
    layouts = (layout, f"OIHW1i{block}o", out_layout)
    return _conv(Input, Filter, stride, padding, dilation, channels, layouts, out_dtype, "depthwise_conv2d_NCHWc")


@tagged(INJECTIVE)
def unpack_NCHWc_to_nchw(packed_out: te.Tensor, out_dtype: str) -> te.Tensor:
    """Convert NCHW[x]c to NCHW, in `out_dtype`."""
    n, chunks, height, width, block = packed_out.extents
    return te.compute(
        (n, chunks * block, height, width),
        lambda b, c, y, x: cast(out_dtype, packed_out(b, floordiv(c, block), y, x, floormod(c, block))),
        name="output_unpack"
    )


__all__ = ["conv2d_NCHWc", "conv2d_NCHWc_int8", "depthwise_conv2d_NCHWc", "unpack_NCHWc_to_nchw"]
