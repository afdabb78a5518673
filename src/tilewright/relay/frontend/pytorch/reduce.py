"""Reductions: sums, extremes, norms, variances, cumulative sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tilewright.base.types import BOOL, INT64
from tilewright.relay.expr import Constant, Expr, Tuple
from tilewright.relay.frontend import shaping
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.pytorch.math import truth
from tilewright.relay.frontend.pytorch.node import Node
from tilewright.relay.frontend.pytorch.promotion import dtype_named, floating, promoted, tensor
from tilewright.relay.frontend.pytorch.references import spread
from tilewright.relay.frontend.pytorch.registry import converter
from tilewright.relay.frontend.shaping import axis_of, cast, reshape
from tilewright.relay.types_of import dtype_of, rank, scalar, shape_of

Dims = Any
"""A dimension, a list of them, or None for all."""


def axes_of(dim: Dims, ndim: int, node: Node) -> tuple[int, ...]:
    """The reduced dimensions; all of them if none are named."""
    given = [] if dim is None else list(dim) if isinstance(dim, (list, tuple)) else [dim]
    return tuple(axis_of(d, ndim, node) for d in given) if given else tuple(range(ndim))


def _reduced(build: Callable[..., Expr], x: Expr, dim: Dims, keepdim: bool, node: Node) -> Expr:
    axes = axes_of(dim, rank(x), node)
    return build(x, axis=axes, keepdims=keepdim) if rank(x) else x


def _summed_type(x: Expr, dtype: Any, node: Node) -> Expr:
    """Cast to the type in which sums are computed: `dtype`, or int64 for integers and bools."""
    if dtype is not None:
        return cast(x, dtype_named(dtype, node))
    return x if dtype_of(x).is_float else cast(x, INT64)


@converter("sum", "nansum")
def sum_of(self: Expr, node: Node, dim: Dims = None, keepdim: bool = False, dtype: Any = None) -> Expr:
    x = op.where(op.isnan(self), scalar(0, self), self) if node.name == "nansum" else self
    return _reduced(op.sum, _summed_type(x, dtype, node), dim, keepdim, node)


@converter("mean", "nanmean")
def mean(self: Expr, node: Node, dim: Dims = None, keepdim: bool = False, dtype: Any = None) -> Expr:
    x = _summed_type(self, dtype, node)
    if node.name == "nanmean":
        held = op.logical_not(op.isnan(x))
        total = _reduced(op.sum, op.where(held, x, scalar(0, x)), dim, keepdim, node)
        return op.divide(total, _reduced(op.sum, cast(held, dtype_of(x)), dim, keepdim, node))
    return _reduced(op.mean, x, dim, keepdim, node)


@converter("prod")
def prod(self: Expr, node: Node, dim: Dims = None, keepdim: bool = False, dtype: Any = None) -> Expr:
    return _reduced(op.prod, _summed_type(self, dtype, node), dim, keepdim, node)


@converter("amax", "amin", "max", "min")
def extreme(self: Expr, node: Node, dim: Dims = None, keepdim: bool = False) -> Expr:
    build = op.max if "max" in node.name else op.min
    if dtype_of(self) is BOOL:
        return cast(_reduced(build, cast(self, "int8"), dim, keepdim, node), BOOL)
    return _reduced(build, self, dim, keepdim, node)


@converter("aminmax")
def aminmax(self: Expr, node: Node, dim: int | None = None, keepdim: bool = False) -> tuple[Expr, Expr]:
    return _reduced(op.min, self, dim, keepdim, node), _reduced(op.max, self, dim, keepdim, node)


@converter("max.dim", "min.dim")
def extreme_along(self: Expr, dim: int, node: Node, keepdim: bool = False) -> tuple[Expr, Expr]:
    if not rank(self):
        return self, Constant(np.zeros((), np.int64))
    axis = axis_of(dim, rank(self), node)
    pick, value = (op.argmax, op.max) if node.name == "max" else (op.argmin, op.min)
    x = cast(self, "int8") if dtype_of(self) is BOOL else self
    return cast(value(x, axis=(axis,), keepdims=keepdim), dtype_of(self)), cast(pick(x, axis=(axis,), keepdims=keepdim),
        INT64)


@converter("argmax", "argmin")
def arg_extreme(self: Expr, node: Node, dim: int | None = None, keepdim: bool = False) -> Expr:
    pick = op.argmax if node.name == "argmax" else op.argmin
    if dim is None:
        flat = reshape(self, (math.prod(shape_of(self)),))
        found = cast(pick(flat, axis=(0,)), INT64)
        return reshape(found, [1] * rank(self)) if keepdim else found
    if not rank(self):
        return Constant(np.zeros((), np.int64))
    return cast(pick(self, axis=(axis_of(dim, rank(self), node),), keepdims=keepdim), INT64)


@converter("all", "any")
def all_or_any(self: Expr, node: Node, dim: Dims = None, keepdim: bool = False) -> Expr:
    found = _reduced(op.all if node.name == "all" else op.any, truth(self), dim, keepdim, node)
    return cast(found, "uint8") if dtype_of(self) == "uint8" else found


@converter("count_nonzero")
def count_nonzero(self: Expr, node: Node, dim: Dims = None) -> Expr:
    return _reduced(op.sum, cast(truth(self), INT64), dim, False, node)


@converter("logsumexp", "special_logsumexp")
def logsumexp(self: Expr, dim: Dims, node: Node, keepdim: bool = False) -> Expr:
    x = floating(self, node)
    axes = axes_of(dim, rank(x), node)
    most = op.max(x, axis=axes, keepdims=True)
    held = op.where(op.isfinite(most), most, scalar(0, x))
    total = op.log(op.sum(op.exp(op.subtract(x, held)), axis=axes, keepdims=True))
    found = op.add(total, held)
    return found if keepdim else op.squeeze(found, axis=axes)


# Variances


def _variance(x: Expr, dim: Dims, correction: Any, keepdim: bool, node: Node) -> tuple[Expr, Expr]:
    """The variance and the mean."""
    axes = axes_of(dim, rank(x), node)
    if not rank(x):
        x, axes, keepdim = reshape(x, (1,)), (0,), False
    mean = op.mean(x, axis=axes, keepdims=True)
    centred = op.subtract(x, mean)
    count = math.prod(shape_of(x)[k] for k in axes)
    total = op.sum(op.multiply(centred, centred), axis=axes, keepdims=keepdim)
    divisor = count - (1 if correction is None else correction)
    if isinstance(divisor, (int, float)):
        with np.errstate(divide="ignore"):
            variance = op.divide(total, scalar(max(divisor, 0), x))
    else:
        variance = op.divide(total, tensor(divisor, dtype_of(x)))
    return variance, mean if keepdim else op.mean(x, axis=axes, keepdims=False)


def _correction(unbiased: bool | None, correction: Any) -> Any:
    return correction if unbiased is None else int(unbiased)


@converter("var", "std")
def variance(self: Expr, node: Node, dim: Dims = None, unbiased: bool | None = None, correction: Any = None,
             keepdim: bool = False) -> Expr:
    found = _variance(self, dim, _correction(unbiased, correction), keepdim, node)[0]
    return op.sqrt(found) if node.name == "std" else found


@converter("var_mean", "std_mean")
def variance_and_mean(
    self: Expr, node: Node, dim: Dims = None, unbiased: bool | None = None, correction: Any = None,
    keepdim: bool = False,
) -> tuple[Expr, Expr]:
    found, mean = _variance(self, dim, _correction(unbiased, correction), keepdim, node)
    return (op.sqrt(found) if node.name == "std_mean" else found), mean


# Norms


@converter("linalg_vector_norm", "norm")
def vector_norm(self: Expr, node: Node, ord: Any = 2, p: Any = None, dim: Dims = None, keepdim: bool = False,
                dtype: Any = None) -> Expr:
    order = 2 if p is None and ord is None else ord if p is None else p
    x = floating(self if dtype is None else cast(self, dtype_named(dtype, node)), node)
    if isinstance(order, str):
        if order != "fro":
            node.refuse(f"the norm is {order!r}; only the Frobenius norm and vector norms are supported")
        order = 2
    size = op.abs(x)
    if order in (math.inf, -math.inf):
        return _reduced(op.max if order > 0 else op.min, size, dim, keepdim, node)
    if order == 0:
        return _reduced(op.sum, cast(truth(x), dtype_of(x)), dim, keepdim, node)
    if order == 1:
        return _reduced(op.sum, size, dim, keepdim, node)
    if order == 2:
        return op.sqrt(_reduced(op.sum, op.multiply(x, x), dim, keepdim, node))
    return op.power(_reduced(op.sum, op.power(size, scalar(order, x)), dim, keepdim, node), scalar(1 / order, x))


@converter("frobenius_norm")
def frobenius_norm(self: Expr, node: Node, dim: Dims = None, keepdim: bool = False) -> Expr:
    return vector_norm(self, node, 2, None, dim, keepdim)


@converter("renorm")
def renorm(self: Expr, p: float, dim: int, maxnorm: float, node: Node) -> Expr:
    axis = axis_of(dim, rank(self), node)
    length = vector_norm(self, node, p, None, [k for k in range(rank(self)) if k != axis], True)
    factor = op.divide(scalar(maxnorm, self), op.add(length, scalar(1e-7, self)))
    return op.multiply(self, op.where(op.greater(length, scalar(maxnorm, self)), factor, scalar(1, self)))


@converter("dist", "pairwise_distance")
def distance(node: Node, self: Expr | None = None, other: Expr | None = None, x1: Expr | None = None,
             x2: Expr | None = None, p: float = 2, eps: float = 1e-6,
             keepdim: bool = False) -> Expr:
    if self is not None and other is not None:
        return vector_norm(op.subtract(self, other), node, p)
    assert x1 is not None
    apart = op.add(op.subtract(x1, x2), scalar(eps, x1))
    return vector_norm(apart, node, p, None, [-1], keepdim)


@converter("cosine_similarity")
def cosine_similarity(x1: Expr, x2: Expr, node: Node, dim: int = 1, eps: float = 1e-8) -> Expr:
    x1, x2 = (floating(x, node) for x in promoted(x1, x2, node=node))
    shape = np.broadcast_shapes(node.static(x1, "x1"), node.static(x2, "x2"))
    x1, x2 = spread(x1, shape), spread(x2, shape)
    lengths = [op.maximum(vector_norm(x, node, 2, None, [dim], True), scalar(eps, x)) for x in (x1, x2)]
    return sum_of(op.multiply(op.divide(x1, lengths[0]), op.divide(x2, lengths[1])), node, [dim])


@converter("cdist", "_cdist_forward")
def cdist(x1: Expr, x2: Expr, node: Node, p: float = 2, compute_mode: int | None = None) -> Expr:
    apart = op.subtract(op.expand_dims(x1, axis=rank(x1) - 1), op.expand_dims(x2, axis=rank(x2) - 2))
    return vector_norm(apart, node, p, None, [-1])


# Cumulative reductions

_SCANS: Final = {"cumsum": op.cumsum, "cumprod": op.cumprod}


@converter("cumsum", "cumprod")
def running(self: Expr, dim: int, node: Node, dtype: Any = None) -> Expr:
    x = _summed_type(self, dtype, node)
    return _SCANS[node.name](x, axis=axis_of(dim, rank(x), node)) if rank(x) else x


@converter("logcumsumexp")
def logcumsumexp(self: Expr, dim: int, node: Node) -> Expr:
    if not rank(self):
        return self
    axis = axis_of(dim, rank(self), node)
    x, size = self, node.static(self, "self")[axis]
    reach = 1
    # x[k] is the logsumexp of the last `reach` elements up to k; each step doubles `reach`
    while reach < size:
        widths = [(reach, 0) if k == axis else (0, 0) for k in range(rank(x))]
        before = shaping.pad(shaping.slice_axis(x, axis, 0, size - reach), widths, scalar(-math.inf, x))
        most = op.maximum(x, before)
        held = op.where(op.isfinite(most), most, scalar(0, x))
        x = op.add(op.log(op.add(op.exp(op.subtract(x, held)), op.exp(op.subtract(before, held)))), held)
        reach *= 2
    return x


@converter("diff")
def diff(self: Expr, node: Node, n: int = 1, dim: int = -1, prepend: Expr | None = None,
         append: Expr | None = None) -> Expr:
    axis = axis_of(dim, rank(self), node)
    if n == 0:
        return self
    parts = [p for p in (prepend, self, append) if p is not None]
    x = op.concatenate(Tuple(tuple(parts)), axis=axis) if len(parts) > 1 else self
    for _ in range(n):
        size = shape_of(x)[axis]
        ahead, behind = shaping.slice_axis(x, axis, 1, size), shaping.slice_axis(x, axis, 0, size - 1)
        x = op.logical_xor(ahead, behind) if dtype_of(x) is BOOL else op.subtract(ahead, behind)
    return x
