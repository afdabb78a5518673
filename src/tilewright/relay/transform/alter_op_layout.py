"""Layouts by operator, as a target's hooks want them.

    @relay.op.register_alter_op_layout("nn.conv2d", level=11)
    def channels_last(attrs, inputs, types):
        return relay.nn.conv2d(*inputs, **{**attrs.attributes(), "data_layout": "NHWC", "kernel_layout": "HWIO"})

    nn.conv2d(%x, w) -> transpose(nn.conv2d(transpose(%x, axes=[0, 2, 3, 1]), w', data_layout="NHWC", kernel_layout="HWIO"), axes=[0, 3, 1, 2])
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.ir.module import IRModule
from tilewright.ir.op_attributes import op_attr
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.expr import Call, Function
from tilewright.relay.op import hooks
from tilewright.relay.op.registry import Op
from tilewright.relay.transform.chosen_layouts import operator_of, placeholders, with_layouts


@dataclass(frozen=True)
class AlterOpLayout(FunctionPass):
    """Let the registered hooks choose layouts, which are orders of the axes; operators between follow, and transposes stand at the borders."""

    kind: ClassVar[type] = Function
    opt_level: ClassVar[int] = 3

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        return with_layouts(function, self._choice)

    def _choice(self, e: Call) -> Op | None:
        hook = op_attr(e.op.name, hooks.ALTER_OP_LAYOUT)
        if hook is None:
            return None
        return operator_of(e, hook(e.attrs, placeholders(e), [*(a.checked_type for a in e.args), e.checked_type]), self.name)
