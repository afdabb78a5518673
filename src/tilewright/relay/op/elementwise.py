"""Elementwise operators of one input."""

from __future__ import annotations

import numpy as np

from tilewright import expr as te_math
from tilewright import te
from tilewright.relay.op.registry import Array, Fusion, Op, op, tensors
from tilewright.types import TensorType, Type


@op("nn.relu", kind=Fusion.ELEMWISE)
class Relu(Op):
    """max(x, 0)."""

    def infer(self, x: Type) -> TensorType:
        (t,) = tensors(x)
        return t

    def reference(self, x: Array) -> Array:
        return np.maximum(x, np.zeros((), x.dtype))

    def compute(self, x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *i: te_math.maximum(x(*i), te_math.const(0, x.dtype)), name="relu")
