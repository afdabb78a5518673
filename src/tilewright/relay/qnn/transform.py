"""Passes over operators of quantized tensors: hooks of targets, numerics, and lowering to plain operators.

    qnn.transform.Legalize()            qnn.add(…) -> the result of a hook of `relay.qnn.op.register_qnn_legalize`
    qnn.transform.CanonicalizeOps()     qnn.add(…) -> cast, subtract, fixed_point_multiply, add, clip
    qnn.transform.ChooseNumerics()      def @main(…) -> def @main(…, numerics="onnx"), by the option relay.qnn.numerics
    qnn.transform.SettleNumerics()      qnn.requantize(…) -> qnn.requantize(…, rounding="TFLITE"), by `numerics`
    qnn.transform.SettleMain()          the same for `main` only
    qnn.transform.Unify()               one form for quantized networks of all frameworks
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
from tilewright.relay.qnn.choose_numerics import ChooseNumerics
from tilewright.relay.qnn.normal_form import NormalizeQnn
from tilewright.relay.qnn.real_to_qnn import RealToQnn
from tilewright.relay.qnn.settle_numerics import SettleMain, SettleNumerics
from tilewright.relay.qnn.unify import Unify
from tilewright.relay.qnn.unify_layout import UnifyLayout
from tilewright.relay.qnn.unify_type import UnifyType
from tilewright.relay.transform.legalize import Legalize as AnyLegalize
from tilewright.relay.transform.legalize import asked
from tilewright.relay.visitor import rewrite


@dataclass(frozen=True)
class QnnLegalize(AnyLegalize):
    """Replace calls by the expressions that the hooks of `register_qnn_legalize` return; each call is visited once."""

    legalize_map_attr_name: str = hooks.QNN_LEGALIZE


@dataclass(frozen=True)
class QnnCanonicalizeOps(FunctionPass):
    """Lower the operators of quantized tensors to plain operators. Needs known types."""

    kind: ClassVar[type] = Function

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        return rewrite(function, plain_form)


def plain_form(e: Expr) -> Expr | None:
    """A call of an operator of the QNN dialect -> its lowering by a hook or by its class."""
    if not (isinstance(e, Call) and isinstance(e.op, Op) and e.op.name.startswith("qnn.")):
        return None
    hook = op_attr(e.op.name, hooks.QNN_CANONICALIZE)
    return e.op.simplify(e) if hook is None else asked("qnn.CanonicalizeOps", hook, e)


Legalize = QnnLegalize
CanonicalizeOps = QnnCanonicalizeOps
__all__ = [
    "CanonicalizeOps", "ChooseNumerics", "Legalize", "NormalizeQnn", "QnnCanonicalizeOps", "QnnLegalize", "RealToQnn",
    "SettleMain", "SettleNumerics", "Unify", "UnifyLayout", "UnifyType",
]
