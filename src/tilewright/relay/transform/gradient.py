"""Reverse-mode differentiation of functions.

    fn (%x) { multiply(%x, %x) } -> fn (%x) { (multiply(%x, %x), (add(multiply(1, %x), multiply(1, %x)),)) }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from tilewright.base.errors import CompileError, OptionError
from tilewright.base.types import TensorType
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, Pass, PassContext
from tilewright.relay.expr import Call, Expr, Function, GlobalVar, Tuple
from tilewright.relay.op.broadcast import Add, Divide, Multiply, Subtract
from tilewright.relay.op.create import FilledLike
from tilewright.relay.transform.infer_type import InferType
from tilewright.relay.transform.partial_evaluate import PartialEvaluate
from tilewright.relay.transform.remove_unused_functions import RemoveUnusedFunctions
from tilewright.relay.transform.reverse_mode import filled, gradients, is_plain
from tilewright.relay.transform.simplify_expr import add_zero, multiply_one
from tilewright.relay.transform.to_graph_normal_form import ToGraphNormalForm
from tilewright.relay.visitor import rewrite

MODES: Final = ("higher_order", "first_order")
_NAME: Final = "differentiated function"


def gradient(expr: Expr, mod: IRModule | None = None, mode: str = "higher_order") -> Function:
    """Return the function of the value of `expr` and its gradients: `(value, (gradient, …))`, one for each parameter.

    `expr` is a function, or a `GlobalVar` of `mod`. The gradients are those of the sum of all elements of the value,
    for a tuple of its first tensor; integer and boolean parameters have gradients of zero. Calls of functions, lets,
    references and matches are evaluated first, as `PartialEvaluate` does. `mode` is that of TVM; both give the same
    function. Raises `CompileError` for an operator or a recursion without a gradient, and `OptionError` for another
    mode.
    """
    if mode not in MODES:
        raise OptionError(f"gradient: mode is '{mode}'; it must be {' or '.join(MODES)}", code="TW0210")
    module = IRModule() if mod is None else mod.copy()
    function = module[expr] if isinstance(expr, GlobalVar) and expr in module else expr
    if not isinstance(function, Function):
        raise CompileError(f"gradient: a function is expected, not a {type(function).__name__}; give a relay.Function, "
                           "or a GlobalVar with its module", function.span, code="TW0313")
    return _with_gradients(_plain(function, module))


def _plain(function: Function, mod: IRModule) -> Function:
    """`function` without lets, references, matches and calls of functions. All types are known."""
    mod[_NAME] = function
    mod = InferType()(RemoveUnusedFunctions((_NAME,))(mod))
    if is_plain(function):
        return function
    mod = InferType()(ToGraphNormalForm()(PartialEvaluate()(mod)))
    found: Function = mod[_NAME]
    return found


def _with_gradients(function: Function) -> Function:
    found = gradients(function.body, function.params)
    each = [filled(s, p) for s, p in zip(found, function.params, strict=True)]
    return Function(function.params, Tuple((function.body, Tuple(each))))


@dataclass(frozen=True)
class FirstOrderGradient(Pass):
    """Replace every function by that of its value and its gradients, as `relay.transform.gradient` does."""

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        new = mod.copy()
        for name, f in mod.items():
            if isinstance(f, Function):
                new[name] = gradient(f, mod, "first_order")
        return new


@dataclass(frozen=True)
class LazyGradientInit(FunctionPass):
    """Remove additions of zeros, and products with ones, that gradients contain. Needs known types.

    Types stay the same, and so do values, except that a negative zero may replace a zero.
    """

    kind: ClassVar[type] = Function

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        return rewrite(function, _without_fills, inside=True)


def _without_fills(e: Expr) -> Expr | None:
    """x + 0, 0 + x, x - 0, x * 1, 1 * x, x / 1 -> x"""
    if not isinstance(e, Call) or not isinstance(e.known_type(), TensorType):
        return None
    if isinstance(e.op, FilledLike):
        return e.op.simplify(e)
    return add_zero(e) if isinstance(e.op, (Add, Subtract)) else multiply_one(e) if isinstance(
        e.op, (Multiply, Divide)) else None
