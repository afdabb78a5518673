"""Operators that read or write elements at computed indices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import TensorType, Type
from tilewright.relay.expr import Call, Constant, Expr
from tilewright.relay.op.registry import Array, Fusion, Op, Precision, op, tensors
from tilewright.topi import indexing as topi
from tilewright.topi import scattering
from tilewright.topi.shapes import Shape, axis_of, differ, require_same_dtype, text
from tilewright.topi.transform import dims


def _integers(t: TensorType) -> None:
    if not t.dtype.is_integer:
        raise ShapeError(f"indices must be integers, and they are {t.dtype}; cast them first")


@op("take", kind=Fusion.INJECTIVE)
class Take(Op):
    """The slices of `data` at `indices` along `axis`; elements of the flattened data without `axis` (ONNX Gather)."""

    objects = True
    precision = Precision.FOLLOW
    axis: int | None = None
    """Dimension that is indexed; None indexes the flattened data."""
    batch_dims: int = 0
    """Number of leading dimensions that data and indices share."""
    mode: str = "clip"
    """Indices out of bounds: "clip" (clamp to the ends), "wrap" (modulo the size) or "fast" (not checked)."""

    def infer(self, data: Type, indices: Type) -> TensorType:
        """The shape of the data with `axis` replaced by the shape of the integer indices; the dtype of the data."""
        t, where = tensors(data, indices)
        _integers(where)
        if self.mode not in ("clip", "wrap", "fast"):
            raise ShapeError(f"mode '{self.mode}' is not supported; it must be clip, wrap or fast")
        for size in t.shape if self.axis is None else [t.shape[axis_of(self.axis, t.ndim)]]:
            _refuse_empty(size, where.shape)
        return TensorType(self._shape(t.shape, where.shape), t.dtype)

    def _shape(self, shape: Shape, indices: Shape) -> Shape:
        if self.axis is None:
            return indices
        axis, batch = axis_of(self.axis, len(shape)), self._batch(len(indices))
        if batch > axis or any(map(differ, shape[:batch], indices[:batch])):
            raise ShapeError(f"the first {batch} dimensions of {text(shape)} and {text(indices)} must be equal, and "
                             f"must precede axis {axis}")
        return (*shape[:axis], *indices[batch:], *shape[axis + 1 :])

    def _batch(self, ndim: int) -> int:
        return axis_of(self.batch_dims, ndim + 1, "batch_dims")

    def is_row(self, data: TensorType, indices: TensorType) -> bool:
        return self.axis is not None and indices.ndim == 0 and axis_of(self.axis, data.ndim) < data.ndim - 1

    def reference(self, data: Array, indices: Array) -> Array:
        if self.axis is None or not self._batch(indices.ndim):
            return self._taken(data, indices, self.axis)
        batch = self._batch(indices.ndim)
        axis = self.axis % data.ndim - batch
        shape = self._shape(data.shape, indices.shape)
        n = int(np.prod(shape[:batch]))
        rows = zip(data.reshape(n, *data.shape[batch:]), indices.reshape(n, *indices.shape[batch:]), strict=True)
        return np.stack([self._taken(x, i, axis) for x, i in rows]).reshape(shape)

    def meaning(self, known: Sequence[Array | None]) -> Callable[[Array], Array] | None:
        """A lookup in a constant vector of objects."""
        if known[0] is None or known[0].dtype != object or known[1] is not None or known[0].ndim != 1:
            return None
        take, mode = known[0].take, "wrap" if self.mode == "wrap" else "clip"

        def taken(indices: Array) -> Array:
            return np.asarray(take(indices if indices.dtype.kind == "i" else indices.astype(np.int64), None, None,
                                   mode), object)  # type: ignore[call-overload]

        return taken

    def _taken(self, data: Array, indices: Array, axis: int | None) -> Array:
        return np.asarray(np.take(data, indices.astype(np.int64), axis, mode="wrap" if self.mode == "wrap" else "clip"))

    def compute(self, data: te.Tensor, indices: te.Tensor) -> te.Tensor:
        if self.axis is None:
            return topi.take_flat(data, indices, self.mode)
        shape = self._shape(dims(data), dims(indices))
        return topi.take(data, indices, self.axis % data.ndim, self._batch(indices.ndim), self.mode, shape)

    def simplify(self, call: Call) -> Expr | None:
        """All slices along the axis in their order -> reshape."""
        from tilewright.relay.op.shaping import Reshape

        data, indices = call.args
        if not isinstance(indices, Constant) or self.batch_dims or not data.tensor_type.is_static:
            return None
        size = math.prod(data.tensor_type.shape) if self.axis is None else data.tensor_type.shape[self.axis]
        if indices.value.size != size or not np.array_equal(indices.value.reshape(-1), np.arange(size)):
            return None
        return Reshape(call.tensor_type.shape, allowzero=True)(data, span=call.span)


def _positive(indices: Array, size: int) -> Any:
    wide = indices.astype(np.int64)
    return np.minimum(np.maximum(np.where(wide < 0, wide + size, wide), 0), size - 1)


def _refuse_empty(size: Any, indices: Shape) -> None:
    """Refuse indices into an axis without elements."""
    if isinstance(size, int) and not size and all(d for d in indices if isinstance(d, int)):
        raise ShapeError(f"indices {text(indices)} point into a dimension of size 0, which has no elements")


@op("gather", kind=Fusion.INJECTIVE)
class Gather(Op):
    """`out[i…] = data[i… with i[axis] = indices[i…]]` (ONNX GatherElements).

    Negative indices count from the end. Indices out of bounds are clamped, here and in the operators below.
    """

    objects = True
    precision = Precision.FOLLOW
    axis: int
    """Dimension that is indexed; negative counts from the end."""

    def infer(self, data: Type, indices: Type) -> TensorType:
        """The shape of the integer indices, of the same rank as the data; the dtype of the data."""
        t, where = tensors(data, indices)
        _integers(where)
        axis_of(self.axis, t.ndim)
        if where.ndim != t.ndim:
            raise ShapeError(f"indices {text(where.shape)} must have as many dimensions as the data {text(t.shape)}")
        _refuse_empty(t.shape[axis_of(self.axis, t.ndim)], where.shape)
        return TensorType(where.shape, t.dtype)

    def reference(self, data: Array, indices: Array) -> Array:
        axis = self.axis % data.ndim
        place: list[Any] = list(np.indices(indices.shape, sparse=True))
        place[axis] = _positive(indices, data.shape[axis])
        return np.asarray(data[tuple(place)])

    def compute(self, data: te.Tensor, indices: te.Tensor) -> te.Tensor:
        return topi.gather(data, self.axis % data.ndim, indices)


@op("gather_nd", kind=Fusion.INJECTIVE)
class GatherNd(Op):
    """`data` at points: `indices[k, p…]` is coordinate k of point p, after `batch_dims` common leading dimensions.

    Negative indices count from the end (ONNX GatherND with the coordinates first).
    """

    objects = True
    precision = Precision.FOLLOW
    batch_dims: int = 0
    """Number of leading dimensions that data and points share."""
    index_rank: int | None = None
    """Number of coordinates of a point; None takes it from `indices`."""

    def infer(self, data: Type, indices: Type) -> TensorType:
        """(points, …, remaining sizes); the dtype of the data. The first size of the indices must be known."""
        t, where = tensors(data, indices)
        _integers(where)
        return TensorType(self._shape(t.shape, where.shape), t.dtype)

    def _shape(self, shape: Shape, indices: Shape) -> Shape:
        if not indices or not isinstance(indices[0], int):
            raise ShapeError(f"the first dimension of indices {text(indices)} is the number of coordinates, and must "
                             "be known at compile time")
        if self.batch_dims + indices[0] > len(shape):
            raise ShapeError(f"indices of {indices[0]} coordinates after {self.batch_dims} batch dimensions exceed the "
                             f"rank of data {text(shape)}")
        for size in shape[self.batch_dims : self.batch_dims + indices[0]]:
            _refuse_empty(size, indices)
        return (*indices[1:], *shape[self.batch_dims + indices[0] :])

    def reference(self, data: Array, indices: Array) -> Array:
        b = self.batch_dims
        batch = np.indices(indices.shape[1:], sparse=True)[:b] if b else ()
        found = data[(*batch, *(_positive(x, data.shape[b + k]) for k, x in enumerate(indices)))]
        # without coordinates, a point is the whole batch element
        return found if len(indices) else np.broadcast_to(found, self._shape(data.shape, indices.shape)).copy()

    def compute(self, data: te.Tensor, indices: te.Tensor) -> te.Tensor:
        return topi.gather_nd(data, indices, self.batch_dims, self._shape(dims(data), dims(indices)))


_UPDATES: dict[str, Callable[..., Any]] = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def _scatter(data: Array, place: tuple[Any, ...], updates: Array, how: str) -> Array:
    result = data.copy()
    if how == "update":
        result[place] = updates
    else:
        _UPDATES[how].at(result, place, updates)  # type: ignore[attr-defined]
    return result


def _known_update(how: str, what: str) -> None:
    if how != "update" and how not in _UPDATES:
        raise ShapeError(f"{what} '{how}' is not supported; it must be update, {', '.join(_UPDATES)}")


@op("scatter_elements", kind=Fusion.OPAQUE)
class ScatterElements(Op):
    """`data` with `updates[i…]` combined into position `i… with i[axis] = indices[i…]` (ONNX ScatterElements)."""

    objects = True
    precision = Precision.NEVER
    axis: int = 0
    """Dimension that is indexed; negative counts from the end."""
    reduction: str = "update"
    """Combination with the element there: "update" (replace), "add", "mul", "min" or "max"."""

    def infer(self, data: Type, indices: Type, updates: Type) -> TensorType:
        """The type of the data; integer indices and updates of its dtype have one shape of its rank."""
        t, where, new = tensors(data, indices, updates)
        _integers(where)
        require_same_dtype((t, new))
        axis_of(self.axis, t.ndim)
        _known_update(self.reduction, "reduction")
        if where.ndim != t.ndim or new.ndim != t.ndim or any(map(differ, where.shape, new.shape)):
            raise ShapeError(f"indices {text(where.shape)} and updates {text(new.shape)} must have equal shapes, of "
                             f"{t.ndim} dimensions")
        _refuse_empty(t.shape[axis_of(self.axis, t.ndim)], where.shape)
        return t

    def reference(self, data: Array, indices: Array, updates: Array) -> Array:
        axis = self.axis % data.ndim
        place: list[Any] = list(np.indices(indices.shape, sparse=True))
        place[axis] = _positive(indices, data.shape[axis])
        return _scatter(data, tuple(place), updates, self.reduction)

    def compute(self, data: te.Tensor, indices: te.Tensor, updates: te.Tensor) -> te.Tensor:
        return scattering.scatter_elements(data, indices, updates, self.axis, self.reduction)


@op("write_row", kind=Fusion.INJECTIVE)
class WriteRow(Op):
    """`data` with `data[index]` replaced by `row`; `data` unchanged where `index` is out of bounds.

    Loops collect their results with it in one tensor, which is updated in place.
    """

    precision = Precision.NEVER

    def infer(self, data: Type, row: Type, index: Type) -> TensorType:
        """The type of the data; `row` is its type without the first dimension, `index` a signed integer scalar."""
        t, part, where = tensors(data, row, index)
        if where.dtype.code != "int":
            raise ShapeError(f"index must be a signed integer, and it is {where.dtype}; cast it first")
        if where.ndim:
            raise ShapeError(f"index must be a scalar, and it has the shape {text(where.shape)}")
        if not t.ndim or t.ndim != part.ndim + 1 or any(map(differ, t.shape[1:], part.shape)):
            raise ShapeError(f"row must have the dimensions of {text(t.shape)} except the first, but has the shape "
                             f"{text(part.shape)}")
        require_same_dtype((t, part))
        return t

    def reference(self, data: Array, row: Array, index: Array) -> Array:
        result = data.copy()
        if 0 <= int(index) < len(data):
            result[int(index)] = row
        return result

    def compute(self, data: te.Tensor, row: te.Tensor, index: te.Tensor) -> te.Tensor:
        return topi.write_row(data, row, index)


@op("scatter_nd", kind=Fusion.OPAQUE)
class ScatterNd(Op):
    """`data` with `updates` combined into points: `indices[k, p…]` is coordinate k of point p (ONNX ScatterND,
    coordinates first).
    """

    objects = True
    mode: str = "update"
    """Combination with the element there: "update" (replace), "add", "mul", "min" or "max"."""

    def infer(self, data: Type, indices: Type, updates: Type) -> TensorType:
        """The type of the data; updates have the shape that `gather_nd` returns for the indices."""
        t, where, new = tensors(data, indices, updates)
        _integers(where)
        require_same_dtype((t, new))
        _known_update(self.mode, "mode")
        wanted = GatherNd()._shape(t.shape, where.shape)
        if len(wanted) != new.ndim or any(map(differ, wanted, new.shape)):
            raise ShapeError(f"updates must have the shape {text(wanted)}, and they have {text(new.shape)}")
        return t

    def reference(self, data: Array, indices: Array, updates: Array) -> Array:
        return _scatter(data, tuple(_positive(x, data.shape[k]) for k, x in enumerate(indices)), updates, self.mode)

    def compute(self, data: te.Tensor, indices: te.Tensor, updates: te.Tensor) -> te.Tensor:
        return scattering.scatter_nd(data, indices, updates, self.mode)
