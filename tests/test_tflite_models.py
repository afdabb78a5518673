"""Trained TFLite models, where they are: `TILEWRIGHT_TFLITE_MODELS` names their folder. A cat is a cat, and integers
are those of the interpreter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from shipped_models import MODELS_FOLDER
from tilewright.relay.frontend.tflite import signature

CLASSIFIERS = ("mobilenet_v1_0.25_224_quant", "mobilenet_v1_0.25_224_1_default_1", "mobilenet_v2_1.0_224_quant")
QUANTIZED = (
    "kws_ref_model", "micro_speech_quantized", "mobilenet_v1_0.25_224_quant", "mobilenet_v2_1.0_224_quant",
    "pretrainedResnet_quant", "vww_96_int8"
)

Array = np.ndarray[Any, Any]
pytestmark = pytest.mark.models


def _file(name: str) -> Path:
    path = MODELS_FOLDER / name
    if not path.is_file():
        pytest.skip(f"there is no model {path}; TILEWRIGHT_TFLITE_MODELS names the folder of the trained models")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_cat_is_a_cat(name: str) -> None:
    image = pytest.importorskip("PIL.Image", reason="pillow, which reads the picture, is not installed")
    model, labels = _file(f"{name}.tflite"), _file("imagenet_labels_1001.txt").read_text().splitlines()
    picture = np.asarray(image.open(_file("cat.jpg")).convert("RGB").resize((224, 224)))[None]
    is_float = signature(model)[0][2] == "float32"
    scores = tvm.compile(model)((picture / np.float32(127.5) - 1).astype(np.float32) if is_float else picture)
    best = [labels[k] for k in np.argsort(scores[0])[::-1][:3]]
    assert any("cat" in label for label in best), best


@pytest.mark.slow
@pytest.mark.parametrize("name", QUANTIZED)
def test_no_integer_differs_from_those_of_the_interpreter(name: str) -> None:
    litert = pytest.importorskip(
        "ai_edge_litert.interpreter", reason="ai-edge-litert, whose kernels are the reference, is not installed"
    )
    model = _file(f"{name}.tflite")
    interpreter = litert.Interpreter(str(model), experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF)
    interpreter.allocate_tensors()
    (given,), (made,) = interpreter.get_input_details(), interpreter.get_output_details()
    compiled, info = tvm.compile(model), np.iinfo(given["dtype"])
    for seed in range(4):
        x = np.random.default_rng(seed).integers(info.min, info.max + 1, given["shape"]).astype(given["dtype"])
        interpreter.set_tensor(given["index"], x)
        interpreter.invoke()
        np.testing.assert_array_equal(compiled(x), interpreter.get_tensor(made["index"]))
