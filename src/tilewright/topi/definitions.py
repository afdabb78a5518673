"""Plain definitions of matrix products and attention, without tiles, packing, or a schedule.

They define the operators for any back end. A back end with a faster algorithm registers a strategy
(`backends/base.py`). Sums of 16-bit floats are float32. The plain definitions of convolutions and pools are in
`channel_blocks.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright import te
from tilewright.base.types import DataType
from tilewright.scalar.expr import PrimExpr, Var, add, cast, const, floordiv, if_then_else, mul
from tilewright.scalar.intrinsics import exp
from tilewright.topi.transform import dims


def sum_dtype(dtype: DataType) -> DataType:
    """Return the dtype of the sum of a result of `dtype`: float32 for smaller floats."""
    return DataType("float32") if dtype.is_float and dtype.bits < 32 else dtype


def dense(data: te.Tensor, weight: te.Tensor, out_dtype: DataType) -> te.Tensor:
    """Return `data` (…, k) times the transpose of `weight` (n, k)."""
    return matmul(data, weight, False, True, out_dtype)


def matmul(a: te.Tensor, b: te.Tensor, transpose_a: bool, transpose_b: bool, out_dtype: DataType) -> te.Tensor:
    """Return `a` (…, m, k) times `b` (k, n), each transposed on request: of `a`, its last two dimensions."""
    depth, columns = dims(b)[::-1] if transpose_b else dims(b)
    rows = (*dims(a)[:-2], dims(a)[-1]) if transpose_a else dims(a)[:-1]

    def term(k: Var, *i: PrimExpr) -> PrimExpr:
        left = a(*i[:-2], k, i[-2]) if transpose_a else a(*i[:-1], k)
        return _times(left, b(i[-1], k) if transpose_b else b(k, i[-1]), out_dtype)

    return _sum(term, depth, (*rows, columns), out_dtype, "matmul")


def batch_matmul(a: te.Tensor, b: te.Tensor, transpose_a: bool, transpose_b: bool, out_dtype: DataType) -> te.Tensor:
    """Return the product of each pair of matrices of two 3-D tensors; a batch of one is broadcast."""
    (batch_a, *left), (batch_b, *right) = dims(a), dims(b)
    rows, depth = left[::-1] if transpose_a else left
    columns = right[0] if transpose_b else right[1]

    def term(k: Var, g: PrimExpr, m: PrimExpr, n: PrimExpr) -> PrimExpr:
        ga, gb = (const(0, "int64") if size == 1 else g for size in (batch_a, batch_b))
        return _times(
            a(ga, k, m) if transpose_a else a(ga, m, k), b(gb, n, k) if transpose_b else b(gb, k, n), out_dtype
        )

    return _sum(term, depth, (batch_b if batch_a == 1 else batch_a, rows, columns), out_dtype, "batch_matmul")


def _times(a: PrimExpr, b: PrimExpr, out_dtype: DataType) -> PrimExpr:
    acc = sum_dtype(out_dtype)
    return mul(cast(acc, a), cast(acc, b))


def _sum(
    term: Callable[..., PrimExpr], depth: int, shape: tuple[int, ...], out_dtype: DataType, name: str
) -> te.Tensor:
    """Return the sum of `term(k, *i)` over `depth` values of k, at each `i` of `shape`."""
    k = te.reduce_axis((0, depth), "k")
    total = te.compute(shape, lambda *i: te.sum(term(k.var, *i), axis=k), name=name)
    return total if total.dtype == out_dtype else te.compute(
        shape, lambda *i: cast(out_dtype, total(*i)), name=f"{name}_out"
    )


def attention(
    query: te.Tensor, key: te.Tensor, value: te.Tensor, mask: te.Tensor | None, heads: int, sizes: tuple[int, int],
    starts: tuple[int, int, int], scale: float, causal: bool,
) -> te.Tensor:
    """Return the softmax of the scaled products of queries and keys, times the values: (batch, queries, heads * width).

    Head h of a query or key starts at the column `starts[0]` or `starts[1]` + h * size, that of a value at `starts[2]`
    + h * width; `sizes` are size and width. A `mask` (batch or 1, heads or 1, keys, queries or 1) is added; with
    `causal`, the last query sees all keys.
    """
    (batch, queries, _), keys, (size, width) = query.shape, key.shape[1], sizes
    acc = sum_dtype(query.dtype)
    d, s = te.reduce_axis((0, size), "d"), te.reduce_axis((0, keys), "s")

    def product(b: Var, h: Var, t: Var, j: Var) -> PrimExpr:
        return te.sum(
            _times(query(b, t, h * size + d.var + starts[0]), key(b, j, h * size + d.var + starts[1]), acc), axis=d
        )

    products = te.compute((batch, heads, queries, keys), product, name="products")

    def score(b: Var, h: Var, t: Var, j: Var) -> PrimExpr:
        x = products(b, h, t, j) * const(scale, acc)
        if mask is not None:
            x = add(x, cast(acc, mask(*(0 if n == 1 else i for i, n in zip((b, h, j, t), dims(mask), strict=True)))))
        return if_then_else(j <= t + (keys - queries), x, te.min_value(acc)) if causal else x

    scores = te.compute(products.shape, score, name="scores", inline=False)
    most = te.compute((batch, heads, queries), lambda b, h, t: te.max(scores(b, h, t, s.var), axis=s), name="most")
    powers = te.compute(
        products.shape, lambda b, h, t, j: exp(scores(b, h, t, j) - most(b, h, t)), name="powers", inline=False
    )
    total = te.compute(most.shape, lambda b, h, t: te.sum(powers(b, h, t, s.var), axis=s), name="total")

    def weighted(b: Var, t: Var, c: Var) -> PrimExpr:
        return te.sum(powers(b, floordiv(c, width), t, s.var) * cast(acc, value(b, s.var, c + starts[2])), axis=s)

    context = te.compute((batch, queries, heads * width), weighted, name="context")
    return te.compute(
        context.shape, lambda b, t, c: cast(query.dtype, context(b, t, c) / total(b, floordiv(c, width), t)),
        name="attention"
    )
