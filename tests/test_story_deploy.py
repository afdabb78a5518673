"""A day's work in the field's own words, on a trained network: import, build, run, time. Beside ONNX Runtime's
answers."""

from __future__ import annotations

import timeit
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tilewright as tvm
from small_models import onnxruntime_answers
from tilewright import relay
from tilewright.runtime import graph_executor

pytestmark = pytest.mark.models

SHARED = Path(__file__).parent.parent.parent / "shared" / "models"
MODEL, IMAGE = SHARED / "efficientnet_lite0.onnx", SHARED / "cat.jpg"
CATS = range(281, 286)
"""The domestic cats of ImageNet, from tabby to Egyptian."""


def picture(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """The cat, as the network was trained to see it."""
    from PIL import Image

    image = np.asarray(Image.open(IMAGE).convert("RGB").resize(shape[2:][::-1])).astype("float32")
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    return np.expand_dims(np.transpose((image / 255 - mean) / std, (2, 0, 1)), 0).astype("float32")


@pytest.mark.slow
@pytest.mark.skipif(not MODEL.exists() or not IMAGE.exists(), reason=f"{MODEL} and {IMAGE} are not there")
def test_deploy() -> None:
    onnx_model = onnx.load(MODEL)
    graph_input = onnx_model.graph.input[0]
    input_name = graph_input.name
    shape = tuple(d.dim_value or 1 for d in graph_input.type.tensor_type.shape.dim)
    target = "llvm"

    img_data = picture(shape)
    mod, params = relay.frontend.from_onnx(onnx_model, {input_name: img_data.shape})
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(mod, target=target, params=params)
    dev = tvm.device(str(target), 0)
    module = graph_executor.GraphModule(lib["default"](dev))

    module.set_input(input_name, img_data)
    module.run()
    plain = module.get_output(0).numpy()
    into = module.get_output(0, tvm.nd.empty(plain.shape)).numpy()
    np.testing.assert_array_equal(plain, into)

    ms = np.array(timeit.Timer(module.run).repeat(repeat=2, number=2)) * 1000 / 2
    assert ms.min() > 0
    timing = module.benchmark(dev, repeat=2, number=2)
    assert len(timing.results) == 2
    assert "median (ms)" in str(timing)

    expected = onnxruntime_answers(MODEL, {input_name: img_data})[0]
    np.testing.assert_allclose(plain, expected, rtol=1e-3, atol=1e-4)
    best = np.argsort(plain.ravel())[::-1][:5].tolist()
    assert best == np.argsort(expected.ravel())[::-1][:5].tolist()
    assert set(best) & set(CATS)
