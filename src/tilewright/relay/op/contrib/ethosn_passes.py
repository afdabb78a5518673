"""Passes over networks that are partitioned for Ethos-N, under TVM's names, and whether its driver is here.

    @ethos-n_0(%x) { reshape(%x) }            ->  reshape(%x)          InlineNonComputeIntensivePartitions
    qnn.mul(%x, c) as qnn_mul_to_depthwise    ->  qnn.requantize(nn.bias_add(qnn.conv2d(%x, c, groups=channels), 0))
    qnn.add(%x, c) as qnn_add_to_depthwise    ->  the same with weights of one and a bias
    qnn.mul or qnn.add with a number          ->  qnn.requantize(%x)   ConvertEquivalents
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import numpy as np

from tilewright.base.errors import CompileError, TargetError
from tilewright.base.global_functions import FUNCTIONS, get_global_func
from tilewright.base.types import TensorType
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay import nn
from tilewright.relay.expr import Call, Constant, Expr, Function, Var, const
from tilewright.relay.op.registry import Op
from tilewright.relay.qnn import op as qnn
from tilewright.relay.transform.external_functions import InlineCompilerFunctionsBoundTo
from tilewright.relay.transform.infer_type import InferType
from tilewright.relay.visitor import post_order, rewrite

TARGET: Final = "ethos-n"
INTENSIVE: Final = frozenset({
    "nn.conv2d", "nn.conv2d_transpose", "nn.dense", "nn.avg_pool2d", "nn.max_pool2d", "mean", "image.resize2d",
    "qnn.conv2d", "qnn.conv2d_transpose", "qnn.dense", "qnn.avg_pool2d", "qnn.mul",
})
"""The operators that combine many values, which make a part worth a transfer to the device."""
_WEIGHT: Final = 127
"""The weight of a sum as a convolution: large, so that the bias is exact to 1/127 of the scale of the input."""


class Available(Enum):
    """The parts of Ethos-N that are here."""

    UNAVAILABLE = 0
    SW_ONLY = 1
    """Networks can be partitioned and compiled."""
    SW_AND_HW = 2
    """They also run."""


def ethosn_available() -> Available:
    """Return whether parts for Ethos-N run here: whether `runtime.library.ethos-n` is registered."""
    return Available.SW_AND_HW if f"runtime.library.{TARGET}" in FUNCTIONS else Available.SW_ONLY


def ethosn_api_version() -> str:
    """Return what the registered function `relay.ethos-n.api.version` says. Raises `TargetError` without one."""
    version = get_global_func("relay.ethos-n.api.version", allow_missing=True)
    if version is None:
        raise TargetError(
            "the Support Library of Ethos-N is not called; its driver must register 'relay.ethos-n.api.version'",
            code="TW0910")
    return str(version())


@dataclass(frozen=True)
class InlineNonComputeIntensivePartitions(Pass):
    """Give the parts for Ethos-N that have none of `INTENSIVE` back to the other targets."""

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        light = [
            name for name, f in mod.items()
            if isinstance(f, Function) and f.attrs.get("Compiler") == TARGET and not _is_intensive(f)]
        return InferType()(InlineCompilerFunctionsBoundTo(light)(mod)) if light else mod


def _is_intensive(function: Function) -> bool:
    return any(isinstance(e, Op) and e.name in INTENSIVE for e in (
        c.op for c in post_order(function) if isinstance(c, Call)))


@dataclass(frozen=True)
class ConvertEquivalents(Pass):
    """Replace sums and products with constants by the operators that Ethos-N has for them. Needs known types.

    Results differ by at most one unit, from the rounding of the constant. Raises `CompileError` for a composite
    function of such a name that cannot be replaced.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        def converted(f: Any) -> Any:
            return rewrite(f, _converted) if f.attrs.get("Compiler") == TARGET else f

        found = mod.map_functions(converted, Function)
        return mod if found is mod else InferType()(found)


def _converted(e: Expr) -> Expr | None:
    """Return the call of another composite function in place of one with a constant, or None."""
    name = e.op.attrs.get("Composite", "") if isinstance(e, Call) and isinstance(e.op, Function) else ""
    convert = _CONVERSIONS.get(str(name))
    if convert is None or not isinstance(e, Call) or not isinstance(e.op, Function):
        return None
    body = e.op.body
    constants = [k for k in (0, 1) if isinstance(body.args[k], Constant)] if isinstance(body, Call) else []
    data = body.args[1 - constants[0]] if len(constants) == 1 else None  # type: ignore[attr-defined]
    kind = data.known_type() if data is not None else None
    fits = isinstance(data, Var) and isinstance(kind, TensorType) and str(kind.dtype) in ("int8", "uint8")
    made = convert(_Operands(body, constants[0])) if fits and len(kind.shape) == 4 else None  # type: ignore
    if made is None:
        raise CompileError(
            f'Operation "{name}" was marked as having a valid conversion, but it could not be converted.', e.span,
            code="TW0904")
    composite, value = made
    return Call(Function(e.op.params, value, attrs={"Composite": f"ethos-n.{composite}"}), e.args, span=e.span)


class _Operands:
    """The operands of a quantized sum or product with a constant, with their scales and zero points."""

    def __init__(self, call: Any, place: int) -> None:
        self.data, self.number = call.args[1 - place], np.asarray(call.args[place].value)
        self.kind: TensorType = self.data.tensor_type
        quantization = [np.asarray(a.value) for a in call.args[2:8]]
        (self.scale, self.zero), (self.number_scale, self.number_zero) = (
            (float(quantization[2 * k]), int(quantization[2 * k + 1])) for k in (1 - place, place))
        self.out_scale, self.out_zero = float(quantization[4]), int(quantization[5])

    @property
    def channels(self) -> int:
        return int(self.kind.concrete_shape[-1])

    @property
    def reals(self) -> np.ndarray[Any, Any]:
        """The constant as real numbers."""
        return self.number_scale * (self.number.astype("float64") - self.number_zero)

    def requantized(self, value: Expr, scale: float, zero: int) -> Expr:
        return qnn.requantize(
            value, const(scale, "float32"), const(zero, "int32"), const(self.out_scale, "float32"),
            const(self.out_zero, "int32"), out_dtype=str(self.kind.dtype))

    def depthwise(self, weight: Any, weight_scale: float, weight_zero: int, bias: Any) -> tuple[str, Expr]:
        """Return a convolution of single channels by one weight each."""
        conv = qnn.conv2d(
            self.data, const(weight.reshape(1, 1, self.channels, 1).astype(str(self.kind.dtype))),
            const(self.zero, "int32"), const(weight_zero, "int32"), const(self.scale, "float32"),
            const(weight_scale, "float32"), kernel_size=(1, 1), channels=self.channels, groups=self.channels,
            data_layout="NHWC", kernel_layout="HWOI", out_dtype="int32")
        biased = nn.bias_add(conv, const(np.asarray(bias, "int32")), axis=3)
        return "qnn_conv2d", self.requantized(biased, self.scale * weight_scale, 0)


def _mul_to_depthwise(x: _Operands) -> tuple[str, Expr] | None:
    if x.number.shape != (1, 1, 1, x.channels):
        return None
    return x.depthwise(x.number, x.number_scale, x.number_zero, np.zeros(x.channels))


def _add_to_depthwise(x: _Operands) -> tuple[str, Expr] | None:
    if x.number.shape != (1, 1, 1, x.channels):
        return None
    bias = np.round(x.reals.reshape(-1) * _WEIGHT / x.scale)
    if np.any(np.abs(bias) >= 2**31):
        return None
    return x.depthwise(np.full(x.channels, _WEIGHT), 1 / _WEIGHT, 0, bias)


def _mul_to_requantize(x: _Operands) -> tuple[str, Expr] | None:
    if x.number.size != 1 or x.reals.reshape(()) <= 0:
        return None
    return "qnn_requantize", x.requantized(x.data, x.scale * float(x.reals.reshape(())), x.zero)


def _add_to_requantize(x: _Operands) -> tuple[str, Expr] | None:
    if x.number.size != 1:
        return None
    return "qnn_requantize", x.requantized(x.data, x.scale, round(x.zero - float(x.reals.reshape(())) / x.scale))


_CONVERSIONS: Final = {
    "ethos-n.qnn_mul_to_depthwise": _mul_to_depthwise, "ethos-n.qnn_add_to_depthwise": _add_to_depthwise,
    "ethos-n.qnn_mul_to_reinterpret_quantize": _mul_to_requantize,
    "ethos-n.qnn_add_to_reinterpret_quantize": _add_to_requantize,
}
"""The conversion of each composite function; None where its operands do not fit."""
