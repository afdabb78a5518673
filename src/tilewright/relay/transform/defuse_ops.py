"""Inline primitive functions: the inverse of `FuseOps`.

    fn (%p0, %p1, Primitive=1) { nn.relu(add(%p0, %p1)) }(%x, b) -> nn.relu(add(%x, b))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.expr import Call, Expr, Function
from tilewright.relay.visitor import rewrite, substitute


@dataclass(frozen=True)
class DefuseOps(FunctionPass):
    """Replace calls of primitive functions by their bodies; functions of other compilers stay."""

    kind: ClassVar[type] = Function
    required: ClassVar[tuple[str, ...]] = ("InferType",)

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        return rewrite(function, unwrap)


def unwrap(e: Expr) -> Expr | None:
    """A call of a primitive function -> its body over the arguments."""
    if (not (isinstance(e, Call) and isinstance(e.op, Function) and e.op.attrs.get("Primitive"))
            or "Compiler" in e.op.attrs):
        return None
    return substitute(e.op.body, dict(zip(e.op.params, e.args, strict=True)))
