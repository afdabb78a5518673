"""More integer forms of float operators, for regions between dequantizations and a quantization.

`REGION_RULES` has rules as in `affine.py`. `closed` computes an operator that the quantization follows directly: it may
use the scale and zero point of the result.

    qnn.quantize(sqrt(qnn.dequantize(%x, s, z)), t, y) -> qnn.sqrt(%x, s, z, t, y)
    qnn.quantize(subtract(qnn.dequantize(%x, s, z), 1f), t, y) -> qnn.requantize(%x, s, z + 1 / s, t, y)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from tilewright.base.types import INT32, DataType, TensorType
from tilewright.relay.expr import Call, Constant, Expr, Tuple
from tilewright.relay.op.blocks import DepthToSpace
from tilewright.relay.op.broadcast import Add, BroadcastTo, Maximum, Minimum, Multiply, Subtract
from tilewright.relay.op.elementwise import Abs, Cast, Clip, Erf, Exp, LeakyRelu, Log, Relu, Rsqrt, Sigmoid, Sqrt, Tanh
from tilewright.relay.op.indexing import Take
from tilewright.relay.op.nn_conv import Conv2dTranspose
from tilewright.relay.op.nn_matmul import BiasAdd
from tilewright.relay.op.nn_pool import AdaptiveAvgPool1d
from tilewright.relay.op.reduction import Max, Mean, Min, Sum
from tilewright.relay.op.registry import Array, Op
from tilewright.relay.op.sorting import TopK
from tilewright.relay.op.transform import Concatenate, Pad, Split
from tilewright.relay.qnn import functions
from tilewright.relay.qnn import numerics as N
from tilewright.relay.qnn.affine import CLOSE, Argument, Quantized, Rule, in_units, made_product, of_bytes, same_numbers
from tilewright.relay.qnn.onnx_runtime import summed
from tilewright.relay.qnn.products import QnnConv2dTranspose
from tilewright.relay.qnn.scaling import Requantize

MAX_SUMMANDS: Final = 1 << 20
"""Largest number of bytes that are summed in 32 bits."""


def _sum_of_both(call: Call, args: Sequence[Argument]) -> Quantized | None:
    """A sum, difference, minimum or maximum of two values with equal scales, in int32 without zero points."""
    a, b = args
    if not isinstance(a, Quantized) or not isinstance(b, Quantized) or a.parts != 1 or b.parts != 1:
        return None
    if not a.uniform or not b.uniform or not _is_narrow(a) or not _is_narrow(b):
        return None
    if not np.allclose(a.scale, b.scale, rtol=CLOSE, atol=0):
        return None
    made = Call(call.op, [_centred(a), _centred(b)], span=call.span)
    return Quantized(made, a.scale, np.zeros((), np.int32))


def _biased(call: Call, args: Sequence[Argument]) -> Quantized | None:
    """int32 sums plus a vector along their last axis, which is quantized to the scale of the sums."""
    x, bias = args
    if not isinstance(x, Quantized) or x.expr.tensor_type.dtype is not INT32 or x.zero_point.any() or x.parts != 1:
        return None
    ndim, shape = call.tensor_type.ndim, _shape_of(bias)
    axis = call.attrs.axis % ndim if isinstance(call.op, BiasAdd) else ndim - 1
    if len(shape) != 1 or shape[0] != call.tensor_type.shape[axis] or x.expr.tensor_type.shape != (
            call.tensor_type.shape):
        return None
    if not x.uniform and axis != x.axis % ndim:
        return None
    units = in_units(bias, x.scale) or _requantized_sums(bias, x.scale)
    return None if units is None else replace(x, expr=Call(call.op, [x.expr, units], span=call.span))


def _requantized_sums(bias: Argument, scale: Array) -> Expr | None:
    """A bias that is computed, as int32 multiples of `scale`."""
    if not isinstance(bias, Quantized) or bias.parts != 1:
        return None
    same = bias.scale.size == scale.size and np.allclose(bias.scale, scale, rtol=CLOSE, atol=0)
    if same and not bias.zero_point.any() and bias.expr.tensor_type.dtype is INT32:
        return bias.expr
    return _in_scale(replace(bias, axis=0), Constant(scale))


def _shifted(call: Call, args: Sequence[Argument]) -> Quantized | None:
    """A value plus or minus a scalar that is a multiple of the scale: another zero point."""
    x, number = _value_and_number(call, args)
    sign = 1 if isinstance(call.op, Add) else -1
    if x is None or x.parts != 1 or (sign < 0 and x is not args[0]):
        return None
    steps = _steps(number, x)
    return None if steps is None else replace(x, zero_point=np.asarray(x.zero_point - sign * steps, np.int32))


def _scaled(call: Call, args: Sequence[Argument]) -> Quantized | None:
    """A value times a positive scalar has another scale; the product of two values is one of int32."""
    a, b = args
    if isinstance(a, Quantized) and isinstance(b, Quantized):
        return _product(call, a, b)
    x, number = _value_and_number(call, args)
    if x is None or not 0 < number < np.inf:
        return None
    scale = np.asarray(x.scale * np.float32(number), np.float32)
    return replace(x, scale=scale) if scale.all() and np.isfinite(scale).all() else None


def _product(call: Call, a: Quantized, b: Quantized) -> Quantized | None:
    if not of_bytes(a) or not of_bytes(b) or a.parts != 1 or b.parts != 1:
        return None
    ndim = call.tensor_type.ndim
    axes = {q.axis % ndim for q in (a, b) if not q.uniform}
    if len(axes) > 1 or any(q.expr.tensor_type.ndim != ndim for q in (a, b)):
        return None
    made = Call(Multiply(), [_centred(a), _centred(b)], span=call.span)
    scale = np.asarray(_flat(a.scale) * _flat(b.scale), np.float32)
    return Quantized(made, scale.reshape(()) if scale.size == 1 else scale, np.zeros((), np.int32), *axes)


def _bounded(call: Call, args: Sequence[Argument]) -> Quantized | None:
    """A minimum or maximum with a scalar that is a multiple of the scale."""
    x, number = _value_and_number(call, args)
    if x is None or x.parts != 1 or not x.uniform or (steps := _steps(number, x)) is None:
        return None
    dtype = x.expr.tensor_type.dtype
    bound = N.constant(np.clip(x.zero_point.reshape(()) + steps, *N.limits(dtype)), dtype)
    return replace(x, expr=Call(call.op, [x.expr, bound], span=call.span))


def _either(*rules: Rule) -> Rule:
    def first(call: Call, args: Sequence[Argument]) -> Quantized | None:
        return next((q for rule in rules if (q := rule(call, args)) is not None), None)

    return first


def _absolute(call: Call, args: Sequence[Argument]) -> Quantized | None:
    """|x - zero point| in int32."""
    (x,) = args
    if not isinstance(x, Quantized) or not x.uniform or not of_bytes(x):
        return None
    return Quantized(Call(Abs(), [_centred(x)], span=call.span), x.scale, np.zeros((), np.int32))


def _mean(call: Call, args: Sequence[Argument]) -> Quantized | None:
    """The int32 sum, with the number of its summands as `parts`."""
    (x,) = args
    if not isinstance(x, Quantized):
        return None
    op: Any = call.op
    return _averaged(call, x, Sum(axis=op.axis, keepdims=op.keepdims, exclude=op.exclude))


def _pooled(call: Call, args: Sequence[Argument]) -> Quantized | None:
    """A mean of whole rows; windows of one element are the identity."""
    (x,) = args
    if not isinstance(x, Quantized) or call.attrs.layout != "NCW" or not x.uniform:
        return None
    before, after = x.expr.tensor_type.shape[2], call.tensor_type.shape[2]
    if before == after:
        return x
    return _averaged(call, x, Sum(axis=(2,), keepdims=True)) if after == 1 else None


def _averaged(call: Call, x: Quantized, total: Sum) -> Quantized | None:
    t = x.expr.tensor_type
    if not x.uniform or not of_bytes(x) or not t.is_static or t.is_open:
        return None
    count = t.size // max(1, call.tensor_type.size)
    if not 0 < count < MAX_SUMMANDS:
        return None
    made = Call(total, [Call(Cast("int32"), [x.expr], span=call.span)], span=call.span)
    return Quantized(made, x.scale, np.asarray(x.zero_point * count, np.int32), parts=count)


def _padded(call: Call, args: Sequence[Argument]) -> Quantized | None:
    """Padding with a number that the quantization represents."""
    x, number = args[0], _scalar(args[1])
    if not isinstance(x, Quantized) or not x.uniform or x.parts != 1 or number is None:
        return None
    dtype, steps = x.expr.tensor_type.dtype, _steps(number, x)
    if call.attrs.pad_mode != "constant":
        return replace(x, expr=Call(call.op, [x.expr, N.constant(0, dtype)], span=call.span))
    if steps is None or not N.limits(dtype)[0] <= steps + x.zero_point.item() <= N.limits(dtype)[1]:
        return None
    filling = N.constant(steps + x.zero_point.item(), dtype)
    return replace(x, expr=Call(call.op, [x.expr, filling], span=call.span))


def _values(call: Call, args: Sequence[Argument]) -> Quantized | None:
    return same_numbers(call, args) if call.attrs.ret_type == "values" else None


def _transposed(call: Call, args: Sequence[Argument]) -> Quantized | None:
    """nn.conv2d_transpose of bytes -> qnn.conv2d_transpose."""
    x, w = args
    op: Any = call.op
    if not (isinstance(x, Quantized) and isinstance(w, Quantized) and of_bytes(x) and of_bytes(w) and x.uniform
            and w.uniform and op.out_dtype in ("", "float32")):
        return None
    return made_product(call, QnnConv2dTranspose(**{**op.attributes(), "out_dtype": "int32"}), x, w, -1)


def _positive(call: Call, args: Sequence[Argument]) -> Quantized | None:
    """A maximum with the zero points along an axis."""
    (x,) = args
    if not isinstance(x, Quantized) or x.parts != 1:
        return None
    return _clipped_between(call, x, x.zero_point, None)


def _clipped(call: Call, args: Sequence[Argument]) -> Quantized | None:
    """A maximum and a minimum with the quantized bounds along an axis."""
    (x,) = args
    if not isinstance(x, Quantized) or x.parts != 1 or not of_bytes(x):
        return None
    low, high = (np.rint(b / _flat(x.scale).astype(np.float64)) + _flat(x.zero_point)
                 for b in (call.attrs.a_min, call.attrs.a_max))
    return _clipped_between(call, x, low, high)


def _clipped_between(call: Call, x: Quantized, low: Array, high: Array | None) -> Quantized:
    t = x.expr.tensor_type
    found = x.expr
    for op, bound in ((Maximum(), low), (Minimum(), high)):
        if bound is not None:
            whole = N.along(np.clip(bound, *N.limits(t.dtype)), t.ndim, x.axis)
            found = Call(op, [found, Constant(whole.astype(t.dtype.numpy()))], span=call.span)
    return replace(x, expr=found)


REGION_RULES: Final[dict[type[Op], Rule]] = {
    Abs: _absolute, AdaptiveAvgPool1d: _pooled, Add: _either(_shifted, _biased, _sum_of_both), BiasAdd: _biased,
    BroadcastTo: same_numbers, Clip: _clipped, Conv2dTranspose: _transposed, DepthToSpace: same_numbers,
    Max: same_numbers, Maximum: _either(_bounded, _sum_of_both), Mean: _mean, Min: same_numbers,
    Minimum: _either(_bounded, _sum_of_both), Multiply: _scaled, Pad: _padded, Relu: _positive, Split: same_numbers,
    Subtract: _either(_shifted, _sum_of_both), Take: same_numbers, TopK: _values,
}
"""Rules by class of operator, for arguments for which `affine.RULES` has none."""


def _tabulated(op: Any) -> Op | None:
    """The function of a quantized tensor for a function of floats."""
    if isinstance(op, LeakyRelu):
        return functions.QnnLeakyRelu(op.alpha)
    found = _FUNCTIONS.get(type(op))
    return None if found is None else found()


_FUNCTIONS: Final[dict[type[Op], Callable[[], Op]]] = {
    Erf: functions.QnnErf, Exp: functions.QnnExp, Log: functions.QnnLog, Rsqrt: functions.QnnRsqrt,
    Sigmoid: functions.QnnSigmoid, Sqrt: functions.QnnSqrt, Tanh: functions.QnnTanh,
}
CLOSING: Final = (Concatenate, LeakyRelu, Maximum, Minimum, Subtract, *_FUNCTIONS)
"""Operators that `closed` computes."""


def closed(call: Call, args: Sequence[Quantized], to: Quantized) -> Expr | None:
    """Return the integers of a float operator between dequantized `args` and a quantization, or None."""
    if any(a.parts != 1 for a in args) or not to.uniform:
        return None
    dtype, parameters = to.expr.tensor_type.dtype, to.parameters()
    table = _tabulated(call.op)
    if table is not None:
        (x,) = args
        fits = x.uniform and of_bytes(x) and x.expr.tensor_type.dtype is dtype
        return Call(table, [x.expr, *x.parameters(), *parameters], span=call.span) if fits else None
    if isinstance(call.op, Concatenate):
        parts = [a.expr if a.worth_the_same(to) and a.expr.tensor_type.dtype is dtype
                 else _in_scale(a, *parameters, dtype) for a in args]
        return Call(call.op, [Tuple(tuple(parts))], span=call.span)
    if isinstance(call.op, Subtract):
        return summed(args[0], replace(args[1], scale=np.negative(args[1].scale)), to)
    if isinstance(call.op, (Minimum, Maximum)):
        whole = Call(call.op, [_in_scale(a, parameters[0]) for a in args], span=call.span)
        return _in_scale(Quantized(whole, to.scale, np.zeros((), np.int32)), *parameters, dtype)
    return None


def _in_scale(x: Quantized, scale: Constant, zero_point: Constant | None = None, dtype: str = "int32") -> Expr:
    """A value with another scale and zero point; ties are rounded to even."""
    zero = Constant(np.zeros((), np.int32)) if zero_point is None else zero_point
    how = Requantize(axis=x.axis, rounding="TOEVEN", compute_dtype="float32", out_dtype=str(DataType(dtype)))
    return Call(how, [x.expr, *x.parameters(), scale, zero], span=x.expr.span)


def _centred(x: Quantized) -> Expr:
    """The integers minus the zero point, as int32."""
    wide = N.casted(x.expr, "int32", x.expr.span)
    zero = N.along(_flat(x.zero_point), x.expr.tensor_type.ndim, x.axis)
    return N.difference(wide, Constant(np.asarray(zero, np.int32)), x.expr.span)


def _flat(parameter: Array) -> Array:
    return parameter.reshape(()) if parameter.size == 1 else parameter


def _is_narrow(x: Quantized) -> bool:
    """Whether sums and differences of two such values fit 32 bits."""
    return x.expr.tensor_type.dtype.bits <= 16


def _value_and_number(call: Call, args: Sequence[Argument]) -> tuple[Quantized | None, float]:
    """Return a quantized value of the shape of the result and the scalar beside it; None if these are not given."""
    a, b = args if isinstance(args[0], Quantized) else (args[1], args[0])
    number = _scalar(b)
    if not isinstance(a, Quantized) or number is None or a.expr.tensor_type.shape != call.tensor_type.shape:
        return None, 0.0
    return a, number


def _scalar(a: Argument) -> float | None:
    """The number that a constant has."""
    return float(a.value.reshape(())) if isinstance(a, Constant) and a.value.size == 1 else None


def _steps(number: float, x: Quantized) -> int | None:
    """A number in units of a scalar scale, if it is a multiple of it."""
    if x.scale.size != 1:
        return None
    real = number / float(x.scale.item())
    whole = round(real) if abs(real) < 1 << 24 else 0
    return whole if abs(real - whole) <= CLOSE * max(1.0, abs(real)) else None


def _shape_of(a: Argument) -> Sequence[Any]:
    t = (a.expr if isinstance(a, Quantized) else a).known_type()
    return t.shape if isinstance(t, TensorType) else ()
