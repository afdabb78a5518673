"""Replace calls by the expressions that a target's hooks return.

    @relay.op.register_legalize("nn.dense", level=11)
    def padded(attrs, inputs, types): ...              # an expression of the same type, or None

`types` are the types of the arguments, followed by that of the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.base.errors import CompileError
from tilewright.ir.module import IRModule
from tilewright.ir.op_attributes import op_attr
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.expr import Call, Expr, Function
from tilewright.relay.op.registry import Op
from tilewright.relay.visitor import rewrite


@dataclass(frozen=True)
class Legalize(FunctionPass):
    """Replace calls by the expressions that the hooks registered as `legalize_map_attr_name` return; each call is
    visited once.

    Raises `CompileError` for a hook that returns an expression of another type.
    """

    legalize_map_attr_name: str = "FTVMLegalize"
    kind: ClassVar[type] = Function
    required: ClassVar[tuple[str, ...]] = ("InferType",)
    opt_level: ClassVar[int] = 1

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        def rule(e: Expr) -> Expr | None:
            if not (isinstance(e, Call) and isinstance(e.op, Op)):
                return None
            hook = op_attr(e.op.name, self.legalize_map_attr_name)
            return None if hook is None else asked(self.name, hook, e)

        return rewrite(function, rule)


def asked(name: str, hook: Any, call: Call) -> Expr | None:
    """Return a hook's replacement of a call, or None. Raises `CompileError` unless it is an expression of the same
    type."""
    result = call.checked_type
    found = hook(call.attrs, list(call.args), [*(a.checked_type for a in call.args), result])
    if found is None or found is call:
        return None
    if not isinstance(found, Expr):
        raise CompileError(f"the hook of {call.op.name} for {name} returned {found!r}; return an expression, or None "
                           "to keep the call", call.span, code="TW0409")
    if found.known_type() is not None and found.known_type() != result:
        raise CompileError(
            f"the hook of {call.op.name} for {name} returned type {found.known_type()!r}, "
            f"but {result!r} is expected; cast or reshape the result", call.span, code="TW0409")
    return found
