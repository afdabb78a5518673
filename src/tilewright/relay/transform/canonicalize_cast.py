"""Give each consumer of a widened value its own cast, so that the cast can be fused into the consumer's kernel.

    %0 = cast(%a, "int32"); add(%0, …), multiply(%0, …) -> add(cast(%a, "int32"), …), multiply(cast(%a, "int32"), …)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.expr import Call, Constant, Expr, Function, Var
from tilewright.relay.op.elementwise import Cast
from tilewright.relay.op.registry import Fusion, Op
from tilewright.relay.visitor import rewrite


@dataclass(frozen=True)
class CanonicalizeCast(FunctionPass):
    """Duplicate widening casts of computed values for their elementwise consumers, so that the narrow value is stored.
    Needs known types.
    """

    kind: ClassVar[type] = Function
    required: ClassVar[tuple[str, ...]] = ("InferType",)
    opt_level: ClassVar[int] = 3

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        taken: set[Expr] = set()

        def rule(e: Expr) -> Expr | None:
            if not (isinstance(e, Call) and isinstance(e.op, Op) and e.op.kind <= Fusion.BROADCAST):
                return None
            args = [_copied(a, taken) for a in e.args]
            return None if all(a is b for a, b in zip(args, e.args, strict=True)) else Call(e.op, args, span=e.span)

        return rewrite(function, rule)


def _copied(e: Expr, taken: set[Expr]) -> Expr:
    """Return a new cast for the second and later users."""
    if not (isinstance(e, Call) and isinstance(e.op, Cast)) or isinstance(e.args[0], (Constant, Var)):
        return e
    if e.args[0].tensor_type.dtype.bits >= e.tensor_type.dtype.bits:
        return e
    if e in taken:
        return Call(e.op, e.args, span=e.span)
    taken.add(e)
    return e
