"""Store quantized data in one type: signed or unsigned bytes, whose zero points differ by 128.

    qnn.conv2d(qnn.quantize(%x, s, 114, out_dtype="uint8"), w, 114, …)
    -> qnn.conv2d(qnn.quantize(%x, s, -14, out_dtype="int8"), w, -14, …)

One sweep. Weights are not changed. Values are converted at inputs, at outputs, and around unknown operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from tilewright.base.errors import OptionError
from tilewright.base.types import DataType, TensorType
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.expr import Call, Constant, Expr, Function, Tuple
from tilewright.relay.op.broadcast import Add
from tilewright.relay.op.elementwise import Clip
from tilewright.relay.op.nn_pool import MaxPool2d
from tilewright.relay.op.registry import Op
from tilewright.relay.op.shaping import BatchFlatten, ExpandDims, Reshape, Squeeze
from tilewright.relay.op.transform import Concatenate, Pad, StridedSlice, Transpose
from tilewright.relay.qnn import numerics as N
from tilewright.relay.qnn.arithmetic import Arithmetic, QnnAdd, QnnMul, QnnSubtract
from tilewright.relay.qnn.functions import Requantized
from tilewright.relay.qnn.products import QnnConv2d, QnnDense
from tilewright.relay.qnn.scaling import Dequantize, Quantize, Requantize
from tilewright.relay.visitor import operands, post_order, with_operands

BYTES: Final = ("int8", "uint8")


@dataclass(frozen=True)
class UnifyType(FunctionPass):
    """Store quantized data as `dtype`, "int8" or "uint8". Needs known types. Raises `OptionError` for other types."""

    dtype: str = "uint8"
    kind: ClassVar[type] = Function

    def __post_init__(self) -> None:
        if self.dtype not in BYTES:
            raise OptionError(f"dtype {self.dtype} is not supported for quantized data; it must be int8 or "
                              "uint8", code="TW1004")

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        sweep = _Sweep(self.dtype)
        for e in post_order(function.body, inside=False):
            sweep.visit(e)
        body = sweep.plain(function.body)
        return function if body is function.body else function.with_body(body)


class _Sweep:
    """One sweep; `moved` maps values to their form in the wanted type, `new` maps the others to their replacements."""

    def __init__(self, dtype: str) -> None:
        self.dtype = DataType(dtype)
        self.other = DataType("int8" if dtype == "uint8" else "uint8")
        self.offset = 128 if dtype == "uint8" else -128
        self.new: dict[Expr, Expr] = {}
        self.moved: dict[Expr, Expr] = {}

    def visit(self, e: Expr) -> None:
        rule = _RULES.get(type(e.op)) if isinstance(e, Call) and isinstance(e.op, Op) else None
        if (rule is None or not isinstance(e, Call) or not any(map(self.is_other, (e, *_tensors(e))))
                or not self.follows(e)):
            old = operands(e)
            now = [self.plain(o) for o in old]
            self.new[e] = e if all(a is b for a, b in zip(old, now, strict=True)) else with_operands(e, now)
            return
        made = rule(self, e)
        if self.is_other(e):
            self.moved[e] = made
        else:
            self.new[e] = made

    def follows(self, e: Call) -> bool:
        """Whether a call is of the dialect, or has converted arguments."""
        if e.op.name.startswith("qnn."):
            return True
        first = e.args[0]
        return any(t in self.moved for t in (first.fields if isinstance(first, Tuple) else (first,)))

    def is_other(self, e: Expr) -> bool:
        """Whether a value has the type to be replaced."""
        kind = e.known_type()
        return isinstance(kind, TensorType) and kind.dtype is self.other

    def plain(self, e: Expr) -> Expr:
        """The value in its original type."""
        if e not in self.new:
            self.new[e] = _shifted(self.moved[e], -self.offset, self.other) if e in self.moved else e
        return self.new[e]

    def data(self, e: Expr) -> Expr:
        """The value in the wanted type."""
        if not self.is_other(e):
            return self.plain(e)
        if e not in self.moved:
            self.moved[e] = _shifted(self.plain(e), self.offset, self.dtype)
        return self.moved[e]

    def zero(self, of: Expr, zero_point: Expr) -> Expr:
        """The zero point of a value in the wanted type."""
        if not self.is_other(of):
            return zero_point
        if isinstance(zero_point, Constant):
            return Constant(zero_point.value + np.int32(self.offset), zero_point.span)
        return Call(Add(), [zero_point, N.constant(self.offset, "int32")], span=zero_point.span)

    def out(self, e: Call) -> dict[str, Any]:
        """The attribute for the result type of an operator, if its result has the type to be replaced."""
        return {"out_dtype": self.dtype} if self.is_other(e) else {}

    # Rules

    def quantize(self, e: Call) -> Expr:
        x, scale, zero = e.args
        return _again(e, {"out_dtype": self.dtype}, [self.plain(x), scale, self.zero(e, zero)])

    def dequantize(self, e: Call) -> Expr:
        x, scale, zero = e.args
        return _again(e, {}, [self.data(x), scale, self.zero(x, zero)])

    def requantize(self, e: Call) -> Expr:
        x, scale, zero, to, out_zero = e.args
        return _again(e, self.out(e), [self.data(x), scale, self.zero(x, zero), to, self.zero(e, out_zero)])

    def product(self, e: Call) -> Expr:
        x, w, zx, *rest = e.args
        return _again(e, {}, [self.data(x), self.plain(w), self.zero(x, zx), *rest])

    def arithmetic(self, e: Call) -> Expr:
        a, b, sa, za, sb, zb, s, z = e.args
        return _again(e, {},
                      [self.data(a), self.data(b), sa, self.zero(a, za), sb, self.zero(b, zb), s, self.zero(e, z)])

    def function(self, e: Call) -> Expr:
        x, s, z, to, out_zero = e.args
        return _again(e, {}, [self.data(x), s, self.zero(x, z), to, self.zero(e, out_zero)])

    def clip(self, e: Call) -> Expr:
        bounds = {k: float(getattr(e.op, k) + self.offset) for k in ("a_min", "a_max")}
        return _again(e, bounds, [self.data(e.args[0])])

    def pad(self, e: Call) -> Expr:
        x, value = e.args[0], e.args[1] if len(e.args) > 1 else N.constant(0, "float32")
        if e.op.pad_mode != "constant":
            return _again(e, {}, [self.data(x), value])
        if isinstance(value, Constant):
            return _again(e, {}, [self.data(x), N.constant(float(value.value.item()) + self.offset, "float32")])
        return _shifted(Call(e.op, [self.plain(x), value], span=e.span), self.offset, self.dtype)

    def moving(self, e: Call) -> Expr:
        """Convert operators that select and move elements."""
        return _again(e, {}, [self.data(e.args[0]), *map(self.plain, e.args[1:])])

    def joined(self, e: Call) -> Expr:
        if not isinstance(e.args[0], Tuple):
            return _shifted(Call(e.op, [self.plain(e.args[0])], span=e.span), self.offset, self.dtype)
        return _again(e, {}, [Tuple(tuple(map(self.data, e.args[0].fields)), e.args[0].span)])


def _tensors(e: Call) -> Sequence[Expr]:
    """The arguments that may be data."""
    return e.args[:2] if isinstance(e.op, Arithmetic) else e.args[:1]


def _again(e: Call, given: dict[str, Any], args: Sequence[Expr]) -> Call:
    return Call(type(e.op)(**{**e.op.attributes(), **given}) if given else e.op, list(args), span=e.span)


def _shifted(x: Expr, by: int, dtype: DataType) -> Expr:
    """Bytes offset by 128, in the other type."""
    if isinstance(x, Constant):
        return Constant((x.value.astype(np.int16) + by).astype(dtype.numpy()), x.span)
    return N.casted(Call(Add(), [N.casted(x, "int16", x.span), N.constant(by, "int16")], span=x.span), dtype, x.span)


_RULES: Final[dict[type[Op], Callable[[_Sweep, Call], Expr]]] = {
    Quantize: _Sweep.quantize, Dequantize: _Sweep.dequantize, Requantize: _Sweep.requantize,
    **dict.fromkeys((QnnConv2d, QnnDense), _Sweep.product),
    **dict.fromkeys((QnnAdd, QnnSubtract, QnnMul), _Sweep.arithmetic),
    **dict.fromkeys(Requantized.__subclasses__(), _Sweep.function),
    Clip: _Sweep.clip, Pad: _Sweep.pad, Concatenate: _Sweep.joined,
    **dict.fromkeys((MaxPool2d, Reshape, Squeeze, ExpandDims, BatchFlatten, Transpose, StridedSlice), _Sweep.moving),
}
