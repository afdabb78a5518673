"""Check that all values are on one device, and remove the device marks.

    add(on_device(%x, virtual_device="cpu:0"), device_copy(%y, …)) -> add(%x, %y)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.base.errors import TargetError
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.expr import Call, Expr, Function
from tilewright.relay.op.annotation import DeviceCopy, OnDevice, device_name
from tilewright.relay.visitor import rewrite


@dataclass(frozen=True)
class PlanDevices(FunctionPass):
    """Remove `on_device` and `device_copy`. All values must be on the device `config` (a `tvm.device` or its name),
    else `TargetError`.
    """

    config: Any = "cpu:0"
    kind: ClassVar[type] = Function

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        here = device_name(self.config)

        def planned(e: Expr) -> Expr | None:
            if not (isinstance(e, Call) and isinstance(e.op, (OnDevice, DeviceCopy))):
                return None
            named = [e.op.virtual_device] if isinstance(e.op, OnDevice) else [e.op.src_virtual_device,
                e.op.dst_virtual_device]
            for other in named:
                if device_name(other) != here:
                    raise TargetError(f"a value is placed on the device {other}, but the "
                                      f"program runs on {here}; compile for one device", e.span, code="TW0506")
            return e.args[0]

        return rewrite(function, planned)
