"""Probabilities of classes from those of pairs of them, as support vector machines give."""

from __future__ import annotations

import numpy as np

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import TensorType, Type
from tilewright.relay.op.registry import Array, Fusion, Op, op, tensors
from tilewright.topi.classic import coupling as topi
from tilewright.topi.shapes import differ, text


@op("pairwise_coupling", kind=Fusion.OPAQUE)
class PairwiseCoupling(Op):
    """Class probabilities (rows, classes) from pairwise probabilities (rows, classes * (classes - 1) / 2).

    Column (i, j), i < j, of `pairs` is the probability of class i, given that the class is i or j. Source: T.-F. Wu,
    C.-J. Lin, R. C. Weng, Probability Estimates for Multi-class Classification by Pairwise Coupling, 2004, algorithm 2.
    """

    classes: int = 2
    """Number of classes, 2 or more."""

    def infer(self, pairs: Type) -> TensorType:
        """(rows, classes) from (rows, classes * (classes - 1) / 2); the floating-point dtype of the pairs."""
        (t,) = tensors(pairs)
        wanted = self.classes * (self.classes - 1) // 2
        if t.ndim != 2 or differ(t.shape[1], wanted) or not t.dtype.is_float:
            raise ShapeError(f"{self.classes} classes need rows of {wanted} floating-point numbers, one for each pair; "
                             f"the data are {t.dtype} of shape {text(t.shape)}")
        return TensorType((t.shape[0], self.classes), t.dtype)

    def reference(self, pairs: Array) -> Array:
        return (np.stack([self._probabilities(row) for row in pairs]) if len(pairs)
                else np.zeros((0, self.classes), pairs.dtype))

    def _probabilities(self, row: Array) -> Array:
        k = self.classes
        r = np.zeros((k, k), row.dtype)
        r[np.triu_indices(k, 1)] = row
        r += np.tril(1 - r.T, -1)
        q = -r * r.T
        q[np.diag_indices(k)] = (r * r).sum(axis=0)
        p = np.full(k, 1 / k, row.dtype)
        for _ in range(topi.rounds(k)):
            qp = q @ p
            total = p @ qp
            if np.abs(qp - total).max() < 0.005 / k:
                break
            for t in range(k):
                step = (total - qp[t]) / q[t, t]
                p[t] += step
                total = (total + step * (step * q[t, t] + 2 * qp[t])) / (1 + step) ** 2
                qp = (qp + step * q[t]) / (1 + step)
                p = p / (1 + step)
        return p

    def compute(self, pairs: te.Tensor) -> te.Tensor:
        return topi.pairwise_coupling(pairs, self.classes)
