"""Operators whose result sizes depend on the data: nonzero elements, distinct slices.

If the count can be computed first, the operator becomes a graph: a result of maximal size, and its used part
(`dyn.strided_slice`). The other operators run in numpy between the steps of a program.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import OpenSize, TensorType, TupleType, Type
from tilewright.relay.expr import Call, Constant, Expr, Tuple, TupleGetItem, const
from tilewright.relay.op.broadcast import FloorDivide, FloorMod, Maximum, NotEqual
from tilewright.relay.op.create import ShapeOf
from tilewright.relay.op.deferred import Ask
from tilewright.relay.op.dynamic import DynStridedSlice
from tilewright.relay.op.registry import Array, Fusion, Op, op, tensors
from tilewright.relay.op.shaping import Reshape
from tilewright.relay.op.transform import Stack, StridedSlice
from tilewright.scalar.arith.open_sizes import room_for
from tilewright.scalar.expr import PrimExpr, UnknownDim
from tilewright.topi import selection as topi
from tilewright.topi.shapes import axis_of, text


@op("true_places", kind=Fusion.OPAQUE)
class TruePlaces(Op):
    """The positions of the true elements of a bool vector, followed by zeros, and their number."""

    def infer(self, mask: Type) -> TupleType:
        """The length of the bool vector, int64; a count (1,) of int64."""
        (t,) = tensors(mask)
        if t.ndim != 1 or t.dtype != "bool":
            raise ShapeError(f"the mask must be a vector of bool, but it is {t!r}")
        return TupleType((TensorType((room_for(t.shape[0]),), "int64"), TensorType((1,), "int64")))

    def reference(self, mask: Array) -> tuple[Array, ...]:
        (found,) = np.nonzero(mask)
        return (np.concatenate([found, np.zeros(len(mask) - len(found), np.int64)]).astype(np.int64),
                np.asarray([len(found)], np.int64))

    def compute(self, mask: te.Tensor) -> tuple[te.Tensor, ...]:
        return topi.true_places(mask)


def first_of(rows: Expr, count: Expr) -> Call:
    """The first `count` (a vector of one number) of `rows` along their first axis."""
    return DynStridedSlice()(rows, Constant(np.zeros(1, np.int64)), count, Constant(np.ones(1, np.int64)),
                             span=getattr(rows, "span", None))


def places_of(mask: Expr) -> Call:
    """The positions of the true elements of a bool vector; their number is known at run time."""
    whole = TruePlaces()(mask)
    return first_of(TupleGetItem(whole, 0), TupleGetItem(whole, 1))


@op("argwhere", kind=Fusion.OPAQUE)
class ArgWhere(Op):
    """The indices of the elements that are not zero, one row for each, in row-major order."""

    dtype: str = "int32"
    """Type of the indices."""

    def infer(self, condition: Type) -> TensorType:
        """(count, rank) with a count known at run time; `dtype`."""
        (t,) = tensors(condition)
        return TensorType((UnknownDim(), t.ndim), self.dtype)

    def reference(self, condition: Array) -> Array:
        if not condition.ndim:
            return np.zeros((int(bool(condition)), 0), self.dtype)
        return np.argwhere(condition).astype(self.dtype)

    def resolve(self, call: Call, ask: Ask) -> Expr | None:
        """Flat positions of the nonzero elements, converted to indices of each dimension."""
        (x,) = call.args
        symbolic = any(isinstance(d, (OpenSize, PrimExpr)) for d in x.tensor_type.shape)
        shape = x.tensor_type.shape if symbolic else x.tensor_type.concrete_shape
        flat = Reshape((math.prod(shape),), allowzero=True)(x)
        mask = flat if x.tensor_type.dtype == "bool" else NotEqual()(flat,
            Constant(np.zeros((), x.tensor_type.dtype.numpy())))
        places = TruePlaces()(mask)
        if not shape:
            return first_of(Constant(np.zeros((1, 0), self.dtype)), TupleGetItem(places, 1))
        whole = TupleGetItem(places, 0)
        indices = self._symbolic_indices(whole, x) if symbolic else self._indices(whole, shape)
        return first_of(indices, TupleGetItem(places, 1))

    def _indices(self, places: Expr, shape: tuple[int, ...]) -> Expr:
        columns: list[Expr] = []
        stride = 1
        for axis, size in reversed(list(enumerate(shape))):
            part = places if stride == 1 else FloorDivide()(places, const(stride, "int64"))
            if axis:
                part = FloorMod()(part, const(max(1, size), "int64"))
            columns.insert(0, part if self.dtype == "int64" else part.astype(self.dtype))
            stride *= max(1, size)
        return Stack(axis=1)(Tuple(tuple(columns)))

    def _symbolic_indices(self, places: Expr, x: Expr) -> Expr:
        """Indices along dimensions that are known at run time, or zero."""
        sizes = Maximum()(ShapeOf(dtype="int64")(x), const(1, "int64"))
        columns: list[Expr] = []
        for axis in reversed(range(x.tensor_type.ndim)):
            part = places
            if axis:
                size = StridedSlice(begin=(axis,), end=(axis + 1,))(sizes)
                part, places = FloorMod()(places, size), FloorDivide()(places, size)
            columns.insert(0, part if self.dtype == "int64" else part.astype(self.dtype))
        return Stack(axis=1)(Tuple(tuple(columns)))


@op("unique_slices", kind=Fusion.OPAQUE)
class UniqueSlices(Op):
    """The distinct slices of `data` along `axis`, the first position of each, the number of each slice's value, and the
    counts.
    """

    axis: int = 0
    """Dimension of the slices; negative counts from the end."""
    is_sorted: bool = True
    """True sorts the slices, False keeps the order of first occurrence."""

    def infer(self, data: Type) -> TupleType:
        """The data with n slices, first places (n,), a number for each slice, counts (n,); n known at run time."""
        (t,) = tensors(data)
        if not t.ndim:
            raise ShapeError(f"data must have at least one dimension, but its shape is {text(t.shape)}")
        at, count = axis_of(self.axis, t.ndim), UnknownDim()
        row = TensorType((count,), "int64")
        return TupleType((TensorType((*t.shape[:at], count, *t.shape[at + 1 :]), t.dtype), row,
                          TensorType((t.shape[at],), "int64"), row))

    def reference(self, data: Array) -> tuple[Array, ...]:
        found: Any = np.unique(data, True, True, True, axis=self.axis)
        values, first, inverse, counts = found[0], found[1], found[2].reshape(-1), found[3]
        if not self.is_sorted:
            order = np.argsort(first, kind="stable")
            values, first, inverse, counts = (np.take(values, order, axis=self.axis), first[order],
                np.argsort(order)[inverse], counts[order])
        return values, *(v.astype(np.int64) for v in (first, inverse, counts))
