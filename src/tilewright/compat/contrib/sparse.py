"""TVM's `tvm.contrib.sparse`: matrices in compressed rows (CSR), as arrays and as inputs of tensor expressions.

    A = sparse.placeholder((rows, columns), nonzeros=n)       A.data, A.indices, A.indptr are tensors
    a = sparse.array(numpy_matrix)                            a.data, a.indices, a.indptr are arrays
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import te
from tilewright.base.errors import CompileError, ShapeError
from tilewright.base.nd import NDArray
from tilewright.base.nd import array as nd_array

__all__ = ["CSRNDArray", "CSRPlaceholderOp", "SparsePlaceholderOp", "array", "placeholder"]


class CSRNDArray:
    """A matrix in compressed rows: the nonzero elements `data` with their columns `indices`, row by row, and the place
    `indptr[r]` of the first one of each row. The places and columns are int32."""

    def __init__(self, arg1: Any, device: Any = None, shape: Sequence[int] | None = None) -> None:
        """Compress a matrix, or keep the arrays (data, indices, indptr) of a matrix of the given shape."""
        if isinstance(arg1, tuple):
            data, indices, indptr = (np.asarray(_plain(part)) for part in arg1)
            if shape is None:
                raise ShapeError("a matrix of data, indices and indptr needs its shape; give shape=(rows, columns)")
        else:
            source = np.asarray(_plain(arg1))
            if source.ndim != 2:
                raise ShapeError(f"compressed rows are matrices, but the array has {source.ndim} dimensions")
            rows, indices = np.nonzero(source)
            data, shape = source[rows, indices], source.shape
            indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=source.shape[0]))])
        self.shape = tuple(shape)
        self.data: NDArray = nd_array(data, device)
        self.indices: NDArray = nd_array(indices.astype("int32"), device)
        self.indptr: NDArray = nd_array(indptr.astype("int32"), device)
        self.dtype = str(data.dtype)

    @property
    def stype(self) -> str:
        return "csr"

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return the matrix with its zeros."""
        full = np.zeros(self.shape, self.dtype)
        counts = np.diff(self.indptr.numpy())
        np.add.at(full, (np.repeat(np.arange(len(counts)), counts), self.indices.numpy()), self.data.numpy())
        return full

    asnumpy = numpy


def _plain(value: Any) -> Any:
    return value.numpy() if isinstance(value, NDArray) else value


def array(
    source_array: Any, device: Any = None, shape: Sequence[int] | None = None, stype: str = "csr"
) -> CSRNDArray:
    """Return the matrix in compressed rows; see `CSRNDArray`."""
    _require_rows(stype)
    return CSRNDArray(source_array, device, shape)


class SparsePlaceholderOp:
    """A sparse input of a tensor expression, with `nonzeros` elements."""

    def __init__(self, shape: Sequence[Any], nonzeros: Any, dtype: str, name: str) -> None:
        self.shape, self.nonzeros, self.dtype, self.name = tuple(shape), nonzeros, dtype, name


class CSRPlaceholderOp(SparsePlaceholderOp):
    """An input in compressed rows: the tensors `data`, `indices` and `indptr`."""

    stype = "csr"

    def __init__(self, shape: Sequence[Any], nonzeros: Any, dtype: str, name: str) -> None:
        super().__init__(shape, nonzeros, dtype, name)
        self.data = te.placeholder((nonzeros,), dtype, f"{name}_data")
        self.indices = te.placeholder((nonzeros,), "int32", f"{name}_indices")
        self.indptr = te.placeholder((self.shape[0] + 1,), "int32", f"{name}_indptr")


def placeholder(
    shape: Sequence[Any], nonzeros: Any = None, dtype: str | None = None, name: str = "placeholder",
    stype: str | None = None,
) -> CSRPlaceholderOp:
    """Return a sparse input of `shape` with `nonzeros` elements, by default as many as the matrix has."""
    _require_rows(stype or "csr")
    rows, columns = shape
    return CSRPlaceholderOp(shape, rows * columns if nonzeros is None else nonzeros, dtype or "float32", name)


def _require_rows(stype: str) -> None:
    if stype != "csr":
        raise CompileError(f"the sparse format '{stype}' is not supported; use 'csr'", code="TW0602")
