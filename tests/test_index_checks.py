"""Indices that lie outside are refused: while a model is imported where they are known, else by the compiled
program."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tflite_models
import tilewright
from test_onnx_kinds import node_model
from tflite_models import Op, T
from tilewright.base.errors import ModelError, RunError
from tilewright.relay.interpreter import evaluate

Array = np.ndarray[Any, Any]
X = np.arange(20, dtype=np.float32).reshape(5, 4)
ONE, FOUR = np.ones(2, np.float32), np.array([[1, 2, 3, 4]], np.float32)
ROW = "which has 5 elements; indices must be -5 to 4"
CASES: dict[str, tuple[str, dict[str, Array], Array, str]] = {
    "gather": ("Gather", {"x": X, "i": np.array([1, -1, 4])}, np.array([1, 5, 0]), ROW),
    "gather of int32": (
        "Gather", {"x": X, "i": np.array([[0, -5], [3, 2]], np.int32)}, np.array([[0, -6], [3, 2]], np.int32), ROW
    ),
    "gather of one": ("Gather", {"x": X, "i": np.array(-1)}, np.array(5), ROW),
    "elements": ("GatherElements", {"x": X, "i": np.array([[1, -1, 2, 0]])}, np.array([[1, -6, 2, 0]]), ROW),
    "tuples": (
        "GatherND", {"x": X, "i": np.array([[1, -1], [4, 3]])}, np.array([[1, 4], [0, 0]]),
        "whose dimensions have 5, 4 elements"
    ),
    "scattered": (
        "ScatterElements", {"x": X, "i": np.array([[1, -1, 2, 0]]), "u": FOUR}, np.array([[1, 7, 2, 0]]), ROW
    ),
    "scattered tuples": (
        "ScatterND", {"x": X, "i": np.array([[1, -1], [4, 3]]), "u": ONE}, np.array([[1, -5], [0, 0]]),
        "whose dimensions have 5, 4 elements"
    ),
}


@pytest.mark.parametrize(("op_type", "inputs", "wrong", "said"), CASES.values(), ids=CASES)
def test_an_index_outside(op_type: str, inputs: dict[str, Array], wrong: Array, said: str) -> None:
    model = node_model(op_type, inputs, {}, {"y": TensorProto.FLOAT}, opset=18)
    program = tilewright.compile(model)
    answers: Any = ReferenceEvaluator(model).run(None, inputs)
    for _ in range(2):  # a run that ended with an error leaves nothing behind
        np.testing.assert_array_equal(program(**inputs), answers[0])
        with pytest.raises(RunError, match=f"{op_type} '{op_type}_0': an index is outside .*{said}"):
            program(**{**inputs, "i": wrong})
    assert not program.in_python
    with pytest.raises(RunError, match=said):
        evaluate(tilewright.relay.frontend.from_onnx(model)[0]["main"], *{**inputs, "i": wrong}.values())
    rest = {name: x for name, x in inputs.items() if name != "i"}
    with pytest.raises(ModelError, match=said):
        tilewright.compile(
            node_model(op_type, rest, {"i": wrong}, {"y": TensorProto.FLOAT}, opset=18, order=",".join(inputs))
        )


def kernels(model: onnx.ModelProto) -> int:
    program = tilewright.compile(model)
    program(X, *([np.zeros((2, 3), np.int64)] if len(model.graph.input) > 1 else []))
    return sum("require_zero" in symbol for symbol in program.report.kernels)


def chain(*nodes: tuple[str, list[str], list[str], dict[str, Any]], takes_indices: bool = False) -> onnx.ModelProto:
    made = [helper.make_node(op_type, given, names, **attrs) for op_type, given, names, attrs in nodes]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (5, 4))]
    inputs += [helper.make_tensor_value_info("i", TensorProto.INT64, (2, 3))] if takes_indices else []
    known = [numpy_helper.from_array(np.array(v), n) for n, v in (("zero", 0), ("four", 4), ("two", [2]))]
    graph = helper.make_graph(made, "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], known)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_what_is_known_to_lie_inside_is_not_checked() -> None:
    assert kernels(chain(("Gather", ["x", "i"], ["y"], {}), takes_indices=True)) == 1
    assert kernels(
        chain(("Clip", ["i", "zero", "four"], ["j"], {}), ("Gather", ["x", "j"], ["y"], {}), takes_indices=True)
    ) == 0
    assert kernels(chain(("ArgMax", ["x"], ["j"], {"axis": 0}), ("Gather", ["x", "j"], ["y"], {}))) == 0
    assert kernels(
        chain(("TopK", ["x", "two"], ["v", "j"], {"axis": 0}), ("GatherElements", ["x", "j"], ["y"], {}))
    ) == 0


def test_in_a_branch_only_where_it_is_taken() -> None:
    """The program with control flow tells the message, too."""
    def branch(name: str, node: onnx.NodeProto) -> onnx.GraphProto:
        return helper.make_graph(
            [node], name, [], [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None)]
        )

    then, other = branch("then", helper.make_node("Gather", ["x", "i"], ["a"])), branch(
        "other", helper.make_node("Gather", ["x", "two"], ["b"])
    )
    made = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    inputs = [
        helper.make_tensor_value_info(n, t, s) for n, t,
        s in (("x", TensorProto.FLOAT, (5, 4)), ("i", TensorProto.INT64, (1,)), ("c", TensorProto.BOOL, ()))
    ]
    graph = helper.make_graph(
        [made], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array([2]), "two")]
    )
    program = tilewright.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9))
    np.testing.assert_array_equal(program(X, np.array([4]), np.array(True)), X[4:])
    np.testing.assert_array_equal(program(X, np.array([9]), np.array(False)), X[2:3])
    with pytest.raises(RunError, match=ROW):
        program(X, np.array([9]), np.array(True))


def test_a_program_for_open_sizes() -> None:
    graph = helper.make_graph([helper.make_node("Gather", ["x", "i"], ["y"])], "g", [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, (5, 4)),
        helper.make_tensor_value_info("i", TensorProto.INT64, ("n", 8))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    program = tilewright.compile(model, shapes={"i": ("1..64", 8)})
    for n in (1, 7, 64):
        places = np.arange(8 * n).reshape(n, 8) % 5
        np.testing.assert_array_equal(program(X, places), X[places])
        places[-1, 3] = 5
        with pytest.raises(RunError, match=ROW):
            program(X, places)


def test_an_artifact_keeps_the_message(tmp_path: Path) -> None:
    inputs = CASES["gather"][1]
    tilewright.compile(node_model("Gather", inputs, {}, {"y": TensorProto.FLOAT}, opset=18)).save(tmp_path / "m.so")
    program = tilewright.load(tmp_path / "m.so")
    np.testing.assert_array_equal(program(**inputs), X[[1, 4, 4]])
    with pytest.raises(RunError, match=ROW):
        program(X, np.array([0, 0, 5]))


def test_of_tflite(tmp_path: Path) -> None:
    """There indices count from the front alone, and TensorFlow Lite's kernels refuse others, too."""
    path = tmp_path / "gather.tflite"
    tensors = [T("x", (5, 4)), T("i", (3,), "int32"), T("y", (3, 4))]
    path.write_bytes(
        tflite_models.model(tensors, [Op("GATHER", [0, 1], [2], "GatherOptions", {"Axis": 0})], [0, 1], [2])
    )
    program = tilewright.compile(path)
    np.testing.assert_array_equal(program(X, np.array([4, 0, 2], np.int32)), X[[4, 0, 2]])
    for wrong in (-1, 5):
        with pytest.raises(
            RunError, match="an index is outside the input, which has 5 elements along the indexed dimensions"
        ):
            program(X, np.array([0, wrong, 1], np.int32))


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
def test_a_model_in_c_returns_a_status(tmp_path: Path) -> None:
    inputs = CASES["gather"][1]
    tilewright.compile(
        node_model("Gather", inputs, {}, {"y": TensorProto.FLOAT}, opset=18), target="c"
    ).save(tmp_path / "m.c")
    header = (tmp_path / "m.h").read_text()
    name = next(
        line.split()[1].removesuffix("_H") for line in header.splitlines() if line.startswith("#ifndef")
    ).lower()
    assert f"int {name}_run(" in header and ROW in header
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-std=c99", "-Wall", "-Werror", "-o", "m.so", "m.c", "-lm"], cwd=tmp_path,
        check=True
    )
    run = ctypes.CDLL(str(tmp_path / "m.so"))[f"{name}_run"]
    found = np.zeros((3, 4), np.float32)
    for places, status in (([1, -1, 4], 0), ([1, 5, 0], 3), ([0, 0, 0], 0)):
        assert run(*(a.ctypes.data_as(ctypes.c_void_p) for a in (X, np.array(places), found))) == status
        assert status or np.array_equal(found, X[places])
