"""Position of a tensor inside a larger one: rows of equal length at equal distances.

    parts of a concatenation along the last axis          a (2, 3) box in rows of 8: offset 2
       |0 0 1 1 1 2 2 2|                                      |. . x x x . . .|
       |0 0 1 1 1 2 2 2|                                      |. . x x x . . .|

All counts are in elements. `joined` and `windows` determine which calls only refer to boxes, and so need no kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tilewright.base.types import TensorType, TupleType, Type
from tilewright.relay.expr import Call, Constant, Expr, Tuple, TupleGetItem
from tilewright.relay.op.registry import Op
from tilewright.scalar.arith.open_sizes import typical

_SHORTEST_RUN: Final = 64
"""Shortest contiguous run in bytes for in-place access; shorter runs are copied."""

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Box:
    """`rows` runs of `length` elements; run k begins at `offset + k * pitch`."""

    rows: int
    length: int
    pitch: int
    offset: int = 0

    @property
    def size(self) -> int:
        return self.rows * self.length

    def within(self, width: int, pitch: int, column: int) -> Box | None:
        """Return this box in an array whose rows of `width` lie `pitch` apart, from `column` on; None if that is not a
        box.
        """
        if not width:
            return None
        if pitch == width:  # the rows are contiguous
            return Box(self.rows, self.length, self.pitch, column + self.offset)
        row, first = divmod(self.offset, width)
        start = row * pitch + column + first
        if first + (self.rows - 1) * self.pitch + self.length <= width:
            return Box(self.rows, self.length, self.pitch, start)
        if first + self.length <= width and (self.rows == 1 or self.pitch % width == 0):
            return box(self.rows, self.length, self.pitch // width * pitch, start)
        if self.rows == 1 and first == 0 and self.length % width == 0:
            return box(self.length // width, width, pitch, start)
        return None

    def storage(self, shape: Shape) -> Shape | None:
        """Return the shape of an array whose first corner holds a tensor of `shape` in this box, or None.
        """
        if self.rows == 1:
            return shape
        for axis in range(len(shape) - 1, -1, -1):
            inner = math.prod(shape[axis + 1 :])
            if inner * shape[axis] == self.length and self.pitch % inner == 0:
                return (*shape[:axis], self.pitch // inner, *shape[axis + 1 :])
        return None


def box(rows: int, length: int, pitch: int, offset: int = 0) -> Box:
    """Return the same box with as few rows as possible."""
    return (Box(1, rows * length, rows * length, offset) if rows == 1 or length == pitch
            else Box(rows, length, pitch, offset))


def whole(size: int) -> Box:
    """Return the box of a whole array."""
    return Box(1, size, size)


def part(shape: Shape, axis: int, begin: int, count: int) -> Box:
    """Return the box of the elements `begin … begin + count` along `axis` of an array of `shape`."""
    inner = math.prod(shape[axis + 1 :])
    return box(math.prod(shape[:axis]), count * inner, shape[axis] * inner, begin * inner)


def joined(call: Call) -> int | None:
    """Return the axis along which a call joins the tensors of a tuple if their runs are long enough to be written in
    place."""
    if not isinstance(call.op, Op) or len(call.args) != 1:
        return None
    kind = call.args[0].checked_type
    if not isinstance(kind, TupleType) or not isinstance(call.args[0], Tuple):
        return None
    axis = call.op.joined_axis(kind)
    return axis if axis is not None and all(_in_long_runs(t, axis) for t in kind.fields) else None


def windows(call: Call) -> list[Box] | None:
    """Return the boxes of a call's results in its argument; None if the call does more than take parts."""
    if not isinstance(call.op, Op) or not call.args or isinstance(call.args[0], Constant):
        return None
    kind, result = call.args[0].checked_type, call.checked_type
    parts: Sequence[Any] = result.fields if isinstance(result, TupleType) else (result,)
    if not isinstance(kind, TensorType) or not kind.is_static:
        return None
    found = call.op.windows(*(a.checked_type for a in call.args))
    if found is None or not all(_in_long_runs(t, axis) for t, (axis, _) in zip(parts, found, strict=True)):
        return None
    return [part(kind.shape, axis, begin, t.shape[axis]) for t, (axis, begin) in zip(parts, found, strict=True)]


def is_place(call: Call) -> bool:
    """Return whether the call needs no kernel: it joins values that kernels write in place, or takes parts of its
    argument."""
    return windows(call) is not None or (joined(call) is not None and _mostly_made(call.args[0]))


def _mostly_made(parts: Expr) -> bool:
    """Return whether most bytes of the fields of a tuple are computed, so that their kernels can write them in place.
    """
    sizes = [(typical(f.tensor_type.nbytes), _is_made(f)) for f in parts.fields]  # type: ignore[attr-defined]
    return bool(2 * sum(n for n, made in sizes if made) > sum(n for n, _ in sizes))


def _is_made(e: Expr) -> bool:
    while (isinstance(e, Call) and isinstance(e.op, Op) and e.op.view) or isinstance(e, TupleGetItem):
        e = e.args[0] if isinstance(e, Call) else e.tuple_value
    return isinstance(e, Call)


def _in_long_runs(t: Type, axis: int) -> bool:
    """Return whether the runs of a tensor cut along `axis` are long enough, or there is just one."""
    if not isinstance(t, TensorType) or not t.is_static or math.prod(t.shape) == 0:
        return False
    run: int = math.prod(t.shape[axis:]) * t.dtype.itemsize
    return run >= _SHORTEST_RUN or bool(math.prod(t.shape[:axis]) == 1)
