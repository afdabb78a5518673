"""Give quantized networks of all frameworks one form: `relay.qnn.transform.Unify`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.base.errors import OptionError
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext, Sequential
from tilewright.relay.expr import Function
from tilewright.relay.op.registry import Op
from tilewright.relay.qnn.normal_form import NormalizeQnn
from tilewright.relay.qnn.real_to_qnn import RealToQnn
from tilewright.relay.qnn.settle_numerics import KNOWN, with_numerics
from tilewright.relay.qnn.sources import NUMERICS
from tilewright.relay.qnn.unify_layout import UnifyLayout
from tilewright.relay.qnn.unify_type import UnifyType
from tilewright.relay.transform.dead_code import DeadCodeElimination
from tilewright.relay.transform.eliminate_common_subexpr import EliminateCommonSubexpr
from tilewright.relay.visitor import calls

_NAMES = "output_tensor_names"


@dataclass(frozen=True)
class Unify(Pass):
    """Rewrite a quantized network so that equal networks of PyTorch, TensorFlow Lite and ONNX become the same program.

    The result consists of integer constants and operators of `relay.qnn`: sums of products with a bias, requantized,
    then clipped where an activation is narrower than the type; padding precedes convolutions. `layout` is that of
    images, including inputs and results unless `keep_signature`; `dtype` is that of quantized data. `numerics`
    ("tflite", "torch", "onnx"; None for TVM's defaults) defines all roundings, so results may differ by one unit from
    those of the original framework. Names of results are dropped.

    Needs constant parameters: `bind_params`, or import with `freeze_params=True`. Raises `OptionError` for unknown
    options.
    """

    layout: str = "NCHW"
    dtype: str = "uint8"
    numerics: str | None = None
    keep_signature: bool = False

    def __post_init__(self) -> None:
        if self.numerics is not None and self.numerics not in KNOWN:
            raise OptionError(f'numerics="{self.numerics}" is not supported; it must be one of {", ".join(KNOWN)}, or '
                              'None',
                              code="TW1004")

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        passes = (RealToQnn(), NormalizeQnn(), UnifyLayout(self.layout, self.keep_signature), UnifyType(self.dtype),
                  NormalizeQnn(), EliminateCommonSubexpr(), DeadCodeElimination())
        new = Sequential(passes, name="Unify")(mod).copy()
        for name, function in list(new.items()):
            if isinstance(function, Function):
                attrs = {k: v for k, v in function.attrs.items() if k != _NAMES}
                plain = Function(function.params, function.body, function.declared_ret_type, function.type_params,
                                 attrs, function.span)
                new.update_func(name, with_numerics(plain, self.numerics if str(name) == "main" else None))
        return new


def unified_for(mod: IRModule, layout: str, dtypes: Sequence[str], numerics: str | None) -> IRModule:
    """Return a quantized network in the form that an accelerator takes: data of one of `dtypes` (the most frequent) in
    `layout`, with the rounding `numerics`. Other networks are unchanged. The types of `main` and its attributes stay.

    Needs known types.
    """
    main = mod["main"]
    found = [c for c in calls(main.body) if isinstance(c.op, Op) and c.op.name.startswith("qnn.")]
    known = [d for d in dtypes if d in ("int8", "uint8")]
    if not found or not known:
        return mod
    kinds = [
        str(c.args[0].tensor_type.dtype) for c in found
        if c.op.name in ("qnn.conv2d", "qnn.dense", "qnn.quantize", "qnn.requantize")]
    made = Unify(layout, max(known, key=kinds.count), numerics, keep_signature=True)(mod)
    return with_attributes(main, made)


def with_attributes(old: Function, mod: IRModule) -> IRModule:
    """Return the module with the attributes of `old` on `main`, including the names of results, and with its current
    numerics."""
    main = mod["main"]
    attrs = {**{k: v for k, v in old.attrs.items() if k != NUMERICS}, **main.attrs}
    if attrs == main.attrs:
        return mod
    result = mod.copy()
    result.update_func(
        result.get_global_var("main"),
        Function(main.params, main.body, main.declared_ret_type, main.type_params, attrs, main.span))
    return result
