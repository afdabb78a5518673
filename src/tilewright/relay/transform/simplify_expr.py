"""Simplify the graph algebraically. Each rule is documented as `before -> after`, and receives a call whose operands
are already simplified."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from tilewright.base.types import FLOAT32, MINIFLOATS, DataType, TensorType
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem
from tilewright.relay.op.broadcast import Add, BroadcastToLike, Divide, Multiply, Power, Subtract, Where
from tilewright.relay.op.create import Filled, Full, FullLike, OnesLike, ZerosLike
from tilewright.relay.op.elementwise import Cast, CastLike, Clip, Copy, Rsqrt, Sqrt
from tilewright.relay.op.indexing import Take
from tilewright.relay.op.nn_conv import Conv2d
from tilewright.relay.op.nn_matmul import BatchMatmul
from tilewright.relay.op.nn_norm import InstanceNorm
from tilewright.relay.op.reduction import ArgMax, ArgMin
from tilewright.relay.op.registry import Op
from tilewright.relay.op.shaping import ReshapeLike
from tilewright.relay.op.sorting import ArgSort
from tilewright.relay.op.transform import Concatenate, StridedSlice, Transpose
from tilewright.relay.qnn.scaling import Dequantize
from tilewright.relay.transform import simplify_forms
from tilewright.relay.transform.fold_explicit_padding import both_sides
from tilewright.relay.transform.permutations import (
    axes_of,
    carried,
    compose,
    groups,
    is_identity,
    reshaped,
    transposed,
)
from tilewright.relay.visitor import rewrite
from tilewright.topi.shapes import inverse

CallRule = Callable[[Call], "Expr | None"]


@dataclass(frozen=True)
class SimplifyExpr(FunctionPass):
    """Apply the algebraic rules until none applies. Needs known types. `extended` adds rules of TVM that the compiler
    does not need."""

    extended: bool = True
    kind: ClassVar[type] = Function
    required: ClassVar[tuple[str, ...]] = ("InferType",)

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        return rewrite(function, lambda e: simplify(e, self.extended))


def simplify(e: Expr, extended: bool = False) -> Expr | None:
    """Return the simplest form that the rules find; None if no rule applies."""
    if isinstance(e, TupleGetItem) and isinstance(e.tuple_value, Tuple):
        return e.tuple_value.fields[e.index]
    now: Expr = e
    for _ in range(8):
        new = _once(now, extended)
        if new is None:
            break
        now = new
    return None if now is e else now


def _once(e: Expr, extended: bool) -> Expr | None:
    if not isinstance(e, Call) or not isinstance(e.op, Op):
        return None
    rules = _VIEW_RULES if e.op.view else _RULES.get(type(e.op), ())
    if extended:
        more = simplify_forms.RULES.get(type(e.op), ())
        rules = more if isinstance(e.op, Transpose) else (*rules, *more)
    for rule in rules:
        new = rule(e)
        if new is not None:
            return new
    return None


@dataclass(frozen=True)
class SimplifyExprPostAlterOp(FunctionPass):
    """Remove leftovers of a layout change: redundant transposes and casts, neighbouring constants. Needs known types.
    """

    kind: ClassVar[type] = Function
    required: ClassVar[tuple[str, ...]] = ("InferType",)

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        return rewrite(function, lambda e: simplify(e) if isinstance(e, Call)
                       and (type(e.op) in _MOVEMENT or (isinstance(e.op, Op) and e.op.view)) else None)


def uniform(e: Expr) -> Any:
    """Return the single value of a constant, or of a filled tensor, else None."""
    if isinstance(e, Call) and isinstance(e.op, Filled):
        return e.op.number
    if isinstance(e, Call) and isinstance(e.op, (Full, FullLike)):
        return uniform(e.args[-1])
    if not isinstance(e, Constant) or e.value.size == 0:
        return None
    first = e.value.reshape(-1)[0] if e.value.size == 1 else e.value[(0,) * e.value.ndim]
    return first if e.value.size == 1 or bool((e.value == first).all()) else None


def add_zero(e: Call) -> Expr | None:
    """add(x, 0) -> x; add(0, x) -> x; subtract(x, 0) -> x"""
    for x, y in (e.args, e.args[::-1])[: 1 if isinstance(e.op, Subtract) else 2]:
        value = uniform(y)
        if value is not None and value == 0 and x.known_type() == e.known_type():
            return x
    return None


def multiply_one(e: Call) -> Expr | None:
    """multiply(x, 1) -> x; multiply(1, x) -> x; divide(x, 1) -> x; power(x, 1) -> x"""
    for x, y in (e.args, e.args[::-1])[: 2 if isinstance(e.op, Multiply) else 1]:
        value = uniform(y)
        if value is not None and value == 1 and x.known_type() == e.known_type():
            return x
    return None


def merge_constants(e: Call) -> Expr | None:
    """add(add(x, a), b) -> add(x, a + b); multiply(multiply(x, a), b) -> multiply(x, a * b), for floats and integers"""
    inner, b = e.args
    if not (isinstance(inner, Call) and type(inner.op) is type(e.op) and isinstance(b, Constant)
            and isinstance(inner.args[1], Constant)):
        return None
    a = inner.args[1]
    if e.tensor_type.dtype == "bool" or inner.args[0].tensor_type.shape != e.tensor_type.shape:
        return None
    value = a.value + b.value if isinstance(e.op, Add) else a.value * b.value
    if e.tensor_type.dtype.is_float and isinstance(e.op, Add) and ((value == 0) & (a.value != 0)).any():
        return None  # programs round with such a pair of constants, for example (1 + x) - 1
    return Call(e.op, [inner.args[0], Constant(np.asarray(value, a.value.dtype), b.span)], span=e.span)


def merge_scaled_sums(e: Call) -> Expr | None:
    """add(multiply(add(x, a), b), c) -> add(multiply(x, b), a * b + c)"""
    scaled, c = e.args
    if not (isinstance(scaled, Call) and isinstance(scaled.op, Multiply) and isinstance(c, Constant)
            and isinstance(scaled.args[1], Constant)):
        return None
    inner, b = scaled.args
    if not (isinstance(inner, Call) and isinstance(inner.op, Add) and isinstance(inner.args[1], Constant)
            and isinstance(b, Constant)):
        return None
    x, a = inner.args
    if not e.tensor_type.dtype.is_float or not isinstance(a, Constant) or x.known_type() != e.known_type():
        return None
    shift = np.asarray(a.value * b.value + c.value, c.value.dtype)
    return Call(e.op, [Call(scaled.op, [x, b], span=scaled.span), Constant(shift, c.span)], span=e.span)


def reciprocal_root(e: Call) -> Expr | None:
    """divide(1, sqrt(x)) -> rsqrt(x)"""
    one, root = e.args
    if not (isinstance(root, Call) and isinstance(root.op, Sqrt)) or root.known_type() != e.known_type():
        return None
    value = uniform(one)
    return Call(Rsqrt(), root.args, span=e.span) if value is not None and value == 1 else None


def divide_by_constant(e: Call) -> Expr | None:
    """divide(x, 8f) -> multiply(x, 0.125f), for powers of two, where the result is exact"""
    product = by_reciprocal(e)
    return product if product is not None and (
        np.abs(np.frexp(e.args[1].value)[0]) == 0.5).all() else None  # type: ignore[attr-defined]


def by_reciprocal(e: Call) -> Call | None:
    """divide(x, 3f) -> multiply(x, 0.33333334f), with one more rounding unless the constants are powers of two"""
    x, y = e.args
    if not isinstance(y, Constant) or e.tensor_type.dtype not in ("float32", "float64") or y.value.size == 0:
        return None
    size = np.abs(y.value)
    if not (size.min() > 1e-30 and size.max() < 1e30):
        return None
    return Call(Multiply(), [x, Constant(np.asarray(1 / y.value, y.value.dtype), y.span)], span=e.span)


def constant_factor(e: Expr) -> tuple[Expr, Constant] | None:
    """Return `(x, c)` for multiply(x, c) and `(x, 1 / c)` for divide(x, c), else None."""
    if isinstance(e, Call) and isinstance(e.op, Divide):
        e = by_reciprocal(e) or e
    if not (isinstance(e, Call) and isinstance(e.op, Multiply)):
        return None
    return next(((e.args[1 - k], c) for k in (1, 0) if isinstance(c := e.args[k], Constant)), None)


def plain_power(e: Call) -> Expr | None:
    """power(x, 2) -> multiply(x, x); power(x, 3) -> multiply(multiply(x, x), x); power(x, 0.5) -> sqrt(x)"""
    x, y = e.args
    value = (uniform(y) if isinstance(y, Constant) and e.tensor_type.dtype.is_float and x.known_type() == e.known_type()
             else None)
    if value is not None and value in (2, 3):
        square = Call(Multiply(), [x, x], span=e.span)
        return square if value == 2 else Call(Multiply(), [square, x], span=e.span)
    if value is not None and value == 0.5:
        return Call(Sqrt(), [x], span=e.span)
    return None


def where_known(e: Call) -> Expr | None:
    """where(True, x, y) -> x; where(False, x, y) -> y"""
    condition = uniform(e.args[0])
    if condition is None:
        return None
    chosen = e.args[1 if condition else 2]
    return chosen if chosen.known_type() == e.known_type() else None


def cast_nothing(e: Call) -> Expr | None:
    """cast(x, its own dtype) -> x"""
    return e.args[0] if e.args[0].known_type() == e.known_type() else None


def cast_twice(e: Call) -> Expr | None:
    """cast(cast(x, wider), t) -> cast(x, t), if the first cast is exact"""
    inner = e.args[0]
    if not (isinstance(inner, Call) and isinstance(inner.op, Cast)):
        return None
    source, middle = inner.args[0].tensor_type.dtype, inner.tensor_type.dtype
    return Call(e.op, [inner.args[0]], span=e.span) if loses_nothing(source, middle) else None


def cast_of_clip(e: Call) -> Expr | None:
    """cast(cast(clip(x of int32, 0, 255), "uint8"), "int32") -> clip(x, 0, 255), if the range fits the inner type"""
    inner = e.args[0]
    if not (isinstance(inner, Call) and isinstance(inner.op, Cast) and isinstance(inner.args[0], Call)
            and isinstance(inner.args[0].op, Clip)):
        return None
    x, middle = inner.args[0], inner.tensor_type.dtype
    if x.known_type() != e.known_type() or not middle.is_integer or not x.tensor_type.dtype.is_integer:
        return None
    limits = np.iinfo(middle.numpy()) if middle.bits >= 8 else None
    return x if limits is not None and limits.min <= x.attrs.a_min and x.attrs.a_max <= limits.max else None


def clip_nothing(e: Call) -> Expr | None:
    """clip(x of int8, -128, 127) -> x, for a range that includes all values of the type"""
    dtype = e.tensor_type.dtype
    if not dtype.is_integer or dtype.bits < 8:
        return None
    limits = np.iinfo(dtype.numpy())
    return e.args[0] if e.attrs.a_min <= limits.min and e.attrs.a_max >= limits.max else None


def copy_of(e: Call) -> Expr | None:
    """copy(x) -> x"""
    return e.args[0]


def like_another(e: Call) -> Expr | None:
    """full_like(x, v) -> full(v, …), and zeros_like, ones_like, cast_like, broadcast_to_like without the second tensor
    """
    kind = e.known_type()
    if isinstance(e.op, FullLike) and isinstance(kind, TensorType) and kind.is_static:
        return Call(Full(kind.shape, str(kind.dtype)), [e.args[1]], span=e.span)
    found: Expr | None = e.op.simplify(e)
    return found


def concatenate_quantized(e: Call) -> Expr | None:
    """concatenate((qnn.dequantize(a, s, z), qnn.dequantize(b, s, z))) -> qnn.dequantize(concatenate((a, b)), s, z)"""
    parts = e.args[0].fields if isinstance(e.args[0], Tuple) else ()
    calls = [p for p in parts if isinstance(p, Call) and isinstance(p.op, Dequantize)]
    if len(calls) < 2 or len(calls) < len(parts):
        return None
    first = calls[0]
    if any(c.op != first.op or not _same_parameters(c, first)
            or c.args[0].tensor_type.dtype is not first.args[0].tensor_type.dtype for c in calls):
        return None
    whole = Call(e.op, [Tuple(tuple(c.args[0] for c in calls))], span=e.span)
    return Call(first.op, [whole, *first.args[1:]], span=first.span)


def _same_parameters(a: Call, b: Call) -> bool:
    """Return whether two quantizations have the same constant scale and zero point."""
    pairs = list(zip(a.args[1:], b.args[1:], strict=True))
    return all(isinstance(x, Constant) and isinstance(y, Constant) and x.value.size == 1 == y.value.size
               and x.value.item() == y.value.item() for x, y in pairs)


def extreme_of_quantized(e: Call) -> Expr | None:
    """argmax(qnn.dequantize(x, s, z)) -> argmax(x), and argmin, argsort: a positive scale keeps the order"""
    x = e.args[0]
    if (not (isinstance(x, Call) and isinstance(x.op, Dequantize) and isinstance(x.args[1], Constant))
            or x.args[1].value.size != 1):
        return None
    return Call(e.op, [x.args[0], *e.args[1:]], span=e.span) if x.args[1].value.item() > 0 else None


def loses_nothing(source: DataType, to: DataType) -> bool:
    """Return whether `to` represents every value of `source` exactly."""
    if source.code in MINIFLOATS and to is FLOAT32:
        return True
    return source.code == "bool" or bool(np.can_cast(source.numpy(), to.numpy(), "safe"))


def transpose_of(e: Call) -> Expr | None:
    """transpose(x, identity) -> x; transpose(transpose(x)) -> transpose(x); transpose(const) -> const; a move of axes
    of size 1 -> reshape"""
    axes, x = axes_of(e), e.args[0]
    new = transposed(x, axes)
    if isinstance(new, Call) and new.op == Transpose(axes=axes) and new.args[0] is x:
        return transpose_of_reshape(e)
    return new


def transpose_of_reshape(e: Call) -> Expr | None:
    """transpose(reshape(transpose(x))) -> reshape(x), if no memory moves in total"""
    middle = e.args[0]
    if not (isinstance(middle, Call) and isinstance(middle.op, Op) and middle.op.view):
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
    """reshape(x, its own shape) -> x; reshape(reshape(x)) -> reshape(x); reshape(const) -> const; reshape_like(x, y) ->
    reshape(x)"""
    kind = e.known_type()
    if not isinstance(kind, TensorType) or not kind.is_static:
        return None
    x = e.args[0]
    if x.known_type() == kind or isinstance(x, Constant) or isinstance(e.op, ReshapeLike) or (isinstance(x, Call)
            and isinstance(x.op, Op) and x.op.view):
        return reshaped(x, kind.shape)
    return None


def concatenate_one(e: Call) -> Expr | None:
    """concatenate((x,)) -> x"""
    parts = e.args[0]
    return parts.fields[0] if isinstance(parts, Tuple) and len(parts.fields) == 1 else None


def slice_everything(e: Call) -> Expr | None:
    """strided_slice(x, everything) -> x"""
    if e.args[0].known_type() != e.known_type():
        return None
    strides = e.attrs.strides or ()
    return e.args[0] if all(s == 1 for s in strides) else None


def take_one(e: Call) -> Expr | None:
    """take(x, 2, axis=1) -> reshape(strided_slice(x, 2, 3, axes=[1]))"""
    x, where = e.args
    axis = e.attrs.axis
    if (axis is None or e.attrs.batch_dims or not isinstance(where, Constant) or where.value.ndim
            or not e.tensor_type.is_static):
        return None
    at = int(where.value)
    if not 0 <= at < x.tensor_type.shape[axis]:
        return None
    part = Call(StridedSlice(begin=(at,), end=(at + 1,), strides=(1,), axes=(axis % x.tensor_type.ndim,)), [x],
                span=e.span)
    return reshaped(part, e.tensor_type.shape)


def slice_of_slice(e: Call) -> Expr | None:
    """strided_slice(strided_slice(x, 2, 10), 1, 4) -> strided_slice(x, 3, 6), for steps of one"""
    inner = e.args[0]
    if not (isinstance(inner, Call) and isinstance(inner.op, StridedSlice) and isinstance(e.op, StridedSlice)):
        return None
    shape = inner.args[0].tensor_type.shape
    if not all(isinstance(n, int) for n in shape):
        return None
    first, second = inner.op.slices(shape), e.op.slices(inner.tensor_type.shape)
    if any(step != 1 for _, _, step in (*first, *second)):
        return None
    begin = [a + b for (a, _, _), (b, _, _) in zip(first, second, strict=True)]
    cut = [d for d, (_, n, _) in enumerate(second) if n != shape[d]]
    how = StridedSlice(tuple(begin[d] for d in cut), tuple(begin[d] + second[d][1] for d in cut), (1,) * len(cut),
                       tuple(cut))
    return Call(how, [inner.args[0]], span=e.span)


def slice_of_transpose(e: Call) -> Expr | None:
    """strided_slice(transpose(x), axes=[0]) -> transpose(strided_slice(x, axes=[matching axis])), which moves less
    memory"""
    x = e.args[0]
    if not (isinstance(x, Call) and isinstance(x.op, Transpose)) or e.attrs.axes is None:
        return None
    order = axes_of(x)
    axes = tuple(order[a % len(order)] for a in e.attrs.axes)
    part = Call(StridedSlice(**{**e.op.attributes(), "axes": axes}), [x.args[0]], span=e.span)
    return transposed(part, order)


def slice_of_shuffle(e: Call) -> Expr | None:
    """strided_slice(reshape(transpose(x), (…, 58 * 2)), 0, 58) -> reshape(transpose(strided_slice(x, 0, 29))), which
    moves less memory"""
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
    part = Call(StridedSlice(begin=(begin // inner,), end=((begin + count) // inner,), strides=(1,), axes=(left[0],)),
                [moved], span=e.span)
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
    """nn.instance_norm(reshape(x, (n, g, -1))) -> reshape(nn.instance_norm(reshape(x, (n, g, c / g, h, w))))

    x is (n, c, h, w). Channels stay separate from pixels, so that images can be stored channels last.
    """
    view, axis = e.args[0], e.attrs.axis
    if not (isinstance(view, Call) and isinstance(view.op, Op) and view.op.view and view.tensor_type.ndim == 3
            and axis % 3 == 1):
        return None
    source, (n, g, _) = view.args[0].tensor_type.shape, view.tensor_type.shape
    if (len(source) < 3 or not e.tensor_type.is_static or source[0] != n or source[1] % g
            or source == view.tensor_type.shape):
        return None
    grouped = reshaped(view.args[0], (n, g, source[1] // g, *source[2:]))
    return reshaped(Call(e.op, [grouped, *e.args[1:]], span=e.span), e.tensor_type.shape)


_VIEW_RULES: Final[tuple[CallRule, ...]] = (view_of,)


def conv_of_column(e: Call) -> Expr | None:
    """nn.conv2d(x: (N, H, 1, C), w: (kh, 1, ...)) -> the same convolution along the width, by reshapes: kernels compute
    many outputs of a row at once"""
    (data, weight), op = e.args, e.op
    if (not isinstance(op, Conv2d) or op.data_layout != "NHWC" or op.out_layout not in ("", "NHWC")
            or "HW" not in op.kernel_layout):
        return None
    shape, row = weight.tensor_type.shape, op.kernel_layout.index("H")
    before, after = both_sides(op.padding, 2)
    if (not (e.tensor_type.is_static and data.tensor_type.is_static) or data.tensor_type.shape[2] != 1
            or shape[row + 1] != 1 or shape[row] == 1):
        return None
    if before[1] or after[1] or e.tensor_type.shape[1] == 1:
        return None

    def swapped(dims: Sequence[Any], first: int) -> tuple[Any, ...]:
        return (*dims[:first], dims[first + 1], dims[first], *dims[first + 2 :])

    changed = {
        "strides": swapped(op.strides, 0), "dilation": swapped(op.dilation, 0), "kernel_size": (1, shape[row]),
        "padding": (0, before[0], 0, after[0]),
    }
    made = Call(
        Conv2d(**{**op.attributes(), **changed}),
        [reshaped(data, swapped(data.tensor_type.shape, 1)), reshaped(weight, swapped(shape, row))], span=e.span)
    return reshaped(made, e.tensor_type.shape)


_RULES: Final[dict[type, tuple[CallRule, ...]]] = {
    Add: (add_zero, merge_constants, merge_scaled_sums),
    Subtract: (add_zero,),
    Multiply: (multiply_one, merge_constants),
    Divide: (multiply_one, divide_by_constant, reciprocal_root),
    Power: (multiply_one, plain_power),
    Where: (where_known,),
    Cast: (cast_nothing, cast_of_clip, cast_twice),
    Clip: (clip_nothing,),
    Copy: (copy_of,),
    Transpose: (transpose_of,),
    Concatenate: (concatenate_one, concatenate_quantized),
    StridedSlice: (slice_everything, slice_of_slice, slice_of_transpose, slice_of_shuffle),
    Take: (take_one,),
    BatchMatmul: (product_of_transpose,),
    InstanceNorm: (norm_of_groups,),
    Conv2d: (conv_of_column,),
    **dict.fromkeys((FullLike, ZerosLike, OnesLike, CastLike, BroadcastToLike), (like_another,)),
    **dict.fromkeys((ArgMax, ArgMin, ArgSort), (extreme_of_quantized,)),
}
_MOVEMENT: Final = frozenset({Add, Multiply, Cast, Transpose, StridedSlice})
"""The operators that `SimplifyExprPostAlterOp` simplifies, besides views."""

__all__ = ["SimplifyExpr", "SimplifyExprPostAlterOp", "is_identity", "simplify"]
