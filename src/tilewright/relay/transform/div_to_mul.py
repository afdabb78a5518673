"""Replace divisions by constants by multiplications.

    divide(%x, 4f) -> multiply(%x, 0.25f)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.expr import Call, Expr, Function
from tilewright.relay.op.broadcast import Divide
from tilewright.relay.transform.simplify_expr import by_reciprocal
from tilewright.relay.visitor import rewrite


@dataclass(frozen=True)
class DivToMul(FunctionPass):
    """Replace division by a nonzero float constant by multiplication with its reciprocal: exact for powers of two,
    otherwise with one more rounding."""

    kind: ClassVar[type] = Function
    required: ClassVar[tuple[str, ...]] = ("InferType",)

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        return rewrite(function, as_product)


def as_product(e: Expr) -> Expr | None:
    """A division by a constant -> a multiplication."""
    return by_reciprocal(e) if isinstance(e, Call) and isinstance(e.op, Divide) else None
