"""Tensor expressions: `placeholder`, `compute`, reductions."""

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

__all__ = ["Combiner", "ComputeOp", "Operation", "PlaceholderOp", "Reduce", "Tensor", "TensorElem", "comm_reducer", "compute", "if_then_else",
           "max", "max_value", "min", "min_value", "placeholder", "prod", "reduce_axis", "sum"]
