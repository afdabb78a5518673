"""Matrix products: MatMul, Gemm and Einsum."""

from __future__ import annotations

import math
from typing import Any

from tilewright.relay.expr import Constant, Expr, Tuple
from tilewright.relay.frontend.onnx.node import Node
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast, dtype_of, rank, reshape, scalar, shape_of, transpose


@converter("MatMul")
def matmul(a: Expr, b: Expr, *, node: Node) -> Expr:
    """Numpy's matrix product: vectors become matrices, and leading dimensions broadcast."""
    n, m = rank(a), rank(b)
    if n == 0 or m == 0:
        node.refuse("a matrix product of a single number; use Mul")
    if dtype_of(a).is_integer:
        return _matmul(cast(a, "int32"), cast(b, "int32"), n, m, node) if dtype_of(a).bits < 32 else _matmul(a, b, n, m,
            node)
    return _matmul(a, b, n, m, node)


def _matmul(a: Expr, b: Expr, n: int, m: int, node: Node) -> Expr:
    if n == 1:
        product = _matmul(reshape(a, (1, *shape_of(a))), b, 2, m, node)
        dims = shape_of(product)
        return reshape(product, dims[:-2] + dims[-1:]) if m > 1 else reshape(product, dims[:-1])
    if m == 1:
        product = _matmul(a, reshape(b, (*shape_of(b), 1)), n, 2, node)
        return reshape(product, shape_of(product)[:-1])
    if m == 2:
        return times_matrix(a, transpose(b, (1, 0)))
    if n == 2:  # one matrix for the whole batch
        a = reshape(a, (1, *shape_of(a)))
    return _batched(a, b, node)


def times_matrix(a: Expr, weight: Expr) -> Expr:
    """a @ weight.T; all but the last dimension of `a` count as rows."""
    units = shape_of(weight)[0]
    dims = shape_of(a)
    rows = a if len(dims) == 2 else reshape(a, (-1, dims[-1]))
    product = op.nn.dense(rows, weight, units=units) if isinstance(units, int) else op.nn.dense(rows, weight)
    return product if len(dims) == 2 else reshape(product, (*dims[:-1], units))


def _batched(a: Expr, b: Expr, node: Node) -> Expr:
    before, after = shape_of(a)[:-2], shape_of(b)[:-2]
    size = max(len(before), len(after))
    before, after = (1,) * (size - len(before)) + tuple(before), (1,) * (size - len(after)) + tuple(after)
    common = tuple(y if isinstance(x, int) and x == 1 else x for x, y in zip(before, after, strict=True))
    a, b = _stacked(a, before, common), _stacked(b, after, common)
    if node.config["use_nt_batch_matmul"]:
        product = op.nn.batch_matmul(a, transpose(b, (0, 2, 1)), transpose_a=False, transpose_b=True)
    else:
        product = op.nn.batch_matmul(a, b, transpose_a=False, transpose_b=False)
    if size == 1:
        return product
    return reshape(product, (*common, *shape_of(product)[1:]))


def _stacked(x: Expr, lead: tuple[Any, ...], common: tuple[Any, ...]) -> Expr:
    """`x` (..., m, n) with one leading dimension: 1 if it does not vary along them, else the product of `common`."""
    tail = shape_of(x)[-2:]
    if all(isinstance(d, int) and d == 1 for d in lead):
        return reshape(x, (1, *tail))
    if any(a is not b and a != b for a, b in zip(lead, common, strict=True)):
        x = op.broadcast_to(x, shape=(*common, *tail))
    if len(common) == 1:
        return x
    static = all(isinstance(d, int) for d in common)
    return reshape(x, (math.prod(common) if static else -1, *tail))


@converter("Gemm")
def gemm_first(
    a: Expr, b: Expr, c: Expr | None = None, *, alpha: float = 1.0, beta: float = 1.0, broadcast: int = 0,
    transA: int = 0, transB: int = 0,
) -> Expr:
    return gemm(a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)


@converter("Gemm", since=7)
def gemm(a: Expr, b: Expr, c: Expr | None = None, *, alpha: float = 1.0, beta: float = 1.0, transA: int = 0,
         transB: int = 0) -> Expr:
    y = times_matrix(transpose(a, (1, 0)) if transA else a, b if transB else transpose(b, (1, 0)))
    kind = dtype_of(y)
    # alpha and beta are floats, but the sum is integer
    if not kind.is_float and any(factor % 1 for factor in (alpha, beta)):
        return cast(_sum_of(cast(y, "float64"), None if c is None else cast(c, "float64"), alpha, beta), kind)
    return _sum_of(y, c, alpha, beta)


def _sum_of(y: Expr, c: Expr | None, alpha: float, beta: float) -> Expr:
    if alpha != 1:
        y = op.multiply(y, scalar(alpha, y))
    if c is None or beta == 0:
        return y
    if beta != 1:
        c = (Constant((c.value * beta).astype(c.value.dtype), c.span) if isinstance(c, Constant)
             else op.multiply(c, scalar(beta, c)))
    if rank(c) == 1 and shape_of(c)[0] == shape_of(y)[1]:
        return op.nn.bias_add(y, c, axis=-1)
    return op.add(y, c)


@converter("Einsum")
def einsum(*inputs: Expr, equation: str) -> Expr:
    return op.einsum(Tuple(inputs), equation=equation)
