"""Operators whose number of result rows depends on argument values, so it is known only at run time."""

from __future__ import annotations

import numpy as np

from tilewright.base.errors import ShapeError
from tilewright.base.types import TensorType, TupleType, Type
from tilewright.relay.op.registry import Array, Fusion, Op, op, tensors
from tilewright.scalar.expr import UnknownDim
from tilewright.topi.shapes import differ, require_same_dtype, text


@op("sparse_fill_empty_rows", kind=Fusion.OPAQUE)
class SparseFillEmptyRows(Op):
    """A sparse matrix with `default_value` added at column 0 of each empty row, and a mask of the rows that were empty.

    The inputs are points in row order, their values, and the dense shape, whose first number is the number of rows
    (TensorFlow SparseFillEmptyRows).
    """

    def infer(self, sparse_indices: Type, sparse_values: Type, dense_shape: Type, default_value: Type) -> TupleType:
        """Points (n, coordinates) and values (n,), n known at run time; a bool for each row."""
        where, values, shape, filling = tensors(sparse_indices, sparse_values, dense_shape, default_value)
        for t in (where, shape):
            if not t.dtype.is_integer:
                raise ShapeError(f"indices and shapes must be integers, and these are {t.dtype}; cast them first")
        require_same_dtype((values, filling))
        if (where.ndim != 2 or values.ndim != 1 or shape.ndim != 1 or differ(where.shape[0], values.shape[0])
                or differ(where.shape[1], shape.shape[0])):
            raise ShapeError(
                f"sparse_indices {text(where.shape)} must have a row for each of the values {text(values.shape)}, and "
                f"a column for each dimension of dense_shape {text(shape.shape)}")
        count = UnknownDim()
        return TupleType((TensorType((count, where.shape[1]), where.dtype), TensorType((count,), values.dtype),
                          TensorType((UnknownDim(),), "bool")))

    def reference(self, sparse_indices: Array, sparse_values: Array, dense_shape: Array,
                  default_value: Array) -> tuple[Array, Array, Array]:
        empty = ~np.isin(np.arange(dense_shape[0]), sparse_indices[:, 0])
        (rows,) = np.nonzero(empty)
        more = np.zeros((len(rows), sparse_indices.shape[1]), sparse_indices.dtype)
        more[:, 0] = rows
        points = np.concatenate([sparse_indices, more])
        values = np.concatenate([sparse_values, np.full(len(rows), default_value.reshape(()), sparse_values.dtype)])
        order = np.argsort(points[:, 0], kind="stable")
        return points[order], values[order], empty
