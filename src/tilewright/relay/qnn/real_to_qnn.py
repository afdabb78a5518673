"""Replace float arithmetic between dequantize and quantize by operators of the qnn dialect.

    qnn.quantize(nn.relu(add(qnn.dequantize(%a, sa, za), qnn.dequantize(%b, sb, zb))), s, z)
    -> clip(qnn.add(%a, %b, sa, za, sb, zb, s, z), z, 255)

    %0 = nn.conv2d(qnn.dequantize(%x, sx, zx), qnn.dequantize(w, sw, 0))
    qnn.quantize(nn.bias_add(%0, qnn.dequantize(b, sx * sw, 0)), s, z)
    -> qnn.requantize(nn.bias_add(qnn.conv2d(%x, w, zx, 0, sx, sw), b), sx * sw, 0, s, z)

Unlike `FakeQuantizationToInteger`, which lowers to integer arithmetic, it keeps the operators that accelerators match,
and leaves their roundings open.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np

from tilewright.base.types import DataType
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.expr import Call, Constant, Expr, Function, Tuple
from tilewright.relay.op.broadcast import Add, Multiply
from tilewright.relay.op.elementwise import Clip, Relu, Sigmoid, Tanh
from tilewright.relay.op.nn_conv import Conv2d
from tilewright.relay.op.nn_matmul import BiasAdd, Dense
from tilewright.relay.op.nn_norm import Softmax
from tilewright.relay.op.nn_pool import AdaptiveAvgPool2d, AvgPool2d, GlobalAvgPool2d, MaxPool2d
from tilewright.relay.op.registry import Op
from tilewright.relay.op.shaping import BatchFlatten, ExpandDims, Reshape, Squeeze
from tilewright.relay.op.transform import Concatenate, Pad, StridedSlice, Transpose
from tilewright.relay.qnn import numerics as N
from tilewright.relay.qnn.affine import RULES, Quantized
from tilewright.relay.qnn.arithmetic import QnnAdd, QnnMul
from tilewright.relay.qnn.functions import QnnAvgPool2d, QnnSigmoid, QnnSoftmax, QnnTanh
from tilewright.relay.qnn.scaling import Dequantize, Quantize, Requantize
from tilewright.relay.visitor import rewrite


@dataclass(frozen=True, eq=False)
class Wanted:
    """The type, scale and zero point of a result, and its real bounds."""

    dtype: DataType
    scale: Constant
    zero_point: Constant
    axis: int
    least: float = -math.inf
    most: float = math.inf

    def held(self, x: Expr) -> Expr:
        """Clip integers `x` to the bounds, unless the type already does."""
        low, high = N.limits(self.dtype)
        if self.scale.value.size != 1 or self.zero_point.value.size != 1:
            return x
        least, most = (self.place(v) for v in (self.least, self.most))
        return x if least <= low and most >= high else Call(Clip(float(max(low, least)), float(min(high, most))), [x],
            span=x.span)

    def place(self, real: float) -> int:
        """Quantize a number to an integer in the range of the type."""
        low, high = N.limits(self.dtype)
        if math.isinf(real):
            return low if real < 0 else high
        whole = float(np.rint(np.float32(real) / self.scale.value.reshape(()))) + int(self.zero_point.value.reshape(()))
        return int(min(max(whole, low), high))


Maker = Callable[[Wanted], "Expr | None"]
"""Builds the integer form of a float value; returns None if it has none."""


@dataclass(frozen=True)
class RealToQnn(FunctionPass):
    """Replace regions between `qnn.dequantize` and `qnn.quantize` by operators of the dialect that accelerators match.
    Needs known types.

    Regions without a form in the dialect stay in float.
    """

    kind: ClassVar[type] = Function

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        return rewrite(function, _Sweep().visit)


class _Sweep:
    def __init__(self) -> None:
        self.quantized: dict[Expr, Quantized] = {}
        self.makers: dict[Expr, Maker] = {}

    def visit(self, e: Expr) -> Expr | None:
        """The replacement of `e`, or None; records its quantization, or how to build its integer form."""
        if not isinstance(e, Call) or not isinstance(e.op, Op):
            return None
        if isinstance(e.op, Dequantize):
            self._dequantize(e)
        elif isinstance(e.op, Quantize):
            return self._quantize(e)
        else:
            rule = _RULES.get(type(e.op))
            if rule is not None:
                rule(self, e)
        return None

    def _dequantize(self, e: Call) -> None:
        x, scale, zero_point = e.args
        if isinstance(scale, Constant) and isinstance(zero_point, Constant) and e.attrs.out_dtype == "float32":
            self.quantized[e] = Quantized(x, np.asarray(scale.value, np.float32),
                                          np.asarray(zero_point.value, np.int32), e.attrs.axis)

    def _quantize(self, e: Call) -> Expr | None:
        x, scale, zero_point = e.args
        if not isinstance(scale, Constant) or not isinstance(zero_point, Constant):
            return None
        how: Any = e.op
        if isinstance(x, Constant):
            return Constant(how.reference(x.value, scale.value, zero_point.value), e.span)
        return self.made(x, Wanted(DataType(how.out_dtype), scale, zero_point, how.axis))

    def made(self, x: Expr, wanted: Wanted) -> Expr | None:
        """The integer form of a float value, or None."""
        q = self.quantized.get(x)
        if q is not None:
            return _requantized(q, wanted)
        maker = self.makers.get(x)
        return None if maker is None else maker(wanted)

    # Rules for calls on floats

    def product(self, e: Call) -> None:
        found = RULES[type(e.op)](e, [self.quantized.get(a, a) for a in e.args])
        if found is not None:
            self.quantized[e] = found

    def bias(self, e: Call) -> None:
        """A bias of sums; `add` of a constant along one axis counts as one."""
        if self.quantized.get(e.args[0]) is not None:
            self.product(e)

    def moved(self, e: Call) -> None:
        x = self.quantized.get(e.args[0])
        if x is not None and x.uniform and x.expr.tensor_type.dtype.bits <= 16:
            self.quantized[e] = Quantized(Call(e.op, [x.expr, *e.args[1:]], span=e.span), x.scale, x.zero_point)

    def padded(self, e: Call) -> None:
        """Padding by zero -> padding by the zero point."""
        x, value = self.quantized.get(e.args[0]), e.args[1] if len(e.args) > 1 else None
        if x is None or not x.uniform or e.attrs.pad_mode != "constant" or (value is not None
                and (not isinstance(value, Constant) or value.value.any())):
            return
        zero = N.constant(x.zero_point.reshape(()), "float32")
        self.quantized[e] = Quantized(Call(e.op, [x.expr, zero], span=e.span), x.scale, x.zero_point)

    def held(self, e: Call) -> None:
        """Record the bounds of relu or clip for the integer form."""
        least, most = (0.0, math.inf) if isinstance(e.op, Relu) else (float(e.attrs.a_min), float(e.attrs.a_max))
        x = e.args[0]

        def maker(wanted: Wanted) -> Expr | None:
            return self.made(x, replace(wanted, least=max(least, wanted.least), most=min(most, wanted.most)))

        if x in self.quantized or x in self.makers:
            self.makers[e] = maker

    def binary(self, e: Call) -> None:
        a, b = (self._bytes(v) for v in e.args)
        if a is None or b is None or a.expr.tensor_type.dtype is not b.expr.tensor_type.dtype:
            return
        operator = QnnAdd() if isinstance(e.op, Add) else QnnMul()

        def maker(wanted: Wanted) -> Expr | None:
            if wanted.dtype is not a.expr.tensor_type.dtype:
                return None
            args = [a.expr, b.expr, *a.parameters(), *b.parameters(), wanted.scale, wanted.zero_point]
            return wanted.held(Call(operator, args, span=e.span))

        self.makers[e] = maker

    def _bytes(self, x: Expr) -> Quantized | None:
        q = self.quantized.get(x)
        return q if q is not None and q.uniform and q.expr.tensor_type.dtype.bits == 8 else None

    def function(self, e: Call) -> None:
        x = self._bytes(e.args[0])
        operator = None if x is None else _function_of(e)
        if x is None or operator is None:
            return

        def maker(wanted: Wanted) -> Expr | None:
            if wanted.dtype is not x.expr.tensor_type.dtype:
                return None
            return wanted.held(Call(operator, [x.expr, *x.parameters(), wanted.scale, wanted.zero_point], span=e.span))

        self.makers[e] = maker

    def joined(self, e: Call) -> None:
        """Requantize each part to the scale of the result, then concatenate."""
        if not isinstance(e.args[0], Tuple):
            return
        parts = list(e.args[0].fields)

        def maker(wanted: Wanted) -> Expr | None:
            found: list[Expr] = []
            for part in parts:
                x = self.made(part, wanted)
                if x is None:
                    return None
                found.append(x)
            return Call(e.op, [Tuple(tuple(found))], span=e.span)

        if all(p in self.quantized or p in self.makers for p in parts):
            self.makers[e] = maker


def _requantized(q: Quantized, wanted: Wanted) -> Expr | None:
    """`q` in another quantization: clipped only if that is equal, otherwise requantized."""
    given = (q.scale, q.zero_point, wanted.scale.value, wanted.zero_point.value)
    if q.expr.tensor_type.dtype is wanted.dtype and q.worth_the_same(Quantized(q.expr, *given[2:])):
        return wanted.held(q.expr)
    if not q.uniform and any(p.size > 1 for p in given[2:]) and q.axis != wanted.axis:
        return None
    how = Requantize(axis=q.axis if not q.uniform else wanted.axis, out_dtype=wanted.dtype)
    return wanted.held(Call(how, [q.expr, *q.parameters(), wanted.scale, wanted.zero_point], span=q.expr.span))


def _function_of(e: Call) -> Op | None:
    """The operator of the dialect equivalent to a float operator, or None."""
    how: Any = e.op
    if isinstance(how, Softmax):
        return QnnSoftmax(how.axis)
    if isinstance(how, Sigmoid):
        return QnnSigmoid()
    if isinstance(how, Tanh):
        return QnnTanh()
    if isinstance(how, AvgPool2d):
        return QnnAvgPool2d(**how.attributes())
    layout = how.layout
    sizes, wanted = ([t.tensor_type.shape[layout.index(c)] for c in "HW"] for t in (e.args[0], e))
    if layout not in ("NCHW", "NHWC") or not all(isinstance(n, int) and isinstance(m, int) and n % m == 0
            for n, m in zip(sizes, wanted, strict=True)):
        return None
    window = tuple(n // m for n, m in zip(sizes, wanted, strict=True))
    return QnnAvgPool2d(pool_size=window, strides=window, layout=layout, count_include_pad=False)


_RULES: Final[dict[type[Op], Callable[[_Sweep, Call], None]]] = {
    **dict.fromkeys((Conv2d, Dense), _Sweep.product), BiasAdd: _Sweep.bias, Pad: _Sweep.padded,
    Concatenate: _Sweep.joined,
    **dict.fromkeys((MaxPool2d, Reshape, Squeeze, ExpandDims, BatchFlatten, Transpose, StridedSlice), _Sweep.moved),
    **dict.fromkeys((Relu, Clip), _Sweep.held), **dict.fromkeys((Add, Multiply), _Sweep.binary),
    **dict.fromkeys((Softmax, Sigmoid, Tanh, AvgPool2d, AdaptiveAvgPool2d, GlobalAvgPool2d), _Sweep.function),
}
