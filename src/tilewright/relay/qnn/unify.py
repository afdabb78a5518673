"""Give quantized networks of all frameworks one form: `relay.qnn.transform.Unify`."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.base.errors import OptionError
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext, Sequential
from tilewright.relay.expr import Function
from tilewright.relay.qnn.normal_form import NormalizeQnn
from tilewright.relay.qnn.real_to_qnn import RealToQnn
from tilewright.relay.qnn.settle_numerics import KNOWN, with_numerics
from tilewright.relay.qnn.unify_layout import UnifyLayout
from tilewright.relay.qnn.unify_type import UnifyType
from tilewright.relay.transform.dead_code import DeadCodeElimination
from tilewright.relay.transform.eliminate_common_subexpr import EliminateCommonSubexpr

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
            raise OptionError(f'numerics="{self.numerics}" is not supported; it must be one of {", ".join(KNOWN)}, or None',
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
