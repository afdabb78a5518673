"""Tensor expressions: `placeholder`, `compute`, reductions, `extern`; and their schedules, `create_schedule`."""

from tilewright.te.extern import ExternOp, extern
from tilewright.te.schedule import Schedule, create_schedule, thread_axis
from tilewright.te.stage import Stage
from tilewright.te.tag import tag_scope
from tilewright.te.tensor import (
    Combiner,
    ComputeOp,
    Operation,
    PlaceholderOp,
    Reduce,
    Tensor,
    TensorElem,
    comm_reducer,
    compute,
    if_then_else,
    max,
    max_value,
    min,
    min_value,
    placeholder,
    prod,
    reduce_axis,
    sum,
)

__all__ = [
    "Combiner", "ComputeOp", "ExternOp", "Operation", "PlaceholderOp", "Reduce", "Schedule", "Stage", "Tensor", "TensorElem", "comm_reducer",
    "compute", "create_schedule", "extern", "if_then_else", "max", "max_value", "min", "min_value", "placeholder", "prod", "reduce_axis", "sum",
    "tag_scope", "thread_axis",
]
