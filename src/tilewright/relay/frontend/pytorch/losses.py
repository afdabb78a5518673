"""Losses."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from tilewright.base.types import INT64
from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.pytorch.linear import linear
from tilewright.relay.frontend.pytorch.math import add, multiply, negative, softplus, subtract
from tilewright.relay.frontend.pytorch.node import Node
from tilewright.relay.frontend.pytorch.promotion import promoted
from tilewright.relay.frontend.pytorch.registry import converter
from tilewright.relay.frontend.pytorch.transform import movedim
from tilewright.relay.frontend.shaping import cast, number, per_channel, reshape
from tilewright.relay.types_of import dtype_of, rank, scalar, shape_of

NONE, MEAN, SUM = range(3)


def reduced(x: Expr, reduction: int) -> Expr:
    """Apply `reduction`: none, the mean, or the sum."""
    return x if reduction == NONE or not rank(x) else (op.mean if reduction == MEAN else op.sum)(x,
        axis=tuple(range(rank(x))))


@converter("mse_loss")
def mse_loss(self: Expr, target: Expr, node: Node, reduction: int = MEAN) -> Expr:
    a, b = promoted(self, target, node=node)
    apart = op.subtract(a, b)
    return reduced(op.multiply(apart, apart), reduction)


@converter("l1_loss")
def l1_loss(self: Expr, target: Expr, node: Node, reduction: int = MEAN) -> Expr:
    a, b = promoted(self, target, node=node)
    return reduced(op.abs(op.subtract(a, b)), reduction)


@converter("smooth_l1_loss", "huber_loss")
def smooth_l1_loss(self: Expr, target: Expr, node: Node, reduction: int = MEAN, beta: float = 1.0,
                   delta: float = 1.0) -> Expr:
    a, b = promoted(self, target, node=node)
    apart = op.abs(op.subtract(a, b))
    near = op.multiply(scalar(0.5, a), op.multiply(apart, apart))
    if node.name == "huber_loss":
        far = op.multiply(scalar(delta, a), op.subtract(apart, scalar(0.5 * delta, a)))
        return reduced(op.where(op.less_equal(apart, scalar(delta, a)), near, far), reduction)
    if beta == 0:
        return reduced(apart, reduction)
    return reduced(op.where(op.less(apart, scalar(beta, a)), op.divide(near, scalar(beta, a)),
                            op.subtract(apart, scalar(0.5 * beta, a))), reduction)


@converter("binary_cross_entropy")
def binary_cross_entropy(self: Expr, target: Expr, weight: Expr | None = None, reduction: int = MEAN) -> Expr:
    one = scalar(1, self)
    a, b = (op.maximum(op.log(x), scalar(-100, x)) for x in (self, op.subtract(one, self)))
    loss = op.negative(op.add(op.multiply(target, a), op.multiply(op.subtract(one, target), b)))
    return reduced(loss if weight is None else op.multiply(loss, weight), reduction)


@converter("binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(
    self: Expr, target: Expr, node: Node, weight: Expr | None = None, pos_weight: Expr | None = None,
    reduction: int = MEAN,
) -> Expr:
    one = scalar(1, self)
    below = softplus(op.negative(self), node, threshold=math.inf)
    below = (below if pos_weight is None
             else op.multiply(below, op.add(op.multiply(op.subtract(pos_weight, one), target), one)))
    loss = op.add(op.multiply(op.subtract(one, target), self), below)
    return reduced(loss if weight is None else op.multiply(loss, weight), reduction)


@converter("kl_div")
def kl_div(self: Expr, target: Expr, reduction: int = MEAN, log_target: bool = False) -> Expr:
    if log_target:
        return reduced(op.multiply(op.exp(target), op.subtract(target, self)), reduction)
    zero = scalar(0, target)
    there = op.greater(target, zero)
    entropy = op.where(there, op.multiply(target, op.log(op.where(there, target, scalar(1, target)))), zero)
    return reduced(op.subtract(entropy, op.multiply(target, self)), reduction)


@converter("nll_loss_nd", "nll_loss", "nll_loss2d", "nll_loss_forward", "nll_loss2d_forward")
def nll_loss(self: Expr, target: Expr, node: Node, weight: Expr | None = None, reduction: int = MEAN,
             ignore_index: int = -100) -> Any:
    """`-self[n, target[n, …], …]`, weighted by class; the mean divides by the sum of the weights used."""
    x, t = (reshape(v, (1, *shape_of(v))) for v in (self, target)) if rank(self) == 1 else (self, target)
    classes = shape_of(x)[1]
    rows = movedim(x, 1, -1) if rank(x) > 2 else x
    t = cast(t, INT64)
    there = op.not_equal(t, scalar(ignore_index, t))
    safe = op.where(there, t, scalar(0, t))
    picked = op.squeeze(op.gather(rows, op.expand_dims(safe, axis=rank(t)), axis=rank(t)), axis=(rank(t),))
    weights = op.take(Constant(np.ones(classes, dtype_of(x).numpy())) if weight is None else weight, safe, axis=0)
    weights = op.multiply(weights, cast(there, dtype_of(x)))
    loss = op.negative(op.multiply(picked, weights))
    total = op.sum(weights, axis=tuple(range(rank(weights))))
    if reduction == NONE:
        found = loss if rank(self) > 1 else reshape(loss, ())
    else:
        found = op.sum(loss, axis=tuple(range(rank(loss))))
        found = op.divide(found, total) if reduction == MEAN else found
    return (found, total) if node.name.endswith("forward") else found


@converter("cross_entropy_loss")
def cross_entropy_loss(
    self: Expr, target: Expr, node: Node, weight: Expr | None = None, reduction: int = MEAN, ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Expr:
    axis = 0 if rank(self) == 1 else 1
    logs = op.nn.log_softmax(self, axis=axis)
    if dtype_of(target).is_float:
        return _soft_cross_entropy(logs, target, weight, reduction, label_smoothing, axis)
    hard = nll_loss(logs, target, node, weight, reduction, ignore_index)
    if label_smoothing == 0:
        return hard  # type: ignore[no-any-return]
    there = op.not_equal(cast(target, INT64), Constant(np.asarray(ignore_index, np.int64)))
    every = op.negative(logs if weight is None else op.multiply(logs, per_channel(weight, rank(logs), axis)))
    smooth: Expr = op.multiply(op.sum(every, axis=(axis,)), cast(there, dtype_of(logs)))
    if reduction == MEAN:
        count = op.sum(cast(there, dtype_of(logs)), axis=tuple(range(rank(there))))
        if weight is not None:
            weights = op.multiply(op.take(weight, op.maximum(target, scalar(0, target)), axis=0),
                                  cast(there, dtype_of(logs)))
            count = op.sum(weights, axis=tuple(range(rank(weights))))
        smooth = op.divide(op.sum(smooth, axis=tuple(range(rank(smooth)))), count)
    else:
        smooth = reduced(smooth, reduction)
    classes = shape_of(self)[axis]
    return op.add(op.multiply(scalar(1 - label_smoothing, logs), hard),
                  op.multiply(scalar(label_smoothing / classes, logs), smooth))


def _soft_cross_entropy(logs: Expr, target: Expr, weight: Expr | None, reduction: int, smoothing: float,
                        axis: int) -> Expr:
    classes = shape_of(logs)[axis]
    shares = target if smoothing == 0 else op.add(op.multiply(target, scalar(1 - smoothing, target)),
                                                  scalar(smoothing / classes, target))
    scaled = logs if weight is None else op.multiply(logs, per_channel(weight, rank(logs), axis))
    loss = op.negative(op.sum(op.multiply(scaled, shares), axis=(axis,)))
    if reduction != MEAN:
        return reduced(loss, reduction)
    count = math.prod(shape_of(loss))
    return op.divide(op.sum(loss, axis=tuple(range(rank(loss)))) if rank(loss) else loss, scalar(count, loss))


@converter("margin_ranking_loss")
def margin_ranking_loss(input1: Expr, input2: Expr, target: Expr, node: Node, margin: float = 0.0,
                        reduction: int = MEAN) -> Expr:
    apart = multiply(negative(target), subtract(input1, input2, node), node)
    loss = add(apart, margin, node)
    return reduced(op.maximum(loss, scalar(0, loss)), reduction)


@converter("hinge_embedding_loss", "soft_margin_loss")
def margin_loss(self: Expr, target: Expr, node: Node, margin: float = 1.0, reduction: int = MEAN) -> Expr:
    if node.name == "soft_margin_loss":
        return reduced(softplus(op.negative(op.multiply(self, target)), node, threshold=math.inf), reduction)
    far = op.maximum(op.subtract(scalar(margin, self), self), scalar(0, self))
    near = op.where(op.equal(target, scalar(-1, target)), scalar(0, self), self)
    return reduced(op.add(near, op.where(op.equal(target, scalar(1, target)), scalar(0, self), far)), reduction)


@converter("multi_margin_loss")
def multi_margin_loss(self: Expr, target: Expr, node: Node, p: Any = 1, margin: Any = 1, weight: Expr | None = None,
                      reduction: int = MEAN) -> Expr:
    """Margins of the other classes over the target class, to the power `p`, averaged over all classes."""
    classes = node.static(self, "self")[-1] if rank(self) else 1
    x, wanted = reshape(self, (-1, classes)), reshape(target, (-1, 1))
    apart = op.add(op.subtract(x, op.gather(x, wanted, axis=1)), scalar(margin, x))
    above = op.maximum(apart, scalar(0, x))
    above = above if p == 1 else op.multiply(above, above)
    above = above if weight is None else op.multiply(above, op.take(weight, wanted, axis=0))
    others = op.where(op.equal(Constant(np.arange(classes)), wanted), scalar(0, x), above)
    loss = op.divide(op.sum(others, axis=(1,)), scalar(classes, x))
    return reduced(loss if rank(self) > 1 else reshape(loss, ()), reduction)


@converter("multilabel_margin_loss", "multilabel_margin_loss_forward")
def multilabel_margin_loss(self: Expr, target: Expr, node: Node, reduction: int = MEAN) -> Any:
    """The margin of each class without a label over each class with one, less 1. Labels end at the first -1."""
    classes = node.static(self, "self")[-1] if rank(self) else 1
    x, labels = reshape(self, (-1, classes)), reshape(target, (-1, classes))
    there = op.greater(op.cumprod(cast(op.greater_equal(labels, scalar(0, labels)), INT64), axis=1), number(0))
    place = op.where(there, labels, scalar(0, labels))
    hit = op.logical_and(op.equal(op.expand_dims(place, axis=2), Constant(np.arange(classes))),
                         op.expand_dims(there, axis=2))
    is_target = op.any(hit, axis=(1,))
    apart = op.subtract(op.expand_dims(x, axis=1), op.expand_dims(op.gather(x, place, axis=1), axis=2))
    above = op.maximum(op.add(apart, scalar(1, x)), scalar(0, x))
    counted = op.logical_and(op.expand_dims(there, axis=2), op.expand_dims(op.logical_not(is_target), axis=1))
    loss = op.divide(op.sum(op.where(counted, above, scalar(0, x)), axis=(1, 2)), scalar(classes, x))
    found = reduced(loss if rank(self) > 1 else reshape(loss, ()), reduction)
    return (found if node.name == "multilabel_margin_loss"
            else (found, reshape(cast(is_target, dtype_of(self)), shape_of(target))))


_REDUCTIONS: Final = {"none": NONE, "mean": MEAN, "sum": SUM}


@converter("torch_nn::_linear_cross_entropy_batch_chunked",
           "torch_nn::_linear_cross_entropy_batch_chunked_no_reduction")
def linear_cross_entropy(
    input: Expr, linear_weight: Expr, target: Expr, node: Node, linear_bias: Expr | None = None,
    weight: Expr | None = None, reduction: str = "none", ignore_index: int = -100, label_smoothing: float = 0.0,
    batch_chunk_size: int = 0, acc_policy: str = "", acc_dtype: Any = None, allow_retain_graph: bool = False,
    compute_input_grad: bool = False, compute_linear_weight_grad: bool = False, compute_linear_bias_grad: bool = False,
) -> Any:
    """The cross entropy of a linear layer. Chunking has no effect on values; the gradient outputs are empty."""
    loss = cross_entropy_loss(linear(input, linear_weight, linear_bias), target, node, weight, _REDUCTIONS[reduction],
                              ignore_index, label_smoothing)
    nothing = Constant(np.zeros(0, dtype_of(input).numpy()))
    return loss if node.name.endswith("no_reduction") else (loss, nothing, nothing, nothing)


@converter("poisson_nll_loss")
def poisson_nll_loss(input: Expr, target: Expr, log_input: bool, full: bool, eps: float, reduction: int,
                     node: Node) -> Expr:
    if full:
        node.refuse("full=True adds Stirling's approximation, which is not supported; use full=False")
    loss = op.subtract(op.exp(input), op.multiply(target, input)) if log_input else op.subtract(
        input, op.multiply(target, op.log(op.add(input, scalar(eps, input)))))
    return reduced(loss, reduction)
