"""Gradients of softmax, norms and pools, and the graphs of simpler operators whose gradients stand for theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tilewright.relay.expr import Call, Expr
from tilewright.relay.op.broadcast import Add, Greater, Maximum, Multiply, Subtract, Where
from tilewright.relay.op.elementwise import Exp, Rsqrt
from tilewright.relay.op.gradients.building import GradientRule, refuse
from tilewright.relay.op.gradients.elementwise import square
from tilewright.relay.op.nn_pool import AvgPool2d, AvgPool2dGrad, MaxPool2d, MaxPool2dGrad
from tilewright.relay.op.reduction import Max, Mean, Sum
from tilewright.relay.op.shaping import ExpandDims, Squeeze
from tilewright.relay.types_of import rank, scalar, shape_of
from tilewright.topi.shapes import axes_of, axis_of, is_number


def _softmax(e: Call, g: Expr) -> list[Expr]:
    total = Sum(e.op.axis, True)(Multiply()(g, e))
    return [Multiply()(Subtract()(g, total), e)]


def _log_softmax(e: Call, g: Expr) -> list[Expr]:
    return [Subtract()(g, Multiply()(Exp()(e), Sum(e.op.axis, True)(g)))]


def _max_pool2d(e: Call, g: Expr) -> list[Expr]:
    if any(d != 1 for d in e.op.dilation):
        refuse(e, f"for windows of the dilation {e.op.dilation}")
    return [MaxPool2dGrad(**e.op.attributes())(g, e.args[0])]


def _avg_pool2d(e: Call, g: Expr) -> list[Expr]:
    if any(d != 1 for d in e.op.dilation):
        refuse(e, f"for windows of the dilation {e.op.dilation}")
    return [AvgPool2dGrad(**e.op.attributes())(g, e.args[0])]


def _global_pool(e: Call) -> Expr:
    """The mean or the maximum over the spatial dimensions."""
    op: Any = e.op
    if op.attributes().get("out_layout"):
        refuse(e, "with an out_layout")
    return (Mean if op.mean else Max)(op.spatial(), True)(e.args[0])


def _adaptive_pool2d(e: Call) -> Expr:
    """The pool of windows of one size."""
    op: Any = e.op
    sizes = [shape_of(e.args[0])[d] for d in op.spatial()]
    if all(n == 1 for n in op.output()):
        return _global_pool(e)
    if any(not is_number(n) or n % out for n, out in zip(sizes, op.output(), strict=True)):
        refuse(e, f"from {tuple(sizes)} to {op.output()} elements; it is where the windows have one size")
    window = tuple(n // out for n, out in zip(sizes, op.output(), strict=True))
    return (AvgPool2d if op.mean else MaxPool2d)(window, window, layout=op.layout, out_layout=op.out_layout)(e.args[0])


def _pool1d(e: Call) -> Expr:
    """The pool of images of one row."""
    op: Any = e.op
    if op.layout != "NCW" or op.out_layout:
        refuse(e, f"for the layout {op.layout}; only that of NCW is")
    before, after = op.padding
    attrs = {**op.attributes(), "pool_size": (1, *op.pool_size), "strides": (1, *op.strides),
             "dilation": (1, *op.dilation), "padding": (0, before, 0, after), "layout": "NCHW"}
    return Squeeze((2,))((AvgPool2d if "count_include_pad" in attrs else MaxPool2d)(**attrs)(ExpandDims(2)(e.args[0])))


def _prelu(e: Call) -> Expr:
    x, alpha = e.args
    slopes = _along(alpha, axis_of(e.op.axis, rank(x)), rank(x))
    return Where()(Greater()(x, scalar(0, x)), x, Multiply()(x, slopes))


def _along(vector: Expr, axis: int, ndim: int) -> Expr:
    """A vector that broadcasts along `axis`."""
    return ExpandDims(1, ndim - 1 - axis)(vector) if axis < ndim - 1 else vector


def _norm(e: Call, axes: tuple[int, ...]) -> Expr:
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta with the statistics over `axes`."""
    x, gamma, beta = e.args
    op: Any = e.op
    apart = Subtract()(x, Mean(axes, True)(x))
    spread = Mean(axes, True)(square(apart))
    found: Expr = Multiply()(apart, Rsqrt()(Add()(spread, scalar(op.epsilon, x))))
    axis = axis_of(op.axis, rank(x))
    found = Multiply()(found, _along(gamma, axis, rank(x))) if op.scale else found
    return Add()(found, _along(beta, axis, rank(x))) if op.center else found


def _layer_norm(e: Call) -> Expr:
    return _norm(e, axes_of(e.op.axis, rank(e)))


def _instance_norm(e: Call) -> Expr:
    axis = axis_of(e.op.axis, rank(e))
    return _norm(e, tuple(d for d in range(1, rank(e)) if d != axis))


def _l2_normalize(e: Call) -> Expr:
    (x,) = e.args
    total = Sum(axes_of(e.op.axis, rank(x)), True)(square(x))
    return Multiply()(x, Rsqrt()(Maximum()(total, scalar(e.op.eps, x))))


RULES: Final[dict[str, GradientRule]] = {
    "nn.softmax": _softmax,
    "nn.log_softmax": _log_softmax,
    "nn.max_pool2d": _max_pool2d,
    "nn.avg_pool2d": _avg_pool2d,
}
"""The rules by operator name."""

EXPANSIONS: Final[dict[str, Callable[[Call], Expr]]] = {
    **dict.fromkeys(("nn.global_avg_pool2d", "nn.global_max_pool2d"), _global_pool),
    **dict.fromkeys(("nn.adaptive_avg_pool2d", "nn.adaptive_max_pool2d"), _adaptive_pool2d),
    **dict.fromkeys(("nn.max_pool1d", "nn.avg_pool1d"), _pool1d),
    "nn.prelu": _prelu,
    "nn.layer_norm": _layer_norm,
    "nn.instance_norm": _instance_norm,
    "nn.l2_normalize": _l2_normalize,
}
"""For an operator without a rule, the graph of the same value that is differentiated in its place."""
