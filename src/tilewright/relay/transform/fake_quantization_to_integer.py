"""Convert regions of floating-point operators between dequantize and quantize to integer arithmetic.

    %0 = qnn.dequantize(%x, sx, zx); %1 = qnn.dequantize(w, sw, 0); %2 = nn.conv2d(%0, %1); qnn.quantize(%2, s, z)
    -> %0 = qnn.conv2d(%x, w, zx, 0, sx, sw); qnn.requantize(%0, sx * sw, 0, s, z)

One sweep tracks which values are quantized, and their parameters (`relay/qnn/affine.py` has a rule for each operator).
By default, a region is converted if it ends in a quantization. With `use_qat`, for networks trained with quantization,
every operator of quantized arguments is converted, and its result is dequantized for floating-point readers:

    nn.softmax(nn.dense(qnn.dequantize(%x, sx, zx), qnn.dequantize(w, sw, 0)))
    -> %0 = qnn.dense(%x, w, zx, 0, sx, sw); nn.softmax(qnn.dequantize(%0, sx * sw, 0))

Sums, products, window means and softmax of quantized values that are followed by a quantization use the kernels of
`relay/qnn/onnx_runtime.py`. Without `use_qat`, more operators are converted (`relay/qnn/affine_regions.py`).
Operators without a rule stay in floating point between dequantize and quantize.
Elementwise ones are fused into the previous kernel in either case.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np

from tilewright.base.errors import CompileError, OptionError
from tilewright.ir.module import IRModule
from tilewright.ir.op_attributes import op_attr
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem
from tilewright.relay.op import hooks
from tilewright.relay.op.broadcast import Add, Multiply
from tilewright.relay.op.elementwise import Relu
from tilewright.relay.op.hooks import register_fake_quantization_to_integer
from tilewright.relay.op.nn_norm import Softmax
from tilewright.relay.op.nn_pool import AvgPool2d
from tilewright.relay.op.registry import Op, get
from tilewright.relay.qnn import onnx_runtime
from tilewright.relay.qnn.affine import RULES, Argument, Quantized, is_rounded_bias
from tilewright.relay.qnn.affine_regions import CLOSING, REGION_RULES, closed
from tilewright.relay.qnn.numerics import limits
from tilewright.relay.qnn.scaling import Dequantize, Quantize, Requantize
from tilewright.relay.transform.registered_integer_forms import REFUSALS, registered_form
from tilewright.relay.visitor import operands, post_order, rewrite

__all__ = ["FakeQuantizationToInteger", "register_fake_quantization_to_integer"]

_CONVERTED: Final = frozenset({*RULES, *REGION_RULES, *CLOSING, Add, AvgPool2d, Multiply, Softmax})
"""Operators that have an integer form, for some arguments."""


@dataclass(frozen=True)
class FakeQuantizationToInteger(FunctionPass):
    """Rewrite regions between `qnn.dequantize` and `qnn.quantize` to integer operators. Needs known types.

    A requantization multiplies by a float32 and rounds ties to even, like the quantization that it replaces. An
    operator without an integer form stays in floating point; with `hard_fail` it is a `CompileError`. `use_qat` also
    converts operators that no quantization follows. Operators in `optional_qnn_ops` must have an integer form
    (`OptionError`). A floating-point bias is rounded to units of the sums, as in TVM. With `keep_real_bias` it is added
    in floating point, as the runtimes of such models do.
    """

    hard_fail: bool = False
    use_qat: bool = False
    optional_qnn_ops: Sequence[str] | None = None
    keep_real_bias: bool = False
    exact: ClassVar[bool] = False
    kind: ClassVar[type] = Function
    required: ClassVar[tuple[str, ...]] = ("InferType",)

    def __post_init__(self) -> None:
        for name in self.optional_qnn_ops or ():
            if get(name) not in _CONVERTED:
                raise OptionError(f"{name} has no integer form; remove it from optional_qnn_ops", code="TW1005")

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        sweep = _Sweep(self.use_qat, self.keep_real_bias, self.hard_fail)
        new = rewrite(function, sweep.visit)
        if self.hard_fail and isinstance(new, Function):
            _check_regions(new, sweep.quantized)
        return new


def _check_regions(function: Function, quantized: Container[Expr]) -> None:
    """Raise `CompileError` for the first operator of a region, other than `quantized`, that stays in floating point.

    A region lies between a quantization and the dequantizations and constants that it depends on exclusively.
    """
    order = [e for e in post_order(function.body) if isinstance(e, (Call, Tuple, TupleGetItem, Constant))]
    # values computed only from dequantized values and constants -> whether a dequantized value is among them
    regions: dict[Expr, bool] = {}
    for e in order:
        if _is(e, Dequantize) or isinstance(e, Constant):
            regions[e] = not isinstance(e, Constant)
            continue
        below = operands(e)[:1] if _is(e, Quantize) else operands(e)
        if (not isinstance(e, Call) or isinstance(e.op, Op)) and all(o in regions for o in below):
            regions[e] = any(regions[o] for o in below)
    inside: set[Expr] = set()
    for e in reversed(order):
        if regions.get(e) and (e in inside or _is(e, Quantize)) and not _is(e, Dequantize):
            inside.update((e, *operands(e)))
    for e in order:
        if e in inside and e not in quantized and regions[e] and isinstance(e, Call) and isinstance(e.op, Op):
            known = type(e.op) in _CONVERTED or isinstance(e.op, (Dequantize, Quantize))
            why = ("for these arguments: a scale or zero point is not constant, is per channel, or differs"
                   if known else "")
            advice = "quantize before it, or keep it in floating point with hard_fail=False"
            raise CompileError(f"{e.op.name} has no integer form{why and ' '}{why}; {advice}", e.span,
                               code="TW1005")


def _is(e: Expr, kind: type[Op]) -> bool:
    return isinstance(e, Call) and isinstance(e.op, kind)


class _Sweep:
    def __init__(self, everywhere: bool, keep_real_bias: bool, hard_fail: bool) -> None:
        self.everywhere, self.keep_real_bias, self.hard_fail = everywhere, keep_real_bias, hard_fail
        self.quantized: dict[Expr, Quantized] = {}
        self.by_region: set[Expr] = set()
        """Values that have an integer form only because a quantization follows."""

    @property
    def in_regions(self) -> bool:
        """Whether operators are converted only if a quantization follows, so that more of them are."""
        return not self.everywhere and not self.keep_real_bias

    def visit(self, e: Expr) -> Expr | None:
        """Return the replacement of `e` over replaced operands, and record its quantization parameters."""
        if isinstance(e, TupleGetItem) and (whole := self.quantized.get(e.tuple_value)) is not None:
            self.quantized[e] = replace(whole, expr=TupleGetItem(whole.expr, e.index, span=e.span))
        if not isinstance(e, Call) or not isinstance(e.op, Op):
            return None
        if isinstance(e.op, Dequantize):
            if (found := _dequantized(e)) is not None:
                self.quantized[e] = found
            return None
        if isinstance(e.op, Quantize):
            return self._quantize(e)
        return self._rule(e)

    def _rule(self, e: Call) -> Expr | None:
        kind, registered = type(e.op), op_attr(e.op.name, hooks.FAKE_QUANTIZATION)
        if registered is None and kind not in RULES and not (self.in_regions and kind in REGION_RULES):
            return None
        given: Sequence[Expr] = e.args[0].fields if isinstance(e.args[0], Tuple) and e.op.variadic else e.args
        args: list[Argument] = [self.quantized.get(a, a) for a in given]
        if not any(isinstance(a, Quantized) for a in args) or (self.keep_real_bias and is_rounded_bias(e, args)):
            return None
        found = (self._registered(registered, e, args) if registered is not None
                 else RULES[kind](e, args) if kind in RULES else None)
        if registered is None and found is None and self.in_regions and kind in REGION_RULES:
            found = REGION_RULES[kind](e, args)
            self.by_region.add(e)
        if any(a in self.by_region for a in given):
            self.by_region.add(e)
        if found is None:
            return None
        real = found.dequantized() if self.everywhere else e
        self.quantized[real] = found
        return real

    def _registered(self, form: Any, e: Call, args: Sequence[Argument]) -> Quantized | None:
        """Return the integers that a program's function gives; None if it refuses, and `hard_fail` is not set."""
        try:
            return registered_form(form, e, args)
        except REFUSALS as error:
            if self.hard_fail:
                raise CompileError(
                    f"the registered integer form of {e.op.name} refuses this call: {error}", e.span,
                    code="TW1005") from error
            return None

    def _quantize(self, e: Call) -> Expr | None:
        x, scale, zero_point = e.args
        if isinstance(x, Constant) and isinstance(scale, Constant) and isinstance(zero_point, Constant):
            return Constant(e.op.reference(x.value, scale.value, zero_point.value), e.span)
        if not isinstance(scale, Constant) or not isinstance(zero_point, Constant):
            return None
        out: Any = e.op
        wanted = Quantized(e, scale.value, zero_point.value)
        found = self.quantized.get(x)
        if found is None or x in self.by_region:
            integers = self._fused(x, wanted)
            if found is None or integers is not None:
                return integers
        if found.worth_the_same(wanted) and found.expr.known_type() == e.known_type():
            return found.expr
        parameters = [found.scale, found.zero_point]
        if (any(p.size > 1 for p in parameters) and any(p.value.size > 1 for p in (scale, zero_point))
                and found.axis != out.axis):
            return None
        axis = found.axis if not found.uniform else out.axis
        how = Requantize(axis=axis, rounding="TOEVEN", compute_dtype="float32", out_dtype=out.out_dtype)
        whole = scale if found.parts == 1 else Constant(np.asarray(scale.value * np.float32(found.parts)))
        return Call(how, [found.expr, *map(Constant, parameters), whole, zero_point], span=e.span)

    def _fused(self, x: Expr, wanted: Quantized) -> Expr | None:
        """Return the operator between quantized values for which ONNX Runtime has a kernel, or None."""
        positive = (isinstance(x, Call) and isinstance(x.op, Relu) and wanted.uniform
                    and wanted.zero_point.item() == limits(wanted.expr.tensor_type.dtype)[0])
        made = x.args[0] if isinstance(x, Call) and positive else x
        if not isinstance(made, Call) or not isinstance(made.op, Op):
            return None
        operands_of = made.args[0].fields if isinstance(made.args[0], Tuple) and made.op.variadic else made.args
        args = [self.quantized.get(a) for a in operands_of]
        given = [a for a in args if a is not None]
        if len(given) < len(args):
            return None
        integers = onnx_runtime.fused(made, given, wanted)
        is_open = integers is None and self.in_regions and made is x and x not in self.quantized
        return closed(made, given, wanted) if is_open else integers


def _dequantized(e: Call) -> Quantized | None:
    x, scale, zero_point = e.args
    if not isinstance(scale, Constant) or not isinstance(zero_point, Constant) or e.attrs.out_dtype != "float32":
        return None
    return Quantized(x, np.asarray(scale.value, np.float32), np.asarray(zero_point.value, np.int32), e.attrs.axis)
