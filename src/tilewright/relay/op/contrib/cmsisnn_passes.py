"""Passes over networks that are partitioned for CMSIS-NN, registered under TVM's names (`relay.ext.cmsisnn.transform`).

    qnn.conv2d(nn.pad(%x, …))               ->  qnn.conv2d(%x, padding=…)               CMSISNNFusePads
    fn (%p) { qnn.add(%p, 3) }              ->  fn (%p) { qnn.add(%p, [3, 3, …]) }      ScalarToTensorConstants
    @cmsis_nn_0(%x) { … weight … }          ->  @cmsis_nn_0(%x, weight)                 ExtractConstants…
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np

from tilewright.base.errors import CompileError
from tilewright.base.global_functions import register_func
from tilewright.base.types import TensorType
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay.expr import Call, Constant, Expr, Function, GlobalVar, Var
from tilewright.relay.op.registry import Op
from tilewright.relay.transform.infer_type import InferType
from tilewright.relay.visitor import post_order, rewrite, substitute

TARGET: Final = "cmsis-nn"
BINARY: Final = ("cmsis-nn.qnn_add", "cmsis-nn.qnn_mul")


def padding_of(conv: Call) -> tuple[int, int, int, int] | None:
    """Return the padding of a quantized NHWC convolution with that of the `nn.pad` before it: top, left, bottom, right.

    None without such a pad, and for one that pads with another value than the zero point. Raises `CompileError` for
    paddings that CMSIS-NN cannot have: at the end of a dimension it is that of the begin, or one more.
    """
    pad: Any = conv.args[0]
    if not (isinstance(pad, Call) and isinstance(pad.op, Op) and pad.op.name == "nn.pad"):
        return None
    op, pads = cast("Any", conv.op), cast("Any", pad.op)
    widths, own = pads.pad_width, op.padding
    (top, bottom), (left, right) = (
        (widths[d][0] + own[d - 1], widths[d][1] + own[d + 1]) for d in (1, 2))
    if bottom - top not in (0, 1) or right - left not in (0, 1):
        raise CompileError(
            f"Difference on each side of a dimension should be either 0 or 1. The padding is {top, left, bottom, right}"
            " (top, left, bottom, right)", conv.span, code="TW0904")
    value, zero = (np.asarray(c.value) if isinstance(c, Constant) else None for c in (pad.args[1], conv.args[2]))
    if any((*widths[0], *widths[3])) or value is None or zero is None or float(value) != float(zero):
        return None
    return top, left, bottom, right


@dataclass(frozen=True)
class CMSISNNFusePads(Pass):
    """Make pads a part of the convolutions of CMSIS-NN, where they pad with the zero point."""

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        found = _in_parts(mod, lambda f: rewrite(f, _with_fused_pads, inside=True))
        return mod if found is mod else InferType()(found)


def _with_fused_pads(e: Expr) -> Expr | None:
    if not (isinstance(e, Call) and isinstance(e.op, Op) and e.op.name == "qnn.conv2d"):
        return None
    padding = padding_of(e)
    if padding is None:
        return None
    conv = type(e.op)(**{**e.op.attributes(), "padding": padding})
    data = e.args[0]
    assert isinstance(data, Call)
    return Call(conv, [data.args[0], *e.args[1:]], span=e.span)


@dataclass(frozen=True)
class ScalarToTensorConstants(Pass):
    """Give numbers in sums and products of CMSIS-NN the shape of the other operand."""

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        found = _in_parts(mod, lambda f: rewrite(f, _with_tensors))
        return mod if found is mod else InferType()(found)


def _with_tensors(e: Expr) -> Expr | None:
    """Return a call of a composite function, or None. Its number is an argument, or inside of it."""
    if not (isinstance(e, Call) and isinstance(e.op, Function) and e.op.attrs.get("Composite") in BINARY):
        return None
    function, args = e.op, list(e.args)
    inside: Any = function.body
    while isinstance(inside, Call) and getattr(inside.op, "name", "") == "clip":
        inside = inside.args[0]
    places = {p: k for k, p in enumerate(function.params)}
    values: list[Any] = [args[places[o]] if isinstance(o, Var) and o in places else o for o in inside.args[:2]]
    kinds = [v.known_type() for v in values]
    shapes = [tuple(t.shape) if isinstance(t, TensorType) else None for t in kinds]
    number = next((k for k in (0, 1) if shapes[k] == () and isinstance(values[k], Constant) and shapes[1 - k]), None)
    if number is None:
        return None
    shape: Any = shapes[1 - number]
    whole = Constant(np.broadcast_to(values[number].value, shape).copy(), values[number].span)
    old = inside.args[number]
    if not isinstance(old, Var):
        made = rewrite(function, lambda x: _replaced(x, inside, number, whole))
        return Call(made, args, span=e.span)
    param = Var(old.name_hint, whole.checked_type)
    args[places[old]] = whole
    body = substitute(function.body, {old: param})
    params = [param if p is old else p for p in function.params]
    return Call(Function(params, body, function.ret_type, attrs=function.attrs, span=function.span), args, span=e.span)


def _replaced(e: Expr, call: Call, place: int, value: Expr) -> Expr | None:
    if e is not call and not (isinstance(e, Call) and e.op is call.op and len(e.args) == len(call.args)):
        return None
    args = [*call.args]
    args[place] = value
    return Call(call.op, args, span=call.span)


@dataclass(frozen=True)
class ExtractConstantsFromPartitionedFunction(Pass):
    """Make the tensors that are constants inside the functions of CMSIS-NN their parameters."""

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        taken: dict[str, list[Constant]] = {}
        new = mod.copy()
        for name, function in mod.items():
            if _is_part(function):
                made, constants = _extracted(function)
                if constants:
                    taken[name] = constants
                    new.update_func(name, made)

        def called(e: Expr) -> Expr | None:
            found = taken.get(e.op.name_hint) if isinstance(e, Call) and isinstance(e.op, GlobalVar) else None
            if found is None or not isinstance(e, Call):
                return None
            return Call(GlobalVar(e.op.name_hint), [*e.args, *found], span=e.span)

        return InferType()(new.map_functions(lambda f: rewrite(f, called), Function)) if taken else mod


def _extracted(function: Function) -> tuple[Function, list[Constant]]:
    """Return a function whose tensors are further parameters, and their values."""
    constants: dict[Constant, Var] = {}

    def outer(c: Constant) -> Var:
        return constants.setdefault(c, Var(f"tvm_var_extract_const_{len(constants)}", c.checked_type))

    def composite(e: Expr) -> Expr | None:
        if not (isinstance(e, Call) and isinstance(e.op, Function)):
            return None
        inside = [c for c in post_order(e.op.body) if _is_tensor(c)]
        if not inside:
            return None
        params = {c: Var(f"tvm_var_extract_const_{k}", c.checked_type) for k, c in enumerate(inside)}
        body = rewrite(e.op.body, params.get)
        made = Function([*e.op.params, *params.values()], body, attrs=e.op.attrs, span=e.op.span)
        return Call(made, [*e.args, *map(outer, inside)], span=e.span)  # type: ignore[arg-type]

    body = rewrite(function.body, composite)
    body = rewrite(body, lambda e: outer(e) if _is_tensor(e) else None)  # type: ignore[arg-type]
    made = Function([*function.params, *constants.values()], body, attrs=function.attrs, span=function.span)
    return made, list(constants)


def _is_tensor(e: Expr) -> bool:
    return isinstance(e, Constant) and e.value.ndim > 0


def _is_part(function: Any) -> bool:
    return isinstance(function, Function) and function.attrs.get("Compiler") == TARGET


def _in_parts(mod: IRModule, change: Callable[[Any], Any]) -> IRModule:
    """Apply a function to the parts of CMSIS-NN; return the module itself if nothing changes."""
    return mod.map_functions(lambda f: change(f) if _is_part(f) else f, Function)


PASSES: Final[Sequence[type[Pass]]] = (
    CMSISNNFusePads, ScalarToTensorConstants, ExtractConstantsFromPartitionedFunction)
for _made in PASSES:
    register_func(f"relay.ext.cmsisnn.transform.{_made.__name__}", _made, override=True)
