"""Reverse-mode differentiation of functions.

    fn (%x) { multiply(%x, %x) } -> fn (%x) { (multiply(%x, %x), (add(multiply(1, %x), multiply(1, %x)),)) }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from tilewright.base.errors import CompileError, OptionError
from tilewright.base.types import DataType, TensorType
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, Pass, PassContext
from tilewright.relay.expr import Call, Constant, Expr, Function, GlobalVar, Tuple
from tilewright.relay.op.broadcast import Add, Divide, Multiply, Subtract
from tilewright.relay.op.create import Filled, FilledLike
from tilewright.relay.transform.infer_type import InferType
from tilewright.relay.transform.partial_evaluate import PartialEvaluate
from tilewright.relay.transform.remove_unused_functions import RemoveUnusedFunctions
from tilewright.relay.transform.reverse_mode import filled, gradients, is_plain
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
    if not isinstance(e, Call) or not isinstance(e.op, (Add, Subtract, Multiply, Divide)):
        return None
    neutral = 0 if isinstance(e.op, (Add, Subtract)) else 1
    commutes = isinstance(e.op, (Add, Multiply))
    for kept, other in (e.args, e.args[::-1]) if commutes else (e.args,):
        t = kept.known_type()
        if isinstance(t, TensorType) and t == e.known_type() and _fill(other) == neutral and t.dtype.is_float:
            return kept
    return None


def _fill(e: Expr) -> float | None:
    """The number that all elements of a value have, if it is a constant scalar or made by `zeros` and `ones`."""
    if isinstance(e, Constant):
        return float(e.value) if e.value.size == 1 and DataType(e.value.dtype).is_float else None
    return e.op.number if isinstance(e, Call) and isinstance(e.op, (Filled, FilledLike)) else None
