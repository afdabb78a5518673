"""Losses of neural networks."""

from __future__ import annotations

import numpy as np

from tilewright import te
from tilewright.base.errors import Origin, ShapeError
from tilewright.base.types import TensorType, Type
from tilewright.relay.expr import Call, Expr, const
from tilewright.relay.op.broadcast import Divide, Multiply
from tilewright.relay.op.elementwise import Log, Negative
from tilewright.relay.op.reduction import Sum
from tilewright.relay.op.registry import Array, Fusion, Op, op, tensors
from tilewright.topi.nn.losses import nll_loss
from tilewright.topi.shapes import differ, is_too_small, require_rank, require_same_dtype, text


@op("nn.nll_loss", kind=Fusion.OPAQUE)
class NllLoss(Op):
    """Negative log likelihood: `-predictions[n, c, …] * weights[c]` with the class `c = targets[n, …]`. The loss of the
    class `ignore_index` is zero.

    `predictions` has the shape (batch, classes, …), `targets` (batch, …), and `weights` (classes,). Targets are clamped
    to the range of classes.
    """

    reduction: str = "mean"
    """Combination of the losses: "mean" (divided by the sum of the used weights), "sum" or "none"."""
    ignore_index: int = -100
    """Class that contributes no loss."""

    def infer(self, predictions: Type, targets: Type, weights: Type) -> TensorType:
        """The shape of the targets for "none", else a scalar; the dtype of the predictions. Targets are integer."""
        t, kinds, share = tensors(predictions, targets, weights)
        require_same_dtype((t, share))
        if (t.ndim < 1 or kinds.ndim != t.ndim - 1
                or any(map(differ, kinds.shape, (*t.shape[:-1][:1], *t.shape[2:]) if t.ndim > 1 else ()))):
            raise ShapeError(f"targets {text(kinds.shape)} must have the shape of predictions {text(t.shape)} without "
                             "the classes")
        classes = t.shape[1 if t.ndim > 1 else 0]
        if is_too_small(classes, 1):
            raise ShapeError(f"predictions {text(t.shape)} have no classes; give one or more")
        if share.ndim != 1 or differ(share.shape[0], classes):
            raise ShapeError(f"weights must have one element for each of the {classes} classes, but their shape is "
                             f"{text(share.shape)}")
        if not kinds.dtype.is_integer:
            raise ShapeError(f"targets must be integers, and they are {kinds.dtype}; cast them first")
        if self.reduction not in ("mean", "sum", "none"):
            raise ShapeError(f"reduction '{self.reduction}' is not supported; it must be mean, sum or none")
        return TensorType(kinds.shape if self.reduction == "none" else (), t.dtype)

    def reference(self, predictions: Array, targets: Array, weights: Array) -> Array:
        axis = 1 if predictions.ndim > 1 else 0
        used = targets != self.ignore_index
        kinds = np.where(used, np.clip(targets, 0, predictions.shape[axis] - 1), 0)
        share = np.where(used, weights[kinds], 0).astype(predictions.dtype)
        loss = -np.take_along_axis(predictions, np.expand_dims(kinds, axis), axis).squeeze(axis) * share
        if self.reduction == "none":
            return np.asarray(loss, predictions.dtype)
        return np.asarray(loss.sum() / (share.sum() if self.reduction == "mean" else 1), predictions.dtype)

    def compute(self, predictions: te.Tensor, targets: te.Tensor, weights: te.Tensor) -> te.Tensor:
        return nll_loss(predictions, targets, weights, self.reduction, self.ignore_index)


class CrossEntropyOf(Op):
    """Base of the cross entropies of predictions and targets (batch, classes)."""

    def infer(self, predictions: Type, targets: Type) -> TensorType:
        """A scalar; the common floating-point dtype of two tensors (batch, classes)."""
        t, wanted = (require_rank(x, 2, what)
                     for x, what in zip(tensors(predictions, targets), ("predictions", "targets"), strict=True))
        require_same_dtype((t, wanted))
        if any(map(differ, t.shape, wanted.shape)):
            raise ShapeError(f"predictions {text(t.shape)} and targets {text(wanted.shape)} must have equal shapes, "
                             "(batch, classes)")
        if not t.dtype.is_float:
            raise ShapeError(f"predictions must be floating-point, but they are {t.dtype}; cast them first")
        return TensorType((), t.dtype)

    def _mean(self, logarithms: Expr, targets: Expr, span: Origin | None) -> Expr:
        """Return minus the sum of products, divided by the batch size."""
        total = Call(Sum(), [Call(Multiply(), [logarithms, targets], span=span)], span=span)
        t = targets.tensor_type
        return Call(Divide(), [Call(Negative(), [total], span=span), const(t.shape[0], str(t.dtype))], span=span)


@op("nn.cross_entropy", kind=Fusion.OPAQUE)
class CrossEntropy(CrossEntropyOf):
    """`-sum(targets * log(predictions)) / batch`."""

    def reference(self, predictions: Array, targets: Array) -> Array:
        return np.asarray(-(np.log(predictions) * targets).sum() / predictions.shape[0], predictions.dtype)

    def simplify(self, call: Call) -> Expr | None:
        """Logarithm, product and sum, if the batch size is known."""
        predictions, targets = call.args
        if not targets.tensor_type.is_static:
            return None
        return self._mean(Call(Log(), [predictions], span=call.span), targets, call.span)


@op("nn.cross_entropy_with_logits", kind=Fusion.OPAQUE)
class CrossEntropyWithLogits(CrossEntropyOf):
    """`-sum(targets * predictions) / batch` for predictions that are logarithms (after `nn.log_softmax`)."""

    def reference(self, predictions: Array, targets: Array) -> Array:
        return np.asarray(-(predictions * targets).sum() / predictions.shape[0], predictions.dtype)

    def simplify(self, call: Call) -> Expr | None:
        """Product and sum, if the batch size is known."""
        predictions, targets = call.args
        return self._mean(predictions, targets, call.span) if targets.tensor_type.is_static else None
