"""Algebra on the graph. Each rule says `before -> after`; a rule sees a call over operands that are simplified already."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem
from tilewright.relay.op.broadcast import Add, Divide, Multiply, Power, Subtract
from tilewright.relay.op.elementwise import Cast, Sqrt
from tilewright.relay.op.indexing import Take
from tilewright.relay.op.nn_matmul import BatchMatmul
from tilewright.relay.op.nn_norm import InstanceNorm
from tilewright.relay.op.registry import Op
from tilewright.relay.op.transform import Concatenate, StridedSlice, Transpose
from tilewright.relay.transform.movement import axes_of, carried, compose, groups, inverse, is_identity, reshaped, transposed
from tilewright.relay.visitor import rewrite
from tilewright.types import DataType, TensorType

CallRule = Callable[[Call], "Expr | None"]


@dataclass(frozen=True)
class SimplifyExpr(FunctionPass):
    """Apply the algebraic rules until none fires."""

    kind: ClassVar[type] = Function

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        return rewrite(function, simplify)


def simplify(e: Expr) -> Expr | None:
    """The simplest form that the rules find, or None when none fires."""
    if isinstance(e, TupleGetItem) and isinstance(e.tuple_value, Tuple):
        return e.tuple_value.fields[e.index]
    now: Expr = e
    for _ in range(8):
        new = _once(now)
        if new is None:
            break
        now = new
    return None if now is e else now


def _once(e: Expr) -> Expr | None:
    if not isinstance(e, Call) or not isinstance(e.op, Op):
        return None
    rules = _VIEW_RULES if e.op.view else _RULES.get(type(e.op), ())
    for rule in rules:
        new = rule(e)
        if new is not None:
            return new
    return None


def uniform(e: Expr) -> Any:
    """The one value of a constant all of whose elements are equal, else None."""
    if not isinstance(e, Constant) or e.value.size == 0:
        return None
    first = e.value.reshape(-1)[0] if e.value.size == 1 else e.value[(0,) * e.value.ndim]
    return first if e.value.size == 1 or bool((e.value == first).all()) else None


def add_zero(e: Call) -> Expr | None:
    """add(x, 0) -> x; subtract(x, 0) -> x"""
    x, y = e.args
    value = uniform(y) if isinstance(y, Constant) else None
    return x if value is not None and value == 0 and x.known_type() == e.known_type() else None


def multiply_one(e: Call) -> Expr | None:
    """multiply(x, 1) -> x; divide(x, 1) -> x; power(x, 1) -> x"""
    x, y = e.args
    value = uniform(y) if isinstance(y, Constant) else None
    return x if value is not None and value == 1 and x.known_type() == e.known_type() else None


def merge_constants(e: Call) -> Expr | None:
    """add(add(x, a), b) -> add(x, a + b); multiply(multiply(x, a), b) -> multiply(x, a * b), for floats and integers"""
    inner, b = e.args
    if not (isinstance(inner, Call) and type(inner.op) is type(e.op) and isinstance(b, Constant) and isinstance(inner.args[1], Constant)):
        return None
    a = inner.args[1]
    if e.tensor_type.dtype == "bool" or inner.args[0].tensor_type.shape != e.tensor_type.shape:
        return None
    value = a.value + b.value if isinstance(e.op, Add) else a.value * b.value
    return Call(e.op, [inner.args[0], Constant(np.asarray(value, a.value.dtype), b.span)], span=e.span)


def divide_by_constant(e: Call) -> Expr | None:
    """divide(x, 8f) -> multiply(x, 0.125f): exact for powers of two, else one rounding more"""
    x, y = e.args
    if not isinstance(y, Constant) or e.tensor_type.dtype not in ("float32", "float64") or y.value.size == 0:
        return None
    size = np.abs(y.value)
    if not (size.min() > 1e-30 and size.max() < 1e30):
        return None
    return Call(Multiply(), [x, Constant(np.asarray(1 / y.value, y.value.dtype), y.span)], span=e.span)


def plain_power(e: Call) -> Expr | None:
    """power(x, 2) -> multiply(x, x); power(x, 3) -> multiply(multiply(x, x), x); power(x, 0.5) -> sqrt(x)"""
    x, y = e.args
    value = uniform(y) if isinstance(y, Constant) and e.tensor_type.dtype.is_float and x.known_type() == e.known_type() else None
    if value is not None and value in (2, 3):
        square = Call(Multiply(), [x, x], span=e.span)
        return square if value == 2 else Call(Multiply(), [square, x], span=e.span)
    if value is not None and value == 0.5:
        return Call(Sqrt(), [x], span=e.span)
    return None


def cast_nothing(e: Call) -> Expr | None:
    """cast(x, its own dtype) -> x"""
    return e.args[0] if e.args[0].known_type() == e.known_type() else None


def cast_twice(e: Call) -> Expr | None:
    """cast(cast(x, wider), t) -> cast(x, t), when the first loses nothing"""
    inner = e.args[0]
    if not (isinstance(inner, Call) and isinstance(inner.op, Cast)):
        return None
    source, middle = inner.args[0].tensor_type.dtype, inner.tensor_type.dtype
    return Call(e.op, [inner.args[0]], span=e.span) if loses_nothing(source, middle) else None


def loses_nothing(source: DataType, to: DataType) -> bool:
    """True when every value of `source` is one of `to`."""
    return source.code == "bool" or bool(np.can_cast(source.numpy(), to.numpy(), "safe"))


def transpose_of(e: Call) -> Expr | None:
    """transpose(x, identity) -> x; transpose(transpose(x)) -> transpose(x); transpose(const) -> const; only axes of 1 -> reshape"""
    axes, x = axes_of(e), e.args[0]
    new = transposed(x, axes)
    if isinstance(new, Call) and new.op == Transpose(axes=axes) and new.args[0] is x:
        return transpose_of_reshape(e)
    return new


def transpose_of_reshape(e: Call) -> Expr | None:
    """transpose(reshape(transpose(x))) -> reshape(x), when no memory moves in the end"""
    middle = e.args[0]
    if not (isinstance(middle, Call) and middle.op.view):
        return None
    first = middle.args[0]
    if not (isinstance(first, Call) and isinstance(first.op, Transpose)):
        return None
    x = first.args[0]
    stored = inverse(axes_of(first))  # x is `first` stored in this order
    kept = carried(stored, first.tensor_type.shape, middle.tensor_type.shape)
    if kept is None:
        return None
    left = compose(inverse(kept), axes_of(e))
    shape = [middle.tensor_type.shape[p] for p in kept]
    return transposed(reshaped(x, shape), left)


def view_of(e: Call) -> Expr | None:
    """reshape(x, its own shape) -> x; reshape(reshape(x)) -> reshape(x); reshape(const) -> const"""
    kind = e.known_type()
    if not isinstance(kind, TensorType) or not kind.is_static:
        return None
    x = e.args[0]
    if x.known_type() == kind or isinstance(x, Constant) or (isinstance(x, Call) and isinstance(x.op, Op) and x.op.view):
        return reshaped(x, kind.shape)
    return None


def concatenate_one(e: Call) -> Expr | None:
    """concatenate((x,)) -> x"""
    parts = e.args[0]
    return parts.fields[0] if isinstance(parts, Tuple) and len(parts.fields) == 1 else None


def slice_everything(e: Call) -> Expr | None:
    """strided_slice(x, all of it) -> x"""
    if e.args[0].known_type() != e.known_type():
        return None
    strides = e.attrs.strides or ()
    return e.args[0] if all(s == 1 for s in strides) else None


def take_one(e: Call) -> Expr | None:
    """take(x, 2, axis=1) -> reshape(strided_slice(x, 2, 3, axes=[1]))"""
    x, where = e.args
    axis = e.attrs.axis
    if axis is None or e.attrs.batch_dims or not isinstance(where, Constant) or where.value.ndim or not e.tensor_type.is_static:
        return None
    at = int(where.value)
    if not 0 <= at < x.tensor_type.shape[axis]:
        return None
    part = Call(StridedSlice(begin=(at,), end=(at + 1,), strides=(1,), axes=(axis % x.tensor_type.ndim,)), [x], span=e.span)
    return reshaped(part, e.tensor_type.shape)


def slice_of_transpose(e: Call) -> Expr | None:
    """strided_slice(transpose(x), axes=[0]) -> transpose(strided_slice(x, axes=[its place in x])): less is moved"""
    x = e.args[0]
    if not (isinstance(x, Call) and isinstance(x.op, Transpose)) or e.attrs.axes is None:
        return None
    order = axes_of(x)
    axes = tuple(order[a % len(order)] for a in e.attrs.axes)
    part = Call(StridedSlice(**{**e.op.attributes(), "axes": axes}), [x.args[0]], span=e.span)
    return transposed(part, order)


def slice_of_shuffle(e: Call) -> Expr | None:
    """strided_slice(reshape(transpose(x), (…, 58 * 2)), 0, 58) -> reshape(transpose(strided_slice(x, 0, 29))): less is moved"""
    view = e.args[0]
    if not (isinstance(view, Call) and isinstance(view.op, Op) and view.op.view and isinstance(view.args[0], Call)):
        return None
    moved = view.args[0]
    if not isinstance(moved.op, Transpose) or not isinstance(e.op, StridedSlice):
        return None
    before = moved.tensor_type.shape
    window, runs = e.op.windows(view.tensor_type), groups(before, view.tensor_type.shape)
    if window is None or runs is None:
        return None
    ((axis, begin),) = window
    left = next((a for a, b in runs if b == [axis]), [])
    inner, count = math.prod(before[i] for i in left[1:]), e.tensor_type.shape[axis]
    if len(left) < 2 or begin % inner or count % inner:
        return None
    part = Call(StridedSlice(begin=(begin // inner,), end=((begin + count) // inner,), strides=(1,), axes=(left[0],)), [moved], span=e.span)
    return reshaped(slice_of_transpose(part) or part, e.tensor_type.shape)


def product_of_transpose(e: Call) -> Expr | None:
    """nn.batch_matmul(x, transpose(y, swap of the last two)) -> nn.batch_matmul(x, y, transpose_b=not transpose_b)"""
    y = e.args[1]
    if not (isinstance(y, Call) and isinstance(y.op, Transpose)):
        return None
    axes = axes_of(y)
    rank = len(axes)
    if axes != (*range(rank - 2), rank - 1, rank - 2):
        return None
    attributes = {**e.op.attributes(), "transpose_b": not e.attrs.transpose_b}
    return Call(BatchMatmul(**attributes), [e.args[0], y.args[0]], span=e.span)


def norm_of_groups(e: Call) -> Expr | None:
    """nn.instance_norm(reshape(x of (n, c, h, w), (n, g, -1))) -> reshape(nn.instance_norm(reshape(x, (n, g, c/g, h, w)))):
    the channels stay apart from the pixels, so that images may be stored channels last"""
    view, axis = e.args[0], e.attrs.axis
    if not (isinstance(view, Call) and isinstance(view.op, Op) and view.op.view and view.tensor_type.ndim == 3 and axis % 3 == 1):
        return None
    source, (n, g, _) = view.args[0].tensor_type.shape, view.tensor_type.shape
    if len(source) < 3 or not e.tensor_type.is_static or source[0] != n or source[1] % g or source == view.tensor_type.shape:
        return None
    grouped = reshaped(view.args[0], (n, g, source[1] // g, *source[2:]))
    return reshaped(Call(e.op, [grouped, *e.args[1:]], span=e.span), e.tensor_type.shape)


_VIEW_RULES: Final[tuple[CallRule, ...]] = (view_of,)
_RULES: Final[dict[type, tuple[CallRule, ...]]] = {
    Add: (add_zero, merge_constants),
    Subtract: (add_zero,),
    Multiply: (multiply_one, merge_constants),
    Divide: (multiply_one, divide_by_constant),
    Power: (multiply_one, plain_power),
    Cast: (cast_nothing, cast_twice),
    Transpose: (transpose_of,),
    Concatenate: (concatenate_one,),
    StridedSlice: (slice_everything, slice_of_transpose, slice_of_shuffle),
    Take: (take_one,),
    BatchMatmul: (product_of_transpose,),
    InstanceNorm: (norm_of_groups,),
}

__all__ = ["SimplifyExpr", "is_identity", "simplify"]
