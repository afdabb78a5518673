"""Passes over networks that are partitioned for CMSIS-NN."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.base.errors import CompileError
from tilewright.relay.op.contrib.cmsisnn import partition_for_cmsisnn
from tilewright.relay.op.contrib.cmsisnn_passes import (
    CMSISNNFusePads,
    ExtractConstantsFromPartitionedFunction,
    ScalarToTensorConstants,
)
from tilewright.relay.visitor import post_order

RNG = np.random.default_rng(3)
X = relay.var("x", shape=(1, 6, 7, 4), dtype="int8")


def number(value: Any, dtype: str) -> Any:
    return relay.const(value, dtype)


def convolution(data: Any, padding: tuple[int, ...] = (0, 0, 0, 0), zero: int = 5) -> Any:
    """Return a quantized convolution of three channels with a requantization."""
    weight = relay.const(RNG.integers(-9, 9, (3, 3, 4, 3), np.int8))
    conv = relay.qnn.op.conv2d(
        data, weight, number(zero, "int32"), number(0, "int32"), number(0.1, "float32"), number(0.2, "float32"),
        kernel_size=(3, 3), channels=3, padding=padding, data_layout="NHWC", kernel_layout="HWIO", out_dtype="int32")
    return relay.qnn.op.requantize(
        conv, number(0.02, "float32"), number(0, "int32"), number(0.3, "float32"), number(2, "int32"), out_dtype="int8")


def network(value: Any) -> tvm.IRModule:
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([X], value)))


def operators(mod: tvm.IRModule) -> list[str]:
    found: list[Any] = [e for _, f in mod.items() for e in post_order(f)]
    return [e.op.name for e in found if hasattr(getattr(e, "op", None), "name")]


def result(mod: tvm.IRModule, data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    parts = [n for n in mod if n != "main"]
    plain = relay.transform.InferType()(relay.transform.InlineCompilerFunctionsBoundTo(parts)(mod))
    found: np.ndarray[Any, Any] = relay.create_executor("debug", plain).evaluate()(data).numpy()
    return found


@pytest.mark.parametrize("value, fused", [(5, True), (0, False)])
def test_pads_become_a_part_of_convolutions(value: int, fused: bool) -> None:
    """Only pads with the zero point: the others stay with the processor."""
    padded = relay.nn.pad(X, ((0, 0), (0, 1), (1, 2), (0, 0)), value)
    mod = network(convolution(padded, (1, 1, 1, 1)))
    made = partition_for_cmsisnn(mod)
    assert ("nn.pad" in operators(made)) != fused
    assert len(made) == 2 and "qnn.conv2d" not in operators(tvm.IRModule({"main": made["main"]}))
    data = RNG.integers(-128, 127, (1, 6, 7, 4), np.int8)
    np.testing.assert_array_equal(result(made, data), result(mod, data))


def test_pads_of_unequal_sides_stay() -> None:
    made = partition_for_cmsisnn(network(convolution(relay.nn.pad(X, ((0, 0), (0, 3), (0, 0), (0, 0)), 5))))
    assert operators(tvm.IRModule({"main": made["main"]})) == ["nn.pad"]
    inside = relay.nn.pad(X, ((0, 0), (0, 3), (0, 0), (0, 0)), 5)
    part = relay.Function([X], convolution(inside), attrs={"Compiler": "cmsis-nn", "global_symbol": "part"})
    mod = relay.transform.InferType()(tvm.IRModule({"part": part}))
    with pytest.raises(CompileError, match="Difference on each side of a dimension should be either 0 or 1"):
        CMSISNNFusePads()(mod)


@pytest.mark.parametrize("number_first", [False, True])
def test_numbers_become_tensors(number_first: bool) -> None:
    operands = [relay.const(np.int8(3)), X] if number_first else [X, relay.const(np.int8(3))]
    quantization = [number(v, t) for v, t in ((0.1, "float32"), (1, "int32"), (0.2, "float32"), (0, "int32"), (
        0.3, "float32"), (-2, "int32"))]
    mod = network(relay.qnn.op.add(*operands, *quantization))
    before = partition_for_cmsisnn(mod)
    after = ScalarToTensorConstants()(before)
    shapes = [e.value.shape for e in post_order(after["tvmgen_default_cmsis_nn_main_0"]) if hasattr(e, "value")]
    assert shapes.count((1, 6, 7, 4)) == 1
    data = RNG.integers(-128, 127, (1, 6, 7, 4), np.int8)
    np.testing.assert_array_equal(result(after, data), result(mod, data))


def test_constants_become_parameters() -> None:
    mod = network(convolution(X))
    after = ExtractConstantsFromPartitionedFunction()(partition_for_cmsisnn(mod))
    function = after["tvmgen_default_cmsis_nn_main_0"]
    assert not [e for e in post_order(function) if hasattr(e, "value") and e.value.ndim]
    assert len(function.params) == 2 == len(after["main"].body.args)
    data = RNG.integers(-128, 127, (1, 6, 7, 4), np.int8)
    np.testing.assert_array_equal(result(after, data), result(mod, data))


def test_passes_by_their_names_in_tvm() -> None:
    for name in ("CMSISNNFusePads", "ScalarToTensorConstants", "ExtractConstantsFromPartitionedFunction"):
        assert tvm.get_global_func(f"relay.ext.cmsisnn.transform.{name}")().name == name
