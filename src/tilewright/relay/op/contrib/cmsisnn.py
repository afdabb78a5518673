"""Arm's CMSIS-NN for Cortex-M: supported operators of channels-last int8 networks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from tilewright.base.errors import CompileError
from tilewright.ir.module import IRModule
from tilewright.relay.dataflow_pattern import DFPattern, is_constant, is_op, wildcard
from tilewright.relay.expr import Constant, Expr, Function
from tilewright.relay.op.contrib import PatternTable, Refusal, register_partitioner, register_pattern_table
from tilewright.relay.op.contrib.cmsisnn_passes import CMSISNNFusePads, padding_of
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
    result_quantized,
    tensor,
    value_of,
    weight_is_around_zero,
)

TARGET: Final = "cmsis-nn"
SIGNED: Final = ("int8",)
SIGNED_OR_WIDE: Final = ("int8", "int16")


def _product(name: str, data: DFPattern) -> DFPattern:
    product: DFPattern = is_op(name)(data, *(is_constant() for _ in range(5)))
    biased = product | is_op("nn.bias_add")(product, is_constant())
    whole = is_op("qnn.requantize")(biased, *(is_constant() for _ in range(4)))
    return whole | is_op("clip")(whole)


def _zero_for_wide(e: Expr, zeros: Iterable[Expr], what: str) -> Rule:
    """The zero point of an int16 tensor is 0, as its functions require."""
    found = [z for z in zeros if np.any(value_of(z))]
    return (
        str(tensor(e).dtype) != "int16" or not found,
        f"{what} is int16 with the zero point {value_of(found[0]) if found else 0}; it must be 0",
        "quantize int16 around 0")


def _product_rules(e: Expr, name: str) -> list[Rule]:
    """The common rules of convolutions and products: types, the zero point of the weight, and the bias.

    The functions for int16 take no zero points, so a call with others adds them to the bias.
    """
    chain = chain_to(e, name)
    call = chain[-1]
    data = call.args[0]
    return [
        dtype_is(data, SIGNED_OR_WIDE, "the input"), dtype_is(call.args[1], SIGNED, "the weight"),
        dtype_is(e, (str(tensor(data).dtype),), "the result"),
        weight_is_around_zero(call), bias_is_of_channels(chain),
    ]


def _check_conv2d(e: Expr) -> bool | Refusal:
    conv = inner(e, "qnn.conv2d")
    op: Any = conv.op
    channels = tensor(conv.args[0]).shape[-1]
    return kept([
        attr_is(conv, "data_layout", ("NHWC",)), *_product_rules(e, "qnn.conv2d"),
        _zero_for_wide(conv.args[0], [conv.args[2]], "the input"),
        (op.groups in (1, channels), f"qnn.conv2d has {op.groups} groups; it must have one, or one for each channel",
         "make groups 1"),
    ])


def _check_padded_conv2d(e: Expr) -> bool | Refusal:
    """Accept a convolution of a pad that becomes a part of the convolution."""
    found = _check_conv2d(e)
    try:
        fits = bool(found) and padding_of(inner(e, "qnn.conv2d")) is not None
    except CompileError as error:
        return Refusal(error.message, "pad equally at begin and end")
    return found and (fits or Refusal(
        "nn.pad pads with another value than the zero point of its input", "pad rows and columns with the zero point"))


def _check_fc(e: Expr) -> bool | Refusal:
    return kept(_product_rules(e, "qnn.dense"))


def _check_pool(e: Expr) -> bool | Refusal:
    call: Any = e
    while call.op.name in ("cast", "clip"):
        call = call.args[0]
    shape, numbers = tensor(call).shape, [float(value_of(a)) for a in call.args[1:]]
    # for plain means, the value before the pattern's cast
    data = call.args[0].args[0] if call.op.name == "nn.avg_pool2d" else call.args[0]
    return kept([
        attr_is(call, "layout", ("NHWC",)), dtype_is(e, SIGNED_OR_WIDE, "the result"),
        dtype_is(data, (str(tensor(e).dtype),), "the input"),
        (shape[0] == 1, f"{call.op.name} is of {shape[0]} images; only one is supported",
         "compile the network for a batch of 1"),
        (set(call.op.dilation) == {1}, f"dilation of {call.op.name} is {call.op.dilation}; it must be 1",
         "make dilation 1", edited(call.op.name, dilation=(1, 1))),
        (numbers[:2] == numbers[2:], f"{call.op.name} changes the scale or zero point of its input; both must stay the "
         "same", "give the result the scale and zero point of the input"),
    ])


def _check_binary(e: Expr) -> bool | Refusal:
    call: Any = e if getattr(getattr(e, "op", None), "name", "") != "clip" else e.args[0]  # type: ignore[attr-defined]
    a, b = call.args[:2]
    number = any(isinstance(x, Constant) and x.value.ndim == 0 for x in (a, b))
    return kept([
        dtype_is(a, SIGNED_OR_WIDE, "the first input"), dtype_is(b, (str(tensor(a).dtype),), "the second input"),
        dtype_is(e, (str(tensor(a).dtype),), "the result"),
        (not all(isinstance(x, Constant) and x.value.ndim == 0 for x in (a, b)), "both inputs are numbers; one must be "
         "a tensor", "fold the constants before (FoldConstant)"),
        _zero_for_wide(a, [call.args[3]], "the first input"), _zero_for_wide(a, [call.args[5]], "the second input"),
        _zero_for_wide(a, [call.args[7]], "the result"),
        (number or tensor(a).shape == tensor(b).shape, f"the inputs are {tensor(a).shape} and {tensor(b).shape}; they "
         "must be of one shape, or one is a number", "broadcast the smaller one"),
    ])


def _check_softmax(e: Expr) -> bool | Refusal:
    scale, zero = (value_of(a) for a in e.args[-2:])  # type: ignore[attr-defined]
    softmax: Any = e if e.op.name == "qnn.softmax" else inner(e, "nn.softmax")  # type: ignore[attr-defined]
    data = softmax.args[0] if softmax is e else inner(softmax, "qnn.dequantize").args[0]  # type: ignore[attr-defined]
    axis, rank = softmax.op.axis, len(tensor(e).shape)
    return kept([
        dtype_is(data, SIGNED, "the input"), dtype_is(e, SIGNED, "the result"),
        (axis % rank == rank - 1, f"axis of {softmax.op.name} is {axis}; it must be the last", "make axis -1",
         edited(softmax.op.name, axis=-1)),
        (np.isclose(scale, 1 / 256) and int(zero) == -128, f"softmax gives a scale of {scale} from {zero}; it must be "
         "1/256 from -128", "quantize the result of softmax by 1/256 from -128",
         result_quantized(e, 1 / 256, -128)),
    ])


def pattern_table() -> PatternTable:
    """The rows of CMSIS-NN."""
    padded = is_op("nn.pad")(wildcard(), is_constant())
    four = [is_constant() for _ in range(4)]
    real = is_op("nn.softmax")(is_op("qnn.dequantize")(wildcard(), is_constant(), is_constant()))
    softmax = is_op("qnn.softmax")(wildcard(), *four) | is_op("qnn.quantize")(real, is_constant(), is_constant())
    binary = {n: is_op(f"qnn.{n}")(wildcard(), wildcard(), *(is_constant() for _ in range(6))) for n in ("add", "mul")}
    maximum = is_op("nn.max_pool2d")(wildcard())
    average = is_op("qnn.avg_pool2d")(wildcard(), *(is_constant() for _ in range(4))) | is_op("cast")(
        is_op("nn.avg_pool2d")(is_op("cast")(wildcard())))
    return [
        ("cmsis-nn.qnn_conv2d", _product("qnn.conv2d", padded), _check_padded_conv2d),
        ("cmsis-nn.qnn_conv2d", _product("qnn.conv2d", wildcard()), _check_conv2d),
        ("cmsis-nn.qnn_fully_connected", _product("qnn.dense", wildcard()), _check_fc),
        ("cmsis-nn.qnn_avg_pool2d", average | is_op("clip")(average), _check_pool),
        ("cmsis-nn.qnn_max_pool2d", maximum | is_op("clip")(maximum), _check_pool),
        *((f"cmsis-nn.qnn_{n}", p | is_op("clip")(p), _check_binary) for n, p in binary.items()),
        ("cmsis-nn.qnn_softmax", softmax, _check_softmax),
    ]


def partition_for_cmsisnn(mod: IRModule, params: dict[str, Any] | None = None, mod_name: str = "default",
                          mcpu: str = "", mattr: str = "") -> IRModule:
    """Partition a module: the parts that CMSIS-NN supports become functions for `cmsis-nn`.

    `mcpu` and `mattr` name the processor that the library is built for. They are kept as attributes of the functions;
    the calls are the same for each processor.
    """
    found = CMSISNNFusePads()(partition_with(pattern_table(), TARGET, mod, params, mod_name, dtypes=SIGNED))
    given = {f"{TARGET}.{k}": v for k, v in (("mcpu", mcpu), ("mattr", mattr)) if v}

    def configured(f: Any) -> Any:
        for key, value in given.items() if f.attrs.get("Compiler") == TARGET else ():
            f = f.with_attr(key, value)
        return f

    return found.map_functions(configured, Function)


register_pattern_table(TARGET, pattern_table)
register_partitioner(TARGET, partition_for_cmsisnn)
