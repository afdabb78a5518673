"""Products with sparse matrices: compressed rows (CSR: values, columns, row starts), or rows of blocks (BSR: 3-D
values)."""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.scalar.expr import PrimExpr, all_of, cast, const, floordiv, floormod, if_then_else
from tilewright.tir.ir_builder import BufferVar, IRBuilder
from tilewright.topi.loops import Output, loops
from tilewright.topi.shapes import product, text
from tilewright.topi.tag import tagged
from tilewright.topi.transform import dims, reshape, transpose


def _require_sparse(data: te.Tensor, indices: te.Tensor, indptr: te.Tensor) -> None:
    if data.ndim not in (1, 3) or indices.ndim != 1 or indptr.ndim != 1 or dims(data)[0] != dims(indices)[0]:
        raise ShapeError(
            f"values {text(dims(data))}, columns {text(dims(indices))} and row starts {text(dims(indptr))} do not form "
            "a sparse matrix: values have the shape (count,), or (count, rows, columns) for blocks, with one column "
            "index each"
        )


def _rows_of_products(
    x: te.Tensor, values: te.Tensor, indices: te.Tensor, indptr: te.Tensor, sparse_rows: bool
) -> te.Tensor:
    """Return `out[m, n] = sum over k of x[m, k] * w[n, k]` for a sparse w; with `sparse_rows`, its transpose, with a
    row for each row of w."""
    _require_sparse(values, indices, indptr)
    block_rows, block_columns = values.extents[1:] if values.ndim == 3 else (1, 1)
    rows, depth = x.extents
    columns = (indptr.extents[0] - 1) * block_rows

    def body(irb: IRBuilder, a: BufferVar, w: BufferVar, index: BufferVar, start: BufferVar, out: BufferVar) -> None:
        with irb.for_range(0, rows, "m", kind="parallel") as m, irb.for_range(0, columns, "n") as n:
            place = n * rows + m if sparse_rows else m * columns + n
            block = floordiv(n, block_rows)
            out[place] = 0
            with irb.for_range(
                cast("int64", start[block]), cast("int64", start[block + 1]), "j"
            ) as j, irb.for_range(0, block_columns, "c") as c:
                k = cast("int64", index[j]) * block_columns + c
                weight = w[(j * block_rows + floormod(n, block_rows)) * block_columns + c]
                out[place] = out[place] + weight * a[m * depth + k]

    shape = (columns, rows) if sparse_rows else (rows, columns)
    return loops("sparse_dense", [x, values, indices, indptr], [(shape, x.dtype)], body)[0]


@tagged("sparse_dense_sp_rhs")
def sparse_dense_sp_rhs(
    data: te.Tensor, weight_data: te.Tensor, weight_indices: te.Tensor, weight_indptr: te.Tensor
) -> te.Tensor:
    """Return data (m, k) times the transpose of a sparse weight (n, k)."""
    return _rows_of_products(data, weight_data, weight_indices, weight_indptr, False)


@tagged("sparse_dense_sp_lhs")
def sparse_dense_sp_lhs(
    data_data: te.Tensor, data_indices: te.Tensor, data_indptr: te.Tensor, weight: te.Tensor
) -> te.Tensor:
    """Return sparse data (m, k) times the transpose of weight (n, k)."""
    return _rows_of_products(weight, data_data, data_indices, data_indptr, True)


def sparse_dense(
    dense_data: te.Tensor, sparse_data: te.Tensor, sparse_indices: te.Tensor, sparse_indptr: te.Tensor,
    sparse_lhs: bool = False
) -> te.Tensor:
    """Return dense times the transpose of sparse; with `sparse_lhs`, sparse times the transpose of dense."""
    if sparse_lhs:
        return sparse_dense_sp_lhs(sparse_data, sparse_indices, sparse_indptr, dense_data)
    return sparse_dense_sp_rhs(dense_data, sparse_data, sparse_indices, sparse_indptr)


@tagged("sparse_transpose_csr")
def sparse_transpose(sparse_data: te.Tensor, sparse_indices: te.Tensor, sparse_indptr: te.Tensor) -> list[te.Tensor]:
    """Return the transpose of a square CSR matrix: its values, columns and row starts."""
    _require_sparse(sparse_data, sparse_indices, sparse_indptr)
    if sparse_data.ndim != 1:
        raise ShapeError(f"values {text(dims(sparse_data))} are blocks; only matrices without blocks can be transposed")
    count, rows = sparse_data.extents[0], sparse_indptr.extents[0] - 1

    def body(
        irb: IRBuilder, x: BufferVar, index: BufferVar, start: BufferVar, out: BufferVar, out_index: BufferVar,
        out_start: BufferVar
    ) -> None:
        def column(j: PrimExpr) -> PrimExpr:
            return cast("int64", index[j])

        with irb.for_range(0, rows + 1, "i") as i:
            out_start[i] = 0
        with irb.for_range(0, count, "j") as j:
            out_start[column(j)] = out_start[column(j)] + 1
        total = irb.allocate(sparse_indptr.dtype, (2,), "total", "local")
        total[0] = 0
        with irb.for_range(0, rows + 1, "i") as i:
            total[1] = out_start[i]
            out_start[i] = total[0]
            total[0] = total[0] + total[1]
        with irb.for_range(0, rows, "row") as row, irb.for_range(
            cast("int64", start[row]), cast("int64", start[row + 1]), "j"
        ) as j:
            place = irb.let("place", cast("int64", out_start[column(j)]))
            out[place] = x[j]
            out_index[place] = row.astype(sparse_indices.dtype)
            out_start[column(j)] = out_start[column(j)] + 1
        with irb.for_range(0, rows, "i") as i:
            out_start[rows - i] = out_start[rows - i - 1]
        out_start[0] = 0

    inputs = [sparse_data, sparse_indices, sparse_indptr]
    outputs: list[Output] = [((size,), x.dtype) for size, x in zip((count, count, rows + 1), inputs, strict=True)]
    return list(loops("sparse_transpose", inputs, outputs, body))


@tagged("sparse_add")
def sparse_add(
    dense_data: te.Tensor, sparse_data: te.Tensor, sparse_indices: te.Tensor, sparse_indptr: te.Tensor
) -> te.Tensor:
    """Return a dense matrix plus a CSR matrix."""
    _require_sparse(sparse_data, sparse_indices, sparse_indptr)
    rows, columns = dense_data.extents
    if sparse_data.ndim != 1 or sparse_indptr.extents[0] != rows + 1:
        raise ShapeError(
            f"row starts {text(dims(sparse_indptr))} and values {text(dims(sparse_data))} do not fit a matrix "
            f"{text(dense_data.extents)}"
        )

    def body(
        irb: IRBuilder, x: BufferVar, values: BufferVar, index: BufferVar, start: BufferVar, out: BufferVar
    ) -> None:
        with irb.for_range(0, rows, "row", kind="parallel") as row:
            with irb.for_range(0, columns, "column") as column:
                out[row * columns + column] = x[row * columns + column]
            with irb.for_range(cast("int64", start[row]), cast("int64", start[row + 1]), "j") as j:
                place = row * columns + cast("int64", index[j])
                out[place] = out[place] + values[j]

    inputs = [dense_data, sparse_data, sparse_indices, sparse_indptr]
    return loops("sparse_add", inputs, [((rows, columns), dense_data.dtype)], body)[0]


@tagged("sparse_conv2d")
def sparse_conv2d(
    dense_data: te.Tensor, sparse_data: te.Tensor, sparse_indices: te.Tensor, sparse_indptr: te.Tensor,
    layout: str = "NHWC", kernel_size: int = 1
) -> te.Tensor:
    """Return a convolution of stride 1 with sparse weights (out, kernel_size * kernel_size * in): 1x1 in NHWC or NCHW,
    3x3 in NHWC with padding 1."""
    if (layout, kernel_size) not in (("NHWC", 1), ("NCHW", 1), ("NHWC", 3)):
        raise ShapeError(
            f"layout {layout} with a kernel of {kernel_size} is not supported: NHWC supports 1 and 3, NCHW supports 1; "
            "use dense weights"
        )
    data = transpose(dense_data, [0, 2, 3, 1]) if layout == "NCHW" else dense_data
    n, height, width, depth = data.extents
    seen = data if kernel_size == 1 else _patches(data)
    flat = reshape(seen, (n * height * width, kernel_size * kernel_size * depth), "pixels")
    product_of = sparse_dense_sp_rhs(flat, sparse_data, sparse_indices, sparse_indptr)
    result = reshape(product_of, (n, height, width, product(dims(product_of)[1:])), "sparse_conv2d")
    return transpose(result, [0, 3, 1, 2]) if layout == "NCHW" else result


def _patches(data: te.Tensor) -> te.Tensor:
    """Return the 3x3 neighbourhood of each pixel, row by row; zeros outside."""
    n, height, width, depth = data.extents

    def element(b: Any, y: Any, x: Any, k: Any) -> PrimExpr:
        tap = floordiv(k, depth)
        row, column = y + floordiv(tap, 3) - 1, x + floormod(tap, 3) - 1
        inside = all_of(row >= 0, row < height, column >= 0, column < width)
        return if_then_else(inside, data(b, row, column, floormod(k, depth)), const(0, data.dtype))

    return te.compute((n, height, width, 9 * depth), element, name="patches")


__all__ = [
    "sparse_add", "sparse_conv2d", "sparse_dense", "sparse_dense_sp_lhs", "sparse_dense_sp_rhs", "sparse_transpose"
]
