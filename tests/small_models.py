"""Models for tests: small ones built here, and the whole networks of `benchmarks/models.py`; and what they should
answer."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import models
from tilewright.compiler.model import Model
from tilewright.compiler.staged import Stages

OPSET = 17
Array = NDArray[Any]


def graph(
    nodes: list[onnx.NodeProto],
    inputs: Mapping[str, tuple[int | str, ...]],
    outputs: Mapping[str, tuple[int | str, ...]],
    weights: Mapping[str, Array],
) -> onnx.ModelProto:
    """A checked float32 ONNX model of these parts."""

    def values(named: Mapping[str, tuple[int | str, ...]]) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in named.items()]

    constants = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    made = helper.make_model(
        helper.make_graph(nodes, "test", values(inputs), values(outputs), constants),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=8,
    )
    onnx.checker.check_model(made, full_check=True)
    return made


def mlp(batch: int | str = 2, sizes: tuple[int, ...] = (16, 32, 10)) -> onnx.ModelProto:
    """Dense layers with ReLU between them and softmax at the end: `x` (batch, sizes[0]) -> `y` (batch, sizes[-1])."""
    random = np.random.default_rng(0)
    nodes, weights, last = [], {}, "x"
    for i, (rows, columns) in enumerate(itertools.pairwise(sizes)):
        weights[f"w{i}"] = random.standard_normal((rows, columns), np.float32) / np.float32(np.sqrt(rows))
        weights[f"b{i}"] = random.standard_normal(columns, np.float32)
        nodes.append(helper.make_node("Gemm", [last, f"w{i}", f"b{i}"], [f"dense{i}"], name=f"dense{i}"))
        last = f"dense{i}"
        if i + 2 < len(sizes):
            nodes.append(helper.make_node("Relu", [last], [f"relu{i}"], name=f"relu{i}"))
            last = f"relu{i}"
    nodes.append(helper.make_node("Softmax", [last], ["y"], name="softmax", axis=-1))
    return graph(nodes, {"x": (batch, sizes[0])}, {"y": (batch, sizes[-1])}, weights)


def cnn(batch: int | str = 1) -> onnx.ModelProto:
    """Two convolutions with a residual sum, pooling and a dense layer: `x` (batch, 3, 16, 16) -> `y` (batch, 10)."""
    random = np.random.default_rng(0)
    weights: dict[str, Array] = {
        "w0": random.standard_normal((8, 3, 3, 3), np.float32) / 5,
        "b0": random.standard_normal(8, np.float32),
        "w1": random.standard_normal((8, 8, 3, 3), np.float32) / 8,
        "w2": random.standard_normal((8, 10), np.float32) / 3,
        "b2": random.standard_normal(10, np.float32),
    }
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["c0"], name="first", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", ["c0"], ["r0"], name="first_relu"),
        node("Conv", ["r0", "w1"], ["c1"], name="second", pads=[1, 1, 1, 1]),
        node("Add", ["c1", "r0"], ["sum"], name="residual"),
        node("GlobalAveragePool", ["sum"], ["mean"], name="pool"),
        node("Flatten", ["mean"], ["flat"], name="flatten"),
        node("Gemm", ["flat", "w2", "b2"], ["y"], name="classifier"),
    ]
    return graph(nodes, {"x": (batch, 3, 16, 16)}, {"y": (batch, 10)}, weights)


def whole(name: str) -> Path:
    """The file of a whole network of `benchmarks/models.py`; skips the test when it is neither there nor can be
    made."""
    path = models.folder() / f"{name}.onnx"
    if not path.exists() and importlib.util.find_spec("torch") is None:
        pytest.skip(f"{path} does not exist, and torch is not installed to make it")
    try:
        return models.ensure(name)
    except ImportError as missing:
        pytest.skip(f"{path} does not exist, and {missing.name} is not installed to make it")


def stages_of(model: Model) -> Stages:
    """The tree of stages that the last call of a model went through."""
    assert model._stages is not None
    return model._stages


VNNI = "avx512_vnni" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
"""Whether ONNX Runtime and oneDNN add products of bytes in 32 bits here; without it, two of them in 16."""
NO_VNNI = "the engines' roundings are those of a processor with AVX-512 VNNI, which this one is not"


def onnxruntime_answers(
    model: onnx.ModelProto | bytes | Path, inputs: Mapping[str, Array], *, exact_sums: bool = False
) -> list[Array]:
    """What ONNX Runtime computes on one thread.

    Where the processor has no VNNI, it adds two products of bytes in 16 bits, and clips. With `exact_sums` it adds
    them in 32 bits everywhere, which it cannot do for convolutions of int8 values.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.x64quantprecision", str(int(exact_sums)))
    source = str(model) if isinstance(model, Path) else model if isinstance(model, bytes) else model.SerializeToString()
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    answers: list[Array] = session.run(None, dict(inputs))
    return answers
