"""Bit-exact results of ONNX Runtime's fused quantized operators, which its optimizer makes of dequantize, operator,
quantize.

    QLinearConv, QGemm          saturate(round(sums * (sx * sw / s)) + z)             `qnn.requantize` in float32
    QLinearAdd                  saturate(round(a * (sa / s) + (b * (sb / s) + c)))    products and sums rounded once,
                                                                                     c = z - (sa / s * za + sb / s * zb)
    QLinearMul                  saturate(round((a - za) * (b - zb) * (sa * sb / s) + z))
    QLinearAveragePool          saturate(round(mean / s + z))                         mean of floats, in order
    QLinearGlobalAveragePool    saturate(round(sum * (sx / (s * count))) + z)
    QLinearSoftmax              saturate(round(e * floor(1 / s) / sum(e)) + z)        e from a table of exponentials

All steps are in float32, each rounded half to even. Operators that are not fused are computed in float between
dequantize and quantize. The formulas were found by comparison with release 1.31 on half-way values
(`tests/test_onnx_runtime_integers.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.errors import Origin
from tilewright.base.types import FLOAT32, DataType
from tilewright.relay.expr import Call, Constant, Expr
from tilewright.relay.op.broadcast import Add, Multiply, MultiplyAdd, Quotient, Subtract
from tilewright.relay.op.elementwise import Clip, Round
from tilewright.relay.op.indexing import Take
from tilewright.relay.op.nn_norm import Softmax
from tilewright.relay.op.nn_pool import AvgPool2d
from tilewright.relay.op.reduction import Max, Sum
from tilewright.relay.qnn import numerics as N
from tilewright.relay.qnn.affine import Quantized
from tilewright.relay.qnn.scaling import Requantize

_F: Final = np.float32
_BYTES: Final = ("int8", "uint8")
_RESERVED: Final = 5
"""Margin, as a power of e, between the greatest exponential of a softmax and overflow of their sum."""


def _known(*values: Quantized) -> bool:
    return all(v.uniform and v.expr.tensor_type.dtype in _BYTES for v in values)


def _scale(q: Quantized) -> np.float32:
    return _F(q.scale.item())


def _zero(q: Quantized) -> int:
    return int(q.zero_point.item())


def _call(op: Any, *args: Expr, span: Origin | None) -> Call:
    return Call(op, list(args), span=span)


def _f(value: Any) -> Constant:
    return Constant(np.asarray(value, _F))


def _stored(whole: Expr, dtype: DataType, span: Origin | None) -> Expr:
    """Clip integral float32 values to the range of a type, and convert."""
    low, high = N.float_limits(dtype)
    return N.casted(_call(Clip(low, high), whole, span=span), dtype, span)


def _centred(q: Quantized, span: Origin | None) -> Expr:
    return N.difference(N.casted(q.expr, "int32", span), N.constant(_zero(q), "int32"), span)


def summed(a: Quantized, b: Quantized, to: Quantized) -> Expr | None:
    """The integers of a + b in the scale of `to`; None unless all have scalar scales and bytes."""
    if not _known(a, b, to):
        return None
    span, dtype = to.expr.span, to.expr.tensor_type.dtype
    x, y = _F(_scale(a) / _scale(to)), _F(_scale(b) / _scale(to))
    fixed = _F(_zero(to)) - _F(np.float64(x) * _zero(a) + _F(y * _F(_zero(b))))
    inner = _call(MultiplyAdd(), N.casted(b.expr, FLOAT32, span), _f(y), _f(fixed), span=span)
    total = _call(MultiplyAdd(), N.casted(a.expr, FLOAT32, span), _f(x), inner, span=span)
    return _stored(_call(Round(), total, span=span), dtype, span)


def multiplied(a: Quantized, b: Quantized, to: Quantized) -> Expr | None:
    """The integers of a * b in the scale of `to`; None unless all have scalar scales and bytes."""
    if not _known(a, b, to):
        return None
    span = to.expr.span
    product = N.casted(_call(Multiply(), _centred(a, span), _centred(b, span), span=span), FLOAT32, span)
    real = _call(MultiplyAdd(), product, _f(_scale(a) * _scale(b) / _scale(to)), _f(-0.0), span=span)
    return rounded_after(real, _zero(to), to.expr.tensor_type.dtype, span)


def rounded_after(real: Expr, zero: int, dtype: DataType, span: Origin | None) -> Expr:
    """Add the zero point to real numbers in units of one, then round."""
    moved = _call(Add(), real, _f(zero), span=span) if zero else real
    return _stored(_call(Round(), moved, span=span), dtype, span)


def averaged(mean: Call, to: Quantized) -> Expr | None:
    """The integers of the means of windows; None if a scale is not a scalar constant."""
    if not _known(to):
        return None
    return rounded_after(_call(Quotient(), mean, _f(_scale(to)), span=to.expr.span), _zero(to),
                         to.expr.tensor_type.dtype, to.expr.span)


def global_average(x: Quantized, to: Quantized, axes: tuple[int, ...], count: int) -> Expr | None:
    """The integers of the means of whole images; None if a scale is not a scalar constant."""
    if not _known(x, to):
        return None
    span = to.expr.span
    total = _call(Sum(axis=axes, keepdims=True), N.casted(x.expr, "int32", span), span=span)
    how = Requantize(rounding="TOEVEN", compute_dtype="float32", out_dtype=str(to.expr.tensor_type.dtype))
    parameters = (_f(_scale(x)), N.constant(_zero(x) * count, "int32"), _f(_scale(to) * _F(count)),
                  N.constant(_zero(to), "int32"))
    return _call(how, total, *parameters, span=span)


def softmax(x: Quantized, to: Quantized, axis: int) -> Expr | None:
    """The integers of a softmax; the scale of the result is treated as 1 / floor(1 / scale)."""
    depth = x.expr.tensor_type.shape[axis]
    if not _known(x, to) or not isinstance(depth, int):
        return None
    span = to.expr.span
    moved = max(0.0, np.log(np.finfo(_F).max / depth) - _RESERVED)
    table = np.exp(moved - np.arange(256) * np.float64(_scale(x))).astype(_F)
    wide = N.casted(x.expr, "int32", span)
    below = _call(Subtract(), _call(Max(axis=axis, keepdims=True), wide, span=span), wide, span=span)
    powers = _call(Take(mode="fast"), Constant(table), below, span=span)
    parts = _call(MultiplyAdd(), powers, _f(np.floor(_F(1) / _scale(to))), _f(-0.0), span=span)
    share = _call(Quotient(), parts, _call(Sum(axis=axis, keepdims=True), powers, span=span), span=span)
    whole = _call(Round(), share, span=span)
    return _stored(_call(Add(), whole, _f(_zero(to)), span=span) if _zero(to) else whole, to.expr.tensor_type.dtype,
                   span)


def fused(call: Call, args: Sequence[Quantized], to: Quantized) -> Expr | None:
    """The integers of a float operator between dequantized `args` and a quantization; None if it is not fused."""
    op: Any = call.op
    if isinstance(op, Add):
        return summed(args[0], args[1], to)
    if isinstance(op, Multiply):
        return multiplied(args[0], args[1], to)
    if isinstance(op, AvgPool2d):
        return averaged(call, to)
    return softmax(args[0], to, op.axis) if isinstance(op, Softmax) and args[0].parts == 1 else None
