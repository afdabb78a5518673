"""Models of ONNX's first opsets (1 to 8): what operators meant then, and operators that were taken out later.

ONNX Runtime says what is right where it still runs them (from opset 7 on), numpy elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import tilewright as tvm
from tilewright.base.errors import ModelError
from tilewright.relay.frontend import from_onnx

Array = np.ndarray[Any, Any]
_random = np.random.default_rng(3)


def real(*shape: int) -> Array:
    return _random.standard_normal(shape).astype(np.float32)


@dataclass(frozen=True)
class Case:
    """One node; inputs beyond the first `fed` are initializers."""

    op_type: str
    inputs: tuple[Array, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    opset: int = 7
    fed: int = 1

    def model(self) -> tuple[onnx.ModelProto, dict[str, Array]]:
        names = [f"x{k}" for k in range(len(self.inputs))]
        given = dict(zip(names, self.inputs, strict=True))
        infos = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n,
            a in given.items()
        ]
        # before IR version 4 they are inputs, too
        stored = [onnx.numpy_helper.from_array(given[n], n) for n in names[self.fed:]]
        graph = helper.make_graph(
            [helper.make_node(self.op_type, names, ["y"], **self.attrs)], "g", infos, [onnx.ValueInfoProto(name="y")],
            stored
        )
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=3
        ), {n: given[n] for n in names[:self.fed]}

    def answer(self) -> Array:
        model, fed = self.model()
        found: Array = tvm.compile(model)(**fed)
        return found


X = real(2, 3, 4, 5)
WITH_ONNX_RUNTIME = [
    Case("Affine", (X,), {"alpha": 2.0, "beta": 1.0}), Case("ScaledTanh", (X,), {"alpha": 2.0, "beta": 0.5}),
    Case("ParametricSoftplus", (X,), {"alpha": 2.0, "beta": 0.5}), Case("Scale", (X,), {"scale": 3.0}),
    Case("ThresholdedRelu", (X,), {"alpha": 0.3}),
    Case("ImageScaler", (X,), {"scale": 2.0, "bias": [1.0, 2.0, 3.0]}), Case("Crop", (X,), {"border": [1, 0, 2, 1]}),
    Case("Crop", (X,), {"border": [1, 1, 1, 1], "scale": [2, 3]}),
    *(
        Case("MeanVarianceNormalization", (X,), {"across_channels": a, "normalize_variance": v}) for a in (0, 1)
        for v in (0, 1)
    ),
    Case("MeanVarianceNormalization", (X,), {"axes": [0, 3]}, 9), Case("MeanVarianceNormalization", (X,), {}, 13),
    Case("DynamicSlice", (X, np.array([1, -3]), np.array([2, -1]), np.array([1, 3]))),
    Case("BatchNormalization", (X, real(3, 4, 5), real(3, 4, 5), real(3, 4, 5), real(3, 4, 5) ** 2), {"spatial": 0}),
    Case("Upsample", (X,), {"scales": [1.0, 1.0, 2.0, 3.0]}),
    Case("Upsample", (X,), {"scales": [1.0, 1.0, 2.0, 2.0], "mode": "linear"}),
    Case("Dropout", (X,), {"ratio": 0.3}), Case("Slice", (X,), {"axes": [1, 3], "starts": [0, -4], "ends": [2, 99]}),
    Case("Flatten", (X,), {"axis": 2}, 1),
    Case("Softmax", (X,), {"axis": 2}), Case("LogSoftmax", (X,), {"axis": 1}), Case("Hardmax", (X,), {"axis": 2}),
    Case("Clip", (X,), {"min": -0.5, "max": 0.5}),
    Case("Pad", (X,), {"pads": [0, 0, 1, 0, 0, 0, 2, 3], "value": 1.5}), Case("Split", (X,), {"axis": 1, "split": [3]}),
    Case("AveragePool", (X,), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}),
    Case("LpPool", (X,), {"kernel_shape": [2, 2], "p": 3}),
]


@pytest.mark.parametrize("case", WITH_ONNX_RUNTIME, ids=lambda c: f"{c.op_type}-{c.opset}-{'-'.join(c.attrs)}")
def test_what_onnx_runtime_still_runs(case: Case) -> None:
    model, fed = case.model()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    wanted = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    ).run(None, fed)[0]
    np.testing.assert_allclose(np.atleast_1d(_first(case.answer())), wanted, 1e-4, 1e-5)


def _first(answer: Any) -> Array:
    found: Array = answer[0] if isinstance(answer, tuple) else answer
    return found


SUFFIX, LATER = real(4, 5), real(3)
BY_NUMPY = [
    (Case("Add", (X, SUFFIX), {"broadcast": 1}, 1), X + SUFFIX),
    (Case("Mul", (X, LATER), {"broadcast": 1, "axis": 1}, 6), X * LATER[:, None, None]),
    (Case("Sub", (X, real(2, 3, 4, 5) * 0 + 1), {}, 6), X - 1),
    (Case("Pow", (X, np.array([2], np.float32)), {"broadcast": 1}, 1), X**2),
    (Case("Greater", (X, LATER), {"broadcast": 1, "axis": 1}, 1), np.greater(X, LATER[:, None, None])),
    (
        Case("Gemm", (X[0, 0], X[0, 1].T, np.array([1, 2, 3, 4], np.float32)), {"broadcast": 1, "beta": 0.5}, 6),
        X[0, 0] @ X[0, 1].T + 0.5 * np.array([1, 2, 3, 4], np.float32)
    ),
    (Case("PRelu", (X, LATER), {}, 6), np.where(X < 0, X * LATER[:, None, None], X)),
    (Case("Cast", (X,), {"to": "INT32"}, 1), X.astype(np.int32)),
    (Case("Concat", (X, X), {}, 1, fed=2), np.concatenate((X, X), 1)),
    (Case("Reshape", (X,), {"shape": [0, -1]}, 1), X.reshape(2, -1)),
    (Case("Pad", (X,), {"paddings": [0, 0, 1, 0, 0, 0, 0, 2]}, 1), np.pad(X, ((0, 0), (0, 0), (1, 0), (0, 2)))),
    (Case("Tile", (X, np.array([2]), np.array([3])), {}, 1), np.tile(X, (1, 1, 1, 2))),
    (Case("Softmax", (np.zeros((2, 3, 4), np.float32),), {}, 1), np.full((2, 3, 4), 1 / 12)),
    (Case("Clip", (X,), {"max": 0.5}, 1), np.minimum(X, 0.5)), (Case("Selu", (np.abs(X),), {}, 1), np.abs(X) * 1.0507),
    (Case("Squeeze", (X[:, :1],), {"axes": [1]}, 1), X[:, 0]),
    (Case("ConstantFill", (X,), {"value": 2.5, "extra_shape": [2]}, 1), np.full((2, 3, 4, 5, 2), 2.5)),
    (
        Case("ConstantFill", (np.array([2, 3]),), {"value": 2.0, "input_as_shape": 1, "dtype": TensorProto.INT64}, 1),
        np.full((2, 3), 2)
    ),
    (Case("ConstantFill", (), {"shape": [3], "value": 1.0}, 1, fed=0), np.ones(3)),
    (Case("Upsample", (X,), {"height_scale": 2.0, "width_scale": 2.0}, 1), X.repeat(2, 2).repeat(2, 3)),
    (Case("LpPool", (np.abs(X),), {"kernel_shape": [1, 1], "p": 3.0}, 1), np.abs(X)),
    (Case("TopK", (X,), {"k": 1}, 1), X.max(-1, keepdims=True)),
]


@pytest.mark.parametrize(
    ("case", "wanted"), BY_NUMPY, ids=lambda v: f"{v.op_type}-{v.opset}" if isinstance(v, Case) else ""
)
def test_what_it_meant_then(case: Case, wanted: Array) -> None:
    found = _first(case.answer())
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, 1e-5, 1e-6)


@pytest.mark.parametrize(("case", "words"), [
    (Case("ImageScaler", (X,), {"bias": [1.0]}), "bias has 1 numbers, but its input has 3 channels"),
    (
        Case("Crop", (X,), {"border": [1]}),
        r"border has 1 numbers and scale 0; border must have 4 \(left, top, right, bottom\)"
    ),
    (
        Case("Crop", (X,), {"border": [1, 1, 1, 1], "scale": [9, 9]}),
        "rows 1 to 10 and columns 1 to 10 are outside an image of 4 by 5"
    ),
])
def test_refusals(case: Case, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        from_onnx(case.model()[0])
