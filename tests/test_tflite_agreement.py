"""The program that compares TFLite networks with TensorFlow Lite's kernels: what it counts, what it feeds, and the
kernels themselves where they are."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tflite_models
import tilewright
from tflite_models import Op, T
from tflite_small import MODELS
from tilewright.relay.frontend.tflite import from_tflite
from tilewright.relay.interpreter import evaluate

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import tflite_agreement  # noqa: E402 (it stands beside the other programs)
from tflite_runtimes import RefusedError  # noqa: E402

Array = np.ndarray[Any, Any]


def _meant(script: str, python: str, path: Path, inputs: Sequence[Sequence[Array]], outputs: int) -> list[list[Array]]:
    """A runtime that answers what the model means."""
    module = from_tflite(path)[0]
    return [[np.asarray(evaluate(module, *x))] for x in inputs]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "conv.tflite"
    path.write_bytes(MODELS["conv_int8"]())
    return path


def test_answers_that_are_equal_are_counted_as_such(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tflite_agreement, "answers", _meant)
    row = tflite_agreement.agreement(model, 5, "python")
    assert (
        row.model, row.runtime, row.inputs, row.elements, row.differing, row.why
    ) == ("conv", "LiteRT", 5, 5 * 60, 0, "")


def test_a_file_that_one_runtime_refuses_is_compared_with_the_other(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(script: str, python: str, *rest: Any) -> list[list[Array]]:
        if python == "litert":
            raise RefusedError("quantized_dimension must be in range")
        return _meant(script, python, *rest)

    monkeypatch.setattr(tflite_agreement, "answers", refusing)
    assert tflite_agreement.agreement(model, 2, "litert", "micro").runtime == "tflite-micro"
    alone = tflite_agreement.agreement(model, 2, "litert")
    assert (alone.runtime, alone.elements, alone.why) == ("none", 0, "quantized_dimension must be in range")


def test_integers_must_be_equal_and_floats_near() -> None:
    row = tflite_agreement.Row("m", "LiteRT", 1)
    row.add(np.asarray([1, 5, 3], np.int8), np.asarray([1, 2, 3], np.int8))
    assert (row.elements, row.differing, row.largest) == (3, 1, 3.0)
    row = tflite_agreement.Row("m", "LiteRT", 1)
    row.add(np.asarray([100, 1e-3, 0], np.float32), np.asarray([100.0005, 0, 0.1], np.float32))
    assert row.differing == 1 and row.largest == pytest.approx(0.1 / 100.0005)
    with pytest.raises(ValueError, match=r"m: an output is int8 \(1,\), and uint8 \(1,\) was expected"):
        row.add(np.zeros(1, np.int8), np.zeros(1, np.uint8))


def test_a_picture_becomes_what_networks_take(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="pillow, which reads the picture, is not installed")
    pixels = np.random.default_rng(0).integers(0, 256, (60, 80, 3)).astype(np.uint8)
    image.fromarray(pixels).save(tmp_path / "p.png")
    found = tflite_agreement.inputs_of([("x", (1, 48, 64, 3), "int8")], 3, tmp_path / "p.png")
    assert len(found) == 3 + tflite_agreement.PIECES and all(
        x.shape == (1, 48, 64, 3) and x.dtype == np.int8 for (x,) in found
    )
    whole = np.asarray(image.fromarray(pixels).resize((64, 48)))[None]
    np.testing.assert_array_equal(found[3][0].astype(np.int16), whole.astype(np.int16) - 128)
    np.testing.assert_allclose(tflite_agreement.as_input(whole, "float32").max(), whole.max() / 127.5 - 1)
    assert len(tflite_agreement.inputs_of([("x", (1, 1960), "int8")], 3, tmp_path / "p.png")) == 3


@pytest.mark.slow
def test_no_element_differs_from_the_kernels(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="ai-edge-litert, whose kernels are the reference, is not installed")
    for name in ("conv_uint8", "lstm_int8_all", "svdf_int8", "fully_connected_int8"):
        (tmp_path / f"{name}.tflite").write_bytes(MODELS[name]())
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "tflite_agreement.py"), str(tmp_path), "--inputs", "10"], capture_output=True,
        text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == 5


@pytest.mark.parametrize("shape", [(64,), (5, 33)])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_leaky_relu_is_that_of_the_reference_kernels(dtype: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    """Both sides of the choice are products of 32 bits with the same rounding."""
    litert = pytest.importorskip(
        "ai_edge_litert.interpreter", reason="ai-edge-litert, whose kernels are the reference, is not installed"
    )
    info, zeros = np.iinfo(dtype), (0, 0) if dtype == "int16" else (5, 7)
    tensors = [T("x", shape, dtype, None, 0.04, zeros[0]), T("y", shape, dtype, None, 0.05, zeros[1])]
    path = tmp_path / "leaky_relu.tflite"
    path.write_bytes(
        tflite_models.model(tensors, [Op("LEAKY_RELU", [0], [1], "LeakyReluOptions", {"Alpha": 0.3})], [0], [1])
    )
    interpreter = litert.Interpreter(str(path), experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF)
    interpreter.allocate_tensors()
    (given,), (made,) = interpreter.get_input_details(), interpreter.get_output_details()
    x = np.random.default_rng(1).integers(info.min, info.max + 1, shape).astype(dtype)
    interpreter.set_tensor(given["index"], x)
    interpreter.invoke()
    np.testing.assert_array_equal(tilewright.compile(path)(x), interpreter.get_tensor(made["index"]))


def _reference_kernel(path: Path, x: Array) -> Array:
    """What TensorFlow Lite's reference kernels make of one input."""
    litert = pytest.importorskip(
        "ai_edge_litert.interpreter", reason="ai-edge-litert, whose kernels are the reference, is not installed"
    )
    interpreter = litert.Interpreter(str(path), experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
    interpreter.invoke()
    return np.asarray(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))


@pytest.mark.parametrize("scale", [0.01, 0.25, 1.5])
@pytest.mark.parametrize(("dtype", "to", "zero"), [("int8", 0.3, -9), ("int16", 0.02, 0)])
def test_sums_of_a_scale_are_requantized(scale: float, dtype: str, to: float, zero: int, tmp_path: Path) -> None:
    x = np.r_[np.random.default_rng(0).integers(-2000, 2000, 50), [2**31 - 1, -(2**31), 0]].astype(np.int32)
    path = tmp_path / "quantize.tflite"
    path.write_bytes(
        tflite_models.model(
            [T("x", x.shape, "int32", None, scale, 0), T("y", x.shape, dtype, None, to, zero)],
            [Op("QUANTIZE", [0], [1])], [0], [1]
        )
    )
    np.testing.assert_array_equal(tilewright.compile(path)(x), _reference_kernel(path, x))


@pytest.mark.parametrize(
    ("scale", "to", "zero"),
    [
        (0.014966697432100773, 0.009715335443615913, 4), (0.05656814202666283, 0.04325133562088013, 17),
        (1.7705013751983643, 0.00754468934610486, -3)
    ]
)
def test_inverse_roots_of_bytes_are_in_fixed_point(scale: float, to: float, zero: int, tmp_path: Path) -> None:
    """Near a half, the quotient in double precision is another integer."""
    x = np.arange(-128, 128).astype(np.int8)
    path = tmp_path / "rsqrt.tflite"
    path.write_bytes(
        tflite_models.model(
            [T("x", x.shape, "int8", None, scale, -128), T("y", x.shape, "int8", None, to, zero)],
            [Op("RSQRT", [0], [1])], [0], [1]
        )
    )
    np.testing.assert_array_equal(tilewright.compile(path)(x), _reference_kernel(path, x))
