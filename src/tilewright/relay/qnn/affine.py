"""Integer forms of float operators on quantized values: a table with a rule for each class of operator.

A rule takes the call and its arguments as `Quantized` values, and returns the result as one: an integer expression with
its scale. None means that the operator stays in float for these arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np

from tilewright.relay.expr import Call, Constant, Expr, Tuple
from tilewright.relay.op.broadcast import Maximum
from tilewright.relay.op.elementwise import Cast, Clip, Relu
from tilewright.relay.op.nn_conv import Conv2d
from tilewright.relay.op.nn_matmul import BatchMatmul, BiasAdd, Dense
from tilewright.relay.op.nn_pool import GlobalAvgPool2d, MaxPool1d, MaxPool2d, MaxPool3d
from tilewright.relay.op.reduction import Sum
from tilewright.relay.op.registry import Array, Op
from tilewright.relay.op.shaping import BatchFlatten, ExpandDims, Reshape, Squeeze
from tilewright.relay.op.transform import Concatenate, StridedSlice, Transpose
from tilewright.relay.qnn import numerics as N
from tilewright.relay.qnn.products import QnnBatchMatmul, QnnConv2d, QnnDense
from tilewright.relay.qnn.scaling import Dequantize

CLOSE: Final = 1e-5
"""Relative tolerance for equal scales: the scale of a bias is the product of two rounded scales."""


@dataclass(frozen=True, eq=False)
class Quantized:
    """An integer expression with the real value `scale * (expr - zero_point) / parts`.

    Scale and zero point are scalars, or have one element for each index of `axis`. `parts` exceeds one for a sum that
    represents a mean.
    """

    expr: Expr
    scale: Array
    zero_point: Array
    axis: int = -1
    parts: int = 1

    @property
    def uniform(self) -> bool:
        return self.scale.size == 1 and self.zero_point.size == 1

    def parameters(self) -> tuple[Constant, Constant]:
        return (Constant(self.scale if self.parts == 1 else np.asarray(self.scale / np.float32(self.parts))),
                Constant(self.zero_point))

    def dequantized(self) -> Call:
        """The dequantized value."""
        return Call(Dequantize(axis=self.axis), [self.expr, *self.parameters()], span=self.expr.span)

    def worth_the_same(self, other: Quantized) -> bool:
        """Whether both have the same scalar scale and zero point."""
        return (self.uniform and other.uniform and self.parts == other.parts
                and bool(self.scale.item() == other.scale.item() and self.zero_point.item() == other.zero_point.item()))


Argument: TypeAlias = "Quantized | Expr"
"""A quantized argument, or another argument unchanged."""
Rule: TypeAlias = Callable[[Call, Sequence[Argument]], "Quantized | None"]

RULES: Final[dict[type[Op], Rule]] = {}
"""Rules by class of operator."""


def quantized_form(*classes: type[Op]) -> Callable[[Rule], Rule]:
    """Register the rule of operators."""

    def register(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(classes, rule))
        return rule

    return register


def of_bytes(q: Argument) -> bool:
    """Whether an argument is quantized to 8 bits."""
    return isinstance(q, Quantized) and q.expr.tensor_type.dtype in ("int8", "uint8")


def _product_scale(x: Quantized, w: Quantized) -> Array:
    return np.asarray(x.scale.reshape(()) * w.scale, np.float32)


@quantized_form(Conv2d)
def convolution(call: Call, args: Sequence[Argument]) -> Quantized | None:
    """nn.conv2d of bytes -> qnn.conv2d: int32 with the product of the scales, one for each output channel."""
    x, w = args
    op: Any = call.op
    if not (isinstance(x, Quantized) and isinstance(w, Quantized) and of_bytes(x) and of_bytes(w) and x.uniform
            and op.out_dtype in ("", "float32")) or op.blocked:
        return None
    _, kernel_order, out_order = op.axes()
    if not w.uniform and w.axis % 4 != kernel_order[0]:
        return None
    made = QnnConv2d(**{**op.attributes(), "out_dtype": "int32"})
    return made_product(call, made, x, w, out_order.index(1))


@quantized_form(Dense)
def dense(call: Call, args: Sequence[Argument]) -> Quantized | None:
    """nn.dense of bytes -> qnn.dense."""
    x, w = args
    if not (isinstance(x, Quantized) and isinstance(w, Quantized) and of_bytes(x) and of_bytes(w) and x.uniform):
        return None
    if not w.uniform and w.axis % 2 != 0:
        return None
    return made_product(call, QnnDense(units=call.attrs.units), x, w, call.tensor_type.ndim - 1)


@quantized_form(BatchMatmul)
def batch_matmul(call: Call, args: Sequence[Argument]) -> Quantized | None:
    """nn.batch_matmul of bytes, the second transposed -> qnn.batch_matmul."""
    x, y = args
    if not (isinstance(x, Quantized) and isinstance(y, Quantized) and of_bytes(x) and of_bytes(y) and x.uniform
            and y.uniform):
        return None
    if call.attrs.transpose_a or not call.attrs.transpose_b:
        return None
    return made_product(call, QnnBatchMatmul(), x, y, -1)


def made_product(call: Call, op: Op, x: Quantized, w: Quantized, axis: int) -> Quantized:
    """Return a product of quantized values by the operator `op`; `axis` is that of the scales of `w` in the result."""
    (sx, zx), (sw, zw) = x.parameters(), w.parameters()
    product = Call(op, [x.expr, w.expr, zx, zw, sx, sw], span=call.span)
    return Quantized(product, _product_scale(x, w), np.zeros((), np.int32), axis)


@quantized_form(BiasAdd)
def bias_add(call: Call, args: Sequence[Argument]) -> Quantized | None:
    """A sum plus a constant bias, which is quantized to the scale of the sum."""
    x, bias = args
    if not isinstance(x, Quantized) or x.expr.tensor_type.dtype != "int32" or x.zero_point.any():
        return None
    axis = call.attrs.axis % call.tensor_type.ndim
    if not x.uniform and axis != x.axis % call.tensor_type.ndim:
        return None
    units = in_units(bias, x.scale)
    return None if units is None else Quantized(Call(call.op, [x.expr, units], span=call.span), x.scale, x.zero_point,
        x.axis)


def is_rounded_bias(call: Call, args: Sequence[Argument]) -> bool:
    """Whether a float bias is not a multiple of the sums' scale, up to float32 rounding."""
    if not isinstance(call.op, BiasAdd) or not isinstance(args[0], Quantized) or not isinstance(args[1], Constant):
        return False
    units = args[1].value.astype(np.float64) / args[0].scale.astype(np.float64)
    return bool((np.abs(units - np.rint(units)) > 1e-3 + 1e-6 * np.abs(units)).any())


def in_units(bias: Argument, scale: Array) -> Constant | None:
    """A constant vector as int32 multiples of `scale`."""
    if isinstance(bias, Quantized):
        if not isinstance(bias.expr, Constant):
            return None
        exact = bias.expr.value.astype(np.int64) - bias.zero_point
        if np.allclose(bias.scale, scale, rtol=CLOSE, atol=0):
            return Constant(N.saturated(exact, "int32"), bias.expr.span)
        real = exact * bias.scale.astype(np.float64)
    elif isinstance(bias, Constant):
        real = bias.value.astype(np.float64)
    else:
        return None
    whole = np.rint(real / scale.astype(np.float64))
    return None if np.abs(whole).max(initial=0) >= 1 << 31 else Constant(whole.astype(np.int32))


@quantized_form(Relu)
def relu(call: Call, args: Sequence[Argument]) -> Quantized | None:
    """Clip at the zero point."""
    (x,) = args
    if not isinstance(x, Quantized) or x.zero_point.size != 1:
        return None
    zero = N.constant(x.zero_point.reshape(()), x.expr.tensor_type.dtype)
    made = (Call(Relu(), [x.expr], span=call.span) if not x.zero_point.any()
            else Call(Maximum(), [x.expr, zero], span=call.span))
    return replace(x, expr=made)


@quantized_form(Clip)
def clip(call: Call, args: Sequence[Argument]) -> Quantized | None:
    """Quantize the bounds, for bytes only: sums are clipped as floats."""
    (x,) = args
    if not isinstance(x, Quantized) or not x.uniform or not of_bytes(x):
        return None
    low, high = (round(float(b) / float(x.scale.item())) + int(x.zero_point.item())
                 for b in (call.attrs.a_min, call.attrs.a_max))
    return Quantized(Call(Clip(low, high), [x.expr], span=call.span), x.scale, x.zero_point)


@quantized_form(MaxPool1d, MaxPool2d, MaxPool3d, Reshape, Squeeze, ExpandDims, BatchFlatten, Transpose, StridedSlice)
def same_numbers(call: Call, args: Sequence[Argument]) -> Quantized | None:
    """Keep the quantization for operators that select and move elements."""
    x = args[0]
    if not isinstance(x, Quantized) or not x.uniform or any(isinstance(a, Quantized) for a in args[1:]):
        return None
    rest: list[Any] = list(args[1:])
    return replace(x, expr=Call(call.op, [x.expr, *rest], span=call.span))


@quantized_form(GlobalAvgPool2d)
def global_average(call: Call, args: Sequence[Argument]) -> Quantized | None:
    """The int32 sum of all pixels, with their number as `parts`."""
    (x,) = args
    if not isinstance(x, Quantized) or not x.uniform or not of_bytes(x) or call.attrs.layout not in ("NCHW", "NHWC"):
        return None
    spatial = (2, 3) if call.attrs.layout == "NCHW" else (1, 2)
    sizes = [x.expr.tensor_type.shape[d] for d in spatial]
    if not all(isinstance(n, int) for n in sizes) or sizes[0] * sizes[1] >= 1 << 20:
        return None
    count = sizes[0] * sizes[1]
    total = Call(Sum(axis=spatial, keepdims=True), [Call(Cast("int32"), [x.expr], span=call.span)], span=call.span)
    return Quantized(total, x.scale, np.asarray(x.zero_point * count, np.int32), parts=count)


@quantized_form(Concatenate)
def concatenate(call: Call, args: Sequence[Argument]) -> Quantized | None:
    """Concatenate tensors with the same scale, zero point and type."""
    parts = list(args)
    first = parts[0]
    if not isinstance(first, Quantized):
        return None
    found: list[Expr] = []
    for p in parts:
        if (not isinstance(p, Quantized) or not p.worth_the_same(first)
                or p.expr.tensor_type.dtype is not first.expr.tensor_type.dtype):
            return None
        found.append(p.expr)
    return Quantized(Call(call.op, [Tuple(tuple(found))], span=call.span), first.scale, first.zero_point)
