"""TVM's `relay.transform.mixed_precision`: rules of `ToMixedPrecision` for a category, to register for operators.

    mixed_precision.register_func_to_op_list(["nn.softmax"], mixed_precision.generic_follow_op)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.relay.expr import Call
from tilewright.relay.op.hooks import register_mixed_precision_conversion

__all__ = [
    "MIXED_PRECISION_ALWAYS", "MIXED_PRECISION_FOLLOW", "MIXED_PRECISION_NEVER", "generic_always_op",
    "generic_follow_op", "generic_never_op", "get_generic_out_dtypes", "register_func_to_op_list",
]
MIXED_PRECISION_ALWAYS, MIXED_PRECISION_FOLLOW, MIXED_PRECISION_NEVER = range(3)


def get_generic_out_dtypes(call_node: Call, mixed_precision_type: str) -> list[str]:
    """Return the type of sums and of results: float32 and 16 bits for operators with an `out_dtype`, else 16 bits."""
    if "out_dtype" in call_node.op.attributes():
        return ["float32", mixed_precision_type]
    return [mixed_precision_type, mixed_precision_type]


def generic_always_op(call_node: Call, mixed_precision_type: str) -> list[Any]:
    """Return the answer of a hook for an operator that is always computed in 16 bits."""
    return [MIXED_PRECISION_ALWAYS, *get_generic_out_dtypes(call_node, mixed_precision_type)]


def generic_follow_op(call_node: Call, mixed_precision_type: str) -> list[Any]:
    """Return the answer of a hook for an operator in 16 bits if its arguments are."""
    return [MIXED_PRECISION_FOLLOW, *get_generic_out_dtypes(call_node, mixed_precision_type)]


def generic_never_op(call_node: Call, mixed_precision_type: str) -> list[Any]:
    """Return the answer of a hook for an operator that is never computed in 16 bits."""
    return [MIXED_PRECISION_NEVER, *get_generic_out_dtypes(call_node, mixed_precision_type)]


def register_func_to_op_list(list_ops: Sequence[str], func: Callable[[Call, str], list[Any]], level: int = 10) -> None:
    """Register a hook of `ToMixedPrecision` for each operator of a list."""
    for name in list_ops:
        register_mixed_precision_conversion(name, func, level)
