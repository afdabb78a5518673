"""Sliding windows: normalized padding and strides, and the number of window positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import OpenSize
from tilewright.scalar.arith.open_sizes import limit, open_size
from tilewright.scalar.arith.ranges import Ranges
from tilewright.scalar.arith.simplify import simplify
from tilewright.scalar.expr import PrimExpr, all_of, as_expr, maximum, minimum
from tilewright.tir.stmt import IterVar
from tilewright.topi.shapes import Shape, text

Ints = Sequence[int]
Padding = int | str | Sequence[Any]


def per_dimension(value: int | Ints, n: int, what: str) -> tuple[int, ...]:
    """Return one number for each of `n` spatial dimensions."""
    numbers = (value,) if isinstance(value, int) else tuple(value)
    numbers = numbers * n if len(numbers) == 1 else numbers
    if len(numbers) != n:
        raise ShapeError(f"{what} must be 1 or {n} numbers, not {text(numbers)}")
    return numbers


def both_sides(padding: int | Ints, n: int) -> tuple[int, ...]:
    """Return padding as n numbers before and n after, from one number, n, or 2n."""
    numbers = (padding,) if isinstance(padding, int) else tuple(padding)
    full = {
        1: numbers * (2 * n), n: numbers * 2, 2 * n: numbers
    }.get(len(numbers)) if len(numbers) != 1 else numbers * (2 * n)
    if full is None:
        raise ShapeError(f"padding must be 1, {n} or {2 * n} numbers, not {text(numbers)}")
    return full


def window_count(size: Any, before: int, after: int, kernel: Any, stride: int, dilation: int, axis: int) -> Any:
    """Return the number of window positions along one dimension. Raises `ShapeError` if the window does not fit."""
    reach = (kernel - 1) * dilation + 1
    room = size + before + after - reach
    dynamic = open_size(room) if isinstance(room, PrimExpr) else room
    if isinstance(dynamic, OpenSize):
        limit(dynamic, 0)
    elif isinstance(room, int) and room < 0:
        raise ShapeError(
            f"a window of {reach} does not fit into spatial dimension {axis} of {size} with padding {before} and "
            f"{after}"
        )
    count = room // stride + 1
    return simplify(count, Ranges()) if isinstance(count, PrimExpr) else count


def padding_of(padding: Padding, reach: Ints) -> tuple[int, ...]:
    """Return padding in any of TVM's forms as n numbers before and n after: one number, n, 2n, pairs, "VALID", or
    "SAME" for windows of `reach`."""
    n = len(reach)
    if isinstance(padding, str):
        if padding not in ("SAME", "VALID"):
            raise ShapeError(f"padding '{padding}' is not supported; it must be SAME, VALID, or numbers")
        whole = [r - 1 if padding == "SAME" else 0 for r in reach]
        return (*((w + 1) // 2 for w in whole), *(w // 2 for w in whole))
    if isinstance(padding, int):
        return both_sides(padding, n)
    numbers = list(padding)
    if numbers and isinstance(numbers[0], (tuple, list)):
        return (*(pair[0] for pair in numbers), *(pair[1] for pair in numbers))
    return both_sides(numbers, n)


def pooled_size(
    size: Any, window: int, stride: int, dilation: int, before: int, after: int, ceil_mode: bool, axis: int
) -> Any:
    """Return the number of positions of a pooling window along one dimension.

    With `ceil_mode`, a last window that starts inside the data or the leading padding can extend beyond the end.
    """
    count = window_count(size, before, after + (stride - 1 if ceil_mode else 0), window, stride, dilation, axis)
    if not ceil_mode or after + stride <= (window - 1) * dilation + 1:  # a last window always begins inside
        return count
    if isinstance(count, OpenSize) or not isinstance(count, int):
        raise ShapeError(
            f"ceil_mode with a stride of {stride} and a window of {window} needs known sizes, and spatial dimension "
            f"{axis} is {size}; give the model's inputs fixed sizes"
        )
    return count - 1 if (count - 1) * stride >= size + before else count


def reaching(
    shape: Shape, counts: Ints, window: Ints, strides: Ints, dilation: Ints, padding: Ints, ceil_mode: bool
) -> tuple[int, ...]:
    """Return the padding, extended as the last windows require with `ceil_mode`, or for dynamic sizes can require."""
    if not ceil_mode:
        return tuple(padding)
    n, after = len(window), []
    for k, (size, count) in enumerate(zip(shape, counts, strict=True)):
        if isinstance(size, OpenSize):
            after.append(padding[n + k] + strides[k] - 1)
            continue
        reach = (count - 1) * strides[k] + (window[k] - 1) * dilation[k] + 1
        after.append(max(padding[n + k], reach - size - padding[k]))
    return (*padding[:n], *after)


class Window:
    """A window that slides over the spatial dimensions `sizes` of data; `padding` is `(*before, *after)`."""

    def __init__(self, sizes: Ints, ksize: Ints, strides: Ints, padding: Ints, dilation: Ints) -> None:
        n = len(ksize)
        self.sizes, self.ksize = list(sizes), list(ksize)
        self.strides, self.dilation = list(strides), list(dilation)
        self.before, self.after = list(padding[:n]), list(padding[n:])
        self.out = [
            (i + b + a - (k - 1) * d - 1) // s + 1
            for i, b, a, k, d, s in zip(self.sizes, self.before, self.after, ksize, dilation, strides, strict=True)
        ]
        """Number of places of the window along each dimension."""
        self.tested = [True] * n
        """Whether a tap may fall into the padding of a dimension."""

    @property
    def is_open(self) -> bool:
        """Whether a size is symbolic."""
        return any(isinstance(size, OpenSize) for size in self.sizes)

    def taps(self) -> list[IterVar]:
        """New reduction axes over the taps."""
        names = ("kd", "kh", "kw")[3 - len(self.ksize) :]
        return [te.reduce_axis((0, k), name) for k, name in zip(self.ksize, names, strict=True)]

    def under(
        self, point: Sequence[PrimExpr], taps: Sequence[IterVar | PrimExpr]
    ) -> tuple[list[PrimExpr], PrimExpr]:
        """The indices of the element under a tap of the window at `point`, and the condition that it is not padding."""
        where: list[PrimExpr] = []
        inside: PrimExpr = all_of()
        for k, (o, tap) in enumerate(zip(point, taps, strict=True)):
            i = o * self.strides[k] + (tap.var if isinstance(tap, IterVar) else tap) * self.dilation[k] - self.before[k]
            where.append(i)
            if not self.tested[k]:
                continue
            last = (self.out[k] - 1) * self.strides[k] + (self.ksize[k] - 1) * self.dilation[k] - self.before[k]
            if self.before[k]:
                inside = all_of(inside, i >= 0)
            if self.after[k] and (self.is_open or last >= self.sizes[k]):
                inside = all_of(inside, i < self.sizes[k])
        return where, inside

    def covered(self, d: int, o: PrimExpr, before: int, after: int) -> PrimExpr:
        """The number of taps along dimension `d` of the window at `o` that count; at least 1.

        Taps on the data count, and so do those on the nearest `before` and `after` elements of the padding.
        """
        first, step, size = -self.before[d], self.dilation[d], self.ksize[d]
        low, high = -before, self.sizes[d] + after
        if first >= low and (
            self.after[d] <= after
            or (not self.is_open and (self.out[d] - 1) * self.strides[d] + first + (size - 1) * step < high)
        ):
            return as_expr(size)
        start = o * self.strides[d] - self.before[d]
        skipped = maximum(low - start + step - 1, 0) // step
        reach = minimum((high - start + step - 1) // step, size)
        return maximum(reach - skipped, 1)
