"""Matrix products: MatMul, Gemm and Einsum."""

from __future__ import annotations

from tilewright.relay.expr import Constant, Expr, Tuple
from tilewright.relay.frontend.onnx.node import Node
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.products import matrix_product, times_matrix
from tilewright.relay.frontend.shaping import cast, transpose
from tilewright.relay.types_of import dtype_of, rank, scalar, shape_of


@converter("MatMul")
def matmul(a: Expr, b: Expr, *, node: Node) -> Expr:
    """Numpy's matrix product: vectors become matrices, and leading dimensions broadcast."""
    if not rank(a) or not rank(b):
        node.refuse("an input of the matrix product is a scalar; use Mul")
    if dtype_of(a).is_integer and dtype_of(a).bits < 32:
        a, b = cast(a, "int32"), cast(b, "int32")
    return matrix_product(a, b, transposes=bool(node.config["use_nt_batch_matmul"]))


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
