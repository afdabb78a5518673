"""Scatters: elements put at computed places of a copy."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Final

from tilewright import expr as E
from tilewright import te
from tilewright.expr import PrimExpr
from tilewright.tir.ir_builder import BufferVar
from tilewright.topi.elementwise import greater_of, lesser_of
from tilewright.topi.loops import Loops, Rows, from_end, loops

_NS = 1.0


def _product(old: PrimExpr, new: PrimExpr) -> PrimExpr:
    return E.logical_and(old, new) if old.dtype.code == "bool" else E.mul(old, new)


def _sum(old: PrimExpr, new: PrimExpr) -> PrimExpr:
    return E.logical_or(old, new) if old.dtype.code == "bool" else E.add(old, new)


UPDATES: Final[dict[str, Callable[[PrimExpr, PrimExpr], Any]]] = {
    "update": lambda old, new: new, "add": _sum, "mul": _product, "min": lesser_of, "max": greater_of,
}
"""What becomes of an element that another is put on."""


def scatter_elements(data: te.Tensor, indices: te.Tensor, updates: te.Tensor, axis: int = 0, reduction: str = "update") -> te.Tensor:
    """`data` with `updates[i…]` put at `i…` with `i[axis] = indices[i…]`, in order; negative indices count from the end."""
    where, combine = axis % data.ndim, UPDATES[reduction]
    shape, counts = data.extents, indices.extents
    whole = Rows.of(shape, where)
    alike = shape[:where] == counts[:where]

    def body(b: Loops, x: BufferVar, at: BufferVar, new: BufferVar, out: BufferVar) -> None:
        rows = whole.outer if alike else 1
        size, trips = prod(shape) // max(1, rows), prod(counts) // max(1, rows)
        with b.shared(rows, rows * (size + trips) * _NS) as row:
            with b.for_range(0, size, "k") as k:
                out[row * size + k] = x[row * size + k]
            with b.for_range(0, trips, "update") as k:
                flat = b.let("flat", row * trips + k)
                index = b.let("index", from_end(at[flat], shape[where]))
                to = b.let("to", _position(flat, counts, shape, where, index))
                out[to] = combine(out[to], new[flat])

    return loops("scatter_elements", [data, indices, updates], [(shape, data.dtype)], body)  # type: ignore[no-any-return]


def _position(flat: PrimExpr, counts: tuple[int, ...], shape: tuple[int, ...], axis: int, index: PrimExpr) -> PrimExpr:
    """The flat position, in `shape`, of the element at `flat` of `counts` with `index` along `axis`."""
    total: PrimExpr = E.const(0, "int64")
    stride, rest = 1, flat
    for d in reversed(range(len(shape))):
        coordinate = E.floormod(rest, counts[d]) if d else rest
        rest = E.floordiv(rest, counts[d])
        total = total + (index if d == axis else coordinate) * stride
        stride *= shape[d]
    return total


def scatter_nd(data: te.Tensor, indices: te.Tensor, updates: te.Tensor, mode: str = "update") -> te.Tensor:
    """`data` with `updates` put at points, in order: `indices[k, p…]` is coordinate k of point p."""
    shape, combine = data.extents, UPDATES[mode]
    coordinates, points = indices.extents[0], prod(indices.extents[1:])
    width = prod(shape[coordinates:])

    def body(b: Loops, x: BufferVar, at: BufferVar, new: BufferVar, out: BufferVar) -> None:
        with b.for_range(0, prod(shape), "k") as k:
            out[k] = x[k]
        with b.for_range(0, points, "point") as p:
            to: PrimExpr = E.const(0, "int64")
            for c in range(coordinates):
                to = to * shape[c] + from_end(at[p + c * points], shape[c])
            start = b.let("start", to * width)
            with b.for_range(0, width, "k") as k:
                out[start + k] = combine(out[start + k], new[p * width + k])

    return loops("scatter_nd", [data, indices, updates], [(shape, data.dtype)], body)  # type: ignore[no-any-return]
