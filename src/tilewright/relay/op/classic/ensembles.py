"""Ensembles of decision trees as one operator of arrays."""

from __future__ import annotations

from typing import Final

import numpy as np

from tilewright import te
from tilewright.base.errors import CompileError, ShapeError
from tilewright.base.types import TensorType, Type
from tilewright.relay.op.registry import Array, Fusion, Op, op, tensors
from tilewright.topi.classic import trees as topi
from tilewright.topi.shapes import differ, text

_COMBINE: Final = {"sum": np.add, "min": np.minimum, "max": np.maximum}


@op("tree_ensemble", kind=Fusion.OPAQUE)
class TreeEnsemble(Op):
    """The sums of the leaf weights that each row of `data` (rows, width) reaches in an ensemble of decision trees, by
    target.

    Node k continues at `children[k, 0]` if feature `features[k]` is at most `thresholds[k]`, otherwise at
    `children[k, 1]`. NaN continues at the second child. The leaves are the first nodes and their own children.
    `roots` and `depths` (trees,) are the first node and the longest path of each tree.

    `weights` (leaves, entries) belong to the targets `targets` (leaves, entries). With as many entries as targets,
    `targets` is not read and weight j belongs to target j. A target that no weight belongs to gets 0 (sum), inf (min)
    or -inf (max).
    """

    n_targets: int = 1
    """Number of targets, the columns of the result."""
    aggregate: str = "sum"
    """Combination of the weights of one target: "sum", "min" or "max"."""
    missing: bool = False
    """True when NaN goes to the first child of nodes whose feature f is stored as -1 - f."""

    def infer(
        self, data: Type, features: Type, thresholds: Type, children: Type, roots: Type, depths: Type, targets: Type,
        weights: Type,
    ) -> TensorType:
        """(rows, n_targets); the dtype of the weights. Data and thresholds share a floating-point dtype."""
        x, f, t, c, r, d, to, w = tensors(data, features, thresholds, children, roots, depths, targets, weights)
        if self.aggregate not in _COMBINE:
            raise CompileError(f"tree_ensemble: aggregate is {self.aggregate!r}; it must be one of "
                               f"{', '.join(_COMBINE)}",
                               code="TW0308")
        if x.ndim != 2:
            raise ShapeError("the data must be a matrix with a row for each example, but their shape is "
                             f"{text(x.shape)}")
        if t.dtype is not x.dtype or not x.dtype.is_float or not w.dtype.is_float:
            raise ShapeError("data and thresholds must share a floating-point type, and weights have one, but the "
                             f"types are {x.dtype}, {t.dtype} and {w.dtype}")
        for what, found in (("features", f), ("children", c), ("roots", r), ("depths", d), ("targets", to)):
            if found.dtype != "int32":
                raise ShapeError(f"{what} must be int32, and they are {found.dtype}")
        nodes = f.shape[0]
        if (differ(t.shape[0], nodes) or len(c.shape) != 2 or differ(c.shape[0], nodes) or differ(c.shape[1], 2)
                or differ(r.shape[0], d.shape[0])):
            raise ShapeError(f"features {text(f.shape)}, thresholds {text(t.shape)} and children {text(c.shape)} must "
                             f"have equal shapes, one element per node; roots {text(r.shape)} and depths "
                             f"{text(d.shape)} of the same trees")
        if w.ndim != 2 or (differ(w.shape[1], self.n_targets) and to.shape != w.shape):
            raise ShapeError(f"targets {text(to.shape)} must have the shape of the weights {text(w.shape)}")
        return TensorType((x.shape[0], self.n_targets), w.dtype)

    def reference(
        self, data: Array, features: Array, thresholds: Array, children: Array, roots: Array, depths: Array,
        targets: Array, weights: Array,
    ) -> Array:
        combine, first = _COMBINE[self.aggregate], topi.AGGREGATES[self.aggregate][1]
        rows = np.arange(len(data))
        out = np.full((len(data), self.n_targets), first, weights.dtype)
        for root, depth in zip(roots, depths, strict=True):
            at = np.full(len(data), root, np.int64)
            for _ in range(depth):
                feature = features[at]
                value = data[rows, np.where(feature < 0, -1 - feature, feature)]
                right = ~(value <= thresholds[at]) & ((feature >= 0) | ~np.isnan(value))
                at = children[at, right.astype(np.int64)]
            for entry in range(weights.shape[1]):
                to = entry if weights.shape[1] == self.n_targets else targets[at, entry]
                out[rows, to] = combine(out[rows, to], weights[at, entry])
        return out

    def compute(
        self, data: te.Tensor, features: te.Tensor, thresholds: te.Tensor, children: te.Tensor, roots: te.Tensor,
        depths: te.Tensor,
        targets: te.Tensor, weights: te.Tensor,
    ) -> te.Tensor:
        return topi.tree_ensemble(
            data, features, thresholds, children, roots, depths, targets, weights, self.n_targets, self.aggregate,
            self.missing)
