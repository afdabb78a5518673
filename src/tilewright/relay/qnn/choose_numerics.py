"""Select the runtime whose rounding a quantized network follows: the option `relay.qnn.numerics`.

    %0 = qnn.dequantize(%x, sx, zx); %1 = nn.conv2d(%0, qnn.dequantize(w, sw, 0)); qnn.quantize(%1, s, z)
    -> def @main(%x, numerics="tflite") {
         qnn.requantize(nn.bias_add(qnn.conv2d(%x, w, zx, 0, sx, sw), 0), sx * sw, 0, s, z)
       }

Operators of the dialect leave their rounding unspecified, and the attribute of `main` names the runtime that defines
it. Functions that a frontend wrote as integer arithmetic have no such operator, and do not change.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext, Sequential
from tilewright.relay.expr import Function
from tilewright.relay.qnn.settle_numerics import with_numerics
from tilewright.relay.qnn.sources import NUMERICS


@dataclass(frozen=True)
class ChooseNumerics(Pass):
    """Set the numerics of `main` to the runtime that the option `relay.qnn.numerics` names. The
    rounding of each operator stays unspecified. Needs known types.

    Nothing changes without the option, or if it names the numerics that `main` already has.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        name = context.get("relay.qnn.numerics")
        if not name or "main" not in mod or not isinstance(mod["main"], Function):
            return mod
        own = str(mod["main"].attrs.get(NUMERICS, ""))
        if own == name or own.startswith(f"{name}-"):
            return mod
        # imported here because these modules import the passes, which start with this one
        from tilewright.relay.qnn.normal_form import NormalizeQnn
        from tilewright.relay.qnn.real_to_qnn import RealToQnn

        new = Sequential((RealToQnn(), NormalizeQnn()), name="ChooseNumerics")(mod).copy()
        new.update_func(new.get_global_var("main"), with_numerics(new["main"], name))
        return new
