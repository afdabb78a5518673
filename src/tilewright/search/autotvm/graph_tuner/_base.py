"""Operators at which layouts begin anew, and the task that measures a transformation of layouts."""

from __future__ import annotations

import math
from typing import Final

from tilewright import te, topi
from tilewright.relay.op.registry import Op, get
from tilewright.search.autotvm.task.task import get_config, template

OPT_OUT_OP: Final[list[type[Op]]] = [get(name) for name in (
    "layout_transform", "transpose", "reshape", "squeeze", "expand_dims", "nn.batch_flatten", "nn.dense",
    "nn.batch_matmul", "vision.multibox_prior", "vision.multibox_transform_loc", "vision.non_max_suppression",
    "vision.yolo_reorg")]
"""Operators that take and give plain layouts: blocks of channels do not pass through them."""
INVALID_LAYOUT_TIME: Final = math.inf
"""The time of a transformation between blocks that do not divide the channels."""
LAYOUT_TRANSFORM: Final = "layout_transform"
_LANES: Final = 64
"""Longest innermost axis that becomes one vector."""


@template(LAYOUT_TRANSFORM)
def layout_transform(data: te.Tensor, src_layout: str, dst_layout: str) -> tuple[te.Schedule, list[te.Tensor]]:
    """Schedule the transformation of `data` between two layouts: the outer axes run in parallel, and a short innermost
    axis is a vector."""
    get_config().add_flop(math.prod(data.extents))
    out = topi.layout_transform(data, src_layout, dst_layout)
    schedule = te.create_schedule(out.op)
    *outer, inner = schedule[out].op.axis
    schedule[out].parallel(schedule[out].fuse(*outer[:2]))
    if out.extents[-1] <= _LANES:
        schedule[out].vectorize(inner)
    return schedule, [data, out]
