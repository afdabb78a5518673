"""ONNX operators at the limits of their arguments: nothing to compute, conditions and counts that do not fit."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

import tilewright as tvm
from test_onnx_kinds import as_onnx_runtime, node_model, same
from tilewright.base.errors import ModelError


def test_samples_of_integers_stay_in_their_buffer() -> None:
    """Sums are floats of more bytes than the elements of the image."""
    grid = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 4, 8, 2)
    image = np.arange(12, dtype=np.uint16).reshape(1, 1, 3, 4)
    nearest = node_model(
        "GridSample", {"x": image, "g": grid}, {}, {"y": TensorProto.UINT16}, mode="nearest", align_corners=1
    )
    same(nearest, {"x": image, "g": grid})
    linear, real = (node_model("GridSample", {"x": image.astype(d), "g": grid}, {}, {"y": t}, align_corners=1)
                    for d, t in ((np.uint16, TensorProto.UINT16), (np.float32, TensorProto.FLOAT)))
    wanted = tvm.compile(real)(x=image.astype(np.float32), g=grid)
    np.testing.assert_array_equal(tvm.compile(linear)(x=image, g=grid), wanted.astype(np.uint16))


def test_the_softmax_and_the_least_of_nothing() -> None:
    x = np.zeros((2, 0), np.float32)
    for kind in ("Softmax", "LogSoftmax"):
        as_onnx_runtime(node_model(kind, {}, {"x": x}, {"y": TensorProto.FLOAT}, opset=17), {}, 0, 0)
    same(node_model("ArgMin", {}, {"x": np.zeros((0, 3), np.float32)}, {"y": TensorProto.INT64}, axis=1), {})


def test_a_condition_that_is_longer_than_the_input() -> None:
    x, chosen = np.arange(3, dtype=np.float32), np.asarray([True, False, True, True, True])
    as_onnx_runtime(
        node_model("Compress", {"x": x, "c": chosen}, {}, {"y": TensorProto.FLOAT}), {"x": x, "c": chosen}, 0, 0
    )


def test_fewer_than_no_boxes_are_none() -> None:
    given = {"boxes": np.zeros((1, 1, 4), np.float32), "scores": np.ones((1, 1, 1), np.float32)}
    model = node_model("NonMaxSuppression", given, {"most": np.asarray([-1])}, {"y": TensorProto.INT64})
    as_onnx_runtime(model, given, 0, 0)


def test_lengths_of_n_grams_begin_at_one() -> None:
    x = np.asarray([0, 0, 3], np.int32)
    model = node_model("TfIdfVectorizer", {"x": x}, {}, {
        "y": TensorProto.FLOAT
    }, max_gram_length=2, max_skip_count=5, mode="TF", min_gram_length=-1,
                       ngram_counts=[0, 4], ngram_indexes=[0, 1, 2, 3, 4, 5, 6],
                       pool_int64s=[2, 3, 5, 4, 5, 6, 7, 8, 6, 7])
    with pytest.raises(
        ModelError, match="min_gram_length is -1 and max_gram_length 2; the first must be from 1 to the second"
    ):
        tvm.compile(model)
