"""Matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.base.types import FLOAT32, INT64
from tilewright.relay.expr import Constant, Expr, Tuple
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.products import matrix_product, times_matrix
from tilewright.relay.frontend.pytorch.node import Node
from tilewright.relay.frontend.pytorch.promotion import dtype_named, tensor
from tilewright.relay.frontend.pytorch.registry import converter
from tilewright.relay.frontend.shaping import axis_of, cast, reshape, transpose
from tilewright.relay.types_of import dtype_of, rank, shape_of


@converter("matmul", "mm", "bmm", "mv", "dot", "inner_product", "linalg_matmul", "vdot", "__matmul__")
def matmul(self: Expr, node: Node, other: Expr | None = None, mat2: Expr | None = None, vec: Expr | None = None,
           tensor: Expr | None = None) -> Expr:
    b = next(v for v in (other, mat2, vec, tensor) if v is not None)
    return matrix_product(self, b)


@converter("_grouped_mm")
def grouped_product(self: Expr, mat2: Expr, node: Node, offs: Expr | None = None, bias: Any = None,
                    out_dtype: Any = None) -> Expr:
    """Products of matrices in a stack (3-D), or side by side in one matrix, where the groups end at `offs`.

    The ends of groups are known only at run time, so side-by-side products are computed whole and masked.
    """
    if bias is not None:
        node.refuse("argument 'bias' is not supported, because PyTorch does not define it; add the bias to the result")
    kind = dtype_of(self) if out_dtype is None else dtype_named(out_dtype, node)
    if offs is None:
        return cast(matrix_product(self, mat2), kind)
    stacked, other_stacked = rank(self) == 3, rank(mat2) == 3
    grouped = shape_of(self)[-1 if not other_stacked else -2] if not stacked else shape_of(mat2)[-1]
    inside = _inside(offs, grouped)
    if stacked or other_stacked:
        found = matrix_product(self if stacked else _as_group(self), mat2 if other_stacked else _as_group(mat2))
        return cast(op.sum(_only(op.expand_dims(inside, axis=1 if stacked else 2), found), axis=0), kind)
    left, right = (_only(op.expand_dims(inside, axis=k), _as_group(x)) for k, x in ((1, self), (2, mat2)))
    return cast(matrix_product(left, right), kind)


def _inside(ends: Expr, count: Any) -> Expr:
    """Whether position k of `count` is in group g, which spans [ends[g - 1], ends[g])."""
    column = op.expand_dims(cast(ends, INT64), axis=1)
    before = op.less(Constant(np.arange(count)), column)
    return op.logical_and(before, op.equal(op.cumsum(cast(before, INT64), axis=0), tensor(1, INT64)))


def _as_group(x: Expr) -> Expr:
    return reshape(x, (1, *shape_of(x)))


def _only(condition: Expr, x: Expr) -> Expr:
    return op.where(condition, x, tensor(0, dtype_of(x)))


@converter("linear")
def linear(input: Expr, weight: Expr, bias: Expr | None = None) -> Expr:
    if rank(weight) == 1:
        found = matrix_product(input, weight)
        return found if bias is None else op.add(found, bias)
    a = reshape(input, (1, *shape_of(input))) if rank(input) == 1 else input
    y = times_matrix(a, weight)
    y = y if bias is None else op.nn.bias_add(y, bias, axis=-1) if rank(bias) == 1 else op.add(y, bias)
    return reshape(y, shape_of(y)[1:]) if rank(input) == 1 else y


@converter("addmm")
def addmm(self: Expr, mat1: Expr, mat2: Expr, beta: Any = 1, alpha: Any = 1) -> Expr:
    y = _scaled(times_matrix(mat1, transpose(mat2, (1, 0))), alpha)
    if beta == 0:
        return y
    if rank(self) == 1 and beta == 1 and shape_of(self) == shape_of(y)[1:]:
        return op.nn.bias_add(y, self, axis=-1)
    return op.add(y, _scaled(self, beta))


@converter("addbmm", "baddbmm")
def addbmm(self: Expr, batch1: Expr, batch2: Expr, node: Node, beta: Any = 1, alpha: Any = 1) -> Expr:
    found = matrix_product(batch1, batch2)
    y = _scaled(op.sum(found, axis=(0,)) if node.name.startswith("addbmm") else found, alpha)
    return y if beta == 0 else op.add(_scaled(self, beta), y)


@converter("addmv", "addr")
def addmv(self: Expr, node: Node, mat: Expr | None = None, vec: Expr | None = None, vec1: Expr | None = None,
          vec2: Expr | None = None, beta: Any = 1,
          alpha: Any = 1) -> Expr:
    found = outer(vec1, vec2) if mat is None or vec is None else matrix_product(mat, vec)  # type: ignore[arg-type]
    y = _scaled(found, alpha)
    return y if beta == 0 else op.add(_scaled(self, beta), y)


def _scaled(x: Expr, by: Any) -> Expr:
    return x if not isinstance(by, Expr) and by == 1 else op.multiply(x, tensor(by, dtype_of(x)))


@converter("outer", "ger")
def outer(self: Expr, vec2: Expr) -> Expr:
    return op.multiply(reshape(self, (*shape_of(self), 1)), reshape(vec2, (1, *shape_of(vec2))))


@converter("chain_matmul", "linalg_multi_dot")
def chain(node: Node, matrices: list[Expr] | None = None, tensors: list[Expr] | None = None) -> Expr:
    first, *rest = matrices or tensors or []
    for m in rest:
        first = matrix_product(first, m)
    return first


@converter("einsum")
def einsum(equation: str, tensors: list[Expr], path: Any = None) -> Expr:
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    letters = inputs.replace(".", "")
    summed = set(letters) - set(output) if arrow else {c for c in letters if letters.count(c) > 1}
    if len(tensors) == 1 and summed and not dtype_of(tensors[0]).is_float:
        tensors = [cast(tensors[0], INT64)]  # sums of integers are int64, as in torch.sum
    return op.einsum(Tuple(tuple(tensors)), equation=equation.replace(" ", ""))


@converter("bilinear")
def bilinear(input1: Expr, input2: Expr, weight: Expr, bias: Expr | None = None) -> Expr:
    lead = shape_of(input1)[:-1]
    a, b = (reshape(x, (-1, shape_of(x)[-1])) for x in (input1, input2))
    y = op.einsum(Tuple((a, weight, b)), equation="bi,oij,bj->bo")
    y = y if bias is None else op.add(y, bias)
    return reshape(y, (*lead, shape_of(weight)[0]))


@converter("cross", "linalg_cross")
def cross(self: Expr, other: Expr, node: Node, dim: int | None = None) -> Expr:
    axis = (axis_of(-1 if dim is None else dim, rank(self), node) if dim is not None or node.name == "linalg_cross"
            else shape_of(self).index(3))
    a, b = ([op.squeeze(p, axis=(axis,)) for p in op.split(x, indices_or_sections=3, axis=axis)] for x in (self, other))
    rows = [op.subtract(op.multiply(a[i], b[j]), op.multiply(a[j], b[i])) for i, j in ((1, 2), (2, 0), (0, 1))]
    return op.stack(Tuple(tuple(rows)), axis=axis)


@converter("_weight_norm", "_weight_norm_interface")
def weight_norm(v: Expr, g: Expr, node: Node, dim: int = 0) -> Any:
    axes = tuple(k for k in range(rank(v)) if k != dim % rank(v))
    wide = cast(v, FLOAT32)
    length = op.sqrt(op.sum(op.multiply(wide, wide), axis=axes, keepdims=True))
    found = op.multiply(v, cast(op.divide(g, length), dtype_of(v)))
    return (found, length) if node.name.endswith("interface") else found
