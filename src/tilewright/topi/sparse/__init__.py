"""TVM's `topi.sparse`: products with matrices in compressed rows, given as `tvm.contrib.sparse.placeholder`.

A sparse operand is any object with the tensors `data`, `indices` and `indptr`, and a `shape`.
"""

from __future__ import annotations

from typing import Any, Protocol

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.scalar.expr import cast
from tilewright.tir.ir_builder import BufferVar
from tilewright.topi.loops import Loops, loops
from tilewright.topi.shapes import text

__all__ = ["csrmm", "csrmv", "dense"]


class Rows(Protocol):
    """A matrix in compressed rows."""

    shape: tuple[Any, ...]
    data: te.Tensor
    indices: te.Tensor
    indptr: te.Tensor


def csrmv(a: Rows, x: te.Tensor, y: te.Tensor | None = None) -> te.Tensor:
    """Return the sparse matrix `a` (rows, columns) times `x` (columns, 1), plus `y` (rows,) if given: (rows, 1)."""
    if x.ndim != 2 or (y is not None and y.ndim != 1):
        raise ShapeError(
            f"csrmv multiplies a matrix by (columns, 1), and adds (rows,); x has the shape {text(x.shape)}")
    return _times(a, x, y, name="csrmv")


def csrmm(a: Rows, b: te.Tensor, c: te.Tensor | None = None) -> te.Tensor:
    """Return the sparse matrix `a` (rows, k) times `b` (k, columns), plus `c` (rows,) in each column if given."""
    if b.ndim != 2 or (c is not None and c.ndim != 1):
        raise ShapeError(f"csrmm multiplies two matrices, and adds (rows,); b has the shape {text(b.shape)}")
    return _times(a, b, c, name="csrmm")


def _times(a: Rows, b: te.Tensor, bias: te.Tensor | None, name: str) -> te.Tensor:
    rows, columns, dtype = a.indptr.shape[0] - 1, b.shape[1], a.data.dtype

    def body(
        t: Loops, values: BufferVar, index: BufferVar, start: BufferVar, right: BufferVar, *rest: BufferVar
    ) -> None:
        *added, out = rest
        with t.for_range(0, rows, "row") as row, t.for_range(0, columns, "column") as column:
            total = t.variable("total", dtype, 0)
            with t.for_range(cast("int64", start[row]), cast("int64", start[row + 1]), "k") as k:
                total[0] = total[0] + values[k] * cast(dtype, right[cast("int64", index[k]) * columns + column])
            out[row * columns + column] = total[0] + cast(dtype, added[0][row]) if added else total[0]

    inputs = [a.data, a.indices, a.indptr, b, *([] if bias is None else [bias])]
    return loops(name, inputs, [((rows, columns), dtype)], body)[0]


def dense(data: Any, weight: Any, bias: te.Tensor | None = None) -> te.Tensor:
    """Return data (batch, in) times the transpose of weight (units, in), plus bias (units,); one of both matrices is
    sparse. Raises `ShapeError` if none or both are sparse."""
    if isinstance(data, te.Tensor) == isinstance(weight, te.Tensor):
        raise ShapeError("exactly one of data and weight must be sparse; use topi.nn.dense for two dense matrices")
    is_data_sparse = not isinstance(data, te.Tensor)
    sparse, plain = (data, weight) if is_data_sparse else (weight, data)
    sparse_rows, plain_rows, depth = sparse.indptr.shape[0] - 1, plain.shape[0], plain.shape[1]
    batch, units = (sparse_rows, plain_rows) if is_data_sparse else (plain_rows, sparse_rows)
    dtype = data.data.dtype if is_data_sparse else data.dtype

    def body(
        t: Loops, values: BufferVar, index: BufferVar, start: BufferVar, other: BufferVar, *rest: BufferVar
    ) -> None:
        *added, out = rest
        with t.for_range(0, batch, "row") as row, t.for_range(0, units, "unit") as unit:
            line, column = (row, unit) if is_data_sparse else (unit, row)
            total = t.variable("total", dtype, 0)
            with t.for_range(cast("int64", start[line]), cast("int64", start[line + 1]), "k") as k:
                product = cast(dtype, values[k]) * cast(dtype, other[column * depth + cast("int64", index[k])])
                total[0] = total[0] + product
            out[row * units + unit] = total[0] + cast(dtype, added[0][unit]) if added else total[0]

    inputs = [sparse.data, sparse.indices, sparse.indptr, plain, *([] if bias is None else [bias])]
    return loops("sparse_dense", inputs, [((batch, units), dtype)], body)[0]
