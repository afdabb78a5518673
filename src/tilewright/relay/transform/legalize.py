"""Replace calls by the expressions that a target's hooks return.

    @relay.op.register_legalize("nn.dense", level=11)
    def padded(attrs, inputs, types): ...              # an expression of the same type, or None

`types` are the types of the arguments, followed by that of the result. A `clip` that keeps all values of a
requantization's dtype is removed without a hook.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.base.errors import CompileError
from tilewright.ir.module import IRModule
from tilewright.ir.op_attributes import op_attr
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.expr import Call, Expr, Function
from tilewright.relay.op.elementwise import Clip
from tilewright.relay.op.registry import Op
from tilewright.relay.visitor import rewrite
from tilewright.topi.elementwise import integer_range


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
            if hook is None and self.legalize_map_attr_name == "FTVMLegalize":
                return without_full_range(e)
            return None if hook is None else asked(self.name, hook, e)

        return rewrite(function, rule)


def without_full_range(call: Call) -> Expr | None:
    """clip(qnn.requantize(x), bounds of the dtype or wider) -> qnn.requantize(x); None for other calls."""
    if not isinstance(call.op, Clip) or not isinstance(call.args[0], Call):
        return None
    inner = call.args[0]
    if not isinstance(inner.op, Op) or inner.op.name != "qnn.requantize":
        return None
    low, high = integer_range(inner.tensor_type.dtype)
    return inner if call.op.a_min <= low and call.op.a_max >= high else None


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
