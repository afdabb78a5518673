"""Functions that create tensors, or read them at computed positions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import DataType
from tilewright.scalar import expr as E
from tilewright.scalar.expr import PrimExpr, Value, Var
from tilewright.topi import indexing as of
from tilewright.topi.elementwise import at
from tilewright.topi.shapes import axis_of, broadcast_shapes, differ, product, text
from tilewright.topi.tag import ELEMWISE, INJECTIVE, tagged
from tilewright.topi.transform import dims


@tagged(ELEMWISE)
def full(shape: Sequence[Any], dtype: str | DataType, fill_value: Value) -> te.Tensor:
    """Return a tensor of `shape` and `dtype` filled with `fill_value`, a number or an expression."""
    return of.full(tuple(shape), fill_value, dtype)


@tagged(ELEMWISE)
def full_like(x: te.Tensor, fill_value: Value) -> te.Tensor:
    """Return a tensor of the shape and dtype of `x` filled with `fill_value`; `x` is not read."""
    return of.full(x.shape, fill_value, x.dtype, "full_like")


@tagged(INJECTIVE)
def arange(start: float, stop: float | None = None, step: float = 1, dtype: str | DataType = "float32") -> te.Tensor:
    """Return start, start + step, … below stop; a single argument is the stop."""
    first, last = (0, start) if stop is None else (start, stop)
    return of.arange(first, step, arange_count(first, last, step), dtype)


def arange_count(start: float, stop: float, step: float) -> int:
    """Return the number of steps from `start` below `stop`. Raises `ShapeError` for a step of zero or an infinite
    sequence."""
    if step == 0:
        raise ShapeError("the step is 0; use another number")
    steps = (stop - start) / step
    if not math.isfinite(steps):
        raise ShapeError(f"from {start} to {stop} by {step} is not a finite number of steps; use finite numbers")
    return max(0, math.ceil(steps))


@tagged(INJECTIVE)
def shape(array: te.Tensor, dtype: str | DataType = "int32") -> te.Tensor:
    """Return the shape of `array` as a vector."""

    def element(k: Var) -> PrimExpr:
        value = E.const(0, "int64")
        for d, n in enumerate(array.shape):
            value = E.if_then_else(E.compare(E.EQ, k, d), n, value)
        return E.cast(dtype, value)

    return te.compute((array.ndim,), element, name="shape")


@tagged(INJECTIVE)
def ndarray_size(array: te.Tensor, dtype: str | DataType = "int32") -> te.Tensor:
    """Return the number of elements of `array` as a scalar."""
    return te.compute((), lambda: E.cast(dtype, product(dims(array))), name="size")


@tagged(INJECTIVE)
def take(
    a: te.Tensor, indices: te.Tensor, axis: int | None = None, batch_dims: int = 0, mode: str = "clip"
) -> te.Tensor:
    """Return the slices of `a` along `axis` at `indices`, whose shape replaces the axis; without an axis, elements of
    the flattened `a`.

    Indices out of bounds are clamped (`mode` "clip"), taken modulo the size ("wrap"), or must not occur ("fast"). The
    first `batch_dims` dimensions of both tensors are matched.
    """
    if mode not in ("clip", "wrap", "fast"):
        raise ShapeError(f"mode '{mode}' is not supported; it must be clip, wrap or fast")
    if axis is None:
        return of.take_flat(a, indices, mode)
    along, batch = axis_of(axis, a.ndim), axis_of(batch_dims, indices.ndim + 1, "batch_dims")
    result = (*dims(a)[:along], *dims(indices)[batch:], *dims(a)[along + 1 :])
    return of.take(a, indices, along, batch, mode, result)


@tagged(INJECTIVE)
def gather(data: te.Tensor, axis: int, indices: te.Tensor) -> te.Tensor:
    """Return `out[i…] = data[i… with i[axis] = indices[i…]]`; negative indices count from the end."""
    return of.gather(data, axis_of(axis, data.ndim), indices)


@tagged(INJECTIVE)
def gather_nd(a: te.Tensor, indices: te.Tensor, batch_dims: int = 0) -> te.Tensor:
    """Return elements of `a` at points: `indices[k, p…]` is coordinate k of point p, after `batch_dims` matched
    dimensions."""
    coordinates = dims(indices)[0]
    if batch_dims + coordinates > a.ndim:
        raise ShapeError(
            f"points of {coordinates} coordinates after {batch_dims} batch dimensions do not fit the shape "
            f"{text(dims(a))}"
        )
    return of.gather_nd(a, indices, batch_dims, (*dims(indices)[1:], *dims(a)[batch_dims + coordinates :]))


@tagged(INJECTIVE)
def adv_index(data: te.Tensor, indices: Sequence[te.Tensor]) -> te.Tensor:
    """Return `data[indices[0], indices[1], …]` with numpy's meaning: index tensors that broadcast, for the leading
    dimensions."""
    lead = broadcast_shapes(*map(dims, indices))
    if len(indices) > data.ndim:
        raise ShapeError(f"{len(indices)} indices were given for {data.ndim} dimensions; give at most one for each")

    def element(*i: Var) -> PrimExpr:
        point = [of.from_end(at(x, i[: len(lead)]), n) for x, n in zip(indices, dims(data), strict=False)]
        return data(*point, *i[len(lead) :])

    return te.compute((*lead, *dims(data)[len(indices) :]), element, name="adv_index")


@tagged(INJECTIVE)
def one_hot(
    indices: te.Tensor, on_value: Value, off_value: Value, depth: int, axis: int, dtype: str | DataType
) -> te.Tensor:
    """Return `on_value` where the coordinate along a new dimension `axis` of size `depth` equals the index, else
    `off_value`."""
    on, off = (of.full((), v, dtype) for v in (on_value, off_value))
    return of.one_hot(indices, on, off, depth, axis_of(axis, indices.ndim + 1), dtype)


@tagged(INJECTIVE)
def unravel_index(indices: te.Tensor, shape: te.Tensor | Sequence[int]) -> te.Tensor:
    """Return the coordinates `[d, i…]`, in a tensor of `shape`, of the row-major positions `indices[i…]`."""
    sizes: list[Any] = [shape(d) for d in range(shape.extents[0])] if isinstance(shape, te.Tensor) else list(shape)

    def element(d: Var, *i: Var) -> PrimExpr:
        position, found = indices(*i), indices(*i)
        for k in range(len(sizes) - 1, -1, -1):
            size = E.cast(indices.dtype, sizes[k])
            found = E.if_then_else(E.compare(E.EQ, d, k), E.floormod(position, size), found)
            position = E.floordiv(position, size)
        return found

    return te.compute((len(sizes), *indices.shape), element, name="unravel_index")


@tagged(INJECTIVE)
def sequence_mask(data: te.Tensor, valid_length: te.Tensor, mask_value: float = 0, axis: int = 0) -> te.Tensor:
    """Replace `data` (time, batch, …), or (batch, time, …) with `axis` 1, by `mask_value` from time
    `valid_length[batch]` on."""
    if axis not in (0, 1) or data.ndim < 2:
        raise ShapeError(
            f"axis {axis} cannot be the time axis of a tensor of shape {text(dims(data))}; it must be 0 or 1, and the "
            "other is the batch"
        )

    def element(*i: Var) -> PrimExpr:
        inside = E.cast("int64", valid_length(i[1 - axis])) > i[axis]
        return E.if_then_else(inside, data(*i), E.const(mask_value, data.dtype))

    return te.compute(data.shape, element, name="sequence_mask")


@tagged(INJECTIVE)
def matrix_set_diag(
    data: te.Tensor, diagonal: te.Tensor, k: int | tuple[int, int] = 0, align: str = "RIGHT_LEFT"
) -> te.Tensor:
    """Replace the diagonals from k[0] to k[1] of matrices by `diagonal`; k > 0 is above the main diagonal.

    `diagonal` is (…, length) for one diagonal, else (…, diagonals, longest length), the uppermost first. `align` gives
    the alignment of shorter ones in their rows: first for those above the main diagonal, then for those below.
    """
    low, high = (k, k) if isinstance(k, int) else k
    rows, columns = dims(data)[-2:]
    if align not in ("RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT") or low > high or differ(
        high - low + 1, 1 if low == high else dims(diagonal)[-2]
    ):
        raise ShapeError(
            f"diagonals {low} to {high}, align '{align}', do not fit a tensor of diagonals of shape "
            f"{text(dims(diagonal))}"
        )
    above, below = (word == "RIGHT" for word in align.split("_"))

    def element(*i: Var) -> PrimExpr:
        y, x = i[-2:]
        d = x - y
        length = E.minimum(E.add(rows, E.minimum(d, 0)), E.sub(columns, E.maximum(d, 0)))
        spare = E.sub(dims(diagonal)[-1], length)
        right = E.if_then_else(d >= 0, spare if above else E.const(0, "int64"), spare if below else E.const(0, "int64"))
        place = E.minimum(x, y) + (right if low != high else 0)
        row = () if low == high else (high - d,)
        return E.if_then_else(E.all_of(d >= low, d <= high), diagonal(*i[:-2], *row, place), data(*i))

    return te.compute(data.shape, element, name="matrix_set_diag")


__all__ = [
    "adv_index", "arange", "full", "full_like", "gather", "gather_nd", "matrix_set_diag", "ndarray_size", "one_hot",
    "sequence_mask", "shape", "take",
    "unravel_index",
]
