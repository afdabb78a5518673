"""Combine convolutions of one image that differ only in their weights.

    (nn.conv2d(%x, w1), nn.conv2d(%x, w2), nn.conv2d(%x, w3))
    -> %0 = nn.conv2d(%x, concatenate((w1, w2, w3))); (strided_slice(%0, …), strided_slice(%0, …), strided_slice(%0, …))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.relay.expr import Call, Expr
from tilewright.relay.op.nn_conv import Conv2d
from tilewright.relay.transform.fold_scale_axis import Axes, result_axes
from tilewright.relay.transform.parallel_branches import _CombineParallel, joined, same_but


@dataclass(frozen=True)
class CombineParallelConv2D(_CombineParallel):
    """Combine `min_num_branches` or more convolutions of one image, and equal elementwise calls after them. Needs known
    types.
    """

    def key(self, call: Call) -> Any:
        axes = _axes(call)
        if axes is None or call.attrs.groups != 1:
            return None
        weight = call.args[1].tensor_type
        return (same_but(call.op, "channels"), weight.dtype,
                tuple(n for d, n in enumerate(weight.shape) if d != axes.weight))

    def axis(self, call: Call) -> int | None:
        axes = _axes(call)
        return axes.channel if axes else None

    def sliced_axes(self, axis: int, ndim: int) -> int:
        return axis + 1

    def merged(self, calls: Sequence[Call], x: Expr, others: Sequence[Sequence[Expr]]) -> Call:
        axes = _axes(calls[0])
        at = axes.weight if axes else 0
        channels = sum(c.args[1].tensor_type.shape[at] for c in calls)
        how = Conv2d(**{**calls[0].op.attributes(), "channels": channels})
        return Call(how, [x, joined([o[0] for o in others], at)], span=calls[0].span)


def _axes(call: Call) -> Axes | None:
    return result_axes(call.op) if type(call.op) is Conv2d else None
