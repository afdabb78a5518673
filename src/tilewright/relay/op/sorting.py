"""Operators that sort elements along an axis, and that search sorted rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import DataType, OpenSize, TensorType, TupleType, Type
from tilewright.relay.op.registry import Array, Fusion, Op, Precision, op, tensors
from tilewright.scalar.arith.open_sizes import limit
from tilewright.topi import sorting as topi
from tilewright.topi.shapes import axis_of, differ, require_same_dtype, text


def sorted_places(data: Array, axis: int, ascending: bool) -> Any:
    """Return the positions of the elements in sorted order; the sort is stable."""
    if ascending:
        return np.argsort(data, axis=axis, kind="stable")
    backward = np.argsort(np.flip(data, axis), axis=axis, kind="stable")
    return data.shape[axis] - 1 - np.flip(backward, axis)


@op("sort", kind=Fusion.OPAQUE)
class Sort(Op):
    """The elements sorted along `axis`."""

    axis: int = -1
    """Dimension that is sorted; negative counts from the end."""
    is_ascend: bool = True
    """True sorts in ascending order."""

    def infer(self, data: Type) -> TensorType:
        """The type of the data."""
        (t,) = tensors(data)
        axis_of(self.axis, t.ndim)
        return t

    def reference(self, data: Array) -> Array:
        return np.take_along_axis(data, sorted_places(data, self.axis, self.is_ascend), self.axis)

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.sort(data, self.axis, self.is_ascend)


@op("argsort", kind=Fusion.OPAQUE)
class ArgSort(Op):
    """The positions of the elements in sorted order along `axis`; the sort is stable."""

    axis: int = -1
    """Dimension that is sorted; negative counts from the end."""
    is_ascend: bool = True
    """True sorts in ascending order."""
    dtype: str = "int32"
    """Type of the indices."""

    def infer(self, data: Type) -> TensorType:
        """The shape of the data; `dtype`."""
        (t,) = tensors(data)
        axis_of(self.axis, t.ndim)
        return TensorType(t.shape, self.dtype)

    def reference(self, data: Array) -> Array:
        return np.asarray(sorted_places(data, self.axis, self.is_ascend), DataType(self.dtype).numpy())

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.argsort(data, None, self.axis, self.is_ascend, self.dtype)


@op("topk", kind=Fusion.OPAQUE)
class TopK(Op):
    """The `k` largest or smallest elements along `axis` in sorted order, and their positions."""

    precision = Precision.NEVER
    k: int = 1
    """Number of elements; below 1 means all."""
    axis: int = -1
    """Dimension that is sorted; negative counts from the end."""
    ret_type: str = "both"
    """Results: "both", "values" or "indices"."""
    is_ascend: bool = False
    """True selects the smallest elements, False the largest."""
    dtype: str = "int32"
    """Type of the indices."""

    def infer(self, data: Type) -> Type:
        """The shape of the data with `k` at `axis`, as values (dtype of the data), indices (`dtype`), or both."""
        (t,) = tensors(data)
        axis = axis_of(self.axis, t.ndim)
        if self.ret_type not in ("both", "values", "indices"):
            raise ShapeError(f"ret_type '{self.ret_type}' is not supported; it must be both, values or indices")
        whole, is_number = t.shape[axis], isinstance(self.k, int)
        if isinstance(whole, OpenSize) or isinstance(self.k, OpenSize):
            limit(whole - self.k, 0)
        elif isinstance(whole, int) and is_number and self.k > whole:
            raise ShapeError(f"k is {self.k}, but axis {self.axis} has {whole} elements; use at most that many")
        shape = t.shape if is_number and self.k < 1 else (*t.shape[:axis], self.k, *t.shape[axis + 1 :])
        both = TensorType(shape, t.dtype), TensorType(shape, self.dtype)
        return TupleType(both) if self.ret_type == "both" else both[self.ret_type == "indices"]

    def reference(self, data: Array) -> Array | tuple[Array, ...]:
        count = data.shape[self.axis] if self.k < 1 else self.k
        where = np.take(sorted_places(data, self.axis, self.is_ascend), np.arange(count), axis=self.axis)
        both = np.take_along_axis(data, where, self.axis), where.astype(DataType(self.dtype).numpy())
        return both if self.ret_type == "both" else both[self.ret_type == "indices"]

    def compute(self, data: te.Tensor) -> Any:
        found = topi.topk(data, self.k, self.axis, self.ret_type, self.is_ascend, self.dtype)
        return tuple(found) if isinstance(found, list) else found


@op("searchsorted", kind=Fusion.OPAQUE)
class SearchSorted(Op):
    """The position at which each of `values` would be inserted into the ascending rows of `sorted_sequence`.

    `sorted_sequence` is one row for all values, or has the leading dimensions of `values`.
    """

    right: bool = False
    """True inserts after equal elements, False before them."""
    dtype: str = "int32"
    """Type of the indices."""

    def infer(self, sorted_sequence: Type, values: Type) -> TensorType:
        """The shape of `values`; `dtype`. Both inputs have one dtype."""
        rows, wanted = tensors(sorted_sequence, values)
        require_same_dtype((rows, wanted))
        if rows.ndim != 1 and (rows.ndim != wanted.ndim or any(map(differ, rows.shape[:-1], wanted.shape[:-1]))):
            raise ShapeError(f"sorted_sequence {text(rows.shape)} must be a vector, or have the dimensions of values "
                             f"{text(wanted.shape)} except the last")
        if not rows.ndim:
            raise ShapeError("sorted_sequence must have at least one dimension, but it is a scalar")
        return TensorType(wanted.shape, self.dtype)

    def reference(self, sorted_sequence: Array, values: Array) -> Array:
        side: Any = "right" if self.right else "left"
        if not values.size or not sorted_sequence.size:
            found = np.zeros(values.shape, np.int64)
        elif sorted_sequence.ndim == 1:
            found = np.searchsorted(sorted_sequence, values, side)
        else:
            rows = zip(sorted_sequence.reshape(-1, sorted_sequence.shape[-1]), values.reshape(-1, values.shape[-1]),
                       strict=True)
            found = np.stack([np.searchsorted(row, v, side) for row, v in rows]).reshape(values.shape)
        return np.asarray(found, DataType(self.dtype).numpy())

    def compute(self, sorted_sequence: te.Tensor, values: te.Tensor) -> te.Tensor:
        return topi.searchsorted(sorted_sequence, values, self.right, self.dtype)


@op("unique", kind=Fusion.OPAQUE)
class Unique(Op):
    """The distinct elements of a vector, the first position of each, the number of each element's value, and their
    count (1,).

    All vectors have the length of the data; positions after the last distinct element are zero. All NaN are one
    element. With `return_counts`, the number of occurrences of each comes last.
    """

    objects = True
    is_sorted: bool = True
    """True sorts the elements, False keeps the order of first occurrence."""
    return_counts: bool = False
    """True adds the number of occurrences of each element."""

    def infer(self, data: Type) -> TupleType:
        """Vectors of the length of the data: values, first places, number of each element (int32); a count (1,)."""
        (t,) = tensors(data)
        if t.ndim != 1:
            raise ShapeError(f"data must be a vector, but it has the shape {text(t.shape)}; reshape it first")
        whole = TensorType(t.shape, "int32")
        parts = (t, whole, whole, TensorType((1,), "int32"))
        return TupleType((*parts, whole) if self.return_counts else parts)

    def reference(self, data: Array) -> tuple[Array, ...]:
        found, first, inverse, counts = np.unique(data, True, True, True)
        if not self.is_sorted:
            order = np.argsort(first, kind="stable")
            found, first, inverse, counts = found[order], first[order], np.argsort(order)[inverse], counts[order]
        whole = [np.zeros(data.shape, np.int32) for _ in range(2)]
        values = np.zeros_like(data)
        values[: len(found)], whole[0][: len(found)], whole[1][: len(found)] = found, first, counts
        parts = values, whole[0], inverse.astype(np.int32), np.asarray([len(found)], np.int32)
        return (*parts, whole[1]) if self.return_counts else parts

    def compute(self, data: te.Tensor) -> tuple[te.Tensor, ...]:
        return topi.unique(data, self.is_sorted, self.return_counts)
