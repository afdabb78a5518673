"""Quantised ONNX operators beside ONNX Runtime: every byte of functions of one number, and numbers half-way between two
results of the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
from small_models import onnxruntime_answers

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import helper, numpy_helper  # noqa: E402

Array = np.ndarray[Any, Any]
F = np.float32
RANGES = {np.uint8: (0, 255), np.int8: (-128, 127)}


def model(nodes: list[Any], inputs: dict[str, Array], dtype: Any, weights: dict[str, Array]) -> Any:
    """A model of quantized inputs that gives `y` of `dtype`."""
    kind = helper.np_dtype_to_tensor_dtype
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(n, kind(v.dtype), v.shape) for n, v in inputs.items()],
        [helper.make_tensor_value_info("y", kind(np.dtype(dtype)), None)],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in weights.items()],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)], ir_version=9
    )


def agrees(proto: Any, inputs: dict[str, Array]) -> None:
    wanted = onnxruntime_answers(proto, inputs, exact_sums=True)[0]
    np.testing.assert_array_equal(tilewright.compile(proto, threads=1)(*inputs.values()), wanted)


def around(nodes: list[Any], inputs: int) -> list[Any]:
    """DequantizeLinear of `a`, `b`, … before the nodes, which read `ra`, `rb`, …; QuantizeLinear of `r` after them."""
    names = "ab"[:inputs]
    before = [helper.make_node("DequantizeLinear", [n, f"{n}_s", f"{n}_z"], [f"r{n}"]) for n in names]
    return [*before, *nodes, helper.make_node("QuantizeLinear", ["r", "y_s", "y_z"], ["y"])]


def parameters(name: str, scale: Any, zero: int, dtype: Any) -> dict[str, Array]:
    return {f"{name}_s": np.asarray(scale, F), f"{name}_z": np.asarray(zero, dtype)}


FUNCTIONS: dict[str, dict[str, Any]] = {
    "Sigmoid": {}, "Tanh": {}, "Relu": {}, "LeakyRelu": {"alpha": 0.07}, "HardSwish": {}, "HardSigmoid": {},
    "Elu": {"alpha": 1.3}, "Celu": {"alpha": 0.7}, "Selu": {},
    "Exp": {}, "Sqrt": {}, "Abs": {}, "Neg": {}, "Softplus": {}, "Softsign": {}, "Erf": {}, "Gelu": {}, "Mish": {},
    "ThresholdedRelu": {"alpha": 0.5}, "Log": {},
    "Reciprocal": {}, "Floor": {}, "Round": {}, "Softmax": {"axis": -1}, "LogSoftmax": {"axis": -1},
}


@pytest.mark.sampled(18)
@pytest.mark.parametrize("dtype", RANGES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_byte_of_a_function(name: str, dtype: Any) -> None:
    low, high = RANGES[dtype]
    x = np.arange(low, high + 1).astype(dtype).reshape(1, 256)
    rng = np.random.default_rng(len(name))
    for turn in range(4):
        scale = F(rng.uniform(0.01, 0.1)) if turn % 2 else F(2.0 ** -int(rng.integers(3, 6)))
        zero = low if name in ("Sqrt", "Log", "Reciprocal") else int(rng.integers(low, high + 1))
        to, out = (F(rng.uniform(0.005, 0.05)) if turn % 2 else scale), int(rng.integers(low, high + 1))
        if name == "Softmax":
            to, out = F(1 / 256) if turn % 2 else F(0.003), low
        nodes = around([helper.make_node(name, ["ra"], ["r"], **FUNCTIONS[name])], 1)
        agrees(
            model(nodes, {"a": x}, dtype, {**parameters("a", scale, zero, dtype), **parameters("y", to, out, dtype)}),
            {"a": x}
        )


@pytest.mark.parametrize("fused", [True, False], ids=["QLinear", "QDQ"])
@pytest.mark.parametrize("dtype", RANGES)
@pytest.mark.parametrize("name", ["Add", "Mul"])
def test_sums_and_products(name: str, dtype: Any, fused: bool) -> None:
    low, high = RANGES[dtype]
    rng = np.random.default_rng(5)
    for turn in range(4):
        a, b = (rng.integers(low, high + 1, (3, 700)).astype(dtype) for _ in "ab")
        zeros = [int(z) for z in rng.integers(low, high + 1, 3)]
        s = F(rng.uniform(0.01, 0.1))
        t = F(s * rng.choice([1, 0.5, 0.25, 0.75])) if turn % 2 else F(rng.uniform(0.01, 0.1))
        to = F(s * rng.choice([1, 2, 4, 1.5, 3])) if turn % 2 else F(rng.uniform(0.05, 0.3))
        if name == "Mul":
            a, b = (np.clip(rng.integers(-10, 11, a.shape) + z, low, high).astype(dtype) for z in zeros[:2])
            to = F(2 * s * t * (1 + rng.integers(-3, 4) * F(1.2e-7)))
        weights = {
            k: v for n, scale, zero in zip("aby", (s, t, to), zeros, strict=True) for k,
            v in parameters(n, scale, zero, dtype).items()
        }
        one = helper.make_node(
            f"QLinear{name}", ["a", "a_s", "a_z", "b", "b_s", "b_z", "y_s", "y_z"], ["y"], domain="com.microsoft"
        )
        nodes = [one] if fused else around([helper.make_node(name, ["ra", "rb"], ["r"])], 2)
        agrees(model(nodes, {"a": a, "b": b}, dtype, weights), {"a": a, "b": b})


POOLS: dict[str, tuple[str, dict[str, Any]]] = {
    "image": ("GlobalAveragePool", {}), "windows": ("AveragePool", {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "padded": ("AveragePool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    "counted": (
        "AveragePool", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "count_include_pad": 1}
    ),
    "greatest": ("MaxPool", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
}


@pytest.mark.parametrize("dtype", RANGES)
@pytest.mark.parametrize("name", POOLS)
def test_pools(name: str, dtype: Any) -> None:
    low, high = RANGES[dtype]
    rng = np.random.default_rng(6)
    operator, attributes = POOLS[name]
    for channels, size, turn in ((8, 6, 0), (40, 4, 1), (64, 7, 2)):
        x = rng.integers(low, high + 1, (2, channels, size, size)).astype(dtype)
        s, zero = F(rng.uniform(0.01, 0.1)), int(rng.integers(low, high + 1))
        to, out = (s, zero) if turn == 1 or operator == "MaxPool" else (F(s * 0.5), int(rng.integers(low, high + 1)))
        nodes = around([helper.make_node(operator, ["ra"], ["r"], **attributes)], 1)
        # real numbers are added up in the order in which they are stored: here channels last, as in networks
        if operator == "AveragePool":
            x = x.transpose(0, 2, 3, 1).copy()
            nodes = [
                helper.make_node(
                    "QLinearAveragePool", ["a", "a_s", "a_z", "y_s", "y_z"], ["y"], domain="com.microsoft",
                    channels_last=1, **attributes
                )
            ]
        agrees(
            model(nodes, {"a": x}, dtype, {**parameters("a", s, zero, dtype), **parameters("y", to, out, dtype)}),
            {"a": x}
        )


@pytest.mark.parametrize("channels", [True, False], ids=["channels", "tensor"])
@pytest.mark.parametrize("dtype", RANGES)
@pytest.mark.parametrize(
    ("cin", "cout", "kernel", "groups"),
    [(16, 32, 3, 1), (64, 64, 1, 1), (32, 32, 3, 32), (3, 24, 3, 1), (32, 32, 3, 4)]
)
def test_convolutions(cin: int, cout: int, kernel: int, groups: int, dtype: Any, channels: bool) -> None:
    """Sums that are worth half a step, but for the last bits of the scales."""
    low, high = RANGES[dtype]
    rng = np.random.default_rng(cin + groups)
    scale, base = F(rng.uniform(0.01, 0.05)), F(rng.uniform(0.002, 0.01))
    each = (base * (1 + rng.integers(-3, 4, cout) * F(1.2e-7))).astype(F) if channels else base
    zero, out = (int(z) for z in rng.integers(low + 8, high - 7, 2))
    x = rng.integers(max(low, zero - 3), min(high, zero + 3) + 1, (2, cin, 9, 9)).astype(dtype)
    weights = {
        **parameters("a", scale, zero, dtype), **parameters("y", F(2 * scale * base), out, dtype),
        "w": rng.integers(-3, 4, (cout, cin // groups, kernel, kernel)).astype(np.int8),
        "w_s": np.asarray(each), "w_z": np.zeros(np.shape(each), np.int8),
        "b": rng.integers(-50, 51, cout).astype(np.int32),
    }
    one = helper.make_node(
        "QLinearConv", ["a", "a_s", "a_z", "w", "w_s", "w_z", "y_s", "y_z", "b"], ["y"], pads=[kernel // 2] * 4,
        group=groups
    )
    agrees(model([one], {"a": x}, dtype, weights), {"a": x})


def test_quantization_divides() -> None:
    rng = np.random.default_rng(8)
    for zero in (0, 77, 128):
        scale = F(rng.uniform(0.01, 0.1))
        x = (rng.integers(-300, 300, 5000) * F(0.5) * scale * (1 + rng.integers(-3, 4, 5000) * F(6e-8))).astype(F)
        agrees(
            model(
                [helper.make_node("QuantizeLinear", ["x", "y_s", "y_z"], ["y"])], {"x": x}, np.uint8,
                parameters("y", scale, zero, np.uint8)
            ), {"x": x}
        )
