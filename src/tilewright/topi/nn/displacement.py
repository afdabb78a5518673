"""Correlation of two images over displacements, and buffers of the latest data of a stream."""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.scalar.expr import PrimExpr, Var, all_of, const, div, floordiv, floormod, if_then_else
from tilewright.topi.elementwise import absolute
from tilewright.topi.kinds import Reduction
from tilewright.topi.shapes import axis_of, differ, text
from tilewright.topi.tag import INJECTIVE, tagged
from tilewright.topi.transform import dims
from tilewright.topi.windows import Ints, padding_of


@tagged("correlation_nchw")
def correlation_nchw(
    data1: te.Tensor, data2: te.Tensor, kernel_size: int, max_displacement: int, stride1: int, stride2: int,
    padding: int | Ints, is_multiply: bool
) -> te.Tensor:
    """Correlate patches of two images NCHW, at displacements of up to `max_displacement` in steps of `stride2`
    (Dosovitskiy et al., 2015).

    The result is the mean of products, or of absolute differences, over the channels and a patch of `kernel_size`, at
    distances of `stride1`: (batch, displacements, height, width).
    """
    batch, channels, height, width = data1.extents
    if data2.extents != data1.extents or kernel_size % 2 == 0:
        raise ShapeError(
            f"images {text(data1.extents)} and {text(data2.extents)} must have the same shape, and the "
            f"patch size {kernel_size} must be odd"
        )
    top, left, bottom, right = padding_of(padding, (1, 1))
    border, radius = max_displacement + kernel_size // 2, max_displacement // stride2
    size = 2 * radius + 1
    out = [(n - 2 * border + stride1 - 1) // stride1 for n in (height + top + bottom, width + left + right)]
    if min(out) < 1:
        raise ShapeError(
            f"displacements of {max_displacement} with patches of {kernel_size} do not fit into images "
            f"{text(data1.extents)}; pad them"
        )
    c, ky, kx = (
        te.reduce_axis((0, n), name) for n,
        name in zip((channels, kernel_size, kernel_size), ("rc", "ry", "rx"), strict=True)
    )

    def at(image: te.Tensor, n: Var, y: PrimExpr, x: PrimExpr) -> PrimExpr:
        row, column = y + ky.var - top, x + kx.var - left
        inside = all_of(row >= 0, row < height, column >= 0, column < width)
        return if_then_else(inside, image(n, c, row, column), const(0, image.dtype))

    def element(n: Var, q: Var, i: Var, j: Var) -> PrimExpr:
        y, x = i * stride1 + max_displacement, j * stride1 + max_displacement
        one = at(data1, n, y, x)
        other = at(data2, n, y + (floordiv(q, size) - radius) * stride2, x + (floormod(q, size) - radius) * stride2)
        return te.sum(one * other if is_multiply else absolute(one - other), axis=[c, ky, kx])

    total = te.compute((batch, size * size, *out), element, name="correlation_sum", schedule=Reduction())
    count = kernel_size * kernel_size * channels
    return te.compute(total.shape, lambda *i: div(total(*i), const(count, total.dtype)), name="correlation")


@tagged(INJECTIVE)
def fifo_buffer(data: te.Tensor, buffer: te.Tensor, axis: int) -> te.Tensor:
    """Append `data` to `buffer` along `axis`, and drop the same number of elements at its beginning."""
    at = axis_of(axis, buffer.ndim)
    if data.ndim != buffer.ndim or any(
        d != at and differ(n, m) for d, (n, m) in enumerate(zip(dims(data), dims(buffer), strict=True))
    ):
        raise ShapeError(
            f"data {text(dims(data))} and the buffer {text(dims(buffer))} differ in another axis than {at}"
        )
    size, new = dims(buffer)[at], dims(data)[at]

    def along(i: tuple[Var, ...], place: Any) -> list[Any]:
        return [place if d == at else v for d, v in enumerate(i)]

    def element(*i: Var) -> PrimExpr:
        if new >= size:
            return data(*along(i, i[at] + (new - size)))
        return if_then_else(i[at] < size - new, buffer(*along(i, i[at] + new)), data(*along(i, i[at] - (size - new))))

    return te.compute(buffer.shape, element, name="new_buffer")


__all__ = ["correlation_nchw", "fifo_buffer"]
