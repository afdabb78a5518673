"""Rules of TVM's `SimplifyExpr` that the compiler does not use: other passes of its pipeline do the same later.

    add(x, x) -> multiply(x, 2)
    multiply(add(x, c1), c2) -> add(multiply(x, c2), c1 * c2);   add(add(c1, x), c2) -> add(x, c1 + c2)
    divide(c, sqrt(x)) -> multiply(c, rsqrt(x))
    multiply(full(2, x's shape), x) -> multiply(2, x)
    collapse_sum_like(x, y) -> collapse_sum_to(x, shape of y)
    layout_transform(transpose(x), ...), transpose(layout_transform(x, ...)) -> one of both, or x
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tilewright.base.types import TensorType
from tilewright.relay.expr import Call, Constant, Expr
from tilewright.relay.op.blocks import LayoutTransform
from tilewright.relay.op.broadcast import Add, Divide, Multiply, Subtract
from tilewright.relay.op.elementwise import Rsqrt, Sqrt
from tilewright.relay.op.reduction import CollapseSumLike, CollapseSumTo
from tilewright.relay.op.registry import Op
from tilewright.relay.op.transform import Transpose
from tilewright.relay.transform.permutations import axes_of

CallRule = Callable[[Call], "Expr | None"]


def _constant_and_other(e: Expr, kind: type[Op]) -> tuple[Expr, Constant] | None:
    """Return the value and the constant of an operator of this class with one constant argument."""
    if not isinstance(e, Call) or not isinstance(e.op, kind):
        return None
    x, y = e.args
    if isinstance(x, Constant) == isinstance(y, Constant):
        return None
    return (y, x) if isinstance(x, Constant) else (x, y)  # type: ignore[return-value]


def _combined(op: Any, a: Constant, b: Constant) -> Constant:
    return Constant(np.asarray(op(a.value, b.value), a.value.dtype), b.span or a.span)


def _plus(x: Expr, c: Constant) -> Expr:
    """Return x + c, as one addition where x is a sum with a constant."""
    inner = _constant_and_other(x, Add)
    return Call(Add(), [inner[0], _combined(np.add, inner[1], c)] if inner else [x, c])


def _times(x: Expr, c: Constant) -> Expr:
    """Return x * c, as one product where x is a product with a constant."""
    inner = _constant_and_other(x, Multiply)
    return Call(Multiply(), [inner[0], _combined(np.multiply, inner[1], c)] if inner else [x, c])


def add_constants(e: Call) -> Expr | None:
    """add(add(x, a), b) -> add(x, a + b), in any order of the arguments"""
    parts = _constant_and_other(e, Add)
    if parts is None or _constant_and_other(parts[0], Add) is None:
        return None
    return _kept(e, _plus(*parts))


def multiply_constants(e: Call) -> Expr | None:
    """multiply(multiply(x, a), b) -> multiply(x, a * b); multiply(add(x, a), b) -> add(multiply(x, b), a * b)"""
    parts = _constant_and_other(e, Multiply)
    if parts is None:
        return None
    x, c = parts
    if _constant_and_other(x, Multiply) is not None:
        return _kept(e, _times(x, c))
    inner = _constant_and_other(x, Add)
    if inner is None or not e.tensor_type.dtype.is_float:
        return None
    return _kept(e, Call(Add(), [_times(inner[0], c), _combined(np.multiply, inner[1], c)]))


def _kept(e: Call, new: Expr) -> Expr | None:
    """Return `new` if it has the type of `e`: constants that broadcast further may change it."""
    return new if new.known_type() == e.known_type() else None


def add_itself(e: Call) -> Expr | None:
    """add(x, x) -> multiply(x, 2)"""
    x, y = e.args
    if x is not y or isinstance(x, Constant) or e.tensor_type.dtype == "bool":
        return None
    return Call(Multiply(), [x, Constant(np.asarray(2, e.tensor_type.dtype.numpy()))], span=e.span)


def divide_by_root(e: Call) -> Expr | None:
    """divide(c, sqrt(x)) -> multiply(c, rsqrt(x)); rsqrt(x) for c = 1"""
    c, root = e.args
    if not isinstance(c, Constant) or not isinstance(root, Call) or not isinstance(root.op, Sqrt):
        return None
    inverse = Call(Rsqrt(), root.args, span=e.span)
    whole = bool(np.all(c.value == 1)) and inverse.known_type() == e.known_type()
    return inverse if whole else Call(Multiply(), [c, inverse], span=e.span)


def filled_as_scalar(e: Call) -> Expr | None:
    """The same operator with a scalar in place of zeros, ones or a filled tensor of the shape of the result."""
    from tilewright.relay.transform.simplify_expr import uniform

    for k, (x, y) in enumerate((e.args, e.args[::-1])):
        if not isinstance(y, Call) or (isinstance(x, Call) and uniform(x) is not None):
            continue
        value = uniform(y)
        if value is None or x.known_type() != e.known_type():
            continue
        scalar = Constant(np.asarray(value, e.args[0].tensor_type.dtype.numpy()))
        return Call(e.op, [x, scalar] if k == 0 else [scalar, x], span=e.span)
    return None


def sum_to_shape(e: Call) -> Expr | None:
    """collapse_sum_like(x, y) -> collapse_sum_to(x, shape of y)"""
    kind = e.tensor_type
    return Call(CollapseSumTo(shape=kind.shape), [e.args[0]], span=e.span) if kind.is_static else None


def _turned_axes(e: Expr) -> tuple[int, ...] | None:
    """Return the axes of a transpose, or of a change of layout without blocks."""
    if isinstance(e, Call) and isinstance(e.op, Transpose):
        return axes_of(e)
    if isinstance(e, Call) and isinstance(e.op, LayoutTransform):
        before, after = e.op.src_layout, e.op.dst_layout
        if before.isalpha() and before.isupper() and after.isupper() and sorted(before) == sorted(after):
            return tuple(map(before.index, after))
    return None


def movements(e: Call) -> Expr | None:
    """Remove a transpose that moves nothing, and merge a transpose or change of layout with the one that it reads."""
    x = e.args[0]
    if _turned_axes(e) == tuple(range(x.tensor_type.ndim)) or (
            isinstance(e.op, LayoutTransform) and e.op.src_layout == e.op.dst_layout):
        return x
    if not isinstance(x, Call) or not isinstance(x.op, (Transpose, LayoutTransform)):
        return None
    outer, inner = _turned_axes(e), _turned_axes(x)
    source = x.args[0]
    if outer is not None and inner is not None:
        axes = tuple(inner[a] for a in outer)
        return source if axes == tuple(range(len(axes))) else Call(Transpose(axes), [source], span=e.span)
    if isinstance(e.op, LayoutTransform) and inner is not None and e.op.src_layout.isupper():
        before = "".join(e.op.src_layout[inner.index(k)] for k in range(len(inner)))
        return _same_type(e, Call(LayoutTransform(before, e.op.dst_layout), [source], span=e.span))
    if isinstance(x.op, LayoutTransform) and outer is not None and x.op.dst_layout.isupper():
        after = "".join(x.op.dst_layout[a] for a in outer)
        return _same_type(e, Call(LayoutTransform(x.op.src_layout, after), [source], span=e.span))
    if isinstance(e.op, LayoutTransform) and isinstance(x.op, LayoutTransform) and e.op.src_layout == x.op.dst_layout:
        if e.op.dst_layout == x.op.src_layout:
            return _same_type(e, source)
        return _same_type(e, Call(LayoutTransform(x.op.src_layout, e.op.dst_layout), [source], span=e.span))
    return None


def _same_type(e: Call, new: Expr) -> Expr | None:
    """Return `new` if no value is padded between: its type is that of `e`, and the sizes before and after agree."""
    sizes = [v.tensor_type for v in (e, e.args[0], new)]
    static = all(isinstance(t, TensorType) and t.is_static for t in sizes)
    return new if static and sizes[0] == sizes[2] and sizes[0].size == sizes[1].size else None


RULES: Final[dict[type, tuple[CallRule, ...]]] = {
    Add: (filled_as_scalar, add_constants, add_itself),
    Subtract: (filled_as_scalar,),
    Multiply: (filled_as_scalar, multiply_constants),
    Divide: (filled_as_scalar, divide_by_root),
    Transpose: (movements,), LayoutTransform: (movements,), CollapseSumLike: (sum_to_shape,),
}
