"""The plain definitions of pools over windows of one to three spatial dimensions, in any layout."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright import te
from tilewright.base.types import DataType
from tilewright.scalar.expr import PrimExpr, as_expr, cast
from tilewright.topi import channel_blocks
from tilewright.topi.channel_blocks import Finish
from tilewright.topi.elementwise import greatest
from tilewright.topi.windows import Ints, Window


def max_pool(data: te.Tensor, ksize: Ints, strides: Ints, padding: Ints, dilation: Ints, layout: str) -> te.Tensor:
    """Return the maximum of each window; padding counts as minus infinity. `padding` includes ceil mode's additions."""
    least = te.min_value(data.dtype)
    return channel_blocks.pool(data, ksize, strides, padding, dilation, layout, greatest, least, None, "max_pool")


def avg_pool(
    data: te.Tensor, ksize: Ints, strides: Ints, padding: Ints, dilation: Ints, layout: str, count_include_pad: bool,
    counted: Ints | None = None,
) -> te.Tensor:
    """Return the mean of each window. `counted` is the part of `padding` that counts as elements with
    `count_include_pad`."""
    sizes = channel_blocks.plain_data(layout, len(ksize)).forward_shape(data.extents)[2:]
    window = Window(sizes, ksize, strides, padding, dilation)
    mean = mean_of(window, counted_padding(padding, counted, count_include_pad), data.dtype)
    zero = cast(data.dtype, 0)
    return channel_blocks.pool(data, ksize, strides, padding, dilation, layout, te.sum, zero, mean, "avg_pool")


def counted_padding(padding: Ints, counted: Ints | None, count_include_pad: bool) -> list[int]:
    """Return the padding whose elements a mean counts."""
    return list(padding if counted is None else counted) if count_include_pad else [0] * len(padding)


def mean_of(window: Window, pads: Ints, dtype: DataType) -> Finish:
    """Return the division of a sum by the number of elements of its window, including the padding `pads`."""

    def finish(total: PrimExpr, point: Sequence[PrimExpr]) -> PrimExpr:
        count = as_expr(1)
        for d, o in enumerate(point):
            count = count * window.covered(d, o, pads[d], pads[len(point) + d])
        return total / cast(dtype, count)

    return finish
