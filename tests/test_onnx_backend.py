"""`tilewright.onnx_backend`: how it takes inputs, gives outputs, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import small_models as models
import tilewright.compat.onnx_backend as backend
from tilewright.base.errors import InputError, OptionError, TargetError

X = np.random.default_rng(0).standard_normal((2, 16), np.float32)


def test_inputs_by_order_by_name_and_alone() -> None:
    rep = backend.prepare(models.mlp(), threads=1)
    expected: Any = rep.run([X])  # a tuple that also takes names
    assert expected["y"] is expected[0] and expected[0].shape == (2, 10)
    for given in (X, (X,), {"x": X}):
        np.testing.assert_array_equal(rep.run(given)[0], expected[0])
    np.testing.assert_array_equal(backend.run_model(models.mlp(), [X])[0], expected[0])


def test_weights_among_the_inputs() -> None:
    model = models.mlp()
    model.graph.input.append(helper.make_tensor_value_info("w0", TensorProto.FLOAT, [16, 32]))
    rep = backend.prepare(model)
    np.testing.assert_array_equal(rep.run([X])[0], rep.run([X, np.zeros((16, 32), np.float32)])[0])


def test_one_node() -> None:
    node = helper.make_node("Add", ["a", "b"], ["c"])
    a, b = X, X[:1]
    np.testing.assert_array_equal(backend.run_node(node, [a, b])[0], a + b)
    np.testing.assert_array_equal(backend.run_node(node, {"b": b, "a": a}, opset_version=14)[0], a + b)
    clip = helper.make_node("Clip", ["x", "", "most"], ["y"])
    np.testing.assert_array_equal(
        backend.run_node(clip, [X, np.float32(0.5)], opset_version=13)[0], np.minimum(X, np.float32(0.5))
    )


def test_devices_and_compatibility() -> None:
    assert backend.supports_device("CPU") and backend.supports_device("CPU:0") and not backend.supports_device("CUDA")
    assert backend.is_compatible(models.mlp()) and not backend.is_compatible(models.mlp(), "CUDA")
    model = models.mlp()
    model.graph.node[0].op_type = "NoSuch"
    assert not backend.is_compatible(model)


def _mlp(**options: Any) -> backend.TilewrightRep:
    return backend.prepare(models.mlp(), **options)


@pytest.mark.parametrize(("act", "kind", "message"), [
    (lambda: _mlp(device="CUDA"), TargetError, "there is no device 'CUDA' to run on"),
    (
        lambda: _mlp(fast=True), OptionError,
        "prepare has no option 'fast'; its options are those of tilewright.compile: shapes, "
    ),
    (lambda: _mlp().run([X], fast=True), OptionError, "run takes inputs only, but was given fast"),
    (lambda: _mlp().run({"z": X}), InputError, "the model has no input 'z'"),
    (lambda: backend.prepare(
        models.graph([helper.make_node("Add", ["a", "b"], ["c"])], {"a": (2,), "b": (2,)}, {"c": (2,)}, {})
    ).run([X]),
     InputError, r"the model takes 2 inputs \(a, b\), but 1 were given"),
    (
        lambda: backend.run_node(helper.make_node("Add", ["a", "b"], ["c"]), [X]), InputError,
        r"Add takes 2 inputs \(a, b\), but 1 were given"
    ),
    (
        lambda: backend.run_node(helper.make_node("Relu", ["a"], ["c"]), [None]), InputError,
        "input 'a' is None, so its type is unknown"
    ),
])
def test_what_is_refused(act: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        act()
