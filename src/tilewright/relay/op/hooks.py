"""Hooks that programs register for operators by name, to change how passes treat their calls.

Each function registers a hook, or returns a decorator if called without one. A hook of a higher level replaces one of a
lower level. The keys are those of TVM, so `tvm.ir.register_op_attr(name, "FTVMLegalize", f)` is equivalent.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, Final

from tilewright.ir.op_attributes import OP_ATTRIBUTES, register_op_attr
from tilewright.relay.op.registry import Fusion, get

LEGALIZE: Final = "FTVMLegalize"
QNN_LEGALIZE: Final = "FTVMQnnLegalize"
QNN_CANONICALIZE: Final = "FTVMQnnCanonicalize"
ALTER_OP_LAYOUT: Final = "FTVMAlterOpLayout"
CONVERT_OP_LAYOUT: Final = "FTVMConvertOpLayout"
INFER_LAYOUT: Final = "FInferCorrectLayout"
MIXED_PRECISION: Final = "FTVMMixedPrecisionConversionType"
FAKE_QUANTIZATION: Final = "FTVMFakeQuantizationToInteger"
STRATEGY: Final = "FTVMStrategy"
SCHEDULE: Final = "FTVMSchedule"
COMPUTE: Final = "FTVMCompute"
GRADIENT: Final = "FPrimalGradient"
PATTERN: Final = "TOpPattern"
STATEFUL: Final = "TOpIsStateful"


class OpPattern(enum.IntEnum):
    """Fusion classes with TVM's names and numbers: values of the operator attribute `TOpPattern`."""

    ELEMWISE = Fusion.ELEMWISE
    BROADCAST = Fusion.BROADCAST
    INJECTIVE = Fusion.INJECTIVE
    COMM_REDUCE = Fusion.REDUCE
    OUT_ELEMWISE_FUSABLE = Fusion.OUT_FUSABLE
    TUPLE = 7
    OPAQUE = Fusion.OPAQUE


Function = Callable[..., Any]


def register_legalize(op_name: str, legal_op: Function | None = None, level: int = 10) -> Function:
    """Register the hook of `Legalize`: `f(attrs, inputs, types)` returns an expression of the same type, or None."""
    return register_op_attr(op_name, LEGALIZE, legal_op, level)


def register_qnn_legalize(op_name: str, legal_op: Function | None = None, level: int = 10) -> Function:
    """Register the hook of `qnn.transform.Legalize`, with the signature of `register_legalize`'s."""
    return register_op_attr(op_name, QNN_LEGALIZE, legal_op, level)


def register_alter_op_layout(op_name: str, alter_layout: Function | None = None, level: int = 10) -> Function:
    """Register the hook of `AlterOpLayout`.

    `f(attrs, inputs, tinfos, out_type)` returns an operator with other layouts applied to `inputs`, or None.
    """
    return register_op_attr(op_name, ALTER_OP_LAYOUT, alter_layout, level)


def register_convert_op_layout(op_name: str, convert_layout: Function | None = None, level: int = 10) -> Function:
    """Register the hook of `ConvertLayout`.

    `f(attrs, inputs, types, desired_layouts)` returns the operator with those layouts applied to `inputs`, or None.
    """
    return register_op_attr(op_name, CONVERT_OP_LAYOUT, convert_layout, level)


def register_infer_correct_layout(op_name: str, infer_layout: Function | None = None, level: int = 10) -> Function:
    """Register how an operator adapts to the layouts of its arguments in `ConvertLayout` and `AlterOpLayout`.

    `f(attrs, new_in_layouts, old_in_layouts, old_in_types)` returns an `InferCorrectLayoutOutput`. A layout is a
    `tir.layout`; one without axes stands for the logical order of a value whose axes have no letters.
    """
    return register_op_attr(op_name, INFER_LAYOUT, infer_layout, level)


def register_mixed_precision_conversion(op_name: str, func: Function | None = None, level: int = 10) -> Function:
    """Register the hook of `ToMixedPrecision`.

    `f(call, mixed_precision_type)` returns `[category, accumulation dtype, output dtype]`. The category is 0 (always in
    16 bits), 1 (if its arguments are) or 2 (never). Each dtype is the given type or "float32": an operator with an
    `out_dtype` accumulates in the first, and the result of a call in 16 bits is cast to the second.
    """
    return register_op_attr(op_name, MIXED_PRECISION, func, level)


def register_fake_quantization_to_integer(op_name: str, func: Function | None = None, level: int = 10) -> Function:
    """Register the integer form of an operator for `FakeQuantizationToInteger`, in place of the package's.

    `f(expr, type_map)` takes the call on the integers of its arguments, and the `TensorAffineType` of each. It returns
    `[new expression, its TensorAffineType]`, or raises `NotImplementedError`: the operator then stays in float.
    """
    return register_op_attr(op_name, FAKE_QUANTIZATION, func, level)


def register_gradient(op_name: str, fgradient: Function | None = None, level: int = 10) -> Function:
    """Register the gradient rule of an operator, in place of the package's.

    `f(orig, grad)` returns the gradients of the arguments of the call `orig`, for the gradient `grad` of its result;
    None stands for zero.
    """
    return register_op_attr(op_name, GRADIENT, fgradient, level)


def is_replaced(op_name: str) -> bool:
    """Whether a program registered how to compute or schedule the operator; passes then keep its attributes."""
    return any((op_name, key) in OP_ATTRIBUTES for key in (STRATEGY, SCHEDULE, COMPUTE))


def register_compute(op_name: str, compute: Function | None = None, level: int = 10) -> Function:
    """Register the computation of an operator: `f(attrs, inputs, out_type)` returns the list of the output tensors."""
    return register_op_attr(op_name, COMPUTE, compute, level)


def register_strategy(op_name: str, fstrategy: Function | None = None, level: int = 10) -> Function:
    """Register the strategy of an operator: `f(attrs, inputs, out_type, target)` returns a `relay.op.OpStrategy`."""
    return register_op_attr(op_name, STRATEGY, fstrategy, level)


def register_schedule(op_name: str, schedule: Function | None = None, level: int = 10) -> Function:
    """Register the schedule of an operator: `f(attrs, outs, target)` returns the te schedule of a kernel."""
    return register_op_attr(op_name, SCHEDULE, schedule, level)


def register_pattern(op_name: str, pattern: int, level: int = 10) -> int:
    """Register the fusion class of an operator, a value of `OpPattern`."""
    return register_op_attr(op_name, PATTERN, pattern, level)


def register_stateful(op_name: str, stateful: bool, level: int = 10) -> bool:
    """Declare whether two calls of an operator with equal arguments may differ, so that none is folded or merged."""
    get(op_name).pure = not stateful
    return register_op_attr(op_name, STATEFUL, stateful, level)
