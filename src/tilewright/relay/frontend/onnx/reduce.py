"""Reductions: sums, means, norms, extremes and their indices, softmax variants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from tilewright.relay.expr import Expr
from tilewright.relay.frontend.onnx.node import Node
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import axis_of, cast, reshape
from tilewright.relay.types_of import dtype_of, rank, scalar, shape_of

Axes = Sequence[int] | None


def _log_sum_exp(x: Expr, axis: Axes, keepdims: bool) -> Expr:
    """log(sum(exp(x))), with the maximum subtracted to avoid overflow; an infinite maximum counts as 0."""
    if _is_empty(x, axis):
        return _filled(x, axis, keepdims, -np.inf)
    top = op.max(x, axis=axis, keepdims=True)
    top = op.where(op.isinf(top), scalar(0, x), top)
    total = op.add(op.log(op.sum(op.exp(op.subtract(x, top)), axis=axis, keepdims=True)), top)
    return total if keepdims else op.squeeze(total, axis=tuple(range(rank(x))) if axis is None else tuple(axis))


def _in_floats(build: Callable[[Expr], Expr], x: Expr) -> Expr:
    """Apply `build` to floats directly; to integers in float64, then truncate the result."""
    return build(x) if dtype_of(x).is_float else cast(build(cast(x, "float64")), dtype_of(x))


_REDUCTIONS: Final[dict[str, Callable[[Expr, Axes, bool], Expr]]] = {
    "ReduceSum": lambda x, axis, keep: op.sum(x, axis=axis, keepdims=keep),
    "ReduceMean": lambda x, axis, keep: op.mean(x, axis=axis, keepdims=keep),
    "ReduceProd": lambda x, axis, keep: op.prod(x, axis=axis, keepdims=keep),
    "ReduceL1": lambda x, axis, keep: op.sum(op.abs(x), axis=axis, keepdims=keep),
    "ReduceL2": lambda x, axis, keep: _in_floats(lambda y: op.sqrt(op.sum(op.multiply(y, y), axis=axis, keepdims=keep)),
                                                 x),
    "ReduceSumSquare": lambda x, axis, keep: op.sum(op.multiply(x, x), axis=axis, keepdims=keep),
    "ReduceLogSum": lambda x, axis, keep: _in_floats(lambda y: op.log(op.sum(y, axis=axis, keepdims=keep)), x),
    "ReduceLogSumExp": lambda x, axis, keep: _in_floats(lambda y: _log_sum_exp(y, axis, keep), x),
    "ReduceMax": lambda x, axis, keep: _extreme(op.max, x, axis, keep, -1),
    "ReduceMin": lambda x, axis, keep: _extreme(op.min, x, axis, keep, 1),
}


def _extreme(build: Callable[..., Expr], x: Expr, axis: Axes, keep: bool, sign: int) -> Expr:
    """The extreme; for no elements, the greatest (`sign` > 0) or least value of the type."""
    kind = dtype_of(x)
    if _is_empty(x, axis):
        limits = None if kind.is_float or kind == "bool" else np.iinfo(kind.numpy())
        return _filled(x, axis, keep, (sign > 0 if kind == "bool" else sign * np.inf) if limits is None else limits.max
                       if sign > 0 else limits.min)
    if kind == "bool":
        return op.cast(build(op.cast(x, dtype="uint8"), axis=axis, keepdims=keep), dtype="bool")
    return build(x, axis=axis, keepdims=keep)


def _is_empty(x: Expr, axis: Axes) -> bool:
    """Whether a reduced dimension has no elements."""
    dims = shape_of(x)
    return any(isinstance(dims[a], int) and dims[a] == 0 for a in (range(len(dims)) if axis is None else axis)
               if -len(dims) <= a < len(dims))


def _filled(x: Expr, axis: Axes, keep: bool, value: Any) -> Expr:
    """The result of reducing `x`, filled with `value`."""
    dims = shape_of(x)
    gone = {a % len(dims) for a in (range(len(dims)) if axis is None else axis)}
    return op.full(scalar(value, x), shape=tuple(1 if k in gone else d for k, d in enumerate(dims) if keep
                                                 or k not in gone), dtype=dtype_of(x))


def _register_reduction(op_type: str, build: Callable[[Expr, Axes, bool], Expr], axes_are_input_since: int) -> None:
    @converter(op_type)
    def reduce_by_attribute(data: Expr, *, axes: tuple[int, ...] | None = None, keepdims: int = 1) -> Expr:
        return build(data, axes or None, bool(keepdims))

    @converter(op_type, since=axes_are_input_since)
    def reduce_(data: Expr, axes: Expr | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0,
                node: Node) -> Expr:
        where: Axes = None if axes is None else node.ints(axes, "axes")
        if not where:
            if noop_with_empty_axes:
                return build(data, (), True) if op_type not in _EXTREMES else data
            where = None
        return build(data, where, bool(keepdims))


_EXTREMES: Final = ("ReduceMax", "ReduceMin", "ReduceSum", "ReduceMean", "ReduceProd")
"""Reductions that return their input when reduced over no axes."""

for _name, _build in _REDUCTIONS.items():
    _register_reduction(_name, _build, 13 if _name == "ReduceSum" else 18)


def _register_arg(op_type: str, build: Callable[..., Expr]) -> None:
    @converter(op_type)
    def arg(data: Expr, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Expr:
        return cast(build(data, axis=(axis,), keepdims=bool(keepdims), select_last_index=bool(select_last_index)),
                    "int64")


_register_arg("ArgMax", op.argmax)
_register_arg("ArgMin", op.argmin)


def _register_softmax(op_type: str, build: Callable[..., Expr]) -> None:
    @converter(op_type)
    def flattened(x: Expr, *, axis: int = 1, node: Node) -> Expr:
        """Apply `build` as before opset 13, with all dimensions from `axis` on flattened into one."""
        dims = shape_of(x)
        axis = axis_of(axis, len(dims), node)
        if all(isinstance(d, int) and d == 1 for d in dims[axis + 1:]):
            return build(x, axis=axis)
        return reshape(build(reshape(x, (*dims[:axis], -1)), axis=axis), dims)

    @converter(op_type, since=13)
    def softmax(x: Expr, *, axis: int = -1) -> Expr:
        return build(x, axis=axis)


_register_softmax("Softmax", op.nn.softmax)
_register_softmax("LogSoftmax", op.nn.log_softmax)


@converter("Hardmax")
def hardmax_flattened(x: Expr, *, axis: int = 1, node: Node) -> Expr:
    dims = node.static(x, "input")
    axis = axis_of(axis, len(dims), node)
    return reshape(_hardmax(reshape(x, (*dims[:axis], -1)), -1), dims)


@converter("Hardmax", since=13)
def hardmax(x: Expr, *, axis: int = -1) -> Expr:
    return _hardmax(x, axis)


def _hardmax(x: Expr, axis: int) -> Expr:
    """1 at the first maximum, 0 elsewhere."""
    axis %= rank(x)
    depth: Any = shape_of(x)[axis]
    if isinstance(depth, int) and not depth:
        return x
    first = op.argmax(x, axis=(axis,), keepdims=False)
    return op.one_hot(first, scalar(1, x), scalar(0, x), depth=depth, axis=axis, dtype=dtype_of(x))


@converter("LpNormalization")
def lp_normalization(x: Expr, *, axis: int = -1, p: int = 2, node: Node) -> Expr:
    if p not in (1, 2):
        node.refuse(f"p is {p}; it must be 1 or 2")
    norm = _REDUCTIONS["ReduceL1" if p == 1 else "ReduceL2"](x, (axis,), True)
    zero = scalar(0, x)
    return op.where(op.equal(norm, zero), zero, op.divide(x, norm))
