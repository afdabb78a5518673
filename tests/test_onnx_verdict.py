"""What conformance cases are compared with: their files, ONNX's reference implementation where these err, samples where
numbers are drawn."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import small_models as models
from onnx_suite import Outcome, folder_cases, run, unpacked
from onnx_verdict import Answer, Array, as_declared, compare_samples, redeclare, verdict

X = np.array([1, 4, 9], np.float32)


def answer(wanted: Array, got: Array, model: onnx.ModelProto | None = None, rtol: float = 1e-3) -> Answer:
    model = model or models.graph([helper.make_node("Sqrt", ["x"], ["y"])], {"x": (3,)}, {"y": (3,)}, {})
    return Answer("test_case", model, [np.resize(X, wanted.shape)], [wanted], [got], rtol, 0)


def drawing() -> onnx.ModelProto:
    nodes = [helper.make_node("RandomUniformLike", ["x"], ["r"]), helper.make_node("Neg", ["r"], ["y"])]
    return models.graph(nodes, {"x": (4000,)}, {"y": (4000,)}, {})


def test_the_files_rule_and_the_reference_where_they_err() -> None:
    right = np.sqrt(X)
    assert verdict(answer(right, right * np.float32(1 + 5e-4))) == ""
    assert verdict(answer(right + 1, right)).startswith(
        "ONNX's reference implementation has the same answer, and the files another: Not equal"
    )
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        verdict(answer(right, right + 1))
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        verdict(answer(right + 1, right + 2))
    with pytest.raises(AssertionError, match="1 values were expected, and there are 2"):
        verdict(Answer("test_case", answer(right, right).model, [X], [right], [right, right], 0, 0))


def test_what_is_drawn_is_compared_as_a_sample() -> None:
    random = np.random.default_rng(0)
    wanted, got = (-random.random(4000, np.float32) for _ in range(2))
    assert verdict(answer(wanted, got, drawing())) == ""
    assert "the files another" in verdict(answer(-wanted, got, drawing()))
    with pytest.raises(AssertionError):
        verdict(answer(wanted, -got, drawing()))
    with pytest.raises(AssertionError, match="of them lie elsewhere"):
        compare_samples(np.zeros(100, bool), np.arange(100) < 50)
    with pytest.raises(AssertionError, match=r"float32\[4000\] was expected, and there is float64\[4000\]"):
        compare_samples(wanted, got.astype(np.float64))
    with pytest.raises(AssertionError, match="Not equal"):  # that a model draws one output says nothing of the others
        verdict(answer(np.sqrt(X), np.sqrt(X)[::-1]))


def test_bfloat16_that_was_stored_as_bits() -> None:
    kind = helper.make_tensor_type_proto(TensorProto.BFLOAT16, None)
    stored = np.array([0x3F80, 0xC000], np.uint16)
    assert as_declared(stored, kind).tolist() == np.array([1, -2], ml_dtypes.bfloat16).tolist()
    assert as_declared(stored, helper.make_tensor_type_proto(TensorProto.UINT16, None)) is stored


def test_shapes_that_contradict_the_data() -> None:
    model = models.graph([helper.make_node("Add", ["x", "b"], ["y"])], {"x": ("n", 3), "b": ()}, {"y": ("n", 3)}, {})
    redeclare(model, [np.ones((2, 3), np.float32), np.ones(1, np.float32)])
    dims = [[d.dim_value or d.dim_param for d in i.type.tensor_type.shape.dim] for i in model.graph.input]
    assert dims == [["n", 3], [1]]


def case_folder(folder: Path, model: onnx.ModelProto, given: list[Array], made: list[Array]) -> Path:
    data = folder / "test_data_set_0"
    data.mkdir(parents=True)
    onnx.save(model, folder / "model.onnx")
    for what, arrays in (("input", given), ("output", made)):
        for k, a in enumerate(arrays):
            (data / f"{what}_{k}.pb").write_bytes(numpy_helper.from_array(a).SerializeToString())
    return folder


def test_cases_in_folders_and_archives(tmp_path: Path) -> None:
    model = answer(X, X).model
    case_folder(tmp_path / "suite" / "node" / "test_a", model, [X], [np.sqrt(X) * np.float32(1.01)])
    (tmp_path / "suite" / "node" / "test_a" / "meta.json").write_text(json.dumps({"rtol": 0.1, "atol": 0}))
    case_folder(tmp_path / "suite" / "node" / "test_b", model, [], [])
    model.graph.node[0].op_type = "NoSuch"
    case_folder(tmp_path / "suite" / "node" / "test_c", model, [X], [X])
    fused = models.graph([helper.make_node("Neg", ["x"], ["y"])], {"x": (3,)}, {"y": (3,)}, {})
    fused.graph.node[0].CopyFrom(helper.make_node("QuickGelu", ["x"], ["y"], domain="com.microsoft"))
    fused.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    case_folder(tmp_path / "suite" / "node" / "test_d", fused, [], [])
    archive = Path(shutil.make_archive(str(tmp_path / "suite"), "xztar", tmp_path / "suite"))
    wheel = Path(shutil.make_archive(str(tmp_path / "suite"), "zip", tmp_path / "suite")).rename(tmp_path / "suite.whl")
    for source in (tmp_path / "suite", archive, wheel):
        outcomes = {c.name: run(c) for c in folder_cases(unpacked(source, tmp_path / "unpacked"))}
        assert list(outcomes) == ["test_a", "test_b", "test_c", "test_d"]
        assert outcomes["test_a"] == outcomes["test_b"] == Outcome(native=True)
        assert "NoSuch" in outcomes["test_c"].refused
        assert outcomes["test_d"] == Outcome(unknown=True) and not outcomes["test_d"].passed
