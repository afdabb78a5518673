"""Matrix products. The right operand is packed into panels `[panel, k, column]`; at compile time if it is constant."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright import te
from tilewright.backends.cpu.strategies.dots import Dot, dot_of
from tilewright.backends.cpu.strategies.schedules.open_rows import MOST_OPEN_ROWS, Heights, balanced
from tilewright.backends.cpu.strategies.schedules.tile import MatmulSchedule
from tilewright.backends.cpu.strategies.tiles import OPEN_ROWS, Tile, register_tile
from tilewright.backends.kernel_options import KernelOptions
from tilewright.base.types import DataType, OpenSize
from tilewright.scalar.expr import PrimExpr, Var, add, as_expr, cast, floordiv, floormod, if_then_else, mul

Array = np.ndarray[Any, Any]


def dense(data: te.Tensor, weight: te.Tensor, out_dtype: DataType, options: KernelOptions) -> te.Tensor:
    """Return `data[…, k]` times the transpose of `weight[n, k]`."""
    columns, depth = weight.extents
    return matmul_rows(data, weight, weight, lambda w: w, columns, depth, out_dtype, options, name="dense")


def matmul(
    a: te.Tensor, b: te.Tensor, transpose_a: bool, transpose_b: bool, out_dtype: DataType, options: KernelOptions
) -> te.Tensor:
    """Return the product of `a` (…, m, k) and the matrix `b`, each transposed on request."""
    shape = b.extents
    columns, depth = shape if transpose_b else shape[::-1]
    if transpose_a and a.ndim == 2:
        turned = te.compute(a.shape[::-1], lambda i, j: a(j, i), name="turned")
        a = turned
    elif transpose_a:
        a0 = a
        a = te.compute(
            (*a.shape[:-2], a.shape[-1], a.shape[-2]), lambda *i: a0(*i[:-2], i[-1], i[-2]), name="turned")
    return matmul_rows(
        a, b, lambda n, k: b(n, k) if transpose_b else b(k, n), lambda w: w if transpose_b else w.T, columns, depth,
        out_dtype, options, name="matmul", contiguous=not transpose_a,
    )


def matmul_rows(
    data: te.Tensor, weight: te.Tensor, element: Callable[[PrimExpr, PrimExpr], PrimExpr],
    matrix: Callable[[Array], Array], columns: int, depth: int, out_dtype: DataType, options: KernelOptions, name: str,
    contiguous: bool = True, heights: Callable[[int, int], Heights] = balanced,
) -> te.Tensor:
    """Return `out[r…, n] = sum over k of data[r…, k] * element(n, k)`; `matrix` returns the same `[n, k]` for the array
    of the weight.

    `contiguous` is false if `data` is inlined and therefore not read along the depth. `heights` are tile heights for a
    symbolic number of rows.
    """
    lead = data.extents[:-1]
    acc = row_products(
        data, weight, element, matrix, columns, depth, out_dtype, options, name, contiguous, heights=heights
    )
    return te.compute(
        (*lead, columns), lambda *i: cast(out_dtype, acc(flatten(i[:-1], lead), i[-1])), name=f"{name}_out"
    )


def row_products(
    data: te.Tensor, weight: te.Tensor, element: Callable[[PrimExpr, PrimExpr], PrimExpr],
    matrix: Callable[[Array], Array], columns: int, depth: int, out_dtype: DataType, options: KernelOptions, name: str,
    contiguous: bool = True, scattered: tuple[int, ...] = (), heights: Callable[[int, int], Heights] = balanced,
) -> te.Tensor:
    """Return the accumulators `acc[row, n]` of `matmul_rows`, float32 for bfloat16; `scattered` are the block sizes of
    results whose columns form blocks of an image."""
    lead = data.extents[:-1]
    rows = math.prod(lead)
    most = 4 if scattered and columns < 4 * options.machine.lanes() else 16
    dot = dot_of(data.dtype, weight.dtype, out_dtype, depth, options, contiguous)
    steps, dtype = depth // dot.width, dot.accumulator(out_dtype)
    tile = rows_tile(rows, columns, steps, options, most, dot.most_sums)
    packed = _pack(weight, element, matrix, columns, steps, tile, dot)
    k = te.reduce_axis((0, steps), "k")

    def term(m: Var, n: Var) -> PrimExpr:
        w = packed(floordiv(n, tile.columns), k.var, floormod(n, tile.columns))
        return te.sum(dot.product(lambda d: data(*unflatten(m, lead), d), k.var, w, dtype), axis=k)

    padded = -(-columns // tile.columns) * tile.columns
    return te.compute(
        (rows, padded), term, name=name, axis_names=("m", "n"),
        schedule=MatmulSchedule(
            tile=tile, heights=heights(rows, tile.rows), flops=2 * rows * columns * steps,
            left_bytes=rows * depth * data.dtype.itemsize,
            right_bytes=columns * depth * data.dtype.itemsize, unroll=unroll(steps, options), scattered=scattered,
            exact=dtype.is_integer,
        ),
    )


def rows_tile(
    rows: int, columns: int, depth: int, options: KernelOptions, most_rows: int = 16, most_sums: int = 32
) -> Tile:
    """Return the tile for a product; for a symbolic number of rows, a tile for many rows with a limited height."""
    if isinstance(rows, OpenSize):
        return register_tile(
            OPEN_ROWS, columns, depth, options, most_rows=min(most_rows, MOST_OPEN_ROWS), most_sums=most_sums
        )
    return register_tile(rows, columns, depth, options, most_rows=most_rows, most_sums=most_sums)


def batch_matmul(
    a: te.Tensor, b: te.Tensor, transpose_a: bool, transpose_b: bool, out_dtype: DataType, options: KernelOptions
) -> te.Tensor:
    """Return the product of each pair of matrices of two 3-d tensors; a batch of one is broadcast."""
    ash, bsh = a.extents, b.extents
    batch = min(
        ash[0], bsh[0]
    ) if type(ash[0]) is type(bsh[0]) is int and 0 in (ash[0], bsh[0]) else max(ash[0], bsh[0])
    rows, depth = (ash[2], ash[1]) if transpose_a else ash[1:]
    columns = bsh[1] if transpose_b else bsh[2]
    dot = dot_of(a.dtype, b.dtype, out_dtype, depth, options, contiguous=not transpose_a)
    steps, dtype = depth // dot.width, dot.accumulator(out_dtype)
    tile = register_tile(rows, columns, steps, options, most_sums=dot.most_sums)
    panels = -(-columns // tile.columns)

    def element(g: Var, p: Var, k: Var, column: Var) -> PrimExpr:
        n = add(mul(p, tile.columns), column)
        value = dot.element(lambda d: b(g, n, d) if transpose_b else b(g, d, n), k)
        return if_then_else(n < columns, value, dot.zero(b.dtype))

    def on_arrays(w: Array) -> Array:
        ordered = w if transpose_b else w.transpose(0, 2, 1)
        filled = [_pack_array(dot.array(m, 1), panels, tile.columns) for m in ordered]
        return np.stack(filled) if filled else np.empty((0, panels, steps, tile.columns), w.dtype)

    packed = te.compute((bsh[0], panels, steps, tile.columns), element, name="packed", prepack=on_arrays)
    k = te.reduce_axis((0, steps), "k")

    def term(g: Var, m: Var, n: Var) -> PrimExpr:
        ga, gb = (g if ash[0] > 1 else 0), (g if bsh[0] > 1 else 0)
        w = packed(gb, floordiv(n, tile.columns), k.var, floormod(n, tile.columns))
        return te.sum(dot.product(lambda d: a(ga, d, m) if transpose_a else a(ga, m, d), k.var, w, dtype), axis=k)

    acc = te.compute(
        (batch, rows, panels * tile.columns), term, name="batch_matmul", axis_names=("b", "m", "n"),
        schedule=MatmulSchedule(
            tile=tile, batch_axes=1, flops=2 * batch * rows * columns * steps,
            left_bytes=rows * depth * a.dtype.itemsize, unroll=unroll(steps, options), exact=dtype.is_integer,
        ),
    )
    return te.compute((batch, rows, columns), lambda *i: cast(out_dtype, acc(*i)), name="batch_matmul_out")


def unflatten(index: PrimExpr, shape: tuple[int, ...]) -> list[PrimExpr]:
    """Return the indices along `shape` of a row-major position."""
    where: list[PrimExpr] = []
    for size in reversed(shape[1:]):
        where.append(floormod(index, size))
        index = floordiv(index, size)
    return [*([index] if shape else []), *reversed(where)]


def flatten(indices: tuple[PrimExpr, ...], shape: tuple[int, ...]) -> PrimExpr:
    """Return the row-major position of indices along `shape`."""
    position: PrimExpr = cast("int64", 0)
    for i, size in zip(indices, shape, strict=True):
        position = add(mul(position, size), i)
    return position


def unroll(depth: int, options: KernelOptions) -> int:
    """Return the number of unrolled steps of a sum, a divisor of `depth`."""
    best = next(u for u in (4, 2, 1) if depth % u == 0)
    return options.decide_one("tile_k", best, lambda: [(u,) for u in (1, 2, 4, 8) if depth % u == 0])


def _pack(
    weight: te.Tensor, element: Callable[[PrimExpr, PrimExpr], PrimExpr], matrix: Callable[[Array], Array],
    columns: int, steps: int, tile: Tile, dot: Dot
) -> te.Tensor:
    panels = -(-columns // tile.columns)

    def padded(p: Var, k: Var, column: Var) -> PrimExpr:
        n = add(mul(p, tile.columns), column)
        return if_then_else(n < columns, dot.element(lambda d: element(n, as_expr(d)), k), dot.zero(weight.dtype))

    return te.compute(
        (panels, steps, tile.columns), padded, name="packed",
        prepack=lambda w: _pack_array(dot.array(matrix(w), 1), panels, tile.columns)
    )


def _pack_array(w: Array, panels: int, columns: int) -> Array:
    """Return `[n, k]` as panels `[panel, k, column]`, zero-padded."""
    n, depth = w.shape
    if n != panels * columns:
        full = np.zeros((panels * columns, depth), w.dtype)
        full[:n] = w
        w = full
    return w.reshape(panels, columns, depth).transpose(0, 2, 1)
