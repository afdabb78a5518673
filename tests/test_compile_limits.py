"""What a compile refuses: programs that need too much memory, and faults of the compiler that look like missing
kernels."""

from __future__ import annotations

import warnings
from typing import Any
from unittest import mock

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tvm
from tilewright import relay
from tilewright.base.errors import CompileError, InternalError, NoNativeKernel, RunError, ShapeError
from tilewright.relay import dynamic_interpreter
from tilewright.relay.op.registry import OPS
from tilewright.runtime import executable


def _module(make: Any, shape: tuple[int, ...] = (4,)) -> tvm.IRModule:
    x = relay.var("x", shape=shape)
    return tvm.IRModule.from_expr(relay.Function([x], make(x)))


LARGE = {
    "pad": _module(lambda x: relay.nn.pad(x, ((0, 4000),))),
    "tile": _module(lambda x: relay.tile(x, (1000,))),
    "broadcast": _module(lambda x: relay.broadcast_to(x, (1000, 4))),
    "one_hot": _module(
        lambda x: relay.one_hot(relay.cast(x, "int32"), relay.const(1.0), relay.const(0.0), 1000, -1, "float32")
    ),
    "resize": _module(lambda x: relay.image.resize2d(x, (64, 64)), (1, 1, 2, 2)),
}


@pytest.mark.parametrize("name", LARGE)
def test_values_above_the_limit_are_refused(name: str) -> None:
    limited = tvm.transform.PassContext(config={"relay.backend.max_memory": 8000})
    with limited, pytest.raises(
        CompileError,
        match=r"needs .* for its workspace and outputs; the limit is 7.81 kB. The largest value is "
        r".*relay.backend.max_memory=\d+"
    ) as error:
        relay.build(LARGE[name], "llvm")
    assert error.value.code == "TW0710"
    with tvm.transform.PassContext(config={"relay.backend.max_memory": 1 << 20}):
        relay.build(LARGE[name], "llvm")


def _sized(nodes: list[Any]) -> Any:
    """An ONNX model whose values `y` have as many elements as its input `n` says."""
    named = {"one": np.array([1]), "zero": np.array([0]), "none": np.array(0), "step": np.array(1)}
    graph = helper.make_graph(
        nodes, "sized", [helper.make_tensor_value_info("n", TensorProto.INT64, [1])],
        [helper.make_tensor_value_info("y", TensorProto.UNDEFINED, None)],
        [numpy_helper.from_array(array, name) for name, array in named.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


SIZED = {
    "constant_of_shape": [helper.make_node("ConstantOfShape", ["n"], ["y"])],
    "range": [helper.make_node("Squeeze", ["n"], ["end"]), helper.make_node("Range", ["none", "end", "step"], ["y"])],
    "tile": [helper.make_node("ConstantOfShape", ["one"], ["x"]), helper.make_node("Tile", ["x", "n"], ["y"])],
    "expand": [helper.make_node("ConstantOfShape", ["one"], ["x"]), helper.make_node("Expand", ["x", "n"], ["y"])],
    "pad": [
        helper.make_node("Concat", ["zero", "n"], ["width"], axis=0),
        helper.make_node("ConstantOfShape", ["one"], ["x"]), helper.make_node("Pad", ["x", "width"], ["y"]),
    ],
}


@pytest.mark.parametrize("name", SIZED)
def test_sizes_that_come_out_of_the_data_are_limited(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamic_interpreter, "LARGE", 1 << 16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what runs in Python is announced
        model = tvm.compile(_sized(SIZED[name]), config={"relay.backend.max_memory": 1 << 16})
        assert np.size(model(np.array([5]))) in (5, 6)
        with pytest.raises(CompileError, match=r"the limit is 64 kB. The largest value is") as error:
            model(np.array([1 << 20]))
        assert error.value.code == "TW0710"
        with pytest.raises(ShapeError, match="more memory than the limit of 512 GB"):
            model(np.array([1 << 40]))


def test_the_usual_limit_is_a_quarter_of_the_memory() -> None:
    with mock.patch(
        "tilewright.compiler.memory_limits.machine_bytes", return_value=40_000
    ), pytest.raises(CompileError, match=r"the limit is 9.77 kB"):
        relay.build(LARGE["pad"], "llvm")


def test_a_negative_limit_is_refused() -> None:
    with tvm.transform.PassContext(config={"relay.backend.max_memory": -1}), pytest.raises(
        CompileError, match=r"relay.backend.max_memory is -1; give the limit in bytes"
    ):
        relay.build(LARGE["pad"], "llvm")


def test_a_program_is_refused_when_it_is_loaded_where_there_is_less_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    built = relay.build(LARGE["pad"], "llvm")
    monkeypatch.setattr(executable, "SURELY_THERE", 0)
    monkeypatch.setattr(executable, "machine_bytes", lambda: 8000)
    with pytest.raises(RunError, match=r"needs 15.6 kB of memory for its values and outputs"):
        built.executable  # noqa: B018


def test_a_missing_method_is_a_fault_of_the_compiler() -> None:
    with mock.patch.object(
        OPS["erf"], "compute", side_effect=NotImplementedError("left out")
    ), pytest.raises(InternalError, match=r"not implemented.*left out"):
        relay.build(_module(relay.erf), "llvm").executable  # noqa: B018


def test_an_operator_declares_that_it_runs_in_python() -> None:
    with mock.patch.object(
        OPS["erf"], "compute", side_effect=NoNativeKernel
    ), pytest.warns(UserWarning, match="no native kernel"):
        built = relay.build(_module(relay.erf), "llvm").executable
    np.testing.assert_allclose(built(np.zeros(4, np.float32)), np.zeros(4), atol=1e-6)
