"""Combine batched products that share their left operand into one.

    (nn.batch_matmul(%x, %a), nn.batch_matmul(%x, %b), nn.batch_matmul(%x, %c))
    -> %0 = nn.batch_matmul(%x, concatenate((%a, %b, %c), axis=1)); columns of it for each
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.relay.expr import Call, Expr
from tilewright.relay.op.nn_matmul import BatchMatmul
from tilewright.relay.transform.parallel_branches import _CombineParallel, joined, same_but


@dataclass(frozen=True)
class CombineParallelBatchMatmul(_CombineParallel):
    """Combine `min_num_branches` or more batched products that share their left operand into one product. Needs known
    types.
    """

    negative_axes: ClassVar[bool] = True

    def key(self, call: Call) -> Any:
        if type(call.op) is not BatchMatmul:
            return None
        right = call.args[1].tensor_type
        columns = _columns(call)
        return (same_but(call.op), right.dtype, tuple(n for d, n in enumerate(right.shape) if d != columns))

    def axis(self, call: Call) -> int | None:
        return 2

    def merged(self, calls: Sequence[Call], x: Expr, others: Sequence[Sequence[Expr]]) -> Call:
        return Call(calls[0].op, [x, joined([o[0] for o in others], _columns(calls[0]))], span=calls[0].span)


def _columns(call: Call) -> int:
    """Return the axis of the right operand that becomes the columns of the result."""
    return 1 if call.attrs.transpose_b else 2
