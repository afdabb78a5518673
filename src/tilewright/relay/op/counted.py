"""Operators whose results have as many rows as the values of their arguments say, which is known when the program runs."""

from __future__ import annotations

import numpy as np

from tilewright.base.errors import ShapeError
from tilewright.base.types import TensorType, TupleType, Type
from tilewright.relay.op.registry import Array, Fusion, Op, op, tensors
from tilewright.scalar.expr import UnknownDim
from tilewright.topi.shapes import differ, require_same_dtype, text


@op("sparse_fill_empty_rows", kind=Fusion.OPAQUE)
class SparseFillEmptyRows(Op):
    """A sparse matrix (points in row order, values) with `default_value` at column 0 of each row that has none; and which rows those were.

    The number of points of the result is known when the program runs; rows are the first of `dense_shape`.
    """

    def infer(self, sparse_indices: Type, sparse_values: Type, dense_shape: Type, default_value: Type) -> TupleType:
        where, values, shape, filling = tensors(sparse_indices, sparse_values, dense_shape, default_value)
        for t in (where, shape):
            if not t.dtype.is_integer:
                raise ShapeError(f"indices and shapes must be integers, and these are {t.dtype}; cast them first")
        require_same_dtype((values, filling))
        if where.ndim != 2 or values.ndim != 1 or shape.ndim != 1 or differ(where.shape[0], values.shape[0]) or differ(where.shape[1], shape.shape[0]):
            raise ShapeError(
                f"sparse_indices {text(where.shape)} must be points, one for each of the values {text(values.shape)}, with a coordinate for each number of "
                f"dense_shape {text(shape.shape)}"
            )
        count = UnknownDim()
        return TupleType((TensorType((count, where.shape[1]), where.dtype), TensorType((count,), values.dtype), TensorType((UnknownDim(),), "bool")))

    def reference(self, sparse_indices: Array, sparse_values: Array, dense_shape: Array, default_value: Array) -> tuple[Array, Array, Array]:
        empty = ~np.isin(np.arange(dense_shape[0]), sparse_indices[:, 0])
        (rows,) = np.nonzero(empty)
        more = np.zeros((len(rows), sparse_indices.shape[1]), sparse_indices.dtype)
        more[:, 0] = rows
        points = np.concatenate([sparse_indices, more])
        values = np.concatenate([sparse_values, np.full(len(rows), default_value.reshape(()), sparse_values.dtype)])
        order = np.argsort(points[:, 0], kind="stable")
        return points[order], values[order], empty
