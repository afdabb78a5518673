"""Bit-exact rules for PyTorch's quantized engines where an operator of the dialect leaves its rounding open.

    qnn.requantize(nn.bias_add(%sums, qnn.quantize(b, s, 0)), s, 0, t, z), s = sx * sw
      fbgemm  -> saturate(round((cast(%sums) + b / s) * (s / t)) + z)
                 b * (1 / s), in one rounding with the sum, if s is a scalar
      onednn  -> saturate(round((cast(%sums) * sx * sw + b) * (1 / t) + z))
      qnnpack -> saturate(round(cast(%sums + round(b / s)) * (s * (1 / t))) + z)

All steps are in float32, each rounded half to even; `multiply_add` keeps steps fused. The engine `x86` is oneDNN for
convolutions of up to 100 groups with symmetric weights, else FBGEMM. The steps are those of torch 2.13 on a processor
with AVX-512 VNNI, in one thread. They were found by comparison with the engines on half-way values
(`tests/test_torch_engines.py` repeats it).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final

import numpy as np

from tilewright.base.types import FLOAT32, DataType
from tilewright.relay.expr import Call, Constant, Expr
from tilewright.relay.op.broadcast import Add, BitwiseAnd, Greater, Multiply, MultiplyAdd, RightShift, Subtract, Where
from tilewright.relay.op.elementwise import Clip, Round
from tilewright.relay.op.nn_matmul import BiasAdd
from tilewright.relay.op.nn_norm import Softmax
from tilewright.relay.op.registry import Array, Op
from tilewright.relay.qnn import numerics as N
from tilewright.relay.qnn.arithmetic import QnnAdd, QnnConcatenate, QnnMul
from tilewright.relay.qnn.functions import QnnAvgPool2d, QnnSoftmax
from tilewright.relay.qnn.products import QnnConv2dTranspose, QnnDense
from tilewright.relay.qnn.scaling import Dequantize, Quantize, Requantize
from tilewright.relay.qnn.sources import Rule, is_open, joined, product_below, window_sums

_F: Final = np.float32
_LANES: Final = 64
"""Bytes per iteration of the engines' vectorized elementwise loops; the remaining elements are rounded differently."""
_GROUPS: Final = 100
"""Largest number of groups for which the engine x86 uses oneDNN."""


def _numbers(call: Call, first: int) -> list[Any] | None:
    """The parameters from `first` on, alternating float32 scales and integer zero points; None unless scalar constants.
    """
    found: list[Any] = []
    for k, e in enumerate(call.args[first:]):
        if not isinstance(e, Constant) or e.value.size != 1:
            return None
        found.append(_F(e.value.reshape(())) if k % 2 == 0 else int(e.value.reshape(())))
    return found


def _call(op: Op, *args: Expr, like: Call) -> Call:
    return Call(op, list(args), span=like.span)


def _f(value: Any) -> Constant:
    return Constant(np.asarray(value, _F))


def _times(x: Expr, factor: Expr, like: Call) -> Call:
    """A product with its own rounding."""
    return _call(MultiplyAdd(), x, factor, _f(-0.0), like=like)


def _bytes(whole: Expr, zero: int, dtype: DataType, like: Call) -> Expr:
    """Integral float32 values plus a zero point, clipped to the range of a type and converted."""
    moved = _call(Add(), whole, _f(zero), like=like) if zero else whole
    low, high = N.float_limits(dtype)
    return N.casted(_call(Clip(low, high), moved, like=like), dtype, like.span)


# Sums of layers


@dataclass(frozen=True, slots=True)
class _Layer:
    """A requantization with known parameters.

    It has the sums, their bias as floats and their scale (`worth`), both broadcastable, and the result's scale and zero
    point. It also has the product that the sums come from.
    """

    call: Call
    sums: Expr
    bias: Array | None
    worth: Array
    to: np.float32
    zero: int
    product: Call | None

    @property
    def real(self) -> Expr:
        return N.casted(self.sums, FLOAT32, self.call.span)


def _layer(e: Call) -> _Layer | None:
    """The `_Layer` of a requantization; None if a parameter is not known."""
    x, *parameters = e.args
    known = [a.value for a in parameters if isinstance(a, Constant)]
    if not is_open(e) or len(known) < 4 or known[1].any() or known[2].size != 1:
        return None
    bias = None
    sums = x
    if isinstance(x, Call) and isinstance(x.op, BiasAdd):
        stored = x.args[1]
        if isinstance(stored, Call) and isinstance(stored.op, Quantize) and isinstance(stored.args[0], Constant):
            sums, bias = x.args[0], N.along(stored.args[0].value.astype(_F), x.tensor_type.ndim, x.op.axis)
        elif not isinstance(stored, Constant):
            return None
    worth = N.along(known[0].astype(_F), e.tensor_type.ndim, e.op.axis)
    return _Layer(e, sums, bias, worth, _F(known[2].reshape(())), int(known[3].reshape(())), product_below(x))


def _of_layers(engine: Callable[[_Layer], Expr]) -> Rule:
    """Turn an engine's treatment of a layer's sums into a rule for requantizations."""
    @wraps(engine)
    def rule(e: Call) -> Expr | None:
        layer = _layer(e)
        return None if layer is None else engine(layer)

    return rule


def _fbgemm(layer: _Layer) -> Expr:
    """round((sums + b / (sx * sw)) * (sx * sw / s)) + z, with a float bias. If weights have one scale, b * (1 / (sx *
    sw)) is added with one rounding."""
    e, real = layer.call, layer.real
    if layer.bias is not None and layer.worth.size > 1:
        real = _call(Add(), real, _f(layer.bias / layer.worth), like=e)
    elif layer.bias is not None:
        real = _call(MultiplyAdd(), _f(layer.bias), _f(_F(1) / layer.worth), real, like=e)
    return _bytes(_call(Round(), _times(real, _f(layer.worth / layer.to), e), like=e), layer.zero, e.tensor_type.dtype,
                  e)


def _twice_inverted(scale: Array) -> Array:
    """1 / (1 / scale), each rounded to float32: the engine passes the reciprocal instead of the scale."""
    return np.asarray(_F(1) / (1 / scale.astype(np.float64)).astype(_F), _F)


def _onednn(layer: _Layer) -> Expr:
    """round((sums * sx * sw + b) * (1 / s) + z), with a float bias; each step rounds."""
    e, product = layer.call, layer.product
    scales = [] if product is None else [p.value for p in product.args[4:6] if isinstance(p, Constant)]
    if product is None or len(scales) < 2:
        return _fbgemm(layer)
    sx, sw = scales
    weights = _twice_inverted(sw) if isinstance(product.op, QnnDense) else sw
    real = _times(layer.real, _f(_twice_inverted(sx).reshape(())), e)
    real = _times(real, _f(N.along(weights.astype(_F), e.tensor_type.ndim, e.op.axis)), e)
    if layer.bias is not None:
        real = _call(Add(), real, _f(layer.bias), like=e)
    moved: Expr = _times(real, _f(_F(1) / layer.to), e)
    if layer.zero:
        moved = _call(Add(), moved, _f(layer.zero), like=e)
    return _bytes(_call(Round(), moved, like=e), 0, e.tensor_type.dtype, e)


def _qnnpack(layer: _Layer) -> Expr:
    """round((sums + round(b / (sx * sw))) * (sx * sw * (1 / s))) + z."""
    e, real = layer.call, layer.real
    if layer.bias is not None:
        units = N.saturated(np.rint(layer.bias * (_F(1) / layer.worth)), "int32")
        real = N.casted(_call(Add(), layer.sums, Constant(units), like=e), FLOAT32, e.span)
    whole = _call(Round(), _times(real, _f(layer.worth * (_F(1) / layer.to)), e), like=e)
    return _bytes(whole, layer.zero, e.tensor_type.dtype, e)


def _x86(layer: _Layer) -> Expr:
    """As torch-onednn for convolutions of up to 100 groups with symmetric weights, otherwise as torch-fbgemm."""
    product = layer.product
    if (product is None or isinstance(product.op, QnnDense) or product.attrs.groups > _GROUPS
            or not N.is_zero(product.args[3])):
        return _fbgemm(layer)
    return (_fbgemm(layer) if isinstance(product.op, QnnConv2dTranspose) and any(product.op.output_padding)
            else _onednn(layer))


# Elementwise


def _quantize(e: Call) -> Expr | None:
    """round(data * (1 / scale) + zero point), where the multiply-add rounds once."""
    x, scale, zero = e.args
    if not isinstance(scale, Constant) or not isinstance(zero, Constant):
        return None
    s, z = (N.along(p.value.astype(_F), x.tensor_type.ndim, e.op.axis) for p in (scale, zero))
    whole = _call(Round(), _call(MultiplyAdd(), x, _f(_F(1) / s), _f(z), like=e), like=e)
    return _bytes(whole, 0, e.tensor_type.dtype, e)


def _centred(x: Expr, zero: int, dtype: str, like: Call) -> Expr:
    wide = N.casted(x, dtype, like.span)
    return _call(Add(), wide, N.constant(-zero, dtype), like=like) if zero else wide


def _add(e: Call) -> Expr | None:
    """Dequantizes both operands with one rounding each, adds and quantizes; the last elements of a tensor, after whole
    vectors, are dequantized with two."""
    numbers = _numbers(e, 2)
    if numbers is None:
        return None
    sa, za, sb, zb, s, z = numbers
    a, b = (N.casted(x, FLOAT32, e.span) for x in e.args[:2])
    total = _call(Add(), *(_call(MultiplyAdd(), x, _f(sx), _f(sx * _F(-zx)), like=e)
                           for x, sx, zx in ((a, sa, za), (b, sb, zb))), like=e)
    whole = _late(_times(total, _f(_F(1) / s), e), z, e)
    last = _last(e)
    if last is not None:
        other = _call(Add(), *(_times(_centred(x, zx, "float32", e), _f(sx), e)
                               for x, sx, zx in ((a, sa, za), (b, sb, zb))), like=e)
        whole = _call(Where(), last, _early(_times(other, _f(_F(1) / s), e), z, e), whole, like=e)
    return _bytes(whole, 0, e.tensor_type.dtype, e)


def _early(real: Expr, zero: int, like: Call) -> Expr:
    """Add the zero point, then round."""
    return _call(Round(), _call(Add(), real, _f(zero), like=like) if zero else real, like=like)


def _late(real: Expr, zero: int, like: Call) -> Expr:
    """Round, then add the zero point."""
    whole = _call(Round(), real, like=like)
    return _call(Add(), whole, _f(zero), like=like) if zero else whole


def _last(e: Call) -> Constant | None:
    """A mask of the elements after the last whole vector, images in channels-last order; None if there is no remainder.
    """
    shape = e.tensor_type.shape
    if not all(isinstance(d, int) for d in shape) or math.prod(shape) % _LANES == 0:
        return None
    count = math.prod(shape)
    images = len(shape) == 4
    stored = (shape[0], *shape[2:], shape[1]) if images else shape
    found = (np.arange(count) >= count - count % _LANES).reshape(stored)
    return Constant(np.ascontiguousarray(found.transpose(0, 3, 1, 2)) if images else found)


_ADD_BITS: Final = 21
"""Bits of the larger factor of QNNPACK's sum, minus one."""


def _qnnpack_add(e: Call) -> Expr | None:
    """Multiplies integers by 22-bit factors and shifts back; halves go away from zero. For uint8 only: other types
    follow the other engines."""
    numbers = _numbers(e, 2)
    if numbers is None or e.tensor_type.dtype != "uint8":
        return _add(e)
    sa, za, sb, zb, s, z = numbers
    factors = [_F(sa / s), _F(sb / s)]
    shift = _ADD_BITS + 1 - int(np.frexp(max(factors))[1])
    x, y = (int(np.rint(f * _F(2.0**shift))) for f in factors)

    def i(value: int) -> Constant:
        return N.constant(value, "int32")

    a, b = (_call(Multiply(), N.casted(v, "int32", e.span), i(f), like=e)
            for v, f in zip(e.args[:2], (x, y), strict=True))
    total = _call(Add(), _call(Add(), a, b, like=e), i(-x * za - y * zb), like=e)
    mask = (1 << shift) - 1
    below = N.casted(_call(Greater(), i(0), total, like=e), "int32", e.span)
    rest = _call(Subtract(), _call(BitwiseAnd(), total, i(mask), like=e), below, like=e)
    up = N.casted(_call(Greater(), rest, i(mask >> 1), like=e), "int32", e.span)
    whole = _call(Add(), _call(RightShift(), total, i(shift), like=e), up, like=e)
    return N.saturated_graph(whole, i(z), e.tensor_type.dtype, e.span)


def _multiply(e: Call) -> Expr | None:
    """Multiplies the integers, then the product by one factor: sa * sb * (1 / s)."""
    numbers = _numbers(e, 2)
    if numbers is None:
        return None
    sa, za, sb, zb, s, z = numbers
    product = _call(Multiply(), _centred(e.args[0], za, "int32", e), _centred(e.args[1], zb, "int32", e), like=e)
    real = _times(N.casted(product, FLOAT32, e.span), _f(sa * sb * (_F(1) / s)), e)
    return _bytes(_call(Round(), real, like=e), z, e.tensor_type.dtype, e)


# Pools


def _means(e: Call) -> tuple[Expr, Array, np.float32, int, np.float32] | None:
    """The centred int32 sums of windows, their element counts, the data's scale and zero point, and the result's scale.
    """
    numbers, found = _numbers(e, 1), window_sums(e)
    if numbers is None or found is None or numbers[1] != numbers[3]:
        return None
    total, counts = found
    excess = counts * np.int32(numbers[1])
    centred = _call(Subtract(), total, Constant(excess), like=e) if excess.any() else total
    return N.casted(centred, FLOAT32, e.span), counts.astype(_F), numbers[0], numbers[1], numbers[2]


def _whole_image(e: Call) -> bool:
    layout, shape = e.attrs.layout, e.args[0].tensor_type.shape
    return [shape[layout.index(c)] for c in "HW"] == list(e.attrs.pool_size)


def _average(e: Call) -> Expr | None:
    """Multiplies sums by one over the count. For means of whole images, and for channels after whole vectors of 16, the
    zero point is added before rounding."""
    found = _means(e)
    if found is None:
        return None
    total, counts, scale, zero, to = found
    real = _times(total, _f(scale / to / counts), e)
    late, early = _late(real, zero, e), _early(real, zero, e)
    channel = e.attrs.layout.index("C")
    channels = e.tensor_type.shape[channel]
    if (not e.attrs.count_include_pad and not any(e.attrs.padding)) or _whole_image(e):
        late = early
    elif not isinstance(channels, int):
        return None
    elif channels % 16:
        last = np.arange(channels) >= channels - channels % 16
        late = _call(Where(), Constant(last.reshape([-1 if d == channel else 1 for d in range(4)])), early, late,
                     like=e)
    return _bytes(late, 0, e.tensor_type.dtype, e)


def _qnnpack_average(e: Call) -> Expr | None:
    """Multiplies sums by the input scale over the product of result scale and count, and rounds; padding always counts.
    """
    found = _means(e)
    if found is None:
        return None
    total, counts, scale, zero, to = found
    size = _F(math.prod(e.attrs.pool_size))
    del counts
    return _bytes(_call(Round(), _times(total, _f(scale / (to * size)), e), like=e), zero, e.tensor_type.dtype, e)


# Other operators


def _requantized(real: Expr, scale: Expr, zero_point: Expr, e: Call) -> Expr | None:
    """Floats times the reciprocal of the scale, rounded, plus the zero point."""
    if not isinstance(scale, Constant) or not isinstance(zero_point, Constant) or scale.value.size != 1:
        return None
    whole = _late(_times(real, _f(_F(1) / _F(scale.value.reshape(()))), e), int(zero_point.value.reshape(())), e)
    return _bytes(whole, 0, e.tensor_type.dtype, e)


def _concatenate(e: Call) -> Expr | None:
    """Dequantizes tensors whose scale differs with one rounding, and quantizes them."""
    def part(x: Expr, scale: Expr, zero_point: Expr) -> Expr | None:
        if not isinstance(scale, Constant) or not isinstance(zero_point, Constant) or scale.value.size != 1:
            return None
        s, z = _F(scale.value.reshape(())), _F(zero_point.value.reshape(()))
        real = _call(MultiplyAdd(), N.casted(x, FLOAT32, e.span), _f(s), _f(s * -z), like=e)
        return _requantized(real, e.args[3], e.args[4], e)

    return joined(e, part)


def _softmax(e: Call) -> Expr | None:
    """Computes softmax in floating point, multiplies by one over the scale, and rounds."""
    x, scale, zero_point, to, out_zero = e.args
    real = _call(Softmax(e.attrs.axis), _call(Dequantize(), x, scale, zero_point, like=e), like=e)
    return _requantized(real, to, out_zero, e)


_ELEMENTS: Final[Mapping[type[Op], Rule]] = {
    Quantize: _quantize, QnnAdd: _add, QnnMul: _multiply, QnnAvgPool2d: _average, QnnConcatenate: _concatenate,
    QnnSoftmax: _softmax,
}
ENGINES: Final[Mapping[str, Mapping[type[Op], Rule]]] = {
    "torch": {**_ELEMENTS, Requantize: _of_layers(_x86)},
    "torch-fbgemm": {**_ELEMENTS, Requantize: _of_layers(_fbgemm)},
    "torch-onednn": {**_ELEMENTS, Requantize: _of_layers(_onednn)},
    "torch-x86": {**_ELEMENTS, Requantize: _of_layers(_x86)},
    "torch-qnnpack": {**_ELEMENTS, Requantize: _of_layers(_qnnpack), QnnAdd: _qnnpack_add,
                      QnnAvgPool2d: _qnnpack_average},
}
"""Rules by engine, as in `torch.backends.quantized.engine`, and class of operator; "torch" is torch's default."""
