"""Damaged and hostile models are imported or refused by one of our errors, quickly and in little memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

import damaged_files
import mutated_models
import onnx_mutations
from tilewright.base.errors import CompileError, ModelError
from tilewright.relay.frontend.onnx import from_onnx

pytestmark = pytest.mark.slow
FLOAT = TensorProto.FLOAT


def test_mutated_models_are_refused_or_run() -> None:
    """Through every door, each in a process with limits. What is compiled is run, too."""
    environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": "off", "TILEWRIGHT_MODELS": ""}
    script = [sys.executable, str(Path(onnx_mutations.__file__)), "--small", "--json", "--count", "120"]
    ran = subprocess.run(script, capture_output=True, text=True, check=False, env=environment)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    said = json.loads(ran.stdout)
    assert sum(said["counts"].values()) == 120 and said["bad"] == []
    assert said["counts"]["ran"] > 20 and said["counts"]["refused"] > 40


@pytest.mark.parametrize(("how", "kind"), [
    (lambda folder, made, random: os.abort(), "crash"), (lambda folder, made, random: exec("while True: pass"), "hang"),
    (lambda folder, made, random: bytes(2 << 30), "memory"), (lambda folder, made, random: 1 // 0, "traceback"),
    (lambda folder, made, random: Path(damaged_files.EXECUTED).mkdir(), "executed"),
])
def test_offenders_are_found(how: damaged_files.Door, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(onnx_mutations.DOORS, "check", how)
    monkeypatch.setattr(damaged_files, "SECONDS", 1)
    (found,) = damaged_files.outcomes(onnx_mutations.models([mutated_models.small_models()]), [7], 1, ["check"])
    assert (found.kind, found.number, found.door) == (kind, 7, "check") and found.bad and found.made


def test_a_number_makes_one_model() -> None:
    kinds = [mutated_models.small_models()]
    assert mutated_models.made(3, kinds) == mutated_models.made(3, kinds) != mutated_models.made(4, kinds)


def model(nodes: list[onnx.NodeProto], functions: list[onnx.FunctionProto] | None = None) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", FLOAT, None)]
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("own", 1)], functions=functions or [],
        ir_version=10
    )


def nested(depth: int) -> onnx.ModelProto:
    """Branches in branches."""
    node = helper.make_node("Relu", ["x"], ["y"])
    for k in range(depth):
        branch = helper.make_graph([node], f"level{k}", [], [helper.make_tensor_value_info("y", FLOAT, None)])
        node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    graph = helper.make_graph([node], "g", [
        helper.make_tensor_value_info("x", FLOAT, [2]), helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    ],
                              [helper.make_tensor_value_info("y", FLOAT, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def functions_in_a_circle() -> onnx.ModelProto:
    imports = [helper.make_opsetid("own", 1), helper.make_opsetid("", 17)]
    there = helper.make_function(
        "own", "There", ["a"], ["b"], [helper.make_node("Back", ["a"], ["b"], domain="own")], imports
    )
    back = helper.make_function(
        "own", "Back", ["a"], ["b"], [helper.make_node("There", ["a"], ["b"], domain="own")], imports
    )
    return model([helper.make_node("There", ["x"], ["y"], domain="own")], [there, back])


def absurd(op: str, **attributes: Any) -> onnx.ModelProto:
    return model([helper.make_node(op, ["x"], ["y"], name="odd", **attributes)])


def renamed() -> bytes:
    """A model with a name that is not UTF-8."""
    written: bytes = model([helper.make_node("Relu", ["x"], ["y"], name="NAME")]).SerializeToString()
    return written.replace(b"NAME", b"\xff\xfe\xfd\xfc")


@pytest.mark.parametrize(("source", "message"), [
    (functions_in_a_circle(), "the function '(There|Back)' calls itself; a model's functions must not be recursive"),
    (absurd("Transpose", perm=[0, 0]), "Transpose 'odd'"),
    (absurd("Transpose", perm=[0, 1 << 62]), "Transpose 'odd'"),
    (absurd("Flatten", axis=-(1 << 63)), "Flatten 'odd'"),
    (
        absurd("Softmax", axis=[1, 2]),
        "Softmax 'odd': attribute 'axis' is a list of integers, but must be an integer"
    ),
    (renamed(), r"contains the name b'.xff.xfe.xfd.xfc', which is not valid UTF-8; the file is damaged"),
])
def test_hostile_models(source: onnx.ModelProto | bytes, message: str) -> None:
    with pytest.raises(Exception, match=message) as caught:
        from_onnx(source)
    assert isinstance(caught.value, CompileError)


def test_graphs_in_graphs() -> None:
    assert from_onnx(nested(6))[0]["main"].params[1].name_hint == "c"
    with pytest.raises(ModelError, match=r"is not an ONNX model|damaged|nests graphs"):
        from_onnx(_deep_bytes(400))


def _deep_bytes(depth: int) -> bytes:
    """A graph in an attribute of a node of a graph in an attribute of …, written without protobuf, which has a limit of
    its own."""
    inner = b"\x0a\x04Relu"
    for _ in range(depth):
        graph = b"\x0a" + _size(inner) + inner  # GraphProto.node
        attribute = b"\x32" + _size(graph) + graph  # AttributeProto.g
        inner = b"\x2a" + _size(attribute) + attribute  # NodeProto.attribute
    graph = b"\x0a" + _size(inner) + inner
    return b"\x08\x0a\x3a" + _size(graph) + graph


def _size(content: bytes) -> bytes:
    found, n = bytearray(), len(content)
    while n > 127:
        found.append(n & 127 | 128)
        n >>= 7
    return bytes([*found, n])
