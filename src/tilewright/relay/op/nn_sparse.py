"""Products with sparse matrices: compressed rows (CSR: values, columns, row starts) or rows of blocks (BSR)."""

from __future__ import annotations

import numpy as np

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import TensorType, TupleType, Type
from tilewright.relay.op.nn_conv import Conv2d
from tilewright.relay.op.nn_matmul import product_of
from tilewright.relay.op.registry import Array, Fusion, Op, op, tensors
from tilewright.topi.nn import sparse as topi
from tilewright.topi.shapes import differ, require_rank, require_same_dtype, text
from tilewright.topi.windows import per_dimension


@op("nn.sparse_dense", kind=Fusion.OPAQUE)
class SparseDense(Op):
    """dense_data (m, k) times the transpose of a sparse matrix (n, k): (m, n). With `sparse_lhs`, sparse times dense
    transposed: (n, m).

    The sparse matrix is in compressed rows: `sparse_data` (count,), or blocks (count, rows, columns); `sparse_indices`
    (count,), their (block) columns; `sparse_indptr`, the start of each (block) row.
    """

    sparse_lhs: bool = False
    """True multiplies the sparse matrix by the transpose of the dense one."""

    def infer(self, dense_data: Type, sparse_data: Type, sparse_indices: Type, sparse_indptr: Type) -> TensorType:
        """(m, n), or (n, m) with `sparse_lhs`; the common dtype of both matrices."""
        dense, values, indices, starts = tensors(dense_data, sparse_data, sparse_indices, sparse_indptr)
        require_rank(dense, 2, "dense_data")
        require_same_dtype((dense, values))
        if (values.ndim not in (1, 3) or indices.ndim != 1 or starts.ndim != 1
                or differ(values.shape[0], indices.shape[0])):
            raise ShapeError(
                f"values {text(values.shape)}, columns {text(indices.shape)} and row starts {text(starts.shape)} are "
                "not a sparse matrix: values must be (count,), or (count, rows, columns) for blocks, and columns "
                "(count,)")
        rows = (starts.shape[0] - 1) * (values.shape[1] if values.ndim == 3 else 1)
        return TensorType((rows, dense.shape[0]) if self.sparse_lhs else (dense.shape[0], rows), dense.dtype)

    def reference(self, dense_data: Array, sparse_data: Array, sparse_indices: Array, sparse_indptr: Array) -> Array:
        weight = unpacked(sparse_data, sparse_indices, sparse_indptr, dense_data.shape[1])
        return product_of(weight, dense_data.T, "") if self.sparse_lhs else product_of(dense_data, weight.T, "")

    def compute(self, dense_data: te.Tensor, sparse_data: te.Tensor, sparse_indices: te.Tensor,
                sparse_indptr: te.Tensor) -> te.Tensor:
        return topi.sparse_dense(dense_data, sparse_data, sparse_indices, sparse_indptr, self.sparse_lhs)


@op("nn.sparse_conv2d", kind=Fusion.OPAQUE)
class SparseConv2d(Op):
    """A convolution of stride 1 with a sparse kernel (out, taps * in), stored as in `nn.sparse_dense`, tap after tap.

    Kernels of 1x1 have no padding, those of 3x3 a padding of 1.
    """

    layout: str = "NHWC"
    """Layout of data and result: "NHWC" or "NCHW"."""
    kernel_size: tuple[int, ...] = (1, 1)
    """Height and width of the kernel: (1, 1), or (3, 3) for "NHWC"."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernel_size", per_dimension(self.kernel_size, 2, "kernel_size"))

    def infer(self, dense_data: Type, sparse_data: Type, sparse_indices: Type, sparse_indptr: Type) -> TensorType:
        """(batch, height, width, out) in `layout`; the common dtype of data and weights."""
        data, *matrix = tensors(dense_data, sparse_data, sparse_indices, sparse_indptr)
        require_rank(data, 4, "dense_data")
        size = self.kernel_size[0]
        if (self.layout, *self.kernel_size) not in (("NHWC", 1, 1), ("NHWC", 3, 3), ("NCHW", 1, 1)):
            raise ShapeError(f"layout {self.layout} with a kernel of {text(self.kernel_size)} is not supported; use 1 "
                             "or 3 with NHWC, 1 with NCHW")
        n, height, width, depth = (data.shape[self.layout.index(c)] for c in "NHWC")
        rows = SparseDense().infer(TensorType((n * height * width, size * size * depth), data.dtype), *matrix).shape[1]
        return TensorType((n, height, width, rows) if self.layout == "NHWC" else (n, rows, height, width), data.dtype)

    def reference(self, dense_data: Array, sparse_data: Array, sparse_indices: Array, sparse_indptr: Array) -> Array:
        data = dense_data if self.layout == "NHWC" else dense_data.transpose(0, 2, 3, 1)
        size, depth = self.kernel_size[0], data.shape[3]
        weight = unpacked(sparse_data, sparse_indices, sparse_indptr, size * size * depth)
        kernel = weight.reshape(-1, size, size, depth)
        plain = Conv2d(padding=(size // 2,) * 4, data_layout="NHWC", kernel_layout="OHWI").reference(data, kernel)
        return plain if self.layout == "NHWC" else np.ascontiguousarray(plain.transpose(0, 3, 1, 2))

    def compute(self, dense_data: te.Tensor, sparse_data: te.Tensor, sparse_indices: te.Tensor,
                sparse_indptr: te.Tensor) -> te.Tensor:
        return topi.sparse_conv2d(dense_data, sparse_data, sparse_indices, sparse_indptr, self.layout,
                                  self.kernel_size[0])


@op("nn.sparse_transpose", kind=Fusion.OPAQUE)
class SparseTranspose(Op):
    """The transpose of a square sparse matrix in compressed rows: values, columns and row starts."""

    @property
    def results(self) -> int:
        return 3

    def infer(self, sparse_data: Type, sparse_indices: Type, sparse_indptr: Type) -> TupleType:
        """The types of the three inputs."""
        values, indices, starts = tensors(sparse_data, sparse_indices, sparse_indptr)
        _require_rows(values, indices, starts)
        return TupleType((values, indices, starts))

    def reference(self, sparse_data: Array, sparse_indices: Array, sparse_indptr: Array) -> tuple[Array, Array, Array]:
        row = np.repeat(np.arange(len(sparse_indptr) - 1), np.diff(sparse_indptr))
        order = np.argsort(sparse_indices, kind="stable")
        starts = np.searchsorted(sparse_indices[order], np.arange(len(sparse_indptr)))
        return sparse_data[order], row[order].astype(sparse_indices.dtype), starts.astype(sparse_indptr.dtype)

    def compute(self, sparse_data: te.Tensor, sparse_indices: te.Tensor,
                sparse_indptr: te.Tensor) -> tuple[te.Tensor, ...]:
        return tuple(topi.sparse_transpose(sparse_data, sparse_indices, sparse_indptr))


@op("nn.sparse_add", kind=Fusion.OPAQUE)
class SparseAdd(Op):
    """A dense matrix plus a sparse one in compressed rows, of the same shape."""

    def infer(self, dense_data: Type, sparse_data: Type, sparse_indices: Type, sparse_indptr: Type) -> TensorType:
        """The type of `dense_data`; the sparse values have its dtype."""
        dense, values, indices, starts = tensors(dense_data, sparse_data, sparse_indices, sparse_indptr)
        require_rank(dense, 2, "dense_data")
        require_same_dtype((dense, values))
        _require_rows(values, indices, starts)
        if differ(starts.shape[0], dense.shape[0] + 1):
            raise ShapeError(f"row starts {text(starts.shape)} do not match the matrix {text(dense.shape)}; their "
                             "number must be the rows plus one")
        return dense

    def reference(self, dense_data: Array, sparse_data: Array, sparse_indices: Array, sparse_indptr: Array) -> Array:
        return dense_data + unpacked(sparse_data, sparse_indices, sparse_indptr, dense_data.shape[1])

    def compute(self, dense_data: te.Tensor, sparse_data: te.Tensor, sparse_indices: te.Tensor,
                sparse_indptr: te.Tensor) -> te.Tensor:
        return topi.sparse_add(dense_data, sparse_data, sparse_indices, sparse_indptr)


def _require_rows(values: TensorType, indices: TensorType, starts: TensorType) -> None:
    """Raise `ShapeError` unless the arguments are a CSR matrix of scalars."""
    if values.ndim != 1 or indices.ndim != 1 or starts.ndim != 1 or differ(values.shape[0], indices.shape[0]) or not (
            indices.dtype.is_integer and starts.dtype.is_integer):
        raise ShapeError(
            f"values {values!r}, columns {indices!r} and row starts {starts!r} are not a sparse matrix without blocks: "
            "all must be vectors, columns as long as values, and columns and row starts integers")


def unpacked(values: Array, indices: Array, starts: Array, columns: int) -> Array:
    """Return a sparse matrix as a dense one with the given number of columns."""
    blocks = values.reshape(-1, *(values.shape[1:] or (1, 1)))
    height, width = blocks.shape[1:]
    dense = np.zeros((len(starts) - 1, height, columns // width, width), values.dtype)
    row = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    np.add.at(dense.transpose(0, 2, 1, 3), (row, indices), blocks)
    return dense.reshape(-1, columns)


def packed(dense: Array, block: tuple[int, int]) -> tuple[Array, Array, Array]:
    """The nonzero blocks of a matrix, their columns, and the start of each row of blocks (int32).

    Raises `ShapeError` if blocks do not divide the matrix.
    """
    height, width = block
    if dense.shape[0] % height or dense.shape[1] % width:
        raise ShapeError(f"blocks of {text(block)} do not divide a matrix of {text(dense.shape)}")
    tiles = dense.reshape(dense.shape[0] // height, height, dense.shape[1] // width, width).transpose(0, 2, 1, 3)
    kept = tiles.any(axis=(2, 3))
    starts = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
    return np.ascontiguousarray(tiles[kept]), np.nonzero(kept)[1].astype("int32"), starts.astype("int32")
