"""Operators that write elements at computed positions: TVM's older scatters, sparse tensors, permutations."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import TensorType, TupleType, Type
from tilewright.relay.op.indexing import ScatterElements
from tilewright.relay.op.registry import Array, Fusion, Op, op, tensors
from tilewright.topi import scattering as topi
from tilewright.topi.shapes import differ, product, require_same_dtype, text


def _integers(*types: TensorType) -> None:
    for t in types:
        if not t.dtype.is_integer:
            raise ShapeError(f"indices must be integers, and they are {t.dtype}; cast them first")


@op("scatter", kind=Fusion.OPAQUE)
class Scatter(ScatterElements):
    """`data` with `updates[i…]` written to position `i… with i[axis] = indices[i…]`."""

    reduction: ClassVar[str] = "update"  # type: ignore[misc]


@op("scatter_add", kind=Fusion.OPAQUE)
class ScatterAdd(ScatterElements):
    """`data` with `updates[i…]` added at position `i… with i[axis] = indices[i…]`."""

    reduction: ClassVar[str] = "add"  # type: ignore[misc]


@op("sparse_to_dense", kind=Fusion.OPAQUE)
class SparseToDense(Op):
    """A tensor of `output_shape` with `sparse_values` at the points `sparse_indices`, and the scalar `default_value`
    elsewhere.

    `sparse_indices` is (points, coordinates), or (points,) for a vector; `sparse_values` is a scalar or (points,).
    """

    output_shape: tuple[int, ...]
    """Shape of the result."""

    def infer(self, sparse_indices: Type, sparse_values: Type, default_value: Type) -> TensorType:
        """`output_shape`; the common dtype of the values and the default."""
        where, values, filling = tensors(sparse_indices, sparse_values, default_value)
        _integers(where)
        require_same_dtype((values, filling))
        coordinates = where.shape[1] if where.ndim == 2 else 1
        if where.ndim > 2 or differ(coordinates, len(self.output_shape)):
            raise ShapeError(f"sparse_indices {text(where.shape)} must have {len(self.output_shape)} columns, one for "
                             f"each dimension of {text(self.output_shape)}")
        points = where.shape[0] if where.ndim else 1
        if values.ndim > 1 or (values.ndim and differ(values.shape[0], points)) or product(filling.shape) != 1:
            raise ShapeError(f"sparse_values {text(values.shape)} must have one value or {points}, and default_value "
                             f"{text(filling.shape)} one")
        return TensorType(self.output_shape, values.dtype)

    def reference(self, sparse_indices: Array, sparse_values: Array, default_value: Array) -> Array:
        result = np.full(self.output_shape, default_value.reshape(()), sparse_values.dtype)
        last = np.asarray(self.output_shape) - 1
        result[tuple(np.clip(sparse_indices.reshape(-1, len(self.output_shape)), 0, last).T)] = sparse_values
        return result

    def compute(self, sparse_indices: te.Tensor, sparse_values: te.Tensor, default_value: te.Tensor) -> te.Tensor:
        return topi.sparse_to_dense(sparse_indices, self.output_shape, sparse_values, default_value)


@op("sparse_reshape", kind=Fusion.OPAQUE)
class SparseReshape(Op):
    """The points of a sparse tensor of `prev_shape` as points of `new_shape`, and `new_shape` with its -1 computed."""

    def infer(self, sparse_indices: Type, prev_shape: Type, new_shape: Type) -> TupleType:
        """(points, new rank), the dtype of the indices; and the type of `new_shape`."""
        where, old, new = tensors(sparse_indices, prev_shape, new_shape)
        _integers(where, old, new)
        if where.ndim != 2 or old.ndim != 1 or new.ndim != 1 or differ(where.shape[1], old.shape[0]):
            raise ShapeError(f"sparse_indices {text(where.shape)} must have a column for each dimension of prev_shape "
                             f"{text(old.shape)}")
        return TupleType((TensorType((where.shape[0], new.shape[0]), where.dtype), new))

    def reference(self, sparse_indices: Array, prev_shape: Array, new_shape: Array) -> tuple[Array, Array]:
        total, shape = int(np.prod(prev_shape)), new_shape.copy()
        shape[shape < 0] = total // max(1, int(np.prod(shape[shape >= 0])))
        flat = np.ravel_multi_index(tuple(sparse_indices.T), tuple(prev_shape))
        return np.stack(np.unravel_index(flat, tuple(shape)), 1).astype(sparse_indices.dtype), shape

    def compute(self, sparse_indices: te.Tensor, prev_shape: te.Tensor, new_shape: te.Tensor) -> Any:
        return topi.sparse_reshape(sparse_indices, prev_shape, new_shape)


@op("invert_permutation", kind=Fusion.OPAQUE)
class InvertPermutation(Op):
    """The inverse of the permutation `data`: `out[data[i]] = i`."""

    def infer(self, data: Type) -> TensorType:
        """The type of the data, an integer vector."""
        (t,) = tensors(data)
        _integers(t)
        if t.ndim != 1:
            raise ShapeError(f"a permutation must be a vector of indices, but it has the shape {text(t.shape)}")
        return t

    def reference(self, data: Array) -> Array:
        result = np.empty_like(data)
        result[np.clip(data, 0, len(data) - 1)] = np.arange(len(data), dtype=data.dtype)
        return result

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.invert_permutation(data)
