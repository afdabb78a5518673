"""`BufferRegion`: a box of a buffer, written `A[i, 0:32]`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.base.errors import CompileError
from tilewright.base.scriptable import Scriptable
from tilewright.scalar.arith.ranges import Ranges
from tilewright.scalar.arith.simplify import simplify
from tilewright.scalar.expr import Buffer, as_expr, sub
from tilewright.scalar.range import Range


@dataclass(frozen=True, slots=True)
class BufferRegion(Scriptable):
    """A box of a buffer: a range along each dimension."""

    buffer: Buffer
    region: tuple[Range, ...]

    def __str__(self) -> str:
        """Return the box as text: `A[v : v + 1]`."""
        return f"{self.buffer.name}[{', '.join(f'{r.min} : {r.min + r.extent}' for r in self.region)}]"


def region_at(buffer: Buffer, items: Sequence[Any]) -> BufferRegion:
    """Return the box with an index or a slice along each dimension; an open end of a slice is that of the buffer.

    Raises `CompileError` for another number of dimensions, and for slices with steps.
    """
    if len(items) != len(buffer.shape):
        raise CompileError(
            f"'{buffer.name}' has {len(buffer.shape)} dimensions, but was given {len(items)} indices", code="TW0609")
    if any(isinstance(i, slice) and i.step not in (None, 1) for i in items):
        raise CompileError(
            f"a slice of '{buffer.name}' has a step, but a region has all elements between its ends", code="TW0609")
    return BufferRegion(buffer, tuple(
        _range(i, n) if isinstance(i, slice) else Range.from_min_extent(i, 1)
        for i, n in zip(items, buffer.shape, strict=True)))


def _range(part: slice, size: Any) -> Range:
    first = as_expr(0 if part.start is None else part.start)
    end = as_expr(size if part.stop is None else part.stop)
    return Range.from_min_extent(first, simplify(sub(end, first), Ranges()))


__all__ = ["BufferRegion", "region_at"]
