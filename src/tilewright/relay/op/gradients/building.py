"""Graph builders shared by the gradient rules. They omit operators that would have no effect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from tilewright.base.errors import CompileError
from tilewright.base.types import DataType
from tilewright.relay.expr import Call, Expr
from tilewright.relay.op.broadcast import BroadcastTo, BroadcastToLike, Where
from tilewright.relay.op.create import Ones, OnesLike, Zeros, ZerosLike
from tilewright.relay.op.elementwise import Cast
from tilewright.relay.op.reduction import CollapseSumLike, Sum
from tilewright.relay.op.shaping import ExpandDims, ReshapeLike, sized
from tilewright.relay.op.transform import Transpose
from tilewright.relay.types_of import dtype_of, rank, scalar, shape_of
from tilewright.topi.shapes import axes_of, inverse, is_number, same

GradientRule = Callable[[Call, Expr], Sequence[Any]]
"""Maps a call and the gradient of its result to the gradients of its arguments; None for zero.

The gradient of a tuple is an expression of tuple type, or a sequence of the gradients of its fields.
"""


def refuse(call: Call, why: str) -> NoReturn:
    """Raise `CompileError` for a call whose gradient is not supported."""
    raise CompileError(f"the gradient of '{call.op.name}' is not supported {why}", call.span, code="TW0313")


def zeros_like(x: Expr) -> Call:
    t = x.tensor_type
    return Zeros(t.shape, str(t.dtype))() if t.is_static and not t.is_open else ZerosLike()(x)


def ones_like(x: Expr) -> Call:
    t = x.tensor_type
    return Ones(t.shape, str(t.dtype))() if t.is_static and not t.is_open else OnesLike()(x)


def cast(x: Expr, dtype: DataType) -> Expr:
    return x if dtype_of(x) is dtype else Cast(str(dtype))(x)


def masked(condition: Expr, g: Expr) -> Expr:
    """`g` where the condition is true, zero elsewhere."""
    return Where()(condition, g, scalar(0, g))


def same_shape(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return len(a) == len(b) and all(map(same, a, b))


def reshape_like(g: Expr, x: Expr) -> Expr:
    """`g` in the shape of `x`."""
    if same_shape(shape_of(g), shape_of(x)):
        return g
    return sized(shape_of(x))(g) if x.tensor_type.is_static else ReshapeLike()(g, x)


def broadcast_like(g: Expr, x: Expr) -> Expr:
    """`g` repeated to the shape of `x`."""
    if same_shape(shape_of(g), shape_of(x)):
        return g
    return BroadcastTo(shape_of(x))(g) if x.tensor_type.is_static else BroadcastToLike()(g, x)


def sum_like(g: Expr, x: Expr) -> Expr:
    """`g` summed over the dimensions that broadcasting repeats from the shape of `x`."""
    wide, wanted = shape_of(g), shape_of(x)
    if same_shape(wide, wanted):
        return g
    lead = len(wide) - len(wanted)
    repeated = [k for k, n in enumerate(wanted) if not same(n, wide[lead + k])]
    if not all(is_number(wanted[k]) and wanted[k] == 1 for k in repeated):
        return CollapseSumLike()(g, x)
    total = Sum((*range(lead), *(lead + k for k in repeated)), keepdims=True)(g)
    return reshape_like(total, x) if lead else total


def with_reduced_axes(e: Call, g: Expr) -> Expr:
    """`g`, of the shape of the reduction `e`, with the reduced axes as dimensions of one."""
    if e.op.keepdims:
        return g
    for axis in axes_of(e.op.axis, rank(e.args[0]), e.op.exclude):
        g = ExpandDims(axis)(g)
    return g


def permuted(x: Expr, perm: Sequence[int]) -> Expr:
    return x if tuple(perm) == tuple(range(len(perm))) else Transpose(tuple(perm))(x)


def unpermuted(x: Expr, perm: Sequence[int]) -> Expr:
    """`x` before `permuted(x, perm)`."""
    return permuted(x, inverse(tuple(perm)))
