"""Optimizer steps (domain ai.onnx.preview.training): Adagrad, Adam and Momentum, for any number of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.relay.expr import Expr
from tilewright.relay.frontend.onnx.node import Node
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast, reshape
from tilewright.relay.types_of import dtype_of, scalar

DOMAIN = "ai.onnx.preview.training"


def _each(tensors: Sequence[Expr], kinds: int, step: Callable[..., Sequence[Expr]], node: Node) -> tuple[Expr, ...]:
    """Apply `step` to each tensor and its state; inputs and results are grouped by kind."""
    count, rest = divmod(len(tensors), kinds)
    if rest or not count:
        node.refuse(f"{len(tensors)} tensors are given; their number must be a multiple of {kinds}")
    results = [step(*tensors[k::count]) for k in range(count)]
    return tuple(r[kind] for kind in range(len(results[0])) for r in results)


def _times(factor: float, x: Expr) -> Expr:
    return op.multiply(scalar(factor, x), x)


def _regularized(x: Expr, g: Expr, norm_coefficient: float) -> Expr:
    return op.add(_times(norm_coefficient, x), g) if norm_coefficient else g


@converter("Adagrad", domain=DOMAIN)
def adagrad(
    r: Expr, t: Expr, *tensors: Expr, decay_factor: float = 0.0, epsilon: float = 1e-6, norm_coefficient: float = 0.0,
    node: Node,
) -> tuple[Expr, ...]:
    """Adagrad: the gradient divided by the root of the sum of all squared gradients."""

    def step(x: Expr, g: Expr, h: Expr) -> tuple[Expr, Expr]:
        time = _times(decay_factor, cast(reshape(t, ()), dtype_of(x)))
        rate = op.divide(cast(reshape(r, ()), dtype_of(x)), op.add(scalar(1, x), time))
        slope = _regularized(x, g, norm_coefficient)
        total = op.add(h, op.multiply(slope, slope))
        return op.subtract(x, op.divide(op.multiply(rate, slope), op.add(op.sqrt(total), scalar(epsilon, x)))), total

    return _each(tensors, 3, step, node)


@converter("Adam", domain=DOMAIN)
def adam(
    r: Expr, t: Expr, *tensors: Expr, alpha: float = 0.9, beta: float = 0.999, epsilon: float = 1e-6,
    norm_coefficient: float = 0.0, norm_coefficient_post: float = 0.0, node: Node,
) -> tuple[Expr, ...]:
    """Adam: running means of the gradient and its square, both corrected for their start at zero."""

    def step(x: Expr, g: Expr, v: Expr, h: Expr) -> tuple[Expr, Expr, Expr]:
        slope = _regularized(x, g, norm_coefficient)
        mean = op.add(_times(alpha, v), _times(1 - alpha, slope))
        square = op.add(_times(beta, h), _times(1 - beta, op.multiply(slope, slope)))
        rate, time = cast(reshape(r, ()), dtype_of(x)), cast(reshape(t, ()), dtype_of(x))
        left = [op.subtract(scalar(1, x), op.power(scalar(decay, x), time)) for decay in (alpha, beta)]
        corrected = op.divide(op.multiply(rate, op.sqrt(left[1])), left[0])
        rate = op.where(op.greater(time, scalar(0, x)), corrected, rate)
        moved = op.subtract(x, op.multiply(rate, op.divide(mean, op.add(op.sqrt(square), scalar(epsilon, x)))))
        return _times(1 - norm_coefficient_post, moved) if norm_coefficient_post else moved, mean, square

    return _each(tensors, 4, step, node)


@converter("Momentum", domain=DOMAIN)
def momentum(
    r: Expr, t: Expr, *tensors: Expr, alpha: float, beta: float, mode: str, norm_coefficient: float, node: Node,
) -> tuple[Expr, ...]:
    """Momentum: the gradient plus a fraction of the previous step; Nesterov's variant looks ahead by it."""
    if mode not in ("standard", "nesterov"):
        node.refuse(f"mode is {mode!r}; it must be standard or nesterov")

    def step(x: Expr, g: Expr, v: Expr) -> tuple[Expr, Expr]:
        slope, rate = _regularized(x, g, norm_coefficient), cast(reshape(r, ()), dtype_of(x))
        time = reshape(t, ())
        share = op.where(op.greater(time, scalar(0, time)), scalar(beta, x), scalar(1, x))
        made = op.add(_times(alpha, v), op.multiply(share, slope))
        direction = made if mode == "standard" else op.add(slope, _times(alpha, made))
        return op.subtract(x, op.multiply(rate, direction)), made

    return _each(tensors, 3, step, node)
