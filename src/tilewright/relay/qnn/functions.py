"""Functions of quantized tensors: dequantize, apply the plain operator, quantize.

    qnn.tanh(%x, s, z, to, out_z) -> take(table, %x + 128)                                   8 bits, constant scales
                                  -> qnn.quantize(tanh(qnn.dequantize(%x, s, z)), to, out_z)

A table has the result for each of the 256 values of the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from tilewright import te
from tilewright.base.errors import Origin, ShapeError
from tilewright.base.types import TensorType, Type
from tilewright.relay.expr import Call, Constant, Expr
from tilewright.relay.op import elementwise
from tilewright.relay.op.broadcast import Add, Multiply
from tilewright.relay.op.indexing import Take
from tilewright.relay.op.nn_norm import Softmax
from tilewright.relay.op.nn_pool import AvgPool2d
from tilewright.relay.op.registry import Array, Fusion, Op, attributes, declare, op, tensors
from tilewright.relay.qnn import numerics as N
from tilewright.relay.qnn.scaling import Dequantize, Quantize
from tilewright.topi.nn import quantization as topi
from tilewright.topi.shapes import product

_PARAMETERS = ("scale", "zero_point", "output_scale", "output_zero_point")


class Requantized(Op):
    """Base of the functions of a quantized tensor: `plain` of the dequantized data, quantized again."""

    pointwise = True
    """Whether the function is elementwise, so that a table can compute it."""

    steps: ClassVar[tuple[Op, ...]] = ()

    def plain(self) -> Sequence[Op]:
        """Return the operators of one argument whose composition is the function."""
        return self.steps

    def values(self, x: Array) -> Array:
        """The function on an array; NaN (the logarithm of a negative number) counts as zero."""
        for step in self.plain():
            x = step.reference(x)
        return np.nan_to_num(x, nan=0, posinf=np.inf, neginf=-np.inf)

    def graph(self, x: Expr, span: Origin | None) -> Expr:
        """Apply the function to an expression."""
        for step in self.plain():
            x = Call(step, [x], span=span)
        return x

    def infer(self, x: Type, scale: Type, zero_point: Type, output_scale: Type, output_zero_point: Type) -> TensorType:
        """The type of `x`, which must be quantized; the four parameters have one element."""
        t, *parameters = tensors(x, scale, zero_point, output_scale, output_zero_point)
        N.require_quantized(t, "x")
        for p, what in zip(parameters, _PARAMETERS, strict=True):
            N.require_parameter(p, what, t, -1)
            if any(d != 1 for d in p.shape):
                raise ShapeError(f"{what} must be one number, and its shape is {p.shape}")
        found: Any = TensorType(t.shape, "float32")
        for step in self.plain():
            found = step.infer(found)
        return TensorType(found.shape, t.dtype)

    def reference(self, x: Array, scale: Array, zero_point: Array, output_scale: Array,
                  output_zero_point: Array) -> Array:
        real = self.values(Dequantize().reference(x, scale, zero_point))
        return Quantize(x.dtype.name).reference(real, output_scale, output_zero_point)

    def simplify(self, call: Call) -> Expr:
        x, *parameters = call.args
        dtype, span = x.tensor_type.dtype, call.span
        if self.pointwise and dtype.bits == 8 and all(isinstance(p, Constant) for p in parameters):
            low, high = N.limits(dtype)
            table = self.reference(np.arange(low, high + 1).astype(dtype.numpy()),
                                   *(p.value for p in parameters))  # type: ignore[attr-defined]
            place = N.casted(x, "int32", span)
            return Call(Take(mode="fast"), [Constant(table), Call(Add(), [place, N.constant(-low, "int32")], span=span)
                                            if low else place], span=span)
        real = self.graph(_lowered(Call(Dequantize(), [x, *parameters[:2]], span=span)), span)
        return _lowered(Call(Quantize(str(dtype)), [real, *parameters[2:]], span=span))


def _lowered(call: Call) -> Expr:
    """The lowered form of a scaling."""
    return call.op.simplify(call) or call


QnnTanh = declare(Requantized, "qnn.tanh", Fusion.OPAQUE, "tanh(x).", steps=(elementwise.Tanh(),))
QnnSigmoid = declare(Requantized, "qnn.sigmoid", Fusion.OPAQUE, "1 / (1 + exp(-x)).", steps=(elementwise.Sigmoid(),))
QnnExp = declare(Requantized, "qnn.exp", Fusion.OPAQUE, "exp(x).", steps=(elementwise.Exp(),))
QnnLog = declare(Requantized, "qnn.log", Fusion.OPAQUE, "The natural logarithm of x > 0.", steps=(elementwise.Log(),))
QnnSqrt = declare(Requantized, "qnn.sqrt", Fusion.OPAQUE, "The square root of x >= 0.", steps=(elementwise.Sqrt(),))
QnnRsqrt = declare(Requantized, "qnn.rsqrt", Fusion.OPAQUE, "1 / sqrt(x) for x > 0.", steps=(elementwise.Rsqrt(),))
QnnErf = declare(Requantized, "qnn.erf", Fusion.OPAQUE, "The error function.", steps=(elementwise.Erf(),))
QnnAbs = declare(Requantized, "qnn.abs", Fusion.OPAQUE, "|x|.", steps=(elementwise.Abs(),))


@op("qnn.leaky_relu", kind=Fusion.OPAQUE)
class QnnLeakyRelu(Requantized):
    """x above zero, alpha * x elsewhere."""

    alpha: float = 0.25
    """Slope below zero."""

    def plain(self) -> list[Op]:
        return [elementwise.LeakyRelu(self.alpha)]


@op("qnn.softmax", kind=Fusion.OPAQUE)
class QnnSoftmax(Requantized):
    """exp(x) / sum(exp(x)) along `axis`."""

    axis: int = -1
    """Dimension along which elements are combined; negative counts from the end."""
    pointwise = False

    def plain(self) -> list[Op]:
        return [Softmax(self.axis)]


@op("qnn.avg_pool2d", kind=Fusion.OPAQUE)
class QnnAvgPool2d(Requantized):
    """`nn.avg_pool2d` of quantized images; padding represents zero."""

    pool_size: tuple[int, ...] = (1, 1)
    """Height and width of the window, in pixels."""
    strides: tuple[int, ...] = (1, 1)
    """Step of the window along height and width, in pixels."""
    padding: tuple[int, ...] = (0, 0)
    """Number of pixels around the image: (top, left, bottom, right), or fewer numbers."""
    dilation: tuple[int, ...] = (1, 1)
    """Distance between neighbouring taps of the window along height and width, in pixels."""
    ceil_mode: bool = False
    """True rounds the number of windows up; the last window may reach past the end."""
    count_include_pad: bool = True
    """True counts padding as zeros in the mean, False ignores it."""
    layout: str = "NHWC"
    """Layout of the data: "NHWC" or "NCHW"."""
    out_layout: str = ""
    """Layout of the result; "" means that of the data."""
    pointwise = False

    def plain(self) -> list[Op]:
        return [AvgPool2d(**self.attributes())]


@op("qnn.hardswish", kind=Fusion.OPAQUE)
class QnnHardswish(Requantized):
    """x * clip(x + 3, 0, 6) / 6."""

    def values(self, x: Array) -> Array:
        return x * np.clip(x + np.float32(3), 0, 6) * np.float32(1 / 6)

    def graph(self, x: Expr, span: Origin | None) -> Expr:
        share = Call(elementwise.Clip(0, 6), [Call(Add(), [x, N.constant(3, "float32")], span=span)], span=span)
        return Call(Multiply(), [Call(Multiply(), [x, share], span=span), N.constant(1 / 6, "float32")], span=span)


@attributes
class Simulated(Op):
    """Base of simulated quantization in float32; the type is a scalar code: 0 none, 1 int8, 2 uint8, 3 int32."""

    axis: int = -1
    """Dimension that scale and zero point are indexed by, unless they are scalars."""

    def _checked(self, data: Type, type_code: Type, scale: Type, zero_point: Type) -> TensorType:
        t, code, s, z = tensors(data, type_code, scale, zero_point)
        if t.dtype != "float32" or code.dtype != "int32" or product(code.shape) != 1:
            raise ShapeError(f"data must be float32 and the type's code one int32, and they are {t!r} and {code!r}")
        N.require_parameter(s, "the scale", t, self.axis)
        N.require_parameter(z, "the zero point", t, self.axis)
        return t

    def _along(self, data: Array, *parameters: Array) -> list[Array]:
        return [N.along(np.asarray(p), data.ndim, self.axis).astype(np.float32) for p in parameters]


_CODES = {code: name for name, code in topi.SQNN_DTYPE_TO_CODE.items() if name != "disable"}


@op("qnn.simulated_quantize", kind=Fusion.OPAQUE)
class SimulatedQuantize(Simulated):
    """round(data / output_scale) + output_zero_point, clamped to the range of the type, as float32; the data for the
    code 0.
    """

    def infer(self, data: Type, out_dtype: Type, output_scale: Type, output_zero_point: Type) -> TensorType:
        """The type of the data, which must be float32; `out_dtype` is an int32 scalar."""
        return self._checked(data, out_dtype, output_scale, output_zero_point)

    def reference(self, data: Array, out_dtype: Array, output_scale: Array, output_zero_point: Array) -> Array:
        name = _CODES.get(int(out_dtype.reshape(())))
        if name is None:
            return data
        scale, zero_point = self._along(data, output_scale, output_zero_point)
        low, high = N.limits(name)
        return np.asarray(np.clip(np.rint(data / scale) + zero_point, np.float32(low), np.float32(high)))

    def compute(self, data: te.Tensor, out_dtype: te.Tensor, output_scale: te.Tensor,
                output_zero_point: te.Tensor) -> te.Tensor:
        return topi.simulated_quantize(data, out_dtype, output_scale, output_zero_point, self.axis)


@op("qnn.simulated_dequantize", kind=Fusion.OPAQUE)
class SimulatedDequantize(Simulated):
    """(data - input_zero_point) * input_scale for float32 data that hold integers; the data for the code 0."""

    def infer(self, data: Type, in_dtype: Type, input_scale: Type, input_zero_point: Type) -> TensorType:
        """The type of the data, which must be float32; `in_dtype` is an int32 scalar."""
        return self._checked(data, in_dtype, input_scale, input_zero_point)

    def reference(self, data: Array, in_dtype: Array, input_scale: Array, input_zero_point: Array) -> Array:
        if int(in_dtype.reshape(())) not in _CODES:
            return data
        scale, zero_point = self._along(data, input_scale, input_zero_point)
        return (data - zero_point) * scale

    def compute(self, data: te.Tensor, in_dtype: te.Tensor, input_scale: te.Tensor,
                input_zero_point: te.Tensor) -> te.Tensor:
        return topi.simulated_dequantize(data, in_dtype, input_scale, input_zero_point, self.axis)
