"""Scatters: copies of a tensor with elements updated at computed positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final

from tilewright import te
from tilewright.scalar import expr as E
from tilewright.scalar.expr import PrimExpr
from tilewright.tir.ir_builder import BufferVar
from tilewright.topi.elementwise import greater_of, lesser_of
from tilewright.topi.loops import Loops, Rows, from_end, held, loops
from tilewright.topi.work import Step

__all__ = ["invert_permutation", "scatter_elements", "scatter_nd", "sparse_reshape", "sparse_to_dense"]


def _product(old: PrimExpr, new: PrimExpr) -> PrimExpr:
    return E.logical_and(old, new) if old.dtype.code == "bool" else E.mul(old, new)


def _sum(old: PrimExpr, new: PrimExpr) -> PrimExpr:
    return E.logical_or(old, new) if old.dtype.code == "bool" else E.add(old, new)


UPDATES: Final[dict[str, Callable[[PrimExpr, PrimExpr], Any]]] = {
    "update": lambda old, new: new, "add": _sum, "mul": _product, "min": lesser_of, "max": greater_of,
}
"""The combination of an old element with its update."""


def scatter_elements(
    data: te.Tensor, indices: te.Tensor, updates: te.Tensor, axis: int = 0, reduction: str = "update"
) -> te.Tensor:
    """Return `data` updated by `updates[i…]` at `i…` with `i[axis] = indices[i…]`, in order; negative indices count
    from the end."""
    where, combine = axis % data.ndim, UPDATES[reduction]
    shape, counts = data.extents, indices.extents
    whole = Rows.of(shape, where)
    alike = shape[:where] == counts[:where]

    def body(b: Loops, x: BufferVar, at: BufferVar, new: BufferVar, out: BufferVar) -> None:
        rows = whole.outer if alike else 1
        size, trips = prod(shape) // max(1, rows), prod(counts) // max(1, rows)
        with b.shared(rows, rows * (size + trips), Step.MOVE) as row:
            with b.for_range(0, size, "k") as k:
                out[row * size + k] = x[row * size + k]
            with b.for_range(0, trips, "update") as k:
                flat = b.let("flat", row * trips + k)
                index = b.let("index", from_end(at[flat], shape[where]))
                to = b.let("to", _position(flat, counts, shape, where, index))
                out[to] = combine(out[to], new[flat])

    return loops("scatter_elements", [data, indices, updates], [(shape, data.dtype)], body)[0]


def _position(flat: PrimExpr, counts: tuple[int, ...], shape: tuple[int, ...], axis: int, index: PrimExpr) -> PrimExpr:
    """Return the flat index, in `shape`, of the element at `flat` of `counts` with `index` along `axis`."""
    total: PrimExpr = E.const(0, "int64")
    stride, rest = 1, flat
    for d in reversed(range(len(shape))):
        coordinate = E.floormod(rest, counts[d]) if d else rest
        rest = E.floordiv(rest, counts[d])
        total = total + (index if d == axis else coordinate) * stride
        stride *= shape[d]
    return total


def scatter_nd(data: te.Tensor, indices: te.Tensor, updates: te.Tensor, mode: str = "update") -> te.Tensor:
    """Return `data` updated by `updates` at points, in order: `indices[k, p…]` is coordinate k of point p."""
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

    return loops("scatter_nd", [data, indices, updates], [(shape, data.dtype)], body)[0]


def sparse_to_dense(
    indices: te.Tensor, output_shape: Sequence[int], values: te.Tensor, default: te.Tensor | PrimExpr | float = 0
) -> te.Tensor:
    """Return a tensor of `output_shape` with `values` (a common one, or one each) at the points `indices` (points,
    coordinates), and `default`, a tensor of one element or a number, elsewhere."""
    points = indices.extents[0] if indices.ndim else 1
    width = indices.extents[1] if indices.ndim == 2 else 1
    shape = tuple(output_shape)

    def body(b: Loops, at: BufferVar, value: BufferVar, *rest: BufferVar) -> None:
        *filling, out = rest
        first = (
            b.let("filling", filling[0][(0,) * default.ndim]) if isinstance(default, te.Tensor)
            else E.cast(values.dtype, E.as_expr(default)))
        with b.for_range(0, prod(shape), "k") as k:
            out[k] = first
        with b.for_range(0, points, "point") as p:
            to: PrimExpr = E.const(0, "int64")
            for c, size in enumerate(shape):
                coordinate = at[()] if not indices.ndim else at[p * width + c]
                to = to * size + held(coordinate, size)
            out[to] = value[p if values.ndim else ()]

    inputs = [indices, values, *([default] if isinstance(default, te.Tensor) else [])]
    return loops("sparse_to_dense", inputs, [(shape, values.dtype)], body)[0]


def sparse_reshape(indices: te.Tensor, prev_shape: te.Tensor, new_shape: te.Tensor) -> tuple[te.Tensor, ...]:
    """Convert the points `indices` (points, coordinates) of a tensor of `prev_shape` to points of `new_shape`, which
    may have one -1. Return them with that shape."""
    (points, before), after, dtype = indices.extents, new_shape.extents[0], indices.dtype

    def body(b: Loops, at: BufferVar, old: BufferVar, new: BufferVar, out: BufferVar, shape: BufferVar) -> None:
        total, known = b.variable("total", "int64", 1), b.variable("known", "int64", 1)
        for k in range(before):
            total[0] = total[0] * E.cast("int64", old[k])
        for k in range(after):
            size = b.let("size", E.cast("int64", new[k]))
            known[0] = known[0] * E.if_then_else(size < 0, E.const(1, "int64"), size)
        for k in range(after):
            size = b.let("size", E.cast("int64", new[k]))
            shape[k] = E.cast(
                new_shape.dtype, E.if_then_else(size < 0, E.floordiv(total[0], E.maximum(known[0], 1)), size)
            )
        with b.for_range(0, points, "point") as p:
            flat = b.variable("flat", "int64", 0)
            for k in range(before):
                flat[0] = flat[0] * E.cast("int64", old[k]) + E.cast("int64", at[p, k])
            for k in reversed(range(after)):
                size = b.let("size", E.maximum(E.cast("int64", shape[k]), 1))
                out[p, k] = E.cast(dtype, E.floormod(flat[0], size))
                flat[0] = E.floordiv(flat[0], size)

    return loops(
        "sparse_reshape", [indices, prev_shape, new_shape], [((points, after), dtype), ((after,), new_shape.dtype)],
        body
    )


def invert_permutation(data: te.Tensor) -> te.Tensor:
    """Return `out` with `out[data[i]] = i`."""

    def body(b: Loops, x: BufferVar, out: BufferVar) -> None:
        with b.for_range(0, data.extents[0], "k") as k:
            out[held(x[k], data.extents[0])] = E.cast(data.dtype, k)

    return loops("invert_permutation", [data], [(data.extents, data.dtype)], body)[0]
