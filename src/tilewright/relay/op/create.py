"""Operators that create tensors: filled tensors, sequences, and the shapes of other tensors."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import DataType, OpenSize, TensorType, Type
from tilewright.relay.expr import Call, Constant, Expr
from tilewright.relay.op.registry import Array, Fusion, Op, Precision, attributes, op, tensors
from tilewright.scalar.expr import PrimExpr
from tilewright.topi import indexing as topi
from tilewright.topi import lookup, moves
from tilewright.topi.shapes import axis_of, product, symbolic_count, text


@op("full", kind=Fusion.BROADCAST)
class Full(Op):
    """A tensor of `shape` filled with the scalar `fill_value`."""

    objects = True
    precision = Precision.NEVER
    shape: tuple[int, ...]
    """Shape of the result."""
    dtype: str = ""
    """Type of the result; "" means that of `fill_value`."""

    def infer(self, fill_value: Type) -> TensorType:
        """`shape`; `dtype`, or that of the scalar `fill_value`."""
        (value,) = tensors(fill_value)
        if product(value.shape) != 1:
            raise ShapeError(f"fill_value must be a scalar, and it has the shape {text(value.shape)}")
        return TensorType(self.shape, self.dtype or value.dtype)

    def reference(self, fill_value: Array) -> Array:
        return np.full(self.shape, fill_value.reshape(()), DataType(self.dtype or fill_value.dtype).numpy())

    def compute(self, fill_value: te.Tensor) -> te.Tensor:
        return topi.full(self.shape, fill_value(*(0,) * fill_value.ndim), self.dtype or fill_value.dtype)


@op("full_like", kind=Fusion.BROADCAST)
class FullLike(Op):
    """A tensor of the type of the first tensor, whose elements are not read, filled with the scalar `fill_value`."""

    objects = True

    def infer(self, data: Type, fill_value: Type) -> TensorType:
        """The type of the first tensor; `fill_value` is a scalar."""
        t, value = tensors(data, fill_value)
        if product(value.shape) != 1:
            raise ShapeError(f"fill_value must be a scalar, and it has the shape {text(value.shape)}")
        return t

    def reference(self, data: Array, fill_value: Array) -> Array:
        return np.full(data.shape, fill_value.reshape(()), data.dtype)

    def compute(self, data: te.Tensor, fill_value: te.Tensor) -> te.Tensor:
        return topi.full(data.shape, fill_value(*(0,) * fill_value.ndim), data.dtype)


@attributes
class Filled(Op):
    """Base of `zeros` and `ones`: a tensor filled with `number`."""

    shape: tuple[int, ...]
    """Shape of the result."""
    dtype: str
    """Type of the result."""
    number: ClassVar[int] = 0

    def infer(self) -> TensorType:
        """`shape`; `dtype`."""
        return TensorType(self.shape, self.dtype)

    def reference(self) -> Array:
        return np.full(self.shape, self.number, DataType(self.dtype).numpy())

    def compute(self) -> te.Tensor:
        return topi.full(self.shape, self.number, self.dtype, self.name)


@op("zeros", kind=Fusion.BROADCAST)
class Zeros(Filled):
    """A tensor of zeros."""

    precision = Precision.NEVER
    number = 0


@op("ones", kind=Fusion.BROADCAST)
class Ones(Filled):
    """A tensor of ones."""

    precision = Precision.NEVER
    number = 1


class FilledLike(Op):
    """Base of `zeros_like` and `ones_like`; the elements of the input are not read."""

    number: ClassVar[int] = 0

    def infer(self, data: Type) -> TensorType:
        """The type of the data."""
        return tensors(data)[0]

    def reference(self, data: Array) -> Array:
        return np.full(data.shape, self.number, data.dtype)

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.full(data.shape, self.number, data.dtype, self.name)

    def simplify(self, call: Call) -> Expr | None:
        t = call.tensor_type
        return (Ones if self.number else Zeros)(t.shape, t.dtype)(span=call.span) if t.is_static else None


@op("zeros_like", kind=Fusion.BROADCAST)
class ZerosLike(FilledLike):
    """Zeros of the type of the input."""

    number = 0


@op("ones_like", kind=Fusion.BROADCAST)
class OnesLike(FilledLike):
    """Ones of the type of the input."""

    number = 1


@op("arange", kind=Fusion.INJECTIVE)
class Arange(Op):
    """start, start + step, …, up to but without stop."""

    precision = Precision.NEVER
    start: float
    """First element."""
    stop: float
    """Exclusive upper bound (lower for a negative step)."""
    step: float = 1
    """Difference of two neighbouring elements; not zero."""
    dtype: str = "float32"
    """Type of the result."""

    def _count(self) -> Any:
        if any(isinstance(x, (PrimExpr, OpenSize)) for x in (self.start, self.stop)):
            return symbolic_count(self.start, self.stop, self.step)
        return lookup.arange_count(self.start, self.stop, self.step)

    def infer(self) -> TensorType:
        """(ceil((stop - start) / step),); `dtype`."""
        return TensorType((self._count(),), self.dtype)

    def reference(self) -> Array:
        kind = DataType(self.dtype).numpy()
        return np.asarray(np.arange(self._count()).astype(kind) * np.asarray(self.step, kind)
                          + np.asarray(self.start, kind), kind)

    def compute(self) -> te.Tensor:
        return topi.arange(self.start, self.step, self._count(), self.dtype)


@op("one_hot", kind=Fusion.INJECTIVE)
class OneHot(Op):
    """`on_value` where the coordinate along the new dimension equals the index, `off_value` elsewhere.

    An index outside of [0, depth) gives `off_value` everywhere.
    """

    objects = True
    depth: int
    """Size of the new dimension."""
    axis: int = -1
    """Position of the new dimension in the result; negative counts from the end."""
    dtype: str = "float32"
    """Type of the result."""

    def infer(self, indices: Type, on_value: Type, off_value: Type) -> TensorType:
        """The shape of the integer indices with `depth` inserted at `axis`; `dtype`. The two values are scalars."""
        t, on, off = tensors(indices, on_value, off_value)
        if on.shape or off.shape:
            raise ShapeError(f"on_value and off_value must be scalars, and they have the shapes {text(on.shape)} and "
                             f"{text(off.shape)}")
        if t.dtype.is_float:
            raise ShapeError(f"indices must be integers, and they are {t.dtype}; cast them first")
        at = axis_of(self.axis, t.ndim + 1)
        return TensorType((*t.shape[:at], self.depth, *t.shape[at:]), self.dtype)

    def reference(self, indices: Array, on_value: Array, off_value: Array) -> Array:
        at = self.axis % (indices.ndim + 1)
        place = np.arange(self.depth).reshape([-1 if d == at else 1 for d in range(indices.ndim + 1)])
        return np.asarray(np.where(np.expand_dims(indices, at) == place, on_value, off_value),
                          DataType(self.dtype).numpy())

    def compute(self, indices: te.Tensor, on_value: te.Tensor, off_value: te.Tensor) -> te.Tensor:
        return topi.one_hot(indices, on_value, off_value, self.depth, self.axis % (indices.ndim + 1), self.dtype)


def _constant(value: Any, call: Call) -> Constant:
    return Constant(np.asarray(value, call.tensor_type.dtype.numpy()), call.span)


@op("shape_of", kind=Fusion.OPAQUE)
class ShapeOf(Op):
    """The shape of a tensor, as a vector."""

    objects = True
    precision = Precision.NEVER
    dtype: str = "int32"
    """Type of the result."""

    def infer(self, data: Type) -> TensorType:
        """(rank,); `dtype`."""
        return TensorType((tensors(data)[0].ndim,), self.dtype)

    def reference(self, data: Array) -> Array:
        return np.asarray(data.shape, DataType(self.dtype).numpy())

    def compute(self, data: te.Tensor) -> te.Tensor:
        return lookup.shape(data, self.dtype)

    def simplify(self, call: Call) -> Expr | None:
        t = call.args[0].tensor_type
        return _constant(t.shape, call) if t.is_static and not t.is_open else None


@op("ndarray_size", kind=Fusion.OPAQUE)
class NdarraySize(Op):
    """The number of elements of a tensor."""

    objects = True
    dtype: str = "int32"
    """Type of the result."""

    def infer(self, data: Type) -> TensorType:
        """A scalar; `dtype`."""
        tensors(data)
        return TensorType((), self.dtype)

    def reference(self, data: Array) -> Array:
        return np.asarray(data.size, DataType(self.dtype).numpy())

    def compute(self, data: te.Tensor) -> te.Tensor:
        return lookup.ndarray_size(data, self.dtype)

    def simplify(self, call: Call) -> Expr | None:
        t = call.args[0].tensor_type
        return _constant(t.size, call) if t.is_static and not t.is_open else None


@op("trilu", kind=Fusion.INJECTIVE)
class Trilu(Op):
    """Matrices (the last two dimensions) with zeros below the diagonal `k`, or above it with `upper` False."""

    upper: bool = True
    """True keeps the upper triangle, False the lower one."""

    def infer(self, data: Type, k: Type) -> TensorType:
        """The type of the data, of rank 2 or more; `k` is an integer scalar."""
        t, shift = tensors(data, k)
        if t.ndim < 2:
            raise ShapeError(f"the data must be matrices, but they have the shape {text(t.shape)}")
        if product(shift.shape) != 1 or shift.dtype.is_float:
            raise ShapeError(f"k must be one integer, and it is {shift!r}")
        return t

    def reference(self, data: Array, k: Array) -> Array:
        keep = np.triu if self.upper else np.tril
        return np.asarray(keep(data, int(k.reshape(()))), data.dtype)

    def compute(self, data: te.Tensor, k: te.Tensor) -> te.Tensor:
        return moves.trilu(data, k, self.upper)
