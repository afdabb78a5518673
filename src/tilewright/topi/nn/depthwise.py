"""Depthwise convolutions, each input channel with its own kernels, and their gradients."""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.base.types import DataType
from tilewright.scalar.expr import EQ, PrimExpr, Var, all_of, cast, compare, const, floordiv, floormod, if_then_else
from tilewright.topi import channel_blocks
from tilewright.topi.algorithms import fastest
from tilewright.topi.kinds import Reduction
from tilewright.topi.tag import tagged
from tilewright.topi.transform import reshape
from tilewright.topi.windows import Ints, Padding, padding_of, per_dimension


def _depthwise(
    data: te.Tensor, weight: te.Tensor, kernel: Ints, stride: Any, padding: Padding, dilation: Any, layout: str,
    kernel_layout: str, out_dtype: str | None
) -> te.Tensor:
    apart = per_dimension(dilation, 2, "dilation")
    sides = padding_of(padding, [(k - 1) * d + 1 for k, d in zip(kernel, apart, strict=True)])
    strides = per_dimension(stride, 2, "stride")
    dtype, channels = DataType(out_dtype or data.dtype), data.extents[layout.index("C")]
    return fastest(channel_blocks.conv)(
        data, weight, strides, sides, apart, channels, layout, kernel_layout, layout, dtype
    )


@tagged("depthwise_conv2d_nchw")
def depthwise_conv2d_nchw(
    Input: te.Tensor, Filter: te.Tensor, stride: int | Ints, padding: Padding, dilation: int | Ints,
    out_dtype: str | None = None
) -> te.Tensor:
    """Convolve data (batch, in, height, width) with a kernel (in, multiplier, height, width); the result has in *
    multiplier channels."""
    channels, multiplier, *kernel = Filter.extents
    weight = reshape(Filter, (channels * multiplier, 1, *kernel), "kernel")
    return _depthwise(Input, weight, kernel, stride, padding, dilation, "NCHW", "OIHW", out_dtype)


@tagged("depthwise_conv2d_nhwc")
def depthwise_conv2d_nhwc(
    Input: te.Tensor, Filter: te.Tensor, stride: int | Ints, padding: Padding, dilation: int | Ints,
    kernel_layout: str = "HWOI", out_dtype: str | None = None,
) -> te.Tensor:
    """Convolve data (batch, height, width, in) with a kernel (height, width, in, multiplier), or (height, width,
    multiplier, in) with `kernel_layout` HWIO."""
    if kernel_layout == "HWIO":
        given = Filter
        Filter = te.compute(
            (*given.shape[:2], given.shape[3], given.shape[2]), lambda y, x, c, m: given(y, x, m, c), name="kernel"
        )
    *kernel, channels, multiplier = Filter.extents
    weight = reshape(Filter, (*kernel, channels * multiplier, 1), "kernel")
    return _depthwise(Input, weight, kernel, stride, padding, dilation, "NHWC", "HWOI", out_dtype)


def _reached(out: PrimExpr, stride: int, size: int) -> tuple[PrimExpr, PrimExpr]:
    """Return the index of the window that starts at `out`, and whether there is one."""
    place = floordiv(out, stride)
    inside = all_of(out >= 0, place < size)
    return place, inside if stride == 1 else all_of(inside, compare(EQ, floormod(out, stride), 0))


@tagged("depthwise_conv2d_backward_input_nhwc")
def depthwise_conv2d_backward_input_nhwc(
    Filter: te.Tensor, Out_grad: te.Tensor, oshape: Ints, ishape: Ints, stride: int | Ints, padding: Padding
) -> te.Tensor:
    """Return the gradient with respect to the data, of shape `ishape`, for a kernel (height, width, in, multiplier) and
    a gradient (batch, height, width, in * multiplier)."""
    *kernel, _, multiplier = Filter.extents
    strides, sides = per_dimension(stride, 2, "stride"), padding_of(padding, kernel)
    ky, kx, m = (te.reduce_axis((0, n), name) for n, name in zip((*kernel, multiplier), ("kh", "kw", "m"), strict=True))

    def element(n: Var, y: Var, x: Var, c: Var) -> PrimExpr:
        row, above = _reached(y + sides[0] - ky.var, strides[0], oshape[1])
        column, beside = _reached(x + sides[1] - kx.var, strides[1], oshape[2])
        term = Out_grad(n, row, column, c * multiplier + m.var) * Filter(ky, kx, c, m)
        return te.sum(if_then_else(all_of(above, beside), term, const(0, Filter.dtype)), axis=[ky, kx, m])

    total = te.compute(tuple(ishape), element, name="backward_input", schedule=Reduction())
    return te.compute(total.shape, total, name="input_gradient")


@tagged("depthwise_conv2d_backward_weight_nhwc")
def depthwise_conv2d_backward_weight_nhwc(
    Input: te.Tensor, Out_grad: te.Tensor, oshape: Ints, fshape: Ints, stride: int | Ints, padding: Padding
) -> te.Tensor:
    """Return the gradient with respect to the kernel, of shape `fshape` (height, width, in, multiplier)."""
    multiplier, sizes = fshape[3], Input.extents
    strides, sides = per_dimension(stride, 2, "stride"), padding_of(padding, fshape[:2])
    n, oy, ox = (te.reduce_axis((0, size), name) for size, name in zip(oshape[:3], ("n", "oh", "ow"), strict=True))

    def element(ky: Var, kx: Var, c: Var, m: Var) -> PrimExpr:
        y, x = oy.var * strides[0] + ky - sides[0], ox.var * strides[1] + kx - sides[1]
        inside = all_of(y >= 0, y < sizes[1], x >= 0, x < sizes[2])
        term = Out_grad(n, oy, ox, c * multiplier + m) * Input(n, y, x, c)
        return te.sum(if_then_else(inside, term, cast(Input.dtype, 0)), axis=[n, oy, ox])

    total = te.compute(tuple(fshape), element, name="backward_weight", schedule=Reduction())
    return te.compute(total.shape, total, name="weight_gradient")


__all__ = [
    "depthwise_conv2d_backward_input_nhwc", "depthwise_conv2d_backward_weight_nhwc", "depthwise_conv2d_nchw",
    "depthwise_conv2d_nhwc"
]
