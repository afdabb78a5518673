"""Tensor expressions of operators that read elements at computed indices, and of those that create tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te
from tilewright.scalar import expr as E
from tilewright.scalar.expr import PrimExpr, Value, Var
from tilewright.topi.transform import dims


def bounded(index: PrimExpr, size: Any, mode: str) -> PrimExpr:
    """Return an index into `[0, size)`: clamped (`clip`), taken modulo `size` (`wrap`), or unchecked (`fast`)."""
    position = E.cast("int64", index)
    if mode == "clip":
        return E.maximum(E.minimum(position, size - 1), 0)
    return E.floormod(position, size) if mode == "wrap" else position


def from_end(index: PrimExpr, size: Any) -> PrimExpr:
    """Return an index clamped to `[0, size)`; a negative one counts from the end."""
    position = E.cast("int64", index)
    return bounded(
        E.if_then_else(position < 0, position + size, position) if index.dtype.code == "int" else position, size, "clip"
    )


def take_flat(data: te.Tensor, indices: te.Tensor, mode: str) -> te.Tensor:
    """Return the elements of the flattened `data` at `indices`."""
    sizes = dims(data)

    def flat(*i: Var) -> PrimExpr:
        total: Any = 1
        for n in sizes:
            total = total * n
        position = bounded(indices(*i), total, mode)
        where: list[Value] = []
        for n in reversed(sizes):
            where.append(E.floormod(position, n))
            position = E.floordiv(position, n)
        return data(*reversed(where))

    return te.compute(indices.shape, flat, name="take")


def take(data: te.Tensor, indices: te.Tensor, axis: int, batch_dims: int, mode: str, shape: Sequence[Any]) -> te.Tensor:
    """Return the slices of `data` along `axis` at `indices`."""
    sizes = dims(data)

    def along(*i: Var) -> PrimExpr:
        n = indices.ndim - batch_dims
        index = indices(*i[:batch_dims], *i[axis : axis + n])
        return data(*i[:axis], bounded(index, sizes[axis], mode), *i[axis + n :])

    return te.compute(shape, along, name="take")


def write_row(data: te.Tensor, row: te.Tensor, index: te.Tensor) -> te.Tensor:
    """Return `data` with row `index` replaced by `row`."""
    where = E.cast("int64", index())
    return te.compute(
        data.shape, lambda *i: E.if_then_else(E.compare(E.EQ, E.cast("int64", i[0]), where), row(*i[1:]), data(*i)),
        name="write_row"
    )


def gather(data: te.Tensor, axis: int, indices: te.Tensor) -> te.Tensor:
    """Return the elements of `data` at the same position, except that `indices` gives the position along `axis`."""
    size = dims(data)[axis]
    return te.compute(
        indices.shape, lambda *i: data(*i[:axis], from_end(indices(*i), size), *i[axis + 1 :]), name="gather"
    )


def gather_nd(data: te.Tensor, indices: te.Tensor, batch_dims: int, shape: Sequence[Any]) -> te.Tensor:
    """Return the elements of `data` at the points whose coordinates are along the first axis of `indices`."""
    coordinates = indices.extents[0]
    sizes = dims(data)

    def element(*i: Var) -> PrimExpr:
        point, rest = i[: indices.ndim - 1], i[indices.ndim - 1 :]
        where = [from_end(indices(k, *point), sizes[batch_dims + k]) for k in range(coordinates)]
        return data(*i[:batch_dims], *where, *rest)

    return te.compute(shape, element, name="gather_nd")


def one_hot(indices: te.Tensor, on: te.Tensor, off: te.Tensor, depth: int, axis: int, dtype: str) -> te.Tensor:
    """Return `on` where the coordinate along the new `axis` equals the index, `off` elsewhere."""
    shape = [*dims(indices)[:axis], depth, *dims(indices)[axis:]]

    def element(*i: Var) -> PrimExpr:
        hit = E.compare(E.EQ, E.cast("int64", indices(*i[:axis], *i[axis + 1 :])), i[axis])
        return E.cast(dtype, E.if_then_else(hit, on(), off()))

    return te.compute(shape, element, name="one_hot")


def full(shape: Sequence[Any], value: Value, dtype: str, name: str = "full") -> te.Tensor:
    """Return a tensor with `value` everywhere."""
    constant = E.cast(dtype, value) if isinstance(value, PrimExpr) else E.const(value, dtype)
    return te.compute(shape, lambda *i: constant, name=name)


def arange(start: float, step: float, count: int, dtype: str) -> te.Tensor:
    """Return start, start + step, …: `count` numbers."""
    return te.compute(
        (count,), lambda i: E.add(E.mul(E.cast(dtype, i), E.const(step, dtype)), E.const(start, dtype)), name="arange"
    )
