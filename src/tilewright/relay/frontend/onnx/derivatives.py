"""Reverse-mode derivatives of a graph of calls: a rule per operator maps the derivative of its result to its arguments.

    y = exp(a * b)      ->      dy/da = (dy * y) * b,   dy/db = (dy * y) * a
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.errors import CompileError
from tilewright.base.types import TensorType, TupleType
from tilewright.relay.expr import Call, Expr, Tuple, TupleGetItem
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast, dtype_of, rank, reshape, scalar, shape_of
from tilewright.relay.op.registry import Op
from tilewright.relay.visitor import operands, post_order

Rule = Callable[[Call, Any], Any]
"""Maps a call and the derivative of its result to that of one argument; for tuples, to a list with None for zero."""


def derivatives(y: Expr, xs: Sequence[Expr]) -> list[Expr]:
    """The derivatives of the sum of `y` with respect to the variables `xs`; one-sided at kinks.

    Raises `CompileError` naming an operator without a known derivative.
    """
    order = post_order(y, inside=False)
    depending = set(xs)
    for e in order:
        if any(o in depending for o in operands(e)):
            depending.add(e)
    slopes: dict[Expr, list[Expr | None]] = {y: [op.ones_like(y)]}

    def give(e: Expr, k: int, slope: Expr | None) -> None:
        if slope is None or e not in depending:
            return
        parts = slopes.setdefault(e, [None] * _width(e))
        before = parts[k]
        parts[k] = slope if before is None else op.add(before, slope)

    for e in reversed(order):
        if e not in depending or e not in slopes:
            continue
        if isinstance(e, TupleGetItem):
            give(e.tuple_value, e.index, slopes[e][0])
        elif isinstance(e, Tuple):
            for field, slope in zip(e.fields, slopes[e], strict=True):
                give(field, 0, slope)
        elif operands(e):
            _backwards(e, slopes[e], depending, give)
    return [slopes[x][0] or op.zeros_like(x) if x in slopes else op.zeros_like(x) for x in xs]


def _backwards(e: Expr, slopes: list[Expr | None], depending: set[Expr],
               give: Callable[[Expr, int, Expr | None], None]) -> None:
    """Apply the rules of a call, and `give` each argument its derivative."""
    rules = _RULES.get(e.op.name) if isinstance(e, Call) and isinstance(e.op, Op) else None
    if isinstance(e, Call) and isinstance(e.op, Op) and e.op.view:
        rules = (lambda e, g: op.reshape_like(g, e.args[0]),)
    if rules is None or not isinstance(e, Call):
        name = e.op.name if isinstance(e, Call) and isinstance(e.op, Op) else type(e).__name__
        raise CompileError(f"the derivative of '{name}' is not supported; remove the gradients that need it, or "
                           "compute the derivative in the model", e.span, code="TW0107")
    for argument, rule in zip(e.args, rules, strict=False):
        if argument not in depending or rule is None or not _is_real(argument):
            continue
        found = rule(e, slopes if isinstance(e.known_type(), TupleType) else slopes[0])
        if isinstance(argument, Tuple):
            for k, slope in enumerate(found):
                give(argument, k, slope)
        else:
            give(argument, 0, cast(found, dtype_of(argument)))


def _width(e: Expr) -> int:
    kind = e.known_type()
    return len(kind.fields) if isinstance(kind, TupleType) else 1


def _is_real(e: Expr) -> bool:
    kind = e.known_type()
    return isinstance(kind, TupleType) or (isinstance(kind, TensorType) and kind.dtype.is_float)


def _summed(k: int, slope: Rule) -> Rule:
    """`slope` for argument `k`, summed over the dimensions that the argument was broadcast along."""

    def rule(e: Call, g: Expr) -> Expr:
        found = slope(e, g)
        return found if shape_of(found) == shape_of(e.args[k]) else op.collapse_sum_like(found, e.args[k])

    return rule


def _broadcasting(*rules: Rule | None) -> tuple[Rule | None, ...]:
    return tuple(None if rule is None else _summed(k, rule) for k, rule in enumerate(rules))


def _by_value(factor: Callable[[Expr, Expr], Expr]) -> tuple[Rule, ...]:
    """The rule of an elementwise function whose derivative is `factor(argument, result)`."""
    return (lambda e, g: op.multiply(g, factor(e.args[0], e)),)


def _times(number: float, x: Expr) -> Expr:
    return op.multiply(scalar(number, x), x)


def _less(number: float, x: Expr) -> Expr:
    return op.subtract(scalar(number, x), x)


def _more(number: float, x: Expr) -> Expr:
    return op.add(scalar(number, x), x)


def _square(x: Expr) -> Expr:
    return op.multiply(x, x)


def _where(condition: Expr, g: Expr) -> Expr:
    return op.where(condition, g, op.zeros_like(g))


def _expanded(e: Call, x: Expr) -> Expr:
    """Broadcast a result of a reduction to the shape of its argument."""
    source = e.args[0]
    axes = e.op.axes(rank(source))
    return op.broadcast_to_like(reshape(x, [1 if k in axes else d for k, d in enumerate(shape_of(source))]), source)


def _mean(e: Call, g: Expr) -> Expr:
    source = e.args[0]
    count = op.divide(op.ndarray_size(source, dtype="int64"), op.ndarray_size(e, dtype="int64"))
    return op.divide(_expanded(e, g), cast(count, dtype_of(g)))


def _within(e: Call, g: Expr) -> Expr:
    x = e.args[0]
    return _where(op.logical_and(op.greater_equal(x, scalar(e.attrs.a_min, x)),
                                 op.less_equal(x, scalar(e.attrs.a_max, x))), g)


def _softmax(e: Call, g: Expr) -> Expr:
    return op.multiply(e, op.subtract(g, op.sum(op.multiply(g, e), axis=e.attrs.axis, keepdims=True)))


def _log_softmax(e: Call, g: Expr) -> Expr:
    return op.subtract(g, op.multiply(op.exp(e), op.sum(g, axis=e.attrs.axis, keepdims=True)))


def _transposed(e: Call, g: Expr) -> Expr:
    axes = e.attrs.axes or tuple(reversed(range(rank(e))))
    return op.transpose(g, axes=tuple(int(k) for k in np.argsort([a % rank(e) for a in axes])))


def _parts(e: Call, g: Expr) -> list[Expr]:
    """Split the derivative of a concatenation into those of its parts."""
    axis, start, found = e.attrs.axis % rank(e), 0, list[Expr]()
    for field in operands(e.args[0]):
        end = start + shape_of(field)[axis]
        found.append(op.strided_slice(g, begin=(start,), end=(end,), strides=(1,), axes=(axis,)))
        start = end
    return found


def _joined(e: Call, slopes: Sequence[Expr | None]) -> Expr:
    fields = [TupleGetItem(e, k) for k in range(len(slopes))]
    return op.concatenate(tuple(op.zeros_like(f) if s is None else s for f, s in zip(fields, slopes, strict=True)),
                          axis=e.attrs.axis)


def _matrix(x: Expr) -> Expr:
    """Reshape a tensor to a matrix that keeps its last dimension."""
    return reshape(x, (-1, shape_of(x)[-1])) if rank(x) != 2 else x


def _swapped(x: Expr, swap: bool) -> Expr:
    return op.transpose(x, axes=(*range(rank(x) - 2), rank(x) - 1, rank(x) - 2)) if swap else x


def _matmul_left(e: Call, g: Expr) -> Expr:
    return _swapped(op.nn.matmul(g, e.args[1], transpose_b=not e.attrs.transpose_b), e.attrs.transpose_a)


def _matmul_right(e: Call, g: Expr) -> Expr:
    return _swapped(op.nn.matmul(_matrix(e.args[0]), _matrix(g), transpose_a=not e.attrs.transpose_a),
                    e.attrs.transpose_b)


def _batch_left(e: Call, g: Expr) -> Expr:
    return _swapped(op.nn.batch_matmul(g, e.args[1], transpose_b=not e.attrs.transpose_b), e.attrs.transpose_a)


def _batch_right(e: Call, g: Expr) -> Expr:
    return _swapped(op.nn.batch_matmul(e.args[0], g, transpose_a=not e.attrs.transpose_a, transpose_b=False),
                    e.attrs.transpose_b)


def _same(e: Call, g: Expr) -> Expr:
    return g


def _bias(e: Call, g: Expr) -> Expr:
    axis = e.attrs.axis % rank(g)
    return op.sum(g, axis=tuple(k for k in range(rank(g)) if k != axis))


_RULES: Final[dict[str, tuple[Rule | None, ...]]] = {
    "add": _broadcasting(_same, _same),
    "subtract": _broadcasting(_same, lambda e, g: op.negative(g)),
    "multiply": _broadcasting(lambda e, g: op.multiply(g, e.args[1]), lambda e, g: op.multiply(g, e.args[0])),
    "divide": _broadcasting(lambda e, g: op.divide(g, e.args[1]), lambda e,
                            g: op.negative(op.divide(op.multiply(g, e), e.args[1]))),
    "power": _broadcasting(
        lambda e, g: op.multiply(g, op.multiply(e.args[1], op.power(e.args[0], _more(-1, e.args[1])))),
        lambda e, g: op.multiply(g, op.multiply(e, op.log(e.args[0])))),
    "maximum": _broadcasting(lambda e, g: _where(op.greater_equal(*e.args), g), lambda e,
                             g: _where(op.less(*e.args), g)),
    "minimum": _broadcasting(lambda e, g: _where(op.less_equal(*e.args), g), lambda e,
                             g: _where(op.greater(*e.args), g)),
    "where": _broadcasting(None, lambda e, g: _where(e.args[0], g), lambda e, g: op.where(e.args[0], op.zeros_like(g),
        g)),
    "broadcast_to": _broadcasting(_same),
    "exp": _by_value(lambda x, y: y),
    "log": _by_value(lambda x, y: op.divide(scalar(1, x), x)),
    "sqrt": _by_value(lambda x, y: op.divide(scalar(0.5, x), y)),
    "rsqrt": _by_value(lambda x, y: _times(-0.5, op.divide(y, x))),
    "tanh": _by_value(lambda x, y: _less(1, _square(y))),
    "sigmoid": _by_value(lambda x, y: op.multiply(y, _less(1, y))),
    "erf": _by_value(lambda x, y: _times(2 / math.sqrt(math.pi), op.exp(op.negative(_square(x))))),
    "sin": _by_value(lambda x, y: op.cos(x)),
    "cos": _by_value(lambda x, y: op.negative(op.sin(x))),
    "tan": _by_value(lambda x, y: _more(1, _square(y))),
    "sinh": _by_value(lambda x, y: op.cosh(x)),
    "cosh": _by_value(lambda x, y: op.sinh(x)),
    "asin": _by_value(lambda x, y: op.rsqrt(_less(1, _square(x)))),
    "acos": _by_value(lambda x, y: op.negative(op.rsqrt(_less(1, _square(x))))),
    "atan": _by_value(lambda x, y: op.divide(scalar(1, x), _more(1, _square(x)))),
    "asinh": _by_value(lambda x, y: op.rsqrt(_more(1, _square(x)))),
    "acosh": _by_value(lambda x, y: op.rsqrt(_more(-1, _square(x)))),
    "atanh": _by_value(lambda x, y: op.divide(scalar(1, x), _less(1, _square(x)))),
    "abs": _by_value(lambda x, y: op.sign(x)),
    "negative": (lambda e, g: op.negative(g),),
    "nn.relu": (lambda e, g: _where(op.greater(e.args[0], scalar(0, e.args[0])), g),),
    "nn.leaky_relu": (lambda e, g: op.where(op.greater(e.args[0], scalar(0, e.args[0])), g, _times(e.attrs.alpha, g)),),
    "clip": (_within,),
    "cast": (_same,),
    "copy": (_same,),
    **dict.fromkeys(("floor", "ceil", "round", "trunc", "sign", "zeros_like", "ones_like"), (None,)),
    "sum": (_expanded,),
    "mean": (_mean,),
    "nn.softmax": (_softmax,),
    "nn.log_softmax": (_log_softmax,),
    "transpose": (_transposed,),
    "concatenate": (_parts,),
    "split": (_joined,),
    "nn.bias_add": (_same, _bias),
    "nn.dense": (lambda e, g: op.nn.matmul(g, e.args[1]), lambda e, g: op.nn.matmul(_matrix(g), _matrix(e.args[0]),
        transpose_a=True)),
    "nn.matmul": (_matmul_left, _matmul_right),
    "nn.batch_matmul": _broadcasting(_batch_left, _batch_right),
}
"""The rules of each operator by argument; None if the derivative is zero almost everywhere."""
