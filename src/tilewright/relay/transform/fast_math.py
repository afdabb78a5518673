"""Replace elementary functions by faster approximations.

    exp(%x) -> fast_exp(%x);   tanh, erf -> fast_tanh, fast_erf;   nn.softmax -> nn.fast_softmax
    divide(%x, 3f) -> multiply(%x, 0.33333334f)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.expr import Call, Expr, Function
from tilewright.relay.op.fast_math import APPROXIMATIONS
from tilewright.relay.op.registry import Op
from tilewright.relay.transform.div_to_mul import as_product
from tilewright.relay.visitor import rewrite


@dataclass(frozen=True)
class FastMath(FunctionPass):
    """Replace operators by their approximations (`relay/op/fast_math.py`), and divisions by constants by products.
    Changes results.
    """

    kind: ClassVar[type] = Function
    required: ClassVar[tuple[str, ...]] = ("InferType",)
    opt_level: ClassVar[int] = 4

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        return rewrite(function, approximate)


def approximate(e: Expr) -> Expr | None:
    """A call of an operator -> the call of its approximation."""
    product = as_product(e)
    if product is not None:
        return product
    other = APPROXIMATIONS.get(type(e.op)) if isinstance(e, Call) and isinstance(e.op, Op) else None
    return Call(other(**e.op.attributes()), e.args, span=e.span) if isinstance(e, Call) and other is not None else None
