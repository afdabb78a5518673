"""Convolutions of tensors whose channels are in blocks: data (batch, in / x, height, width, x), the layout NCHW[x]c."""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.errors import ShapeError
from tilewright.expr import PrimExpr, Var, all_of, cast, floordiv, floormod, if_then_else
from tilewright.topi.schedules.reduce import schedule_reduce
from tilewright.topi.shapes import text
from tilewright.topi.tag import INJECTIVE, tagged
from tilewright.topi.windows import Ints, Padding, padding_of, per_dimension, window_count
from tilewright.types import DataType


class _Windows:
    """The places of a window over the two spatial dimensions of data NCHW[x]c, and the element of a channel under each tap."""

    def __init__(self, data: te.Tensor, kernel: Ints, stride: Any, padding: Padding, dilation: Any) -> None:
        self.data = data
        self.stride, self.dilation = per_dimension(stride, 2, "stride"), per_dimension(dilation, 2, "dilation")
        self.padding = padding_of(padding, [(k - 1) * d + 1 for k, d in zip(kernel, self.dilation, strict=True)])
        self.sizes = data.extents[2:4]
        self.taps = [te.reduce_axis((0, k), name) for k, name in zip(kernel, ("kh", "kw"), strict=True)]
        self.out = [
            window_count(n, self.padding[k], self.padding[2 + k], kernel[k], self.stride[k], self.dilation[k], k) for k, n in enumerate(self.sizes)
        ]

    def at(self, n: Var, point: tuple[Var, Var], channel: Any, dtype: DataType) -> PrimExpr:
        where, inside = [], all_of()
        for k, (o, tap) in enumerate(zip(point, self.taps, strict=True)):
            i = o * self.stride[k] + tap.var * self.dilation[k] - self.padding[k]
            inside = all_of(inside, i >= 0, i < self.sizes[k])
            where.append(i)
        block = self.data.extents[4]
        x = cast(dtype, self.data(n, floordiv(channel, block), *where, floormod(channel, block)))
        return if_then_else(inside, x, cast(dtype, 0))


def _block_of(layout: str) -> int:
    found = "".join(c for c in layout if c.isdigit())
    if layout != f"NCHW{found}c" or not found:
        raise ShapeError(f"layout '{layout}' has no blocks of channels; it is NCHW8c, with the size of a block")
    return int(found)


def _blocked(total: te.Tensor, name: str) -> te.Tensor:
    return te.compute(total.shape, total, name=name)  # type: ignore[no-any-return]


@tagged("conv2d_NCHWc")
def conv2d_NCHWc(
    data: te.Tensor, kernel: te.Tensor, stride: int | Ints, padding: Padding, dilation: int | Ints, layout: str, out_layout: str,
    out_dtype: str | None = "float32",
) -> te.Tensor:
    """Data NCHW[x]c and a kernel OIHW[x]i[y]o make a result NCHW[y]c. Groups, where the kernel has fewer channels than the data."""
    chunks, depth, *taps, inner, block = kernel.extents
    channels = data.extents[1] * data.extents[4]
    groups, out_block, dtype = channels // (depth * inner), _block_of(out_layout), DataType(out_dtype or data.dtype)
    if inner != data.extents[4] or inner != _block_of(layout) or block != out_block or channels % (depth * inner) or chunks * block % groups:
        raise ShapeError(f"data {text(data.extents)} ({layout}) and the kernel {text(kernel.extents)} do not make a result {out_layout}")
    w = _Windows(data, taps, stride, padding, dilation)
    ic = te.reduce_axis((0, depth * inner), "ic")
    per_group = chunks * block // groups

    def element(n: Var, chunk: Var, y: Var, x: Var, lane: Var) -> PrimExpr:
        channel = floordiv(chunk * block + lane, per_group) * (depth * inner) + ic.var if groups > 1 else ic.var
        k = kernel(chunk, floordiv(ic.var, inner), *w.taps, floormod(ic.var, inner), lane)
        return te.sum(w.at(n, (y, x), channel, dtype) * cast(dtype, k), axis=[*w.taps, ic])

    return _blocked(te.compute((data.shape[0], chunks, *w.out, block), element, name="conv2d_NCHWc_sum", schedule=schedule_reduce), "conv2d_NCHWc")


@tagged("conv2d_NCHWc_int8")
def conv2d_NCHWc_int8(
    data: te.Tensor, kernel: te.Tensor, stride: int | Ints, padding: Padding, dilation: int | Ints, layout: str, out_layout: str,
    out_dtype: str | None = "int32", n_elems: int = 4,
) -> te.Tensor:
    """The same of small integers, with a kernel OIHW[x / n]i[y]o[n]i: `n_elems` input channels stand together."""
    chunks, depth, height, width, outer, block, together = kernel.extents
    if together != n_elems:
        raise ShapeError(f"{n_elems} input channels were to stand together, and the kernel {text(kernel.extents)} has {together}")
    plain = te.compute(
        (chunks, depth, height, width, outer * together, block),
        lambda o, i, y, x, c, lane: kernel(o, i, y, x, floordiv(c, together), lane, floormod(c, together)), name="kernel",
    )
    return conv2d_NCHWc(data, plain, stride, padding, dilation, layout, out_layout, out_dtype)


@tagged("depthwise_conv2d_NCHWc")
def depthwise_conv2d_NCHWc(
    Input: te.Tensor, Filter: te.Tensor, stride: int | Ints, padding: Padding, dilation: int | Ints, layout: str, out_layout: str,
    out_dtype: str | None = None,
) -> te.Tensor:
    """Data NCHW[x]c and a kernel (out / y, 1, height, width, 1, y) make a result NCHW[y]c."""
    chunks, _, *taps, _, block = Filter.extents
    channels, dtype = Input.extents[1] * Input.extents[4], DataType(out_dtype or Input.dtype)
    if block != _block_of(out_layout) or Input.extents[4] != _block_of(layout) or chunks * block % channels:
        raise ShapeError(f"data {text(Input.extents)} ({layout}) and the kernel {text(Filter.extents)} do not make a result {out_layout}")
    multiplier = chunks * block // channels
    w = _Windows(Input, taps, stride, padding, dilation)

    def element(n: Var, chunk: Var, y: Var, x: Var, lane: Var) -> PrimExpr:
        channel = floordiv(chunk * block + lane, multiplier)
        return te.sum(w.at(n, (y, x), channel, dtype) * cast(dtype, Filter(chunk, 0, *w.taps, 0, lane)), axis=w.taps)

    total = te.compute((Input.shape[0], chunks, *w.out, block), element, name="depthwise_NCHWc_sum", schedule=schedule_reduce)
    return _blocked(total, "depthwise_conv2d_NCHWc")


@tagged(INJECTIVE)
def unpack_NCHWc_to_nchw(packed_out: te.Tensor, out_dtype: str) -> te.Tensor:
    """NCHW[x]c as NCHW, in `out_dtype`."""
    n, chunks, height, width, block = packed_out.extents
    return te.compute(  # type: ignore[no-any-return]
        (n, chunks * block, height, width), lambda b, c, y, x: cast(out_dtype, packed_out(b, floordiv(c, block), y, x, floormod(c, block))), name="output_unpack"
    )


__all__ = ["conv2d_NCHWc", "conv2d_NCHWc_int8", "depthwise_conv2d_NCHWc", "unpack_NCHWc_to_nchw"]
