"""Define the rounding of every operator as in the runtime that the attribute `numerics` of `main` names.

    def @main(%x, numerics="onnx") { qnn.requantize(%0, s, 0, t, z) }
    -> def @main(%x) { qnn.requantize(%0, s, 0, t, z, rounding="TOEVEN", compute_dtype="float32") }

A frontend creates the operators of the dialect without roundings, like TVM, and names their runtime on `main`.
`relay/qnn/sources.py` has the rules of each runtime.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tilewright.base.errors import OptionError
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay.expr import Call, Constant, Expr, Function
from tilewright.relay.op.elementwise import Cast, Clip
from tilewright.relay.op.registry import Op
from tilewright.relay.qnn import numerics as N
from tilewright.relay.qnn.scaling import Quantize, Requantize
from tilewright.relay.qnn.sources import NUMERICS, RULES, Rule
from tilewright.relay.qnn.torch_engines import ENGINES
from tilewright.relay.visitor import rewrite

KNOWN: Final[Mapping[str, Mapping[type[Op], Rule]]] = {**RULES, **ENGINES}
"""The rules of every runtime, by name."""


@dataclass(frozen=True)
class SettleNumerics(Pass):
    """Define every open rounding as in the runtime that `numerics` of `main` names, for all functions, and remove the
    attribute.

    Needs known types. The compiler and the interpreter run it first. Raises `OptionError` for an unknown runtime.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        if "main" not in mod or NUMERICS not in mod["main"].attrs:
            return mod
        name_of_runtime = str(mod["main"].attrs[NUMERICS])
        new = mod.copy()
        for name, function in mod.items():
            if isinstance(function, Function):
                new.update_func(name, self.settled(name, function, name_of_runtime))
        return new

    def settled(self, name: str, function: Function, name_of_runtime: str) -> Function:
        """Return the function `name` of the module after the pass."""
        return _settled(function, name_of_runtime)


@dataclass(frozen=True)
class SettleMain(SettleNumerics):
    """Define the open roundings of `main` as `SettleNumerics` does; the other functions get its attribute `numerics`.

    Use it when float operators of `main` are partitioned for other compilers before `SettleNumerics` runs.
    """

    def settled(self, name: str, function: Function, name_of_runtime: str) -> Function:
        return (_settled if name == "main" else with_numerics)(function, name_of_runtime)


def settled(function: Function) -> Function:
    """Settle one function by its own attribute `numerics`."""
    return _settled(function, str(function.attrs[NUMERICS])) if NUMERICS in function.attrs else function


def _settled(function: Function, name: str) -> Function:
    rules = KNOWN.get(name)
    if rules is None:
        raise OptionError(f'numerics="{name}" is not supported; it must be one of {", ".join(KNOWN)}', code="TW1004")

    def rule(e: Expr) -> Expr | None:
        if not isinstance(e, Call) or not isinstance(e.op, Op):
            return None
        if isinstance(e.op, Quantize) and isinstance(e.args[0], Constant):
            return quantized_constant(e) if e.op.out_dtype != "int32" else None  # for some runtimes the bias is a float
        found = rules.get(type(e.op))
        return None if found is None else found(e)

    made = rewrite(rewrite(function, narrow, inside=True), rule, inside=True)
    assert isinstance(made, Function)
    return without_numerics(made)


def without_numerics(function: Function) -> Function:
    """A function without `numerics`, whose roundings are TVM's defaults."""
    return with_numerics(function, None)


def with_numerics(function: Function, name: str | None) -> Function:
    """A function with the roundings of runtime `name`; None means TVM's defaults."""
    attrs = {k: v for k, v in function.attrs.items() if k != NUMERICS} | ({NUMERICS: name} if name else {})
    return Function(function.params, function.body, function.declared_ret_type, function.type_params, attrs,
                    function.span)


def quantized_constant(e: Expr) -> Expr | None:
    """qnn.quantize of a constant -> the integers."""
    if not (isinstance(e, Call) and isinstance(e.op, Quantize) and all(isinstance(a, Constant) for a in e.args)):
        return None
    return Constant(e.op.reference(*(a.value for a in e.args)), e.span)  # type: ignore[attr-defined]


def narrow(e: Expr) -> Expr | None:
    """cast(clip(qnn.requantize(x) to int32, 0, 255), "uint8") -> qnn.requantize(x) to uint8, then clip if needed."""
    if not (isinstance(e, Call) and isinstance(e.op, Cast)):
        return None
    clip = e.args[0]
    if not (isinstance(clip, Call) and isinstance(clip.op, Clip)):
        return None
    inner = clip.args[0]
    if not (isinstance(inner, Call) and isinstance(inner.op, Requantize) and inner.op.out_dtype == "int32"):
        return None
    dtype = e.tensor_type.dtype
    if dtype not in N.QUANTIZED:
        return None
    low, high = N.limits(dtype)
    least, most = clip.op.a_min, clip.op.a_max
    if least < low or most > high:
        return None  # the cast would wrap around
    made = Call(Requantize(**{**inner.op.attributes(), "out_dtype": str(dtype)}), inner.args, span=inner.span)
    return made if (least, most) == (low, high) else Call(clip.op, [made], span=clip.span)
