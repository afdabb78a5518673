"""Change the layout of single operators as a target's hooks request.

    @relay.op.register_alter_op_layout("nn.conv2d", level=11)
    def in_blocks(attrs, inputs, tinfos, out_type):
        how = {"data_layout": "NCHW8c", "kernel_layout": "OIHW8i8o", "out_layout": "NCHW8c"}
        return relay.nn.contrib_conv2d_nchwc(*inputs, **{**attrs.attributes(), **how})

    nn.conv2d(%x, w)
      -> layout_transform(nn.contrib_conv2d_NCHWc(layout_transform(%x, "NCHW", "NCHW8c"), w', …), "NCHW8c", "NCHW")
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
    """Change the layouts of operators to those that hooks of `register_alter_op_layout` return; the operators between
    adapt.

    Needs known types. Leaves transposes or layout transforms at the borders. A hook receives the attributes, variables
    for the arguments, the types of the arguments, and the type of the result.
    """

    kind: ClassVar[type] = Function
    required: ClassVar[tuple[str, ...]] = ("InferType",)
    opt_level: ClassVar[int] = 3

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        return with_layouts(function, self._choice)

    def _choice(self, e: Call) -> Op | None:
        hook = op_attr(e.op.name, hooks.ALTER_OP_LAYOUT)
        if hook is None:
            return None
        return operator_of(e, hook(e.attrs, placeholders(e), [a.checked_type for a in e.args], e.checked_type),
                           self.name)
