"""RNN, GRU and LSTM of ONNX with all their options, compiled, against ONNX Runtime, and against each other where it has
an option not."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tvm
from small_models import onnxruntime_answers
from tilewright.base.errors import ModelError

ort = pytest.importorskip("onnxruntime")

pytestmark = pytest.mark.slow

Array = np.ndarray[Any, Any]
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
FUNCTIONS = [
    "Relu", "Tanh", "Sigmoid", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu", "Softsign",
    "Softplus"
]
PER_DIRECTION = {"RNN": 1, "GRU": 2, "LSTM": 3}


def case(
    op: str, rng: np.random.Generator, steps: int, batch: int, size: int, hidden: int, **attrs: Any
) -> tuple[dict[str, Array], dict[str, Array], dict[str, Any]]:
    """Inputs, weights and attributes of one node; `given` among the attributes says which optional inputs there are."""
    given = attrs.pop("given", "")
    directions = 2 if attrs.get("direction") == "bidirectional" else 1
    rows = GATES[op] * hidden

    def real(*shape: int) -> Array:
        return (rng.standard_normal(shape) * 0.5).astype(np.float32)

    inputs = {"X": real(steps, batch, size)}
    weights = {"W": real(directions, rows, size), "R": real(directions, rows, hidden)}
    if "b" in given:
        weights["B"] = real(directions, 2 * rows)
    if "l" in given:
        inputs["sequence_lens"] = rng.integers(0, steps + 1, batch).astype(np.int32)
    if "h" in given:
        inputs["initial_h"] = real(directions, batch, hidden)
    if op == "LSTM" and "c" in given:
        inputs["initial_c"] = real(directions, batch, hidden)
    if op == "LSTM" and "p" in given:
        weights["P"] = real(directions, 3 * hidden)
    return inputs, weights, {"hidden_size": hidden, **attrs}


def model(
    op: str, inputs: dict[str, Array], weights: dict[str, Array], attrs: dict[str, Any], outputs: list[str]
) -> onnx.ModelProto:
    order = ["X", "W", "R", "B", "sequence_lens", "initial_h", *(["initial_c", "P"] if op == "LSTM" else [])]
    node = helper.make_node(op, [n if n in inputs or n in weights else "" for n in order], outputs, **attrs)
    graph = helper.make_graph(
        [node], op,
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n,
            a in inputs.items()
        ],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs if n],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)


def compare(
    op: str, found: tuple[dict[str, Array], dict[str, Array], dict[str, Any]], outputs: list[str] | None = None
) -> None:
    inputs, weights, attrs = found
    names = outputs or ["Y", "Y_h", *(["Y_c"] if op == "LSTM" else [])]
    built = model(op, inputs, weights, attrs, names)
    wanted = ort.InferenceSession(built.SerializeToString()).run(None, inputs)
    got = tvm.compile(built)(**inputs)
    got = got if isinstance(got, tuple) else (got,)
    assert len(got) == len(wanted)
    for g, w in zip(got, wanted, strict=True):
        assert g.shape == w.shape
        np.testing.assert_allclose(g, w, 1e-4, 1e-5)


def options(op: str, seed: int) -> dict[str, Any]:
    """A choice of everything that may be chosen."""
    rng = np.random.default_rng(seed)
    direction = ["forward", "reverse", "bidirectional"][seed % 3]
    count = PER_DIRECTION[op] * (2 if direction == "bidirectional" else 1)
    attrs: dict[str, Any] = {"direction": direction, "given": "".join(c for c in "blhcp" if rng.random() < 0.6)}
    if rng.random() < 0.5:
        attrs["activations"] = [str(f) for f in rng.choice(FUNCTIONS, count)]
        taking = sum(
            f in ("Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu")
            for f in attrs["activations"]
        )
        both = sum(f in ("Affine", "ScaledTanh", "HardSigmoid") for f in attrs["activations"])
        if taking:
            attrs["activation_alpha"] = [float(x) for x in rng.uniform(0.1, 0.9, taking).astype(np.float32)]
        if both:
            attrs["activation_beta"] = [float(x) for x in rng.uniform(0.1, 0.9, both).astype(np.float32)]
    if rng.random() < 0.3:
        attrs["clip"] = 0.75
    if op == "GRU":
        attrs["linear_before_reset"] = int(rng.integers(2))
    if op == "LSTM" and rng.random() < 0.3:
        attrs["input_forget"] = 1
    return attrs


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("op", GATES)
def test_options(op: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    steps, batch, size, hidden = (
        int(v) for v in (
            rng.choice([1, 3, 4, 5, 9]), rng.choice([1, 2, 5]), rng.choice([1, 3, 8]), rng.choice([1, 4, 7, 16])
        )
    )
    compare(op, case(op, rng, steps, batch, size, hidden, **options(op, seed)))


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("steps", [2, 6])
def test_layout(op: str, steps: int) -> None:
    """With the batch first: the same as with the steps first."""
    rng = np.random.default_rng(7)
    inputs, weights, attrs = case(op, rng, steps, 3, 4, 5, direction="bidirectional", given="bhc")
    names = ["Y", "Y_h", *(["Y_c"] if op == "LSTM" else [])]
    wanted = tvm.compile(model(op, inputs, weights, attrs, names))(**inputs)
    turned = {n: np.ascontiguousarray(a.swapaxes(0, 1)) for n, a in inputs.items()}
    got = tvm.compile(model(op, turned, weights, {**attrs, "layout": 1}, names))(**turned)
    for k, (g, w) in enumerate(zip(got, wanted, strict=True)):
        np.testing.assert_allclose(g, w.transpose(2, 0, 1, 3) if k == 0 else w.swapaxes(0, 1), 1e-5, 1e-6)


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("wanted", [["", "Y_h"], ["Y"], ["Y", ""]])
def test_outputs_that_nobody_wants(op: str, wanted: list[str]) -> None:
    compare(op, case(op, np.random.default_rng(3), 7, 2, 3, 4, given="b"), wanted)


@pytest.mark.parametrize("op", GATES)
def test_weights_that_are_inputs(op: str) -> None:
    inputs, weights, attrs = case(op, np.random.default_rng(4), 6, 2, 3, 4, given="blh")
    compare(op, (inputs | weights, {}, attrs))


def test_many_steps_keep_their_memory() -> None:
    """A thousand steps use no more cells than a hundred."""
    inputs, weights, attrs = case("LSTM", np.random.default_rng(5), 1000, 1, 3, 4, given="b")
    compare("LSTM", (inputs, weights, attrs))


REFUSED = [
    ({"direction": "sideways"}, "attribute 'direction' is 'sideways'; it is forward, reverse or bidirectional"),
    ({"direction": "bidirectional"}, "R has weights for 1 directions, but attribute 'direction' is 'bidirectional'"),
    ({"activations": ["Tanh"]}, "attribute 'activations' has 1 functions; 2 are needed"),
    (
        {"activations": ["Tanh", "Cosh"]},
        "attribute 'activations' has 'Cosh'; the functions are affine, elu, hardsigmoid"
    ),
]


@pytest.mark.parametrize(("wrong", "message"), REFUSED)
def test_refused(wrong: dict[str, Any], message: str) -> None:
    inputs, weights, attrs = case("GRU", np.random.default_rng(6), 3, 1, 2, 2)
    with pytest.raises(ModelError, match=message):
        tvm.compile(model("GRU", inputs, weights, attrs | wrong, ["Y"]))


@pytest.mark.parametrize(
    ("direction", "per_channel", "dtype"),
    [("forward", False, np.int8), ("bidirectional", True, np.uint8), ("reverse", True, np.int8)]
)
def test_lstm_with_quantized_weights(direction: str, per_channel: bool, dtype: type[np.integer[Any]]) -> None:
    rng = np.random.default_rng(3)
    steps, size, hidden, ways = 5, 6, 8, 1 + (direction == "bidirectional")
    scales = (ways, 4 * hidden) if per_channel else (ways,)
    low = np.iinfo(dtype).min
    weights = {
        "W": rng.integers(low, low + 256, (ways, size, 4 * hidden)).astype(dtype),
        "R": rng.integers(low, low + 256, (ways, hidden, 4 * hidden)).astype(dtype),
        "B": rng.normal(size=(ways, 8 * hidden)).astype(np.float32) / 4,
        "W_scale": rng.uniform(0.002, 0.008, scales).astype(np.float32),
        "W_zero_point": np.full(scales, low + 128, dtype),
        "R_scale": rng.uniform(0.002, 0.008, scales).astype(np.float32),
        "R_zero_point": np.full(scales, low + 128, dtype),
    }
    names = ["X", "W", "R", "B", "", "", "", "", "W_scale", "W_zero_point", "R_scale", "R_zero_point"]
    node = helper.make_node(
        "DynamicQuantizeLSTM", names, ["Y", "Y_h", "Y_c"], domain="com.microsoft", direction=direction,
        hidden_size=hidden
    )
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("X", TensorProto.FLOAT, (steps, 1, size))],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("Y", "Y_h", "Y_c")],
        [numpy_helper.from_array(value, name) for name, value in weights.items()])
    quantized = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 13), helper.make_opsetid("com.microsoft", 1)], ir_version=8
    )
    x = rng.normal(size=(steps, 1, size)).astype(np.float32)
    expected = onnxruntime_answers(quantized, {"X": x}, exact_sums=True)
    found = tvm.compile(quantized)(x)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_scales_of_quantized_weights_belong_to_directions_or_outputs() -> None:
    names = ["X", "W", "R", "", "", "", "", "", "W_scale", "W_zero_point", "R_scale", "R_zero_point"]
    node = helper.make_node("DynamicQuantizeLSTM", names, ["Y"], domain="com.microsoft", hidden_size=2)
    stored: dict[str, Array] = {
        "W": np.zeros((1, 2, 8), np.int8), "R": np.zeros((1, 2, 8), np.int8),
        "W_scale": np.ones(3, np.float32), "W_zero_point": np.zeros(3, np.int8),
        "R_scale": np.ones(1, np.float32), "R_zero_point": np.zeros(1, np.int8)
    }
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("X", TensorProto.FLOAT, (3, 1, 2))],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in stored.items()])
    with pytest.raises(
        ModelError, match=r"W_scale has shape \(3,\) and W_zero_point \(3,\); both must be \(1,\) or \(1, 8\)"
    ):
        tvm.compile(
            helper.make_model(
                graph, opset_imports=[helper.make_opsetid("", 13), helper.make_opsetid("com.microsoft", 1)],
                ir_version=8
            )
        )


def test_lstm_with_quantized_weights_needs_their_scales() -> None:
    node = helper.make_node("DynamicQuantizeLSTM", ["X", "W", "R"], ["Y"], domain="com.microsoft", hidden_size=2)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("X", TensorProto.FLOAT, (3, 1, 2))],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.zeros((1, 2, 8), np.int8), name) for name in ("W", "R")])
    with pytest.raises(ModelError, match="input W_scale or W_zero_point is missing; both are needed"):
        tvm.compile(
            helper.make_model(
                graph, opset_imports=[helper.make_opsetid("", 13), helper.make_opsetid("com.microsoft", 1)],
                ir_version=8
            )
        )
