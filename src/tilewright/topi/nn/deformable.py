"""Deformable convolutions: each tap reads the image at a separate offset, with interpolation between pixels (Dai et
al., 2017)."""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import DataType
from tilewright.scalar.expr import PrimExpr, Var, add, all_of, cast, const, floordiv, if_then_else, mul, sub
from tilewright.scalar.intrinsics import floor
from tilewright.topi.kinds import Reduction
from tilewright.topi.layouts import placed
from tilewright.topi.shapes import differ, is_multiple, text
from tilewright.topi.tag import tagged
from tilewright.topi.windows import Ints, Padding, padding_of, per_dimension, window_count


def _sampled(pixel: Any, y: PrimExpr, x: PrimExpr, height: int, width: int) -> PrimExpr:
    """Interpolate bilinearly between the four pixels around (y, x); those outside the image are zero."""
    total: PrimExpr = const(0, y.dtype)
    low_y, low_x = floor(y), floor(x)
    for dy in (0, 1):
        for dx in (0, 1):
            py, px = cast("int64", low_y) + dy, cast("int64", low_x) + dx
            wy = sub(y, low_y) if dy else sub(const(1, y.dtype), sub(y, low_y))
            wx = sub(x, low_x) if dx else sub(const(1, x.dtype), sub(x, low_x))
            inside = all_of(py >= 0, py < height, px >= 0, px < width)
            total = add(total, if_then_else(inside, mul(mul(wy, wx), pixel(py, px)), const(0, y.dtype)))
    return total


def _deformable(
    data: te.Tensor, offset: te.Tensor, kernel: te.Tensor, strides: Any, padding: Padding, dilation: Any,
    deformable_groups: int, groups: int, out_dtype: str | None, place: Ints, order: Ints,
) -> te.Tensor:
    """Return the convolution. `place`: batch, channel, height and width of data, offset and result; `order`: out, in,
    height and width of the kernel."""
    batch, channels, height, width = (data.extents[d] for d in place)
    out_channels, depth, *taps = (kernel.extents[d] for d in order)
    every, apart = per_dimension(strides, 2, "strides"), per_dimension(dilation, 2, "dilation")
    sides = padding_of(padding, [(k - 1) * d + 1 for k, d in zip(taps, apart, strict=True)])
    out = [
        window_count(n, sides[k], sides[2 + k], taps[k], every[k], apart[k], k) for k, n in enumerate((height, width))
    ]
    wanted = batch, deformable_groups * taps[0] * taps[1] * 2, *out
    if (
        any(map(differ, (offset.extents[d] for d in place), wanted)) or differ(channels, depth * groups)
        or not is_multiple(channels, deformable_groups)
    ):
        raise ShapeError(
            f"data {text(data.extents)}, offsets {text(offset.extents)} and the kernel {text(kernel.extents)} do not "
            f"fit {groups} groups "
            f"and {deformable_groups} deformable groups; the offsets need {wanted[1]} channels and the size {text(out)}"
        )

    def at(tensor: te.Tensor, *i: Any) -> PrimExpr:
        return tensor(*placed(place, i))

    def moved(n: Var, c: Var, ky: Var, kx: Var, y: Var, x: Var) -> PrimExpr:
        first = (floordiv(c, channels // deformable_groups) * (taps[0] * taps[1]) + ky * taps[1] + kx) * 2
        row = cast(data.dtype, y * every[0] - sides[0] + ky * apart[0]) + at(offset, n, first, y, x)
        column = cast(data.dtype, x * every[1] - sides[1] + kx * apart[1]) + at(offset, n, first + 1, y, x)
        return _sampled(lambda py, px: at(data, n, c, py, px), row, column, height, width)

    seen = te.compute((batch, channels, *taps, *out), moved, name="data_deform", inline=False)
    rc, ry, rx = (te.reduce_axis((0, n), name) for n, name in zip((depth, *taps), ("rc", "ry", "rx"), strict=True))
    dtype = DataType(out_dtype or data.dtype)

    def element(*i: Var) -> PrimExpr:
        n, f, y, x = (i[d] for d in place)
        channel = floordiv(f, out_channels // groups) * depth + rc.var
        weight = kernel(*placed(order, (f, rc, ry, rx)))
        return te.sum(cast(dtype, seen(n, channel, ry, rx, y, x)) * cast(dtype, weight), axis=[rc, ry, rx])

    shape = placed(place, (batch, out_channels, *out))
    total = te.compute(shape, element, name="deformable_sum", schedule=Reduction())
    return te.compute(shape, total, name="deformable_conv2d")


@tagged("deformable_conv2d_nchw")
def deformable_conv2d_nchw(
    data: te.Tensor, offset: te.Tensor, kernel: te.Tensor, strides: int | Ints, padding: Padding, dilation: int | Ints,
    deformable_groups: int, groups: int, out_dtype: str | None,
) -> te.Tensor:
    """Convolve data NCHW with a kernel OIHW at offsets (batch, deformable_groups * kh * kw * 2, height, width), y
    before x."""
    return _deformable(
        data, offset, kernel, strides, padding, dilation, deformable_groups, groups, out_dtype, (0, 1, 2, 3),
        (0, 1, 2, 3)
    )


@tagged("deformable_conv2d_nhwc")
def deformable_conv2d_nhwc(
    data: te.Tensor, offset: te.Tensor, kernel: te.Tensor, strides: int | Ints, padding: Padding, dilation: int | Ints,
    deformable_groups: int, groups: int, out_dtype: str | None,
) -> te.Tensor:
    """Convolve data NHWC with a kernel HWIO at offsets (batch, height, width, deformable_groups * kh * kw * 2), y
    before x."""
    return _deformable(
        data, offset, kernel, strides, padding, dilation, deformable_groups, groups, out_dtype, (0, 3, 1, 2),
        (3, 2, 0, 1)
    )


__all__ = ["deformable_conv2d_nchw", "deformable_conv2d_nhwc"]
