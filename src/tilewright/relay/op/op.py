"""TVM's `relay.op.op`: operators by name, and the hooks that programs register for them."""

from tilewright.relay.op.hooks import (
    OpPattern,
    register_alter_op_layout,
    register_compute,
    register_convert_op_layout,
    register_legalize,
    register_mixed_precision_conversion,
    register_pattern,
    register_qnn_legalize,
    register_schedule,
    register_strategy,
)
from tilewright.relay.op.registered import register
from tilewright.relay.op.registry import Op, get

__all__ = [
    "Op", "OpPattern", "get", "register", "register_alter_op_layout", "register_compute", "register_convert_op_layout",
    "register_legalize", "register_mixed_precision_conversion", "register_pattern", "register_qnn_legalize",
    "register_schedule", "register_strategy",
]
