"""Rules for the results of TensorFlow Lite and ONNX Runtime where operators of the dialect leave their rounding open.

`RULES[runtime]` maps each class of operator to a function that rewrites a call to operators with a defined rounding:

    qnn.requantize(nn.bias_add(%sums, b), s, 0, t, z)
      tflite
        -> qnn.requantize(…, sx * sw, 0, t, z, rounding="TFLITE")    31 bits of the exact product, rounded twice
      torch  -> see `relay/qnn/torch_engines.py`
      onnx   -> qnn.requantize(…, rounding="TOEVEN", compute_dtype="float32")

A call without a rule has the same result in all runtimes. Explicit roundings (`rounding="UPWARD"`) are kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from tilewright.base.limits import MOST_TABLE
from tilewright.base.types import FLOAT32
from tilewright.relay.expr import Call, Constant, Expr, Tuple
from tilewright.relay.op.broadcast import (
    Add,
    Divide,
    FloorDivide,
    Greater,
    GreaterEqual,
    LeftShift,
    Less,
    Multiply,
    Subtract,
    Where,
)
from tilewright.relay.op.elementwise import Abs, Floor, Negative, Round, Sign, Trunc
from tilewright.relay.op.indexing import Take
from tilewright.relay.op.nn_conv import Conv2d
from tilewright.relay.op.nn_matmul import BiasAdd
from tilewright.relay.op.nn_pool import AvgPool2d
from tilewright.relay.op.reduction import Max, Sum
from tilewright.relay.op.registry import Op
from tilewright.relay.op.scans import CumSum
from tilewright.relay.op.transform import Concatenate
from tilewright.relay.qnn import numerics as N
from tilewright.relay.qnn import onnx_runtime
from tilewright.relay.qnn.affine import Quantized
from tilewright.relay.qnn.arithmetic import QnnAdd, QnnConcatenate, QnnMul
from tilewright.relay.qnn.functions import QnnAvgPool2d, QnnSoftmax
from tilewright.relay.qnn.products import QnnConv2d, QnnConv2dTranspose, QnnDense
from tilewright.relay.qnn.scaling import Dequantize, Quantize, Requantize

Rule = Callable[[Call], "Expr | None"]

NUMERICS: Final = "numerics"
"""The attribute of `main` that names the runtime whose roundings apply: a key of `RULES`."""


def is_open(e: Expr) -> bool:
    """Whether a requantization leaves its rounding open."""
    return (isinstance(e, Call) and isinstance(e.op, Requantize) and e.op.rounding == "None"
            and e.op.compute_dtype == "None")


def product_below(x: Expr) -> Call | None:
    """The convolution or matrix product below a value, directly or under a bias; otherwise None."""
    if isinstance(x, Call) and isinstance(x.op, BiasAdd):
        x = x.args[0]
    return x if isinstance(x, Call) and isinstance(x.op, (QnnConv2d, QnnConv2dTranspose, QnnDense)) else None


def _number(e: Expr) -> np.float32 | None:
    """A scalar constant scale, or None."""
    return np.float32(e.value.reshape(())) if isinstance(e, Constant) and e.value.size == 1 else None


def _zero(e: Expr) -> int | None:
    return int(e.value.reshape(())) if isinstance(e, Constant) and e.value.size == 1 else None


def _all_known(call: Call, first: int) -> bool:
    """Whether the parameters from argument `first` on are scalar constants."""
    return all(isinstance(a, Constant) and a.value.size == 1 for a in call.args[first:])


def _made(op: Op, *args: Expr, span: Any) -> Call:
    return Call(op, list(args), span=span)


# TensorFlow Lite


def _tflite_requantize(e: Call) -> Expr | None:
    """Multiplies sums by a 31-bit factor and rounds twice: to 32 bits with halves upward, then with halves away from
    zero. 8-bit matrix products round once, with halves upward."""
    x, scale, zero_point, to, out_zero = e.args
    if not is_open(e) or not isinstance(scale, Constant) or not isinstance(to, Constant):
        return None
    product = product_below(x)
    # FULLY_CONNECTED rounds once
    once = (product is not None and isinstance(product.op, QnnDense)
            and product.args[0].tensor_type.dtype in ("int8", "uint8"))
    how = Requantize(**{**e.op.attributes(), "rounding": "UPWARD" if once else "TFLITE"})
    exact = Constant(_exact_scale(x, scale.value), scale.span)
    return Call(how, [x, exact, zero_point, Constant(to.value.astype(np.float64), to.span), out_zero], span=e.span)


def _exact_scale(x: Expr, scale: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The scale of a sum of products: the product of the scales in float64, rounded to float32 where the kernels do."""
    product = product_below(x)
    if product is None:
        return scale.astype(np.float64)
    sx, sw = product.args[4:6]
    if not isinstance(sx, Constant) or not isinstance(sw, Constant):
        return scale.astype(np.float64)
    rounded = np.asarray(sx.value.reshape(()) * sw.value, np.float32)
    single = sw.value.size == 1 and (isinstance(product.op, QnnDense) or "uint8" in (product.args[0].tensor_type.dtype,
        product.args[1].tensor_type.dtype))
    if single or not np.array_equal(rounded.ravel(), scale.ravel()):
        return scale.astype(np.float64)
    return np.asarray(sx.value.astype(np.float64).reshape(()) * sw.value.astype(np.float64)).reshape(scale.shape)


def _by_factor(x: Expr, factor: float, span: Any, zero: int = 0, dtype: str = "int32") -> Expr:
    """int32 numbers times a real factor, in fixed point."""
    none = N.constant(0, "int32")
    how = Requantize(rounding="TFLITE", out_dtype=dtype)
    return _made(how, x, N.constant(factor, "float64"), none, N.constant(1, "float64"), N.constant(zero, "int32"),
                 span=span)


def _centred(x: Expr, zero: int, span: Any) -> Expr:
    wide = N.casted(x, "int32", span)
    return _made(Subtract(), wide, N.constant(zero, "int32"), span=span) if zero else wide


_HEADROOM: Final = 20
"""Left shift of 8-bit operands of a sum, in bits, before they are rescaled to a common scale."""


def _tflite_add(e: Call) -> Expr | None:
    """Shifts both operands left by 20 bits, rescales them to twice the larger scale, adds them, and rescales the sum to
    the result's scale; each step is in fixed point."""
    a, b, sa, za, sb, zb, s, z = e.args
    dtype = e.tensor_type.dtype
    if not _all_known(e, 2) or dtype.bits != 8:
        return None
    scales = [float(_number(v) or 0) for v in (sa, sb, s)]
    largest = 2 * max(scales[:2])
    shift = N.constant(_HEADROOM, "int32")
    left, right = (
        _by_factor(_made(LeftShift(), _centred(v, _zero(zero) or 0, e.span), shift, span=e.span), scale / largest,
                   e.span)
        for v, zero, scale in ((a, za, scales[0]), (b, zb, scales[1])))
    total = _by_factor(_made(Add(), left, right, span=e.span), largest / ((1 << _HEADROOM) * scales[2]), e.span)
    return N.saturated_graph(total, z, dtype, e.span)


def _tflite_mul(e: Call) -> Expr | None:
    """Multiplies the integers minus their zero points, and rescales in fixed point as sums do."""
    a, b, sa, za, sb, zb, s, z = e.args
    dtype = e.tensor_type.dtype
    if not _all_known(e, 2):
        return None
    factor = np.float32(_number(sa) * _number(sb)) / _number(s)  # type: ignore[operator]
    product = _made(Multiply(), _centred(a, _zero(za) or 0, e.span), _centred(b, _zero(zb) or 0, e.span), span=e.span)
    return _by_factor(product, float(factor), e.span, _zero(z) or 0, str(dtype))


def _tflite_quantize(e: Call) -> Expr | None:
    """Divides in float32 and rounds halves away from zero."""
    x, scale, zero_point = e.args
    if not isinstance(scale, Constant) or not isinstance(zero_point, Constant):
        return None
    ndim, span = x.tensor_type.ndim, e.span
    s, z = (N.spread(p, ndim, e.op.axis, span) for p in (scale, zero_point))
    return N.saturated_graph(rounded_away(N.quotient(x, s, span), span), z, e.op.out_dtype, span)


def rounded_away(x: Expr, span: Any) -> Expr:
    """Round floats to the nearest integer, half away from zero."""
    kind = x.tensor_type.dtype
    whole = _made(Trunc(), x, span=span)
    rest = _made(Abs(), _made(Subtract(), x, whole, span=span), span=span)
    half = _made(GreaterEqual(), rest, N.constant(0.5, kind), span=span)
    one = _made(Where(), half, _made(Sign(), x, span=span), N.constant(0, kind), span=span)
    return _made(Add(), whole, one, span=span)


def _tflite_average(e: Call) -> Expr | None:
    """AVERAGE_POOL_2D with one scale for data and result: divides the sum of each window by the number of image
    elements in it, and rounds halves away from zero."""
    x, scale, zero, to, out_zero = e.args
    found = window_sums(e)
    if found is None:
        return None
    total, counts = found
    if _number(scale) != _number(to) or _zero(zero) != _zero(out_zero):
        return _tflite_mean(e, total, int(counts.flat[0])) if counts.size == 1 else None
    number, span, none = _one_or_all(counts), e.span, N.constant(0, "int32")
    half = Constant(number.value // 2)
    positive = _made(Greater(), total, none, span=span)
    moved = _made(Where(), positive, _made(Add(), total, half, span=span), _made(Subtract(), total, half, span=span),
                  span=span)
    size = _made(FloorDivide(), _made(Abs(), moved, span=span), number, span=span)
    signed = _made(Where(), _made(Less(), moved, none, span=span), _made(Negative(), size, span=span), size, span=span)
    return N.casted(signed, x.tensor_type.dtype, span)


def _tflite_mean(e: Call, total: Expr, count: int) -> Expr:
    """MEAN of a whole image: the sum times a fixed-point multiplier divided by the count, not renormalized to 31 bits.
    """
    _, scale, zero, to, out_zero = e.args
    excess = count * (_zero(zero) or 0)
    moved = _made(Subtract(), total, N.constant(excess, "int32"), span=e.span) if excess else total
    m, exponent = N.fixed_point(float(np.float64(_number(scale)) / np.float64(_number(to))))
    shift = min(max(count, 1).bit_length() - 1, 32, 31 + exponent)
    exponent -= shift
    factor = np.asarray((m << shift) // max(count, 1), np.int64)
    whole = N.twice_rounded_graph(moved, factor, np.asarray(max(exponent, 0)), np.asarray(31 + max(-exponent, 0)),
                                  e.span)
    return N.saturated_graph(whole, out_zero, e.tensor_type.dtype, e.span)


def window_sums(e: Call) -> tuple[Expr, np.ndarray[Any, Any]] | None:
    """The int32 sums of the windows of a pool, and a broadcastable array of the number of image elements in each.

    None if the sizes or parameters are not known.
    """
    x, how = e.args[0], e.op
    sizes: list[Any] = ([x.tensor_type.shape[how.layout.index(c)] for c in "HW"] if how.layout in ("NHWC", "NCHW")
                        else [None])
    plain = tuple(how.dilation) == (1, 1) and not how.out_layout and not how.ceil_mode and (not how.count_include_pad
        or not any(_padding(how)))
    if not _all_known(e, 1) or not plain or not all(isinstance(n, int) for n in sizes):
        return None
    counts = _counts(how, sizes)
    if counts is None:
        return None
    shape = [1] * 4
    shape[how.layout.index("H")], shape[how.layout.index("W")] = counts.shape
    return _sums(N.casted(x, "int32", e.span), how, sizes, e.span), counts.reshape(shape)


def _tflite_softmax(e: Call) -> Expr | None:
    """Takes exponentials from a table and adds them one after another, since the order determines the bits."""
    x, scale, _, to, out_zero = e.args
    ndim, depth, span = x.tensor_type.ndim, x.tensor_type.shape[-1], e.span
    dtype = x.tensor_type.dtype
    if not _all_known(e, 1) or dtype.bits != 8 or e.op.axis % ndim != ndim - 1 or not isinstance(depth, int):
        return None
    below = (-_number(scale) * np.arange(256).astype(np.float32)).astype(np.float64)  # type: ignore[operator]
    wide = N.casted(x, "int32", span)
    far = _made(Subtract(), _made(Max(axis=-1, keepdims=True), wide, span=span), wide, span=span)
    powers = _made(Take(mode="fast"), Constant(np.exp(below).astype(np.float32)), far, span=span)
    last = Constant(np.asarray([depth - 1], np.int32))
    total = _made(Take(axis=ndim - 1), _made(CumSum(axis=ndim - 1), powers, span=span), last, span=span)
    inverse = _made(Divide(), N.constant(1, FLOAT32), _made(Multiply(), total, N.casted(to, FLOAT32, span), span=span),
                    span=span)
    share = _made(Add(), _made(Multiply(), powers, inverse, span=span), N.constant(0.5, FLOAT32), span=span)
    whole = N.casted(_made(Floor(), share, span=span), "int32", span)
    return N.saturated_graph(whole, out_zero if dtype != "uint8" else N.constant(0, "int32"), dtype, span)


def _padding(how: Any) -> tuple[int, int, int, int]:
    p = tuple(how.padding)
    return (*p, *p) if len(p) == 2 else p * 4 if len(p) == 1 else p


def _counts(how: Any, sizes: list[Any]) -> np.ndarray[Any, Any] | None:
    """The number of image elements in each window; None if there are more than `MOST_TABLE` windows."""
    before, after = _padding(how)[:2], _padding(how)[2:]
    ends = [n + b + a - w + 1 for n, b, a, w in zip(sizes, before, after, how.pool_size, strict=True)]
    if math.prod(-(-end // s) for end, s in zip(ends, how.strides, strict=True)) > MOST_TABLE:
        return None
    rows, columns = (
        np.minimum(first + w, n) - np.maximum(first, 0)
        for n, w, first in zip(sizes, how.pool_size, (
                np.arange(0, end, s) - b for end, s, b in zip(ends, how.strides, before, strict=True)), strict=True))
    return np.outer(rows, columns).astype(np.int32)


def _sums(x: Expr, how: Any, sizes: list[Any], span: Any) -> Expr:
    """Window sums of int32 numbers with zero padding, as a depthwise convolution with ones."""
    spatial = tuple(how.layout.index(c) for c in "HW")
    if not any(_padding(how)) and list(how.pool_size) == sizes:
        return _made(Sum(axis=spatial, keepdims=True), x, span=span)
    channels: Any = x.tensor_type.shape[how.layout.index("C")]
    last = how.layout == "NHWC"
    shape = (*how.pool_size, 1, channels) if last else (channels, 1, *how.pool_size)
    conv = Conv2d(
        strides=how.strides, padding=_padding(how), groups=channels, channels=channels, kernel_size=how.pool_size,
        data_layout=how.layout,
        kernel_layout="HWIO" if last else "OIHW", out_dtype="int32")
    return _made(conv, x, Constant(np.broadcast_to(np.int32(1), shape)), span=span)


def _real(x: Expr, scale: Expr, zero_point: Expr, span: Any) -> Call:
    return _made(Dequantize(), x, scale, zero_point, span=span)


def _one_or_all(values: np.ndarray[Any, Any]) -> Constant:
    return Constant(values.reshape(-1)[0]) if values.min() == values.max() else Constant(values)


def joined(e: Call, part: Callable[[Expr, Expr, Expr], Expr | None]) -> Expr | None:
    """Concatenate the tensors after `part` converts those whose scale or zero point differs from the result's.

    `part` takes a tensor, its scale and its zero point.
    """
    data, scales, zeros, s, z = e.args
    given = [t for t in (data, scales, zeros) if isinstance(t, Tuple)]
    if len(given) < 3:
        return None
    found: list[Expr] = []
    for x, sx, zx in zip(*(t.fields for t in given), strict=True):
        same = _number(sx) is not None and _number(sx) == _number(s) and _zero(zx) == _zero(z)
        made = x if same else part(x, sx, zx)
        if made is None:
            return None
        found.append(made)
    return _made(Concatenate(e.op.axis), Tuple(tuple(found)), span=e.span)


# ONNX Runtime


def _onnx_requantize(e: Call) -> Expr | None:
    """round(sums * (sx * sw / s)) + z in float32; halves go to even, and the bias is an integer added to the sums."""
    if not is_open(e):
        return None
    return Call(Requantize(**{**e.op.attributes(), "rounding": "TOEVEN", "compute_dtype": "float32"}), e.args,
                span=e.span)


def _values(e: Call, operands: int) -> list[Quantized] | None:
    """The operands and the result with their parameters, which follow in pairs; None if one is not constant."""
    known = [a.value for a in e.args[operands:] if isinstance(a, Constant)]
    if len(known) != len(e.args) - operands:
        return None
    return [Quantized(v, scale, zero)
            for v, scale, zero in zip((*e.args[:operands], e), known[::2], known[1::2], strict=True)]


def _onnx_add(e: Call) -> Expr | None:
    """round(a * (sa / s) + (b * (sb / s) + c)), where c combines the zero points; each product and sum rounds once."""
    found = _values(e, 2)
    return None if found is None else onnx_runtime.summed(*found)


def _onnx_mul(e: Call) -> Expr | None:
    """round((a - za) * (b - zb) * (sa * sb / s) + z)."""
    found = _values(e, 2)
    return None if found is None else onnx_runtime.multiplied(*found)


def _onnx_softmax(e: Call) -> Expr | None:
    """Multiplies exponentials from a table by floor(1 / s), divides by their sum, and rounds."""
    found = _values(e, 1)
    return None if found is None else onnx_runtime.softmax(found[0], found[1], e.op.axis)


def _onnx_average(e: Call) -> Expr | None:
    """Averages whole images by integer sums, and smaller windows in floating point."""
    found = _values(e, 1)
    if found is None:
        return None
    x, to = found
    pixels = [x.expr.tensor_type.shape[e.op.layout.index(c)] for c in "HW"]
    if pixels == list(e.op.pool_size) and not any(_padding(e.op)):
        return onnx_runtime.global_average(x, to, tuple(e.op.layout.index(c) for c in "HW"), math.prod(pixels))
    return onnx_runtime.averaged(_made(AvgPool2d(**e.op.attributes()), _real(e.args[0], e.args[1], e.args[2], e.span),
                                       span=e.span), to)


def _onnx_concatenate(e: Call) -> Expr | None:
    """Dequantizes tensors whose scale differs, and quantizes them by division."""
    how = Quantize(str(e.tensor_type.dtype))
    return joined(e, lambda x, s, z: _made(how, _real(x, s, z, e.span), *e.args[-2:], span=e.span))


def _onnx_quantize(e: Call) -> Expr | None:
    """round(data / s) + z, with a true division; halves go to even."""
    return None  # the definition of the operator


def _fast_average(e: Call) -> Expr | None:
    """Sums each window in int32 and requantizes with the scale divided by the count; only where all windows have the
    same size."""
    _, scale, zero, to, out_zero = e.args
    found = window_sums(e)
    if found is None or found[1].min() != found[1].max():
        return None
    total, count = found[0], np.int32(found[1].flat[0])
    how = Requantize(rounding="TOEVEN", compute_dtype="float32", out_dtype=str(e.tensor_type.dtype))
    part = N.constant(_number(scale) / np.float32(count), FLOAT32)  # type: ignore[operator]
    zeros = N.constant((_zero(zero) or 0) * count, "int32")
    return _made(how, total, part, zeros, to, out_zero, span=e.span)


def _fast_quantize(e: Call) -> Expr | None:
    """Multiplies by the reciprocal of the scale."""
    x, scale, zero = e.args
    if not isinstance(scale, Constant):
        return None
    inverse = N.spread(Constant(np.asarray(np.float32(1) / scale.value, np.float32)), x.tensor_type.ndim, e.op.axis,
                       e.span)
    whole = _made(Round(), _made(Multiply(), x, inverse, span=e.span), span=e.span)
    return N.saturated_graph(whole, N.spread(zero, x.tensor_type.ndim, e.op.axis, e.span), e.tensor_type.dtype, e.span)


_ONNX: Final[Mapping[type[Op], Rule]] = {
    Quantize: _onnx_quantize, Requantize: _onnx_requantize, QnnAdd: _onnx_add, QnnMul: _onnx_mul,
    QnnSoftmax: _onnx_softmax, QnnAvgPool2d: _onnx_average,
    QnnConcatenate: _onnx_concatenate,
}
RULES: Final[Mapping[str, Mapping[type[Op], Rule]]] = {
    "tflite": {
        Requantize: _tflite_requantize, QnnAdd: _tflite_add, QnnMul: _tflite_mul, Quantize: _tflite_quantize,
        QnnAvgPool2d: _tflite_average,
        QnnSoftmax: _tflite_softmax,
    },
    "onnx": _ONNX, "fast": {**_ONNX, Quantize: _fast_quantize, QnnAvgPool2d: _fast_average},
}
"""Rules by runtime and class of operator."""
