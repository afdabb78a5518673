"""Gradients of reductions, and of the operators that repeat or fill tensors."""

from __future__ import annotations

from typing import Any, Final

from tilewright.relay.expr import Call, Expr
from tilewright.relay.op.broadcast import Divide, Equal, Multiply, Subtract
from tilewright.relay.op.create import NdarraySize, OneHot
from tilewright.relay.op.elementwise import Negative
from tilewright.relay.op.gradients.building import (
    GradientRule,
    broadcast_like,
    cast,
    refuse,
    reshape_like,
    sum_like,
    with_reduced_axes,
)
from tilewright.relay.op.gradients.elementwise import times, zero
from tilewright.relay.op.reduction import Sum
from tilewright.relay.op.scans import CumSum
from tilewright.relay.op.transform import Reverse
from tilewright.relay.types_of import dtype_of, rank, scalar, shape_of
from tilewright.topi.shapes import axes_of, is_number, product


def _count(e: Call, like: Expr, fewer: int = 0) -> Expr:
    """The number of elements that each element of the reduction `e` combines, minus `fewer`, as a scalar."""
    x = e.args[0]
    sizes = [shape_of(x)[a] for a in axes_of(e.op.axis, rank(x), e.op.exclude)]
    if all(map(is_number, sizes)):
        return scalar(product(sizes) - fewer, like)
    found = Divide()(NdarraySize("int64")(x), NdarraySize("int64")(e))
    return Subtract()(cast(found, dtype_of(like)), scalar(fewer, like))


def _sum(e: Call, g: Expr) -> list[Expr]:
    return [broadcast_like(with_reduced_axes(e, g), e.args[0])]


def _mean(e: Call, g: Expr) -> list[Expr]:
    return [broadcast_like(with_reduced_axes(e, Divide()(g, _count(e, g))), e.args[0])]


def _variance(e: Call, g: Expr) -> list[Expr]:
    x, mean = e.args
    share = Divide()(times(2, g), _count(e, g, int(e.op.unbiased)))
    slope = Multiply()(with_reduced_axes(e, share), Subtract()(x, mean))
    return [slope, Negative()(sum_like(slope, mean))]


def _extreme(e: Call, g: Expr) -> list[Expr]:
    """Equal shares for all elements that equal the maximum or minimum."""
    x = e.args[0]
    here = cast(Equal()(x, with_reduced_axes(e, e)), dtype_of(g))
    share = Divide()(with_reduced_axes(e, g), Sum(e.op.axis, True, e.op.exclude)(here))
    return [Multiply()(here, share)]


def _collapsed(e: Call, g: Expr) -> list[Expr | None]:
    return [broadcast_like(g, e.args[0]), *[None] * (len(e.args) - 1)]


def _repeated(e: Call, g: Expr) -> list[Expr | None]:
    return [sum_like(g, e.args[0]), *[None] * (len(e.args) - 1)]


def _filled(e: Call, g: Expr) -> list[Expr | None]:
    value = e.args[-1]
    return [*[None] * (len(e.args) - 1), reshape_like(cast(Sum()(g), dtype_of(value)), value)]


def _one_hot(e: Call, g: Expr) -> list[Expr | None]:
    indices, on, off = e.args
    op: Any = e.op
    mask = OneHot(op.depth, op.axis, str(dtype_of(g)))(indices, scalar(1, g), scalar(0, g))
    total = Sum()(Multiply()(g, mask))
    return [None, cast(total, dtype_of(on)), cast(Subtract()(Sum()(g), total), dtype_of(off))]


def _cumsum(e: Call, g: Expr) -> list[Expr]:
    if e.op.axis is None or (e.op.dtype and dtype_of(e) is not dtype_of(e.args[0])):
        refuse(e, "without an axis, or with another dtype than that of the data")
    axis = e.op.axis
    return [Reverse(axis)(CumSum(axis, exclusive=e.op.exclusive)(Reverse(axis)(g)))]


RULES: Final[dict[str, GradientRule]] = {
    "sum": _sum,
    "mean": _mean,
    "variance": _variance,
    "max": _extreme,
    "min": _extreme,
    "cumsum": _cumsum,
    "collapse_sum_to": _collapsed,
    "collapse_sum_like": _collapsed,
    "broadcast_to": _repeated,
    "broadcast_to_like": _repeated,
    "dyn.broadcast_to": _repeated,
    "full": _filled,
    "full_like": _filled,
    "one_hot": _one_hot,
    **dict.fromkeys(("zeros", "ones", "zeros_like", "ones_like", "arange", "dyn.zeros", "dyn.ones"), zero),
}
"""The rules by operator name."""
