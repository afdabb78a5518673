"""Models that `onnx.checker.check_model` rejects: what is wrong with each is said in our words, and where, and what to
do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import pytest
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper

import tilewright
from tilewright.base.errors import CompileError


def model(*nodes: NodeProto) -> ModelProto:
    """`x` (2, 3) through `nodes` to `y`."""
    graph = helper.make_graph(
        [*nodes], "small", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def node(op: str, inputs: str, output: str = "y", **attributes: Any) -> NodeProto:
    return helper.make_node(op, inputs.split(), [output], name=f"the_{op}", **attributes)


def with_weight(dims: list[int], count: int, kind: int = TensorProto.FLOAT) -> ModelProto:
    made = model(node("Add", "x w"))
    made.graph.initializer.append(TensorProto(name="w", dims=dims, data_type=kind, raw_data=bytes(4 * count)))
    return made


def changed(made: ModelProto, change: Callable[[ModelProto], object]) -> ModelProto:
    change(made)
    return made


def untyped() -> ModelProto:
    made = model(node("Softmax", "x", axis=1))
    made.graph.node[0].attribute[0].type = AttributeProto.FLOAT
    return made


def branch(*outputs: str) -> GraphProto:
    return helper.make_graph(
        [node("Neg", "x", "n")], "branch", [],
        [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs]
    )


def conditional(**branches: GraphProto) -> ModelProto:
    made = model(node("If", "c", **branches))
    made.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    return made


BROKEN = {
    "a tensor that nothing makes": (
        model(node("Relu", "nowhere")),
        "uses 1 tensors that no node computes: 'nowhere', used by Relu 'the_Relu'.*export the model again"
    ),
    "a circle": (
        model(node("Add", "x b", "a"), node("Relu", "a", "b"), node("Neg", "b")),
        "has a cycle through these nodes: .*Relu 'the_Relu'"
    ),
    "two of a name": (
        model(node("Relu", "x"), node("Neg", "x")),
        "the tensor 'y' of the graph 'small' is computed twice, by Relu 'the_Relu' and by Neg 'the_Neg'"
    ),
    "an output that nothing makes": (model(node("Relu", "x", "z")), "'y', used by the outputs of the graph"),
    "a missing attribute": (model(node("Cast", "x")), "Cast 'the_Cast': attribute 'to' is missing"),
    "an attribute that is none": (
        model(node("Relu", "x", slope=1.0)), "Relu 'the_Relu': attribute 'slope' is not one of Relu at opset 17"
    ),
    "an attribute of another kind": (
        untyped(),
        "Softmax 'the_Softmax': attribute 'axis' is a number, but must be an integer; correct it in the program "
        "that exports the model"
    ),
    "too many inputs": (model(node("Relu", "x x")), "Relu 'the_Relu': 2 inputs are given, but Relu takes at most 1"),
    "too few inputs": (model(node("Add", "x")), "Add 'the_Add': input 'b' is missing"),
    "too many outputs": (
        model(helper.make_node("Relu", ["x"], ["y", "z"], name="r")),
        "Relu 'r': 1 of its 2 outputs are supported: z cannot be computed"
    ),
    "an operator that is none": (
        model(node("Rellu", "x")),
        r"no converter:\n  Rellu \(domain 'ai.onnx'\), in 1 node: the_Rellu\nWrite one and register it"
    ),
    "data that are too few": (
        with_weight([2, 3], 5),
        r"tensor 'w' has shape \(2, 3\) and type float32, 24 bytes, but 20 bytes of data; the file is damaged"
    ),
    "two inputs of a name": (
        changed(model(node("Relu", "x")), lambda m: m.graph.input.append(m.graph.input[0])),
        "the graph 'small' has several inputs called 'x'; give each a unique name"
    ),
    "a negative size": (
        with_weight([-2, 3], 6), r"tensor 'w' has a negative dimension: \(-2, 3\); the file is damaged"
    ),
    "no element type": (
        with_weight([2, 3], 6, TensorProto.UNDEFINED),
        "tensor 'w' has the element type UNDEFINED, which is not supported; convert"
    ),
    "no opset": (
        changed(model(node("Relu", "x")), lambda m: m.ClearField("opset_import")),
        "does not say which opset it is written in; give it when importing: opset=17"
    ),
    "an opset to come": (
        changed(model(node("Relu", "x")), lambda m: setattr(m.opset_import[0], "version", 900)),
        "is written in opset 900, but only opsets 1 to"
    ),
    "no other branch": (conditional(then_branch=branch("n")), "If 'the_If': attribute 'else_branch' is missing"),
    "branches that give other numbers of values": (
        conditional(then_branch=branch("n"), else_branch=branch("n", "n")), "If 'the_If'"
    ),
    "a window of no size": (
        model(node("MaxPool", "x", kernel_shape=[0])),
        r"MaxPool 'the_MaxPool': attribute 'kernel_shape' is \(0,\); each number must be 1 or more"
    ),
    "a tensor for a graph": (
        conditional(then_branch=branch("n"), else_branch=helper.make_tensor("t", TensorProto.FLOAT, [1], [1.0])),
        "If 'the_If': attribute 'else_branch' is a tensor, but must be a graph"
    ),
}


@pytest.mark.parametrize("what", list(BROKEN))
def test_what_is_wrong_is_said(what: str) -> None:
    broken, message = BROKEN[what]
    with pytest.raises(CompileError, match=rf"(?s){message}") as caught:
        tilewright.compile(broken)
    try:
        onnx.checker.check_model(broken)
    except (onnx.checker.ValidationError, UnicodeDecodeError) as theirs:
        assert str(theirs).strip() not in str(caught.value)


@pytest.mark.parametrize("op", ["RNN", "GRU", "LSTM"])
def test_inputs_of_other_ranks_are_explained(op: str) -> None:
    with pytest.raises(
        CompileError,
        match=rf"{op} 'the_{op}': input 'X' has 2 dimensions, Tensor\[\(2, 3\), float32\], but {op} takes 3; "
        r"reshape it"
    ):
        tilewright.compile(model(node(op, "x x x", hidden_size=3)))
