"""Arm Compute Library (`compute-library` in tvmc): operators of channels-last float32 and 8-bit networks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.global_functions import FUNCTIONS
from tilewright.ir.module import IRModule
from tilewright.relay.dataflow_pattern import DFPattern, is_constant, is_op, wildcard
from tilewright.relay.expr import Call, Expr
from tilewright.relay.op.contrib import PatternTable, Refusal, register_partitioner, register_pattern_table
from tilewright.relay.op.contrib.rules import (
    Rule,
    attr_is,
    bias_is_of_channels,
    chain_to,
    dtype_is,
    edited,
    inner,
    kept,
    partition_with,
    tensor,
    value_of,
)

TARGET: Final = "arm_compute_lib"
FLOAT: Final = ("float32",)
BYTES: Final = ("uint8", "int8")


def _constants(count: int) -> list[DFPattern]:
    return [is_constant() for _ in range(count)]


def _conv2d(quantized: bool) -> DFPattern:
    data = is_op("nn.pad")(wildcard(), is_constant()) | wildcard()
    conv: DFPattern = is_op("qnn.conv2d" if quantized else "nn.conv2d")(data, *_constants(5 if quantized else 1))
    biased = conv.optional(lambda p: is_op("nn.bias_add")(p, is_constant())).optional(is_op("nn.relu"))
    return is_op("qnn.requantize")(biased, *_constants(4)) if quantized else biased


def _dense(quantized: bool) -> DFPattern:
    dense: DFPattern = is_op("qnn.dense" if quantized else "nn.dense")(wildcard(), *_constants(5 if quantized else 1))
    biased = dense.optional(lambda p: is_op("nn.bias_add")(p, is_constant()))
    return is_op("qnn.requantize")(biased, *_constants(4)) if quantized else biased


def _check_conv2d(name: str, dtypes: tuple[str, ...]) -> Any:
    def check(e: Expr) -> bool | Refusal:
        conv = inner(e, name)
        op: Any = conv.op
        channels = tensor(conv.args[0]).shape[-1]
        found = kept([
            attr_is(conv, "data_layout", ("NHWC",)), dtype_is(conv.args[0], dtypes, "the input"),
            bias_is_of_channels(chain_to(e, name)),
            (op.groups in (1, channels), f"{name} has {op.groups} groups; it must have one, or one for each channel",
             "make groups 1"),
            (op.groups == 1 or (op.kernel_size[0] == op.kernel_size[1] and op.kernel_size[0] in (3, 5)),
             f"{name} of single channels has kernel_size {op.kernel_size}; it must be 3 x 3 or 5 x 5",
             "make kernel_size (3, 3)"),
            (op.groups == 1 or len(set(op.strides)) == 1, f"{name} of single channels has strides {op.strides}; they "
             "must be equal", "make strides equal"),
            (set(op.dilation) == {1} or op.groups == 1, f"{name} of single channels has dilation {op.dilation}; it "
             "must be 1", "make dilation 1", edited(name, dilation=(1, 1))),
        ])
        return found and _check_pad(conv, name)

    return check


def _check_pad(conv: Call, name: str) -> bool | Refusal:
    pad: Any = conv.args[0]
    if getattr(getattr(pad, "op", None), "name", "") != "nn.pad":
        return True
    widths, number = pad.op.pad_width, float(value_of(pad.args[1]))
    zero = float(value_of(conv.args[2])) if name.startswith("qnn.") else 0.0
    return kept([
        (not any((*widths[0], *widths[-1])), f"nn.pad pads {widths}; only rows and columns can be padded",
         "pad rows and columns only"),
        (number == zero, f"nn.pad pads with {number:g}, and zero of its input is {zero:g}", f"pad with {zero:g}",
         edited("nn.pad", {1: zero})),
    ])


def _check_dense(name: str, dtypes: tuple[str, ...]) -> Any:
    return (
        lambda e: kept([dtype_is(inner(e, name).args[0], dtypes, "the input"), bias_is_of_channels(chain_to(e, name))]))


def _check_pool(e: Expr) -> bool | Refusal:
    call: Any = e
    while not hasattr(call.op, "layout"):
        call = call.args[0]
    op: Any = call.op
    rules: list[Rule] = [attr_is(call, "layout", ("NHWC",)), dtype_is(e, (*FLOAT, *BYTES), "the result")]
    if hasattr(op, "dilation"):
        rules.append((set(op.dilation) == {1}, f"dilation of {op.name} is {op.dilation}; it must be 1",
                      "make dilation 1", edited(op.name, dilation=(1, 1))))
    return kept(rules)


def _check_l2_pool(e: Expr) -> bool | Refusal:
    power = inner(e, "power")
    exponent = value_of(power.args[1])
    found = _check_pool(e)
    return (found
            and kept(
                [(bool(np.all(exponent == 2)), f"the exponent before nn.avg_pool2d is {exponent}; it must be 2",
                  "make it 2"), dtype_is(e, FLOAT, "the result")]))


def _check_plain(e: Expr) -> bool | Refusal:
    return kept([dtype_is(e, (*FLOAT, *BYTES), "the result")])


def _check_pair(dtypes: tuple[str, ...]) -> Any:
    def check(e: Expr) -> bool | Refusal:
        a, b = e.args[:2]  # type: ignore[attr-defined]
        return kept([dtype_is(a, dtypes, "the first input"), dtype_is(b, dtypes, "the second input")])

    return check


def pattern_table() -> PatternTable:
    """The rows of the library, composites first."""
    pool = is_op("cast")(is_op("nn.avg_pool2d")(is_op("cast")(wildcard())))
    l2_pool = is_op("sqrt")(is_op("nn.avg_pool2d")(is_op("power")(wildcard(), is_constant())))
    return [
        ("arm_compute_lib.conv2d", _conv2d(quantized=False), _check_conv2d("nn.conv2d", FLOAT)),
        ("arm_compute_lib.qnn_conv2d", _conv2d(quantized=True), _check_conv2d("qnn.conv2d", BYTES)),
        ("arm_compute_lib.dense", _dense(quantized=False), _check_dense("nn.dense", FLOAT)),
        ("arm_compute_lib.qnn_dense", _dense(quantized=True), _check_dense("qnn.dense", BYTES)),
        ("arm_compute_lib.l2_pool2d", l2_pool, _check_l2_pool),
        ("arm_compute_lib.avg_pool2d", pool | is_op("qnn.avg_pool2d")(wildcard(), *_constants(4))
         | is_op("nn.avg_pool2d")(wildcard()), _check_pool),
        ("arm_compute_lib.max_pool2d", is_op("nn.max_pool2d")(wildcard()), _check_pool),
        ("arm_compute_lib.global_max_pool2d", is_op("nn.global_max_pool2d")(wildcard()), _check_pool),
        ("arm_compute_lib.global_avg_pool2d", is_op("nn.global_avg_pool2d")(wildcard()), _check_pool),
        ("arm_compute_lib.reshape", is_op("reshape")(wildcard()), _check_plain),
        ("arm_compute_lib.maximum", is_op("maximum")(wildcard(), wildcard()), _check_pair(FLOAT)),
        ("arm_compute_lib.add", is_op("add")(wildcard(), wildcard()), _check_pair(FLOAT)),
        ("arm_compute_lib.qnn_add", is_op("qnn.add")(wildcard(), wildcard(), *_constants(6)), _check_pair(BYTES)),
    ]


def partition_for_arm_compute_lib(
    mod: IRModule, params: dict[str, Any] | None = None, mod_name: str = "default",
    disabled_ops: Sequence[str] = ("concatenate",),
) -> IRModule:
    """Partition a module: the parts that the library supports become functions for `arm_compute_lib`.

    `disabled_ops` are rows of the table, such as `reshape` or `qnn_add`, that are left to other targets. Concatenations
    move data only, so by default they are.
    """
    rows = [*pattern_table(), (f"{TARGET}.concatenate", is_op("concatenate")(wildcard()), _check_plain)]
    table = [row for row in rows if row[0].removeprefix(f"{TARGET}.") not in disabled_ops]
    return partition_with(table, TARGET, mod, params, mod_name, dtypes=BYTES)


def is_arm_compute_runtime_enabled() -> bool:
    """Return whether parts for the library run here: whether `runtime.library.arm_compute_lib` is registered."""
    return f"runtime.library.{TARGET}" in FUNCTIONS


for _name in (TARGET, "compute-library"):
    register_pattern_table(_name, pattern_table)
    register_partitioner(_name, partition_for_arm_compute_lib)
