"""Replace simulated quantization by integer operators.

    nn.conv2d(simulated_quantize(nn.relu(%x), s, 0f, 255f), simulated_quantize(w, t, -127f, 127f))
    -> %0 = qnn.quantize(%x, s, 0, out_dtype="uint8"); %1 = qnn.conv2d(%0, w', 0, 0, s, t); qnn.dequantize(%1, s * t, 0)

Each simulated value is quantized and dequantized; `FakeQuantizationToInteger` then replaces the float operators between
them. A relu or clip beyond the range of the levels is removed. If the levels do not fill their type, the integers are
clipped, except for the additional lowest level of int8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tilewright.base.errors import CompileError
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, Pass, PassContext
from tilewright.relay.expr import Call, Constant, Expr, Function
from tilewright.relay.op.annotation import SimulatedQuantize
from tilewright.relay.op.elementwise import Clip, Relu
from tilewright.relay.qnn.numerics import limits
from tilewright.relay.qnn.scaling import Dequantize, Quantize, Requantize
from tilewright.relay.quantize.config import current_qconfig
from tilewright.relay.transform.fake_quantization_to_integer import FakeQuantizationToInteger
from tilewright.relay.visitor import rewrite


@dataclass(frozen=True)
class QuantizeRealize(FunctionPass):
    """Replace simulated quantizations by integer operators. Needs constant scales and bounds.

    `dtype` is used for values whose levels fit both 8-bit types; `rounding` is used for requantizations.
    """

    dtype: str = "uint8"
    rounding: str = "TOEVEN"
    exact: ClassVar[bool] = False
    kind: ClassVar[type] = Function

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        real = rewrite(function, self._real)
        whole = FakeQuantizationToInteger(use_qat=True).transform_function(real, mod, context)
        return whole if self.rounding == "TOEVEN" else rewrite(whole, self._rounded)

    def _real(self, e: Expr) -> Expr | None:
        if not (isinstance(e, Call) and isinstance(e.op, SimulatedQuantize)):
            return None
        x, *parameters = e.args
        if not all(isinstance(p, Constant) for p in parameters):
            raise CompileError("a simulated quantization has no scale yet; run quantize.calibrate() before "
                               "quantize.realize()", e.span, code="TW1006")
        scale, low, high = (p.value for p in parameters if isinstance(p, Constant))
        least, most = round(float(low)), round(float(high))
        if isinstance(x, Constant):
            return _weight(x, scale, least, most)
        dtype, zero = stored_as(least, most, self.dtype)
        s, z = Constant(scale.reshape(())), Constant(np.asarray(zero, np.int32))
        first, last = limits(dtype)
        narrow = zero + least > first + 1 or zero + most < last
        x = _without_bounds(x, float(s.value), *((least, most) if narrow else (first - zero, last - zero)))
        whole = Call(Quantize(dtype), [x, s, z], span=e.span)
        if narrow:
            whole = Call(Clip(zero + least, zero + most), [whole], span=e.span)
        return Call(Dequantize(), [whole, s, z], span=e.span)

    def _rounded(self, e: Expr) -> Expr | None:
        if not (isinstance(e, Call) and isinstance(e.op, Requantize)) or e.op.rounding == self.rounding:
            return None
        return Call(Requantize(**{**e.op.attributes(), "rounding": self.rounding}), e.args, span=e.span)


def stored_as(low: int, high: int, preferred: str) -> tuple[str, int]:
    """The type and zero point for levels from `low` to `high`; raises `CompileError` if they do not fit a byte."""
    if high - low > 255:
        raise CompileError(f"levels from {low} to {high} do not fit in a byte; simulate them (do_simulation=True), or "
                           "use 8 bits or fewer", code="TW1006")
    if preferred == "int8" and low >= -128 and high <= 127:
        return "int8", 0
    return ("uint8", -low) if preferred == "uint8" else ("int8", -128 - low)


def _weight(x: Constant, scale: np.ndarray[Any, Any], low: int, high: int) -> Call:
    """A dequantized int8 constant, with one scale or one for each element of an axis."""
    whole = np.rint(np.clip(x.value / scale, low, high)).astype(np.int8)
    axis = next((d for d, n in enumerate(scale.shape) if n != 1), 0) if scale.ndim == x.value.ndim else 0
    parameters = Constant(scale.reshape(-1) if scale.size > 1 else scale.reshape(())), Constant(np.asarray(0, np.int32))
    return Call(Dequantize(axis=axis), [Constant(whole, x.span), *parameters], span=x.span)


def _without_bounds(x: Expr, scale: float, low: int, high: int) -> Expr:
    """Remove a relu or clip with bounds beyond the levels, and return its input."""
    while isinstance(x, Call) and isinstance(x.op, (Relu, Clip)):
        least, most = (0.0, np.inf) if isinstance(x.op, Relu) else (x.op.a_min, x.op.a_max)
        if np.rint(np.float32(least) / np.float32(scale)) > low or np.rint(np.float32(most) / np.float32(scale)) < high:
            return x
        x = x.args[0]
    return x


def realize() -> Pass:
    """The pass that replaces simulated quantizations, with the rounding and types of the current `qconfig`."""
    config = current_qconfig()
    return QuantizeRealize(config.dtype_input, config.rounding)
