"""Matrix products: dense layers, batches of matrices, packed weights."""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import DataType
from tilewright.scalar.expr import cast, floordiv, floormod
from tilewright.topi import definitions as of
from tilewright.topi.algorithms import fastest
from tilewright.topi.nn.convolution import require_plain_layout
from tilewright.topi.shapes import broadcast_shapes, differ, text
from tilewright.topi.tag import tagged
from tilewright.topi.transform import dims


def _require_product(a: te.Tensor, b: te.Tensor, depth: Any, inner: Any) -> None:
    if differ(depth, inner):
        raise ShapeError(
            f"{text(dims(a))} and {text(dims(b))} cannot be multiplied: the reduced dimensions are {depth} and {inner}"
        )


def _with_bias(product: te.Tensor, bias: te.Tensor | None) -> te.Tensor:
    if bias is None:
        return product
    return te.compute(
        product.shape, lambda *i: product(*i) + cast(product.dtype, bias(i[-1])), name="bias_add", tag="broadcast"
    )


@tagged("dense")
def dense(
    data: te.Tensor, weight: te.Tensor, bias: te.Tensor | None = None, out_dtype: str | None = None,
    auto_scheduler_rewritten_layout: str = "", meta_schedule_original_shape: Any = None,
) -> te.Tensor:
    """Return data (…, in) times the transpose of weight (units, in), plus bias (units,). Raises `ShapeError` if the
    inner sizes differ."""
    require_plain_layout(auto_scheduler_rewritten_layout, meta_schedule_original_shape)
    _require_product(data, weight, dims(data)[-1], dims(weight)[-1])
    return _with_bias(fastest(of.dense)(data, weight, DataType(out_dtype or data.dtype)), bias)


@tagged("dense_pack")
def dense_pack(
    data: te.Tensor, weight: te.Tensor, bias: te.Tensor | None = None, out_dtype: str | None = None
) -> te.Tensor:
    """Return a dense product as `dense` does, with a weight in panels, (units / x, in, x)."""
    panels, depth, width = weight.extents
    _require_product(data, weight, dims(data)[-1], depth)
    plain = te.compute(
        (panels * width, depth), lambda n, k: weight(floordiv(n, width), k, floormod(n, width)), name="weight"
    )
    return _with_bias(fastest(of.dense)(data, plain, DataType(out_dtype or data.dtype)), bias)


@tagged("matmul")
def matmul(
    tensor_a: te.Tensor, tensor_b: te.Tensor, bias: te.Tensor | None = None, out_dtype: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False, auto_scheduler_rewritten_layout: str = "", meta_schedule_original_shape: Any = None,
) -> te.Tensor:
    """Return tensor_a (…, m, k) times tensor_b (k, n), each transposed on request (the last two dimensions of a),
    plus bias (n,)."""
    require_plain_layout(auto_scheduler_rewritten_layout, meta_schedule_original_shape)
    if transpose_a and tensor_a.ndim < 2:
        raise ShapeError(
            f"tensor_a {text(dims(tensor_a))} cannot be transposed: it has fewer than two dimensions; reshape it")
    _require_product(
        tensor_a, tensor_b, dims(tensor_a)[-2 if transpose_a else -1], dims(tensor_b)[1 if transpose_b else 0]
    )
    return _with_bias(
        fastest(of.matmul)(tensor_a, tensor_b, transpose_a, transpose_b, DataType(out_dtype or tensor_a.dtype)), bias
    )


@tagged("batch_matmul")
def batch_matmul(
    tensor_a: te.Tensor, tensor_b: te.Tensor, oshape: Any = None, out_dtype: str | None = None,
    transpose_a: bool = False, transpose_b: bool = True,
    auto_scheduler_rewritten_layout: str = "", meta_schedule_original_shape: Any = None,
) -> te.Tensor:
    """Return the product of each pair of matrices, (b, m, k) times the transpose of (b, n, k); a batch of one is
    broadcast.

    `oshape`, if given, must be the shape of the result. Raises `ShapeError`.
    """
    require_plain_layout(auto_scheduler_rewritten_layout, meta_schedule_original_shape)
    a, b = dims(tensor_a), dims(tensor_b)
    _require_product(tensor_a, tensor_b, a[1 if transpose_a else 2], b[2 if transpose_b else 1])
    result = (*broadcast_shapes(a[:1], b[:1]), a[2 if transpose_a else 1], b[1 if transpose_b else 2])
    if oshape is not None and tuple(oshape) != result:
        raise ShapeError(f"oshape is {text(tuple(oshape))}, but the product has the shape {text(result)}")
    return fastest(of.batch_matmul)(tensor_a, tensor_b, transpose_a, transpose_b, DataType(out_dtype or tensor_a.dtype))


__all__ = ["batch_matmul", "dense", "dense_pack", "matmul"]
