"""Passes over networks that are partitioned for Ethos-N."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.base.errors import CompileError, TargetError
from tilewright.base.global_functions import register_func, remove_global_func
from tilewright.relay.op.contrib import ethosn_api_version
from tilewright.relay.op.contrib.ethosn import (
    Available,
    ConvertEquivalents,
    InlineNonComputeIntensivePartitions,
    ethosn_available,
)


def part(value: Any, data: Any, composite: str = "") -> tvm.IRModule:
    """Return a network whose main calls one function for Ethos-N."""
    if composite:
        value = relay.Call(relay.Function([data], value, attrs={"Composite": composite}), [outer := relay.var(
            "data", relay.TensorType(data.type_annotation.shape, data.type_annotation.dtype))])
        data = outer
    mod = tvm.IRModule()
    symbol = relay.GlobalVar("ethos-n_0")
    mod[symbol] = relay.Function([data], value, attrs={"Compiler": "ethos-n", "global_symbol": "ethos-n_0"})
    x = relay.var("x", relay.TensorType(data.type_annotation.shape, data.type_annotation.dtype))
    mod["main"] = relay.Function([x], relay.Call(symbol, [x]))
    return relay.transform.InferType()(mod)


@pytest.mark.parametrize("name", ["mul_to_depthwise", "add_to_depthwise", "mul_to_reinterpret_quantize",
                                  "add_to_reinterpret_quantize"])
@pytest.mark.parametrize("constant_first", [False, True])
def test_conversions_compute_the_same(name: str, constant_first: bool) -> None:
    rng = np.random.default_rng(1)
    x = relay.var("x", shape=(1, 3, 4, 5), dtype="uint8")
    number = np.uint8(200) if "reinterpret" in name else rng.integers(0, 255, (1, 1, 1, 5), np.uint8)
    sides = [(x, 0.02, 10), (relay.const(number), 0.03, 4)]
    (a, a_scale, a_zero), (b, b_scale, b_zero) = sides[::-1] if constant_first else sides
    operator = relay.qnn.op.mul if name.startswith("mul") else relay.qnn.op.add
    value = operator(a, b, *(relay.const(v, t) for v, t in (
        (a_scale, "float32"), (a_zero, "int32"), (b_scale, "float32"), (b_zero, "int32"), (0.1, "float32"),
        (3, "int32"))))
    before = part(value, x, f"ethos-n.qnn_{name}")
    after = ConvertEquivalents()(before)
    wanted = "ethos-n.qnn_requantize" if "reinterpret" in name else "ethos-n.qnn_conv2d"
    assert after["ethos-n_0"].body.op.attrs["Composite"] == wanted
    data = rng.integers(0, 255, (1, 3, 4, 5), np.uint8)
    old, new = (relay.create_executor("debug", _inlined(m)).evaluate()(data).numpy().astype(int)
                for m in (before, after))
    assert np.abs(old - new).max() <= 1 and len(np.unique(new)) > 3


def _inlined(mod: tvm.IRModule) -> tvm.IRModule:
    return relay.transform.InferType()(relay.transform.InlineCompilerFunctionsBoundTo(["ethos-n_0"])(mod))


def test_conversion_that_is_impossible() -> None:
    x = relay.var("x", shape=(1, 3, 4, 5), dtype="uint8")
    value = relay.qnn.op.mul(x, relay.const(np.ones((1, 1, 4, 5), np.uint8)), *(
        relay.const(v, t) for v, t in ((0.1, "float32"), (0, "int32")) * 3))
    with pytest.raises(CompileError, match="marked as having a valid conversion, but it could not be converted"):
        ConvertEquivalents()(part(value, x, "ethos-n.qnn_mul_to_depthwise"))


def test_parts_without_arithmetic_are_inlined() -> None:
    x = relay.var("p", shape=(1, 4, 4, 8), dtype="int8")
    light = InlineNonComputeIntensivePartitions()(part(relay.clip(relay.reshape(x, (1, 8, 8, 2)), 0.0, 1.0), x))
    assert [*light] == ["main"] and light["main"].body.op.name == "clip"
    heavy = part(relay.nn.max_pool2d(x, (2, 2), layout="NHWC"), x)
    assert InlineNonComputeIntensivePartitions()(heavy) is heavy


def test_what_is_available() -> None:
    assert ethosn_available() == Available.SW_ONLY
    with pytest.raises(TargetError, match=r"must register 'relay\.ethos-n\.api\.version'"):
        ethosn_api_version()
    register_func("relay.ethos-n.api.version", lambda: "3.2.0")
    try:
        assert ethosn_api_version() == "3.2.0"
    finally:
        remove_global_func("relay.ethos-n.api.version")
