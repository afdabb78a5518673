"""Attributes and shapes that do not belong together, found by changing models at random: each is one located
message."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import tilewright
from tflite_models import Graph, Op, T, model
from tilewright.base.errors import ModelError
from tilewright.relay.frontend import from_onnx, from_tflite


def one(
    op: str, shapes: list[list[int] | None], opset: int = 22, known: dict[int, Any] | None = None,
    kinds: dict[int, int] | None = None, **attributes: Any
) -> ModelProto:
    """One node `odd` over inputs of these shapes; `known` are the values of some of them, `kinds` element types other
    than float32."""
    names = [f"x{k}" if shape is not None else "" for k, shape in enumerate(shapes)]
    values, types = known or {}, kinds or {}
    given = [
        helper.make_tensor_value_info(n, types.get(k, TensorProto.FLOAT), s) for k,
        (n, s) in enumerate(zip(names, shapes, strict=True)) if n and k not in values
    ]
    stored = [
        helper.make_tensor(names[k], types.get(k, TensorProto.FLOAT), shapes[k] or [], v) for k, v in values.items()
    ]
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], name="odd", **attributes)], "g", given,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], stored
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


IMAGE, OFFSET = [1, 4, 5, 5], [1, 18, 3, 3]
INT64, TEXT = TensorProto.INT64, TensorProto.STRING


@pytest.mark.parametrize(("source", "message"), [
    (one("Conv", [IMAGE, [4, 4, 3, 3]], group=0), r"group is 0; it must be 1 or more and divide the 4 channels of X"),
    (one("Conv", [IMAGE, [4, 1, 3, 3]], group=3), r"group is 3; it must be 1 or more and divide the 4 channels of X"),
    (one("Conv", [IMAGE, [3, 2, 3, 3]], group=2), r"group is 2; it must be 1 or more and divide the 3 channels of W"),
    (
        one("ConvTranspose", [IMAGE, [4, 4, 3, 3]], group=-2),
        r"group is -2; it must be 1 or more and divide the 4 channels of X"
    ),
    (
        one("ConvTranspose", [IMAGE, [4, 4, 3, 3]], group=3),
        r"group is 3; it must be 1 or more and divide the 4 channels of X"
    ),
    (
        one("LpPool", [IMAGE], kernel_shape=[2, 2], p=0),
        r"p \(the order of the norm\) is 0; it must be 1 or more"
    ),
    (one("GlobalLpPool", [IMAGE], p=-1), r"p \(the order of the norm\) is -1; it must be 1 or more"),
    (
        one("DeformConv", [IMAGE, [4, 4, 3, 3], [1, 18, 3, 4]]),
        r"offset has the shape \(1, 18, 3, 4\); with its X, W and attributes it must be \(1, 18, 3, 3\)"
    ),
    (
        one("DeformConv", [IMAGE, [4, 4, 3, 3], OFFSET], group=3),
        r"group is 3 and offset_group 1; each must be 1 or more and divide the 4 channels of X"
    ),
    (
        one("DeformConv", [IMAGE, [4, 4, 3, 3], OFFSET], offset_group=0),
        r"group is 1 and offset_group 0; each must be 1 or more"
    ),
    (
        one("DeformConv", [IMAGE, [4, 2, 3, 3], OFFSET]),
        r"W has the shape \(4, 2, 3, 3\); it must be \(a multiple of 1, 4, the height and the width of the kernel\)"
    ),
    (one("DeformConv", [IMAGE, [4, 4, 3, 3], OFFSET], kernel_shape=[2, 2]), r"W has the shape \(4, 4, 3, 3\)"),
    (
        one("DeformConv", [IMAGE, [4, 4, 3, 3], OFFSET], strides=[1]),
        r"strides is \(1,\); it must be 2 numbers of 1 or more"
    ),
    (
        one("DeformConv", [IMAGE, [4, 4, 3, 3], OFFSET], pads=[1, 1]),
        r"pads is \(1, 1\); it must be 4 numbers of 0 or more"
    ),
    (
        one("DeformConv", [IMAGE, [4, 4, 3, 3], OFFSET, [7]]),
        r"B has the shape \(7,\); with its X, W and attributes it must be \(4,\)"
    ),
    (
        one("TensorScatter", [[3, 4, 5], [3, 5], [3]], 24, kinds={2: INT64}),
        "past_cache has 3 dimensions and update 2; both must have the same number"
    ),
    (
        one("TensorScatter", [[3, 4, 5], [3, 1, 5], [2]], 24, kinds={2: INT64}),
        r"write_indices has the shape \(2,\); it must have one index for each of 3 samples"
    ),
    (one(
        "Resize", [[1, 1, 4, 4], None, None, [4]], known={3: [1, 1, 0, 3]}, kinds={3: INT64}, mode="cubic", antialias=1
    ),
     r"antialias=1 cannot resize \(1, 1, 4, 4\) to \(1, 1, 0, 3\); each size must be 1 or more"),
    (one(
        "Resize", [[1, 1, 0, 4], None, None, [4]], known={3: [1, 1, 2, 3]}, kinds={3: INT64}, mode="linear",
        keep_aspect_ratio_policy="not_larger"
    ),
     r"keep_aspect_ratio_policy is 'not_larger', but X has the shape \(1, 1, 0, 4\); each size must be 1 or more"),
    (one("Mod", [[4], [4]], fmod=3), "attribute 'fmod' is 3, but must be 0 or 1"),
    (one("ReduceMax", [[4, 2]], 16, keepdims=-2), "attribute 'keepdims' is -2, but must be 0 or 1"),
    (
        one("Attention", [[1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4]], 23, is_causal=-1),
        "attribute 'is_causal' is -1, but must be 0 or 1"
    ),
    (
        one("LayerNormalization", [[3, 4], [4]], axis=2),
        r"attribute 'axis' is 2, but input 'x0' has 2 dimensions, Tensor\[\(3, 4\), float32\]"
    ),
    (one("RMSNormalization", [[3, 4], [4]], 23, axis=-3), "attribute 'axis' is -3, but input 'x0' has 2 dimensions"),
    (
        one("Tile", [[3, 4], [3]], known={1: [1, 1, 1]}, kinds={1: INT64}),
        "input 'repeats' has 3 numbers, but its data has 2 dimensions; give one for each"
    ),
    (
        one(
            "Slice", [[3, 4], [2], [2], [2]], known={1: [0, 0], 2: [2, 2], 3: [1, -1]},
            kinds={1: INT64, 2: INT64, 3: INT64}
        ), r"axes \(1, 1\) name a dimension twice"
    ),
])
def test_onnx(source: ModelProto, message: str) -> None:
    with pytest.raises(ModelError, match=f"'odd'.*{message}"):
        from_onnx(source)


def loop(condition: Graph, body: Graph) -> bytes:
    return model(
        [T("x", (2,)), T("y", (2,))],
        [Op("WHILE", [0], [1], "WhileOptions", {"CondSubgraphIndex": 1, "BodySubgraphIndex": 2})], [0], [1], condition,
        body
    )


GOING = Graph([T("a", (2,)), T("t", (), "bool", np.array(True))], [], [0], [1])
SAME = Graph([T("a", (2,)), T("b", (2,))], [Op("EXP", [0], [1])], [0], [1])


@pytest.mark.parametrize(("source", "message"), [
    (loop(Graph(GOING.tensors, [], [0], []), SAME), "WHILE.*its condition has 0 results, but must have one"),
    (
        loop(GOING, Graph(SAME.tensors, SAME.operators, [0], [])),
        "WHILE.*its body has 0 results, but must have 1, one for each input"
    ),
    (model(
        [T("c", (2,), "bool"), T("x", (2,)), T("y", (2,))],
        [Op("IF", [0, 1], [2], "IfOptions", {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 1})], [0, 1], [2], SAME
    ),
     r"IF.*its condition has the shape \(2,\), but must be one Boolean"),
    (model(
        [T("x", (2, 2)), T("p", (2, 2), "float32", np.ones((2, 2), np.float32)), T("y", (4, 4))],
        [Op("PAD", [0, 1], [2], "PadOptions")], [0], [2]
    ),
     "PAD.*its paddings are of type float32, but must be integers"),
    (model(
        [T("x", ()), T("k", (), "int32", np.array(1, np.int32)), T("v", (1,)), T("i", (1,), "int32")],
        [Op("TOPK_V2", [0, 1], [2, 3], "TopKV2Options")], [0], [2, 3]
    ),
     "TOPK_V2.*its input is a scalar; it must have at least 1 dimension"),
])
def test_tflite(source: bytes, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        from_tflite(source)


def test_kernels_that_no_registers_hold() -> None:
    """A convolution whose taps along a row are more than there are registers."""
    x, w = np.ones((1, 1, 6, 300), np.float32), np.ones((2, 1, 3, 301), np.float32)
    source = one("Conv", [[*x.shape], [*w.shape]], known={1: w.ravel()}, pads=[1, 150] * 2)
    y = tilewright.compile(source, threads=1)(x)
    assert y.shape == (1, 2, 6, 300) and y[0, 0, 2, 150] == 3 * 300
