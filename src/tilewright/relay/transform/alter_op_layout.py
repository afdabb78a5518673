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
from tilewright.relay.expr import Call, Expr, Function
from tilewright.relay.op import hooks
from tilewright.relay.op.registry import Op
from tilewright.relay.transform.chosen_layouts import chosen_by_hook, placeholders, with_layouts
from tilewright.relay.visitor import rewrite


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
        chosen: dict[Expr, Op] = {}

        def asked(e: Expr) -> Expr | None:
            """Ask the hook of a call, and put the arguments that it changed into the program."""
            hook = op_attr(e.op.name, hooks.ALTER_OP_LAYOUT) if isinstance(e, Call) and isinstance(e.op, Op) else None
            if hook is None or not isinstance(e, Call):
                return None
            inputs = placeholders(e)
            found = chosen_by_hook(
                e, inputs, hook(e.attrs, inputs, [a.checked_type for a in e.args], e.checked_type), self.name)
            if found is None:
                return None
            op, args = found
            same = all(a is b for a, b in zip(args, e.args, strict=True))
            call = e if same else Call(e.op, args, span=e.span)
            chosen[call] = op
            return None if same else call

        new = rewrite(function, asked)
        assert isinstance(new, Function)
        return with_layouts(new, chosen.get) if chosen else function
