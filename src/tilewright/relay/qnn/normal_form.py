"""Rewrite the calls of the qnn dialect to one form, independent of the frontend: rules on single calls.

    cast(clip(qnn.requantize(%x, …, out_dtype="int32"), 0, 255), "uint8")    -> qnn.requantize(%x, …, out_dtype="uint8")
    qnn.quantize(w, s, 0)                                                    -> an integer constant
    maximum(%x, 7), nn.relu(%x)
      -> clip(%x, 7, 255), or %x if that is the range of the type
    qnn.conv2d(%x, w, zx, …, padding=(1, 1, 1, 1))
      -> qnn.conv2d(nn.pad(%x, zx), w, zx, …, padding=(0, 0, 0, 0))
    qnn.conv2d(%x, w of uint8, zx, 128)                                      -> qnn.conv2d(%x, w of int8, zx, 0)
    qnn.requantize(qnn.conv2d(%x, w))
      -> qnn.requantize(nn.bias_add(qnn.conv2d(%x, w), zeros))
    scales of one element, or of equal elements
      -> a scalar; its axis is that of the channels
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from tilewright.base.types import INT32, DataType
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.expr import Call, Constant, Expr, Function, Tuple
from tilewright.relay.op.broadcast import Add, Maximum, Minimum
from tilewright.relay.op.elementwise import Cast, Clip, Copy, Relu
from tilewright.relay.op.nn_matmul import BiasAdd
from tilewright.relay.op.nn_pool import MaxPool2d
from tilewright.relay.op.registry import Op
from tilewright.relay.op.shaping import BatchFlatten, ExpandDims, Reshape, Squeeze, sized
from tilewright.relay.op.transform import Concatenate, Pad
from tilewright.relay.qnn import numerics as N
from tilewright.relay.qnn.arithmetic import QnnAdd, QnnConcatenate, QnnMul, QnnSubtract
from tilewright.relay.qnn.functions import QnnAvgPool2d, QnnSoftmax
from tilewright.relay.qnn.products import QnnConv2d, QnnConv2dTranspose, QnnDense
from tilewright.relay.qnn.scaling import Dequantize, Quantize, Requantize
from tilewright.relay.qnn.settle_numerics import narrow, quantized_constant
from tilewright.relay.qnn.sources import product_below
from tilewright.relay.visitor import rewrite
from tilewright.topi.windows import both_sides

Rule = Callable[[Call], "Expr | None"]


@dataclass(frozen=True)
class NormalizeQnn(FunctionPass):
    """Rewrite the calls of the qnn dialect to one form. Needs known types. Roundings become open; `numerics` of `main`
    defines them.

    A value changes at most by the difference of two roundings of one number.
    """

    kind: ClassVar[type] = Function

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        return rewrite(function, normalized)


def normalized(e: Expr) -> Expr | None:
    """Apply the rules to a call until none matches."""
    found = e
    while isinstance(found, Call) and isinstance(found.op, Op):
        rule = _RULES.get(type(found.op))
        new = None if rule is None else rule(found)
        if new is None or new is found:
            break
        found = new
    return None if found is e else found


def _same_call(e: Call, op: Op, args: list[Expr]) -> Call | None:
    """The call of `op` on `args`; None if it equals `e`."""
    if _identical(op, e.op) and all(a is b for a, b in zip(args, e.args, strict=True)):
        return None
    return Call(op, args, span=e.span)


def _identical(a: Op, b: Op) -> bool:
    """Whether all attributes have equal values and types."""
    return a == b and all(type(v) is type(w)
                          for v, w in zip(a.attributes().values(), b.attributes().values(), strict=True))


def number(p: Expr, dtype: str) -> Expr:
    """A scale or zero point as `dtype`; a scalar if all its elements are equal."""
    if not isinstance(p, Constant):
        return p
    value = p.value
    if value.size > 1 and (value == value.flat[0]).all():
        value = value.reshape(-1)[:1]
    plain = value.astype(dtype).reshape(() if value.size == 1 else value.shape)
    return p if plain.dtype == p.value.dtype and plain.shape == p.value.shape else Constant(plain, p.span)


def _numbers(e: Call, first: int, kinds: str) -> list[Expr]:
    """The arguments of `e`, those from `first` on normalized as scales (`s`) and zero points (`z`)."""
    return [*e.args[:first],
            *(number(p, "float32" if k == "s" else "int32") for p, k in zip(e.args[first:], kinds, strict=True))]


def _axis(e: Call, axis: int, *parameters: Expr) -> int:
    """The axis of parameters: kept if one of them has several elements, otherwise that of the channels."""
    ndim = e.args[0].tensor_type.ndim
    if any(not isinstance(p, Constant) or p.value.size > 1 for p in parameters):
        return axis % ndim if ndim else axis
    return 1 if ndim > 1 else -1


# Quantize, dequantize, requantize


def _quantize(e: Call) -> Expr | None:
    if isinstance(e.args[0], Constant):
        return quantized_constant(e)
    args = _numbers(e, 1, "sz")
    return _same_call(e, Quantize(DataType(e.op.out_dtype), _axis(e, e.op.axis, *args[1:])), args)


def _dequantize(e: Call) -> Expr | None:
    args = _numbers(e, 1, "sz")
    return _same_call(e, Dequantize(_axis(e, e.op.axis, *args[1:]), e.op.out_dtype), args)


def _requantize(e: Call) -> Expr | None:
    args = _numbers(e, 1, "szsz")
    x, scale, zero, to, out_zero = args
    if x.tensor_type.dtype == e.tensor_type.dtype and _worth_the_same(scale, zero, to, out_zero):
        return x
    if isinstance(x, Call) and isinstance(x.op, Relu) and x.tensor_type.dtype is INT32 and N.is_zero(zero):
        inner = Call(e.op, [x.args[0], *args[1:]], span=e.span)
        return _bounded(inner, out_zero, e) or None
    product = product_below(x)
    if product is x:
        args[0] = _with_bias(x)
    return _same_call(e, Requantize(axis=_axis(e, e.op.axis, *args[1:]), out_dtype=DataType(e.op.out_dtype)), args)


def _worth_the_same(*given: Expr) -> bool:
    if not all(isinstance(p, Constant) and p.value.size == 1 for p in given):
        return False
    s, z, to, out_z = (p.value.item() for p in given)  # type: ignore[attr-defined]
    return bool(s == to and z == out_z)


def _bounded(x: Expr, zero: Expr, e: Call) -> Expr | None:
    """Clip integers at their zero point."""
    if not isinstance(zero, Constant) or zero.value.size != 1:
        return None
    low, high = N.limits(x.tensor_type.dtype)
    return Call(Clip(float(max(low, int(zero.value.item()))), float(high)), [x], span=e.span)


def _with_bias(product: Call) -> Call:
    """Add a zero bias, so that each requantized product has one."""
    axis = _channel_axis(product)
    zeros = Constant(np.zeros(product.tensor_type.shape[axis], np.int32))
    return Call(BiasAdd(axis), [product, zeros], span=product.span)


def _channel_axis(product: Call) -> int:
    if isinstance(product.op, (QnnConv2d, QnnConv2dTranspose)):
        return (product.op.out_layout or product.op.data_layout).index("C")
    return product.tensor_type.ndim - 1


# Products


def _conv2d(e: Call) -> Expr | None:
    how: Any = e.op
    x, w, zx, zw, sx, sw = _numbers(e, 2, "zzss")
    w, zw = _signed_weight(w, zw)
    before, after = _around(how.padding)
    if any((*before, *after)) and isinstance(zx, Constant) and not how.blocked:
        widths = [(0, 0)] * 4
        for k, c in enumerate("HW"):
            widths[how.data_layout.index(c)] = (before[k], after[k])
        x = Call(Pad(tuple(widths)), [x, N.constant(zx.value.item(), "float32")], span=e.span)
        x = normalized(x) or x
        before = after = (0, 0)
    kernel = how.kernel_shape(w.tensor_type)
    given = {"padding": (*before, *after), "channels": kernel[0], "kernel_size": tuple(kernel[2:]), "out_dtype": INT32}
    return _same_call(e, QnnConv2d(**{**how.attributes(), **given}), [x, w, zx, zw, sx, sw])


def _dense(e: Call) -> Expr | None:
    x, w, zx, zw, sx, sw = _numbers(e, 2, "zzss")
    w, zw = _signed_weight(w, zw)
    return _same_call(e, QnnDense(w.tensor_type.shape[0], INT32), [x, w, zx, zw, sx, sw])


def _around(padding: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The padding before and after height and width."""
    both = both_sides(padding, 2)
    return both[:2], both[2:]


def _signed_weight(w: Expr, zero: Expr) -> tuple[Expr, Expr]:
    """A constant uint8 weight as int8."""
    if not isinstance(w, Constant) or not isinstance(zero, Constant) or w.tensor_type.dtype != "uint8":
        return w, zero
    return Constant((w.value.astype(np.int16) - 128).astype(np.int8),
                    w.span), Constant(zero.value - np.int32(128), zero.span)


def _bias_add(e: Call) -> Expr | None:
    """Normalize the bias axis of sums to count from the front."""
    return _same_call(e, BiasAdd(e.op.axis % e.tensor_type.ndim), list(e.args))


def _add(e: Call) -> Expr | None:
    """Adding a vector along the channels of sums -> nn.bias_add."""
    x, b = e.args
    product = product_below(x)
    if product is not x or not isinstance(b, Constant):
        return None
    axis = _channel_axis(product)
    wide = (1,) * (x.tensor_type.ndim - b.value.ndim) + b.value.shape
    channels = x.tensor_type.shape[axis]
    if b.value.size != channels or any(n != (channels if k == axis else 1) for k, n in enumerate(wide)):
        return None
    return Call(BiasAdd(axis), [x, Constant(b.value.reshape(-1), b.span)], span=e.span)


# Arithmetic and functions


def _arithmetic(e: Call) -> Expr | None:
    return _same_call(e, e.op, _numbers(e, 2, "szszsz"))


def _concatenate(e: Call) -> Expr | None:
    """Requantize parts with another scale, then concatenate."""
    data, scales, zeros, s, z = e.args
    if not (isinstance(data, Tuple) and isinstance(scales, Tuple) and isinstance(zeros, Tuple)):
        return None
    parts: list[Expr] = []
    for x, sx, zx in zip(data.fields, scales.fields, zeros.fields, strict=True):
        made = Call(Requantize(out_dtype=DataType(str(e.tensor_type.dtype))), [x, sx, zx, s, z], span=e.span)
        parts.append(normalized(made) or made)
    return Call(Concatenate(e.op.axis % e.tensor_type.ndim), [Tuple(tuple(parts))], span=e.span)


def _joined(e: Call) -> Expr | None:
    return _same_call(e, Concatenate(e.op.axis % e.tensor_type.ndim), list(e.args))


def _average(e: Call) -> Expr | None:
    how: Any = e.op
    before, after = _around(how.padding)
    given: dict[str, Any] = {"padding": (*before, *after), "pool_size": tuple(how.pool_size),
                             "strides": tuple(how.strides)}
    if how.layout in ("NCHW", "NHWC") and not any((*before, *after)):
        given |= {"count_include_pad": False, "ceil_mode": False}
        sizes = [e.tensor_type.shape[how.layout.index(c)] for c in "HW"]
        if sizes == [1, 1]:
            given["strides"] = given["pool_size"]
    return _same_call(e, QnnAvgPool2d(**{**how.attributes(), **given}), _numbers(e, 1, "szsz"))


def _softmax(e: Call) -> Expr | None:
    return _same_call(e, QnnSoftmax(e.op.axis % e.tensor_type.ndim), _numbers(e, 1, "szsz"))


# Operators between


def _clip(e: Call) -> Expr | None:
    """Clamp the bounds to the range of the type; merge nested clips."""
    x, dtype = e.args[0], e.tensor_type.dtype
    if dtype not in N.QUANTIZED:
        return None
    low, high = N.limits(dtype)
    if isinstance(x, Call) and isinstance(x.op, Clip):
        low, high = max(low, int(x.op.a_min)), min(high, int(x.op.a_max))
        x = x.args[0]
    least, most = max(float(low), float(np.ceil(e.op.a_min))), min(float(high), float(np.floor(e.op.a_max)))
    if (least, most) == tuple(map(float, N.limits(dtype))):
        return x
    return _same_call(e, Clip(least, most), [x])


def _extreme(e: Call) -> Expr | None:
    """The maximum or minimum of integers and a constant -> clip."""
    x, bound = e.args
    if isinstance(x, Constant):
        x, bound = bound, x
    if (not isinstance(bound, Constant) or bound.value.size != 1 or bound.value.ndim
            or e.tensor_type.dtype not in ("int8", "uint8")):
        return None
    low, high = N.limits(e.tensor_type.dtype)
    least, most = (int(bound.value), high) if isinstance(e.op, Maximum) else (low, int(bound.value))
    return Call(Clip(float(least), float(most)), [x], span=e.span)


def _relu(e: Call) -> Expr | None:
    """Relu of bytes -> clip at zero."""
    dtype = e.tensor_type.dtype
    if dtype not in ("int8", "uint8"):
        return None
    return Call(Clip(0.0, float(N.limits(dtype)[1])), list(e.args), span=e.span)


def _pad(e: Call) -> Expr | None:
    """Pad by a float constant, as TVM does; merge nested pads of one value."""
    x, value = e.args[0], e.args[1] if len(e.args) > 1 else N.constant(0, "float32")
    if (e.attrs.pad_mode != "constant" or not isinstance(value, Constant)
            or x.tensor_type.dtype not in ("int8", "uint8")):
        return None
    widths = tuple((int(a), int(b)) for a, b in e.attrs.pad_width)
    if isinstance(x, Call) and isinstance(x.op, Pad) and _pads_by(x, value.value.item()):
        widths = tuple((a + int(c), b + int(d)) for (a, b), (c, d) in zip(widths, x.op.pad_width, strict=True))
        x = x.args[0]
    if not any(map(any, widths)):
        return x
    plain = (value if value.value.dtype == np.float32 and not value.value.ndim
             else N.constant(value.value.item(), "float32"))
    return _same_call(e, Pad(widths), [x, plain])


def _max_pool(e: Call) -> Expr | None:
    """Fold padding by the least value into the padding of the pool."""
    how: Any = e.op
    x = e.args[0]
    before, after = _around(how.padding)
    if isinstance(x, Call) and isinstance(x.op, Pad) and _pads_least(x, how.layout):
        axes = [how.layout.index(c) for c in "HW"]
        before = tuple(b + x.op.pad_width[k][0] for b, k in zip(before, axes, strict=True))
        after = tuple(a + x.op.pad_width[k][1] for a, k in zip(after, axes, strict=True))
        x = x.args[0]
    return _same_call(e, MaxPool2d(**{**how.attributes(), "padding": (*before, *after)}), [x])


def _pads_by(pad: Call, value: Any) -> bool:
    return (pad.attrs.pad_mode == "constant" and len(pad.args) > 1 and isinstance(pad.args[1], Constant)
            and bool(pad.args[1].value.item() == value))


def _pads_least(pad: Call, layout: str) -> bool:
    dtype = pad.tensor_type.dtype
    if layout not in ("NCHW", "NHWC") or dtype not in ("int8", "uint8"):
        return False
    outside = any(any(w) for w, c in zip(pad.attrs.pad_width, layout, strict=True) if c in "NC")
    return not outside and _pads_by(pad, N.limits(dtype)[0])


def _reshape(e: Call) -> Expr | None:
    """Convert all views to reshapes to static sizes, and merge nested views."""
    shape = e.tensor_type.shape
    if not all(isinstance(n, int) for n in shape):
        return None
    x = e.args[0]
    while isinstance(x, Call) and isinstance(x.op, (Reshape, Squeeze, ExpandDims, BatchFlatten)):
        x = x.args[0]
    if x.tensor_type.shape == shape:
        return x
    return _same_call(e, sized(tuple(shape)), [x])


def _copy(e: Call) -> Expr | None:
    return e.args[0]


def _cast(e: Call) -> Expr | None:
    return e.args[0] if e.args[0].tensor_type.dtype is e.tensor_type.dtype else narrow(e)


_RULES: Final[dict[type[Op], Rule]] = {
    Quantize: _quantize, Dequantize: _dequantize, Requantize: _requantize, QnnConv2d: _conv2d, QnnDense: _dense,
    BiasAdd: _bias_add, Add: _add,
    **dict.fromkeys((QnnAdd, QnnSubtract, QnnMul), _arithmetic), QnnConcatenate: _concatenate, Concatenate: _joined,
    QnnAvgPool2d: _average, QnnSoftmax: _softmax,
    Clip: _clip, Maximum: _extreme, Minimum: _extreme, Relu: _relu, Pad: _pad, MaxPool2d: _max_pool, Copy: _copy,
    Cast: _cast,
    **dict.fromkeys((Reshape, Squeeze, ExpandDims, BatchFlatten), _reshape),
}
"""Rules by class of operator."""
