"""Arm Ethos-U55, -U65 and -U85: supported operators of channels-last 8-bit networks for Arm's compiler Vela.

A part is written as a TFLite file, so each row is an operator of TFLite. The device rounds like TensorFlow Lite's
reference kernels.
"""

from __future__ import annotations

from typing import Any, Final

from tilewright.ir.module import IRModule
from tilewright.relay.dataflow_pattern import DFPattern, is_constant, is_op, wildcard
from tilewright.relay.expr import Expr, Function
from tilewright.relay.op.contrib import PatternTable, Refusal, register_partitioner, register_pattern_table
from tilewright.relay.op.contrib.rules import (
    Rule,
    attr_is,
    batch_is_one,
    bias_is_of_channels,
    chain_to,
    dtype_is,
    edited,
    inner,
    kept,
    partition_with,
    rank_is,
    tensor,
    value_of,
    weight_is_around_zero,
)

TARGET: Final = "ethos-u"
BYTES: Final = ("int8", "uint8")


def _constants(count: int) -> list[DFPattern]:
    return [is_constant() for _ in range(count)]


def _product(name: str, data: DFPattern) -> DFPattern:
    product: DFPattern = is_op(name)(data, *_constants(5))
    return is_op("qnn.requantize")(is_op("nn.bias_add")(product, is_constant()) | product, *_constants(4))


def _image(e: Expr) -> list[Rule]:
    return [dtype_is(e, BYTES, "the input"), rank_is(e, (4,), "the input"), batch_is_one(e, "the input")]


def _same_bytes(e: Expr, source: Expr) -> Rule:
    a, b = str(tensor(source).dtype), str(tensor(e).dtype)
    return a == b, f"the input is {a} and the result {b}; they must be of one type", f"convert the result to {a}"


def _check_conv2d(e: Expr) -> bool | Refusal:
    conv = inner(e, "qnn.conv2d")
    op: Any = conv.op
    channels = tensor(conv.args[0]).shape[-1]
    window = op.kernel_size
    pad = conv.args[0] if getattr(getattr(conv.args[0], "op", None), "name", "") == "nn.pad" else None
    rules = [
        attr_is(conv, "data_layout", ("NHWC",)), *_image(conv.args[0]), _same_bytes(e, conv.args[0]),
        weight_is_around_zero(conv), bias_is_of_channels(chain_to(e, "qnn.conv2d")),
        (max(op.strides) <= 3, f"strides of qnn.conv2d are {op.strides}; they must be at most 3",
         "make strides 1, 2 or 3", edited("qnn.conv2d", strides=tuple(min(s, 3) for s in op.strides))),
        (window[0] <= 64 and window[0] * window[1] <= 4096, f"kernel_size of qnn.conv2d is {window}; it must be at "
         "most 64 x 64", "make kernel_size smaller"),
        (op.groups in (1, channels), f"qnn.conv2d has {op.groups} groups; it must have one, or one for each channel",
         "make groups 1"),
        (op.groups == 1 or tensor(conv).shape[-1] == channels, "qnn.conv2d makes several channels from "
         "each input channel; it must make one", "make channels as many as the input has"),
    ]
    found = kept(rules)
    if not found or pad is None:
        return found
    number, own = value_of(pad.args[1]), value_of(conv.args[2])  # type: ignore[attr-defined]
    return (
        kept(
            [(float(number) == float(own), f"nn.pad pads with {number}, and zero of its input is {own}",
              f"pad with {own}", edited("nn.pad", {1: own}))]))


def _check_fc(e: Expr) -> bool | Refusal:
    dense = inner(e, "qnn.dense")
    return kept([
        dtype_is(dense.args[0], BYTES, "the input"), rank_is(dense.args[0], (2,), "the input"),
        _same_bytes(e, dense.args[0]),
        weight_is_around_zero(dense), bias_is_of_channels(chain_to(e, "qnn.dense")),
    ])


def _check_pool(e: Expr) -> bool | Refusal:
    op: Any = e.op  # type: ignore[attr-defined]
    window, padding = op.pool_size, tuple(op.padding)
    return kept([
        attr_is(e, "layout", ("NHWC",)),  # type: ignore[arg-type]
        *_image(e.args[0]), _same_bytes(e, e.args[0]),  # type: ignore[attr-defined]
        (not any(padding), f"padding of {op.name} is {padding}; it must be 0", "pad before it, or make padding 0"),
        (max(op.strides) <= 3 or max(window) == max(op.strides), f"strides of {op.name} are {op.strides}; they must be "
         "at most 3", "make strides 1, 2 or 3"),
        (max(window) <= 256, f"pool_size of {op.name} is {window}; it must be at most 256 x 256",
         "make pool_size smaller"),
    ])


def _check_binary(e: Expr) -> bool | Refusal:
    a, b = e.args[:2]  # type: ignore[attr-defined]
    return kept([
        dtype_is(a, BYTES, "the first input"), _same_bytes(b, a),
        (tensor(a).shape == tensor(b).shape, f"the inputs are {tensor(a).shape} and {tensor(b).shape}; they must be of "
         "one shape", "broadcast the smaller one"),
        batch_is_one(e, "the result"),
    ])


def _check_plain(e: Expr) -> bool | Refusal:
    return kept([dtype_is(e, BYTES, "the result"), batch_is_one(e, "the result")])


def _check_softmax(e: Expr) -> bool | Refusal:
    axis, rank = e.op.axis, len(tensor(e).shape)  # type: ignore[attr-defined]
    found = _check_plain(e)
    return (found
            and kept(
                [(axis % rank == rank - 1, f"axis of qnn.softmax is {axis}; it must be the last", "make axis -1",
                  edited("qnn.softmax", axis=-1))]))


def pattern_table() -> PatternTable:
    """The rows of Ethos-U."""
    padded = is_op("nn.pad")(wildcard(), is_constant()) | wildcard()
    return [
        ("ethos-u.conv2d", _product("qnn.conv2d", padded), _check_conv2d),
        ("ethos-u.fully_connected", _product("qnn.dense", wildcard()), _check_fc),
        ("ethos-u.avg_pool2d", is_op("qnn.avg_pool2d")(wildcard(), *_constants(4)), _check_pool),
        ("ethos-u.max_pool2d", is_op("nn.max_pool2d")(wildcard()), _check_pool),
        ("ethos-u.add", is_op("qnn.add")(wildcard(), wildcard(), *_constants(6)), _check_binary),
        ("ethos-u.mul", is_op("qnn.mul")(wildcard(), wildcard(), *_constants(6)), _check_binary),
        ("ethos-u.reshape", is_op("reshape")(wildcard()), _check_plain),
        ("ethos-u.softmax", is_op("qnn.softmax")(wildcard(), *_constants(4)), _check_softmax),
    ]


def partition_for_ethosu(mod: IRModule, params: dict[str, Any] | None = None, mod_name: str = "default",
                         accelerator_config: str | None = None) -> IRModule:
    """Partition a module: the parts that Ethos-U supports become functions for `ethos-u`.

    Vela compiles them for `accelerator_config` when the program is built. The default is that of the option
    `relay.ext.ethos-u.options` of the build, else `ethos-u55-256`.
    """
    found = partition_with(pattern_table(), TARGET, mod, params, mod_name, dtypes=BYTES)
    if accelerator_config is None:
        return found
    return found.map_functions(lambda f: f.with_attr("ethos-u.accelerator_config", accelerator_config)
                               if f.attrs.get("Compiler") == TARGET else f, Function)


register_pattern_table(TARGET, pattern_table)
register_partitioner(TARGET, partition_for_ethosu)
