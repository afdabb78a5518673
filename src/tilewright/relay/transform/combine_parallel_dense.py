"""Combine products of one matrix with several weights.

    (nn.dense(%x, w1), nn.dense(%x, w2), nn.dense(%x, w3))
    -> %0 = nn.batch_matmul(stack((%x, %x, %x)), stack((w1, w2, w3))); one matrix of it for each       to_batch
    -> %0 = nn.dense(%x, concatenate((w1, w2, w3))); columns of it for each                             else
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.relay.expr import Call, Expr
from tilewright.relay.op.nn_matmul import BatchMatmul, Dense
from tilewright.relay.transform.parallel_branches import _CombineParallel, joined, same_but
from tilewright.relay.transform.permutations import reshaped


@dataclass(frozen=True)
class CombineParallelDense(_CombineParallel):
    """Combine `min_num_branches` or more products of one matrix, as a batch (`to_batch`, for weights of one shape) or
    side by side.
    """

    to_batch: bool = True
    repeats: ClassVar[bool] = True

    def key(self, call: Call) -> Any:
        if type(call.op) is not Dense:
            return None
        x, weight = (a.tensor_type for a in call.args)
        if self.to_batch:
            return (same_but(call.op, "units"), weight.dtype, weight.shape) if x.ndim == 2 else None
        return (same_but(call.op, "units"), weight.dtype)

    def axis(self, call: Call) -> int | None:
        return None if self.to_batch else call.tensor_type.ndim - 1

    def merged(self, calls: Sequence[Call], x: Expr, others: Sequence[Sequence[Expr]]) -> Call:
        weights = [o[0] for o in others]
        out_dtype = calls[0].attrs.out_dtype
        if self.to_batch and not self.compact:
            return Call(BatchMatmul(out_dtype=out_dtype), [joined([x] * len(weights), None), joined(weights, None)],
                        span=calls[0].span)
        if self.to_batch:
            return Call(BatchMatmul(out_dtype=out_dtype),
                        [reshaped(x, (1, *x.tensor_type.shape)), joined(weights, None)], span=calls[0].span)
        return Call(Dense(units=sum(w.tensor_type.shape[0] for w in weights), out_dtype=out_dtype),
                    [x, joined(weights, 0)], span=calls[0].span)
