"""Conversions between float and quantized tensors, and between quantizations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.base.errors import CompileError, ShapeError
from tilewright.base.types import FLOAT32, INT64, DataType, TensorType, Type
from tilewright.relay.expr import Call, Constant, Expr
from tilewright.relay.op.broadcast import Multiply
from tilewright.relay.op.registry import Array, Fusion, Op, Relaid, op, tensors
from tilewright.relay.qnn import numerics as N
from tilewright.topi.shapes import Perm


class Scaling(Op):
    """Base of the conversions between float and quantized tensors; scales are scalars or have one element for each
    index of `axis`.
    """

    axis: int
    """Dimension that scale and zero point are indexed by, unless they are scalars."""
    telling = True

    def __post_init__(self) -> None:
        out = DataType(self.attributes()["out_dtype"])
        if out not in N.QUANTIZED and not isinstance(self, Dequantize):
            raise CompileError(f"{self.name}: out_dtype is {out}; it must be one of {', '.join(N.QUANTIZED)}",
                               code="TW1004")

    def relayout(self, perms: Sequence[Perm | None]) -> Relaid:
        perm = perms[0]
        if perm is None:
            return self, (None,) * len(perms), None
        attrs = {**self.attributes(), "axis": perm.index(self.axis % len(perm))}
        return type(self)(**attrs), (perm, *(None,) * (len(perms) - 1)), perm


@op("qnn.quantize", kind=Fusion.ELEMWISE)
class Quantize(Scaling):
    """round(data / output_scale) + output_zero_point, saturated to `out_dtype`; ties go to the even number (ONNX
    QuantizeLinear).
    """

    out_dtype: str = "int8"
    """Type of the result: "int8", "uint8", "int16", "uint16" or "int32"."""
    axis: int = -1

    def infer(self, data: Type, output_scale: Type, output_zero_point: Type) -> TensorType:
        """The shape of the data, which must be float32; `out_dtype`."""
        t, scale, zero_point = tensors(data, output_scale, output_zero_point)
        if t.dtype is not FLOAT32:
            raise ShapeError(f"data must be float32, and it is {t.dtype}")
        N.require_parameter(scale, "output_scale", t, self.axis)
        N.require_parameter(zero_point, "output_zero_point", t, self.axis)
        return TensorType(t.shape, self.out_dtype)

    def reference(self, data: Array, output_scale: Array, output_zero_point: Array) -> Array:
        scale, zero_point = (N.along(p, data.ndim, self.axis) for p in (output_scale, output_zero_point))
        return N.saturated(np.rint(data / scale) + zero_point.astype(np.float32), self.out_dtype)

    def simplify(self, call: Call) -> Expr:
        data, scale, zero_point = _spread(call, self.axis)
        return N.saturated_graph(N.rounded_graph(N.quotient(data, scale, call.span), "TOEVEN", call.span), zero_point,
                                 self.out_dtype, call.span)


@op("qnn.dequantize", kind=Fusion.ELEMWISE)
class Dequantize(Scaling):
    """(data - input_zero_point) * input_scale (ONNX DequantizeLinear)."""

    axis: int = -1
    out_dtype: str = "float32"
    """Type of the result, a floating-point type."""

    def infer(self, data: Type, input_scale: Type, input_zero_point: Type) -> TensorType:
        """The shape of the quantized data; `out_dtype`."""
        t, scale, zero_point = tensors(data, input_scale, input_zero_point)
        N.require_quantized(t, "data")
        N.require_parameter(scale, "input_scale", t, self.axis)
        N.require_parameter(zero_point, "input_zero_point", t, self.axis)
        return TensorType(t.shape, self.out_dtype)

    def reference(self, data: Array, input_scale: Array, input_zero_point: Array) -> Array:
        scale, zero_point = (N.along(p, data.ndim, self.axis) for p in (input_scale, input_zero_point))
        return np.asarray((data.astype(np.int32) - zero_point).astype(np.float32) * scale,
                          DataType(self.out_dtype).numpy())

    def simplify(self, call: Call) -> Expr:
        data, scale, zero_point = _spread(call, self.axis)
        # both are exact
        wide = FLOAT32 if data.tensor_type.dtype.bits <= 16 or N.is_zero(zero_point) else DataType("int32")
        real = N.difference(N.casted(data, wide, call.span), N.casted(zero_point, wide, call.span), call.span)
        return N.casted(N.product(N.casted(real, FLOAT32, call.span), scale, call.span), self.out_dtype, call.span)


@op("qnn.requantize", kind=Fusion.ELEMWISE)
class Requantize(Scaling):
    """(data - input_zero_point) * input_scale / output_scale, rounded, plus `output_zero_point`, saturated to
    `out_dtype`.

    "int32" and "int64" multiply by a fixed-point number of 31 bits and need constant scales. Ties go up ("UPWARD"),
    away from zero ("TONEAREST"), to the even number ("TOEVEN"), or as in TensorFlow Lite's reference kernels ("TFLITE",
    see `numerics.fixed_product`). int64 data, the sums of int16 products, are multiplied by a number of 15 bits, with
    ties up.

    "float32" and "float64" multiply by the quotient of the scales; "TFLITE" means "TOEVEN" there.
    """

    axis: int = -1
    rounding: str = "None"
    """Rounding mode: "UPWARD", "TONEAREST", "TOEVEN" or "TFLITE"; "None" means "UPWARD" unless a pass settles it."""
    compute_dtype: str = "None"
    """Type of the arithmetic: "int32", "int64", "float32" or "float64"; "None" means "int64"."""
    out_dtype: str = "int8"
    """Type of the result: "int8", "uint8", "int16", "uint16" or "int32"."""

    def __post_init__(self) -> None:
        Scaling.__post_init__(self)
        N.checked(self.rounding, self.compute_dtype)

    def infer(self, data: Type, input_scale: Type, input_zero_point: Type, output_scale: Type,
              output_zero_point: Type) -> TensorType:
        """The shape of the quantized data; `out_dtype`."""
        t, *parameters = tensors(data, input_scale, input_zero_point, output_scale, output_zero_point)
        exact = self.rounding in ("TFLITE", "UPWARD")
        if not (t.dtype is INT64 and self.rounding in ("None", "UPWARD", "TFLITE")
                and not self.compute_dtype.startswith("float")):
            N.require_quantized(t, "data")
        for p, what in zip(parameters, ("input_scale", "input_zero_point", "output_scale", "output_zero_point"),
                           strict=True):
            N.require_parameter(p, what, t, self.axis, exact)
        return TensorType(t.shape, self.out_dtype)

    def reference(self, data: Array, input_scale: Array, input_zero_point: Array, output_scale: Array,
                  output_zero_point: Array) -> Array:
        given = (input_scale, input_zero_point, output_scale, output_zero_point)
        s, z, to, out_z = (N.along(np.asarray(p), data.ndim, self.axis) for p in given)
        rounding, kind = N.checked(self.rounding, self.compute_dtype)
        if kind.startswith("float"):
            real = (data.astype(np.int32) - z).astype(kind)
            whole = N.rounded(real * (s.astype(kind) / to.astype(kind)), rounding)
            return N.saturated(whole + out_z.astype(kind), self.out_dtype)
        exact = data.astype(np.int64) - z
        if not np.all(s == to):
            exact = N.fixed_product(exact, s.astype(np.float64) / to.astype(np.float64), rounding,
                                    data.dtype == np.int64)
        return N.saturated(exact + out_z, self.out_dtype)

    def simplify(self, call: Call) -> Expr:
        data, s, z, to, out_z = _spread(call, self.axis)
        rounding, kind = N.checked(self.rounding, self.compute_dtype)
        span = call.span
        if kind.startswith("float"):
            exact = N.difference(N.casted(data, "int32", span) if not N.is_zero(z) else data, z, span)
            factor = N.quotient(N.casted(s, kind, span), N.casted(to, kind, span), span)
            real = Call(Multiply(), [N.casted(exact, kind, span), factor], span=span)
            return N.saturated_graph(N.rounded_graph(real, rounding, span), out_z, self.out_dtype, span)
        if not isinstance(s, Constant) or not isinstance(to, Constant):
            raise CompileError('qnn.requantize in integers needs constant scales; give compute_dtype="float32" for '
                               'others', span, code="TW1006")
        wide = data.tensor_type.dtype is INT64
        factor = s.value.astype(np.float64) / to.value.astype(np.float64)
        centred = N.is_zero(z) or data.tensor_type.dtype.bits <= 16
        short = not wide and (rounding == "TFLITE" or (centred and N.fits_high_product(factor, rounding)))
        sums = "int32" if short else "int64"
        whole = N.difference(N.casted(data, sums, span), N.casted(z, sums, span), span)
        if not np.all(s.value == to.value):
            least = N.limits(self.out_dtype)[0] - int(out_z.value.max()) if isinstance(out_z, Constant) else -1
            whole = N.fixed_product_graph(whole, factor, rounding, span, wide, least)
        return N.saturated_graph(whole, out_z, self.out_dtype, span)


def _spread(call: Call, axis: int) -> list[Any]:
    """The data, and the parameters reshaped to broadcast to it."""
    data, *parameters = call.args
    return [data, *(N.spread(p, data.tensor_type.ndim, axis, call.span) for p in parameters)]
