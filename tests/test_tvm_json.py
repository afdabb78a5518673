"""Programs that TVM v0.6 to v0.13 saved as JSON: a graph of numbered nodes."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.base.errors import ParseError
from tilewright.base.params import save_param_dict
from tilewright.ir import IRModule, assert_structural_equal


class Graph:
    """Nodes in TVM's form. Each method returns the index of a node as the text that a field has."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = [{"type_key": ""}]
        self.arrays: list[str] = []

    def node(self, type_key: str, **fields: str) -> str:
        """Add a node with these fields, and the fields that every expression has."""
        rest = {"span": "0"} if type_key.startswith("relay.attrs") else {"_checked_type_": "0", "span": "0"}
        self.nodes.append({"type_key": type_key, "attrs": {**rest, **fields}})
        return str(len(self.nodes) - 1)

    def named(self, type_key: str, name: str) -> str:
        self.nodes.append({"type_key": type_key, "repr_str": name})
        return str(len(self.nodes) - 1)

    def listed(self, *items: str, type_key: str = "Array") -> str:
        self.nodes.append({"type_key": type_key, "data": [int(i) for i in items]})
        return str(len(self.nodes) - 1)

    def numbers(self, *values: int) -> str:
        return self.listed(*(self.node("IntImm", dtype="int32", value=str(v)) for v in values))

    def array(self, value: Any) -> str:
        raw = save_param_dict({"w": value})
        self.arrays.append(base64.b64encode(raw[raw.index(b"w", 16) + 9:]).decode())
        return str(len(self.arrays) - 1)

    def text(self, root: str) -> str:
        return json.dumps({"root": int(root), "nodes": self.nodes, "b64ndarrays": self.arrays,
                           "attrs": {"tvm_version": "0.13.0"}})


def convolution(g: Graph, weight: Any, **attrs: str) -> str:
    """Return the module of a convolution of NHWC and its relu."""
    kind = g.node("relay.TensorType", dtype="float32", shape=g.numbers(1, 4, 4, 1))
    x = g.node("relay.Var", vid=g.node("relay.Id", name_hint=g.named("runtime.String", "x")), type_annotation=kind)
    w = g.node("relay.Constant", data=g.array(weight))
    two = g.node("IntImm", dtype="int32", value="2")
    conv = g.node("relay.attrs.Conv2DAttrs", **{
        "auto_scheduler_rewritten_layout": "0", "channels": two, "data_layout": "NHWC", "dilation": g.numbers(1, 1),
        "groups": "1", "kernel_layout": g.named("runtime.String", "HWIO"), "kernel_size": g.numbers(3, 3),
        "out_dtype": "", "out_layout": "", "padding": g.numbers(1, 1, 1, 1), "strides": g.numbers(1, 1), **attrs})
    y = g.node("relay.Call", op=g.named("Op", "nn.conv2d"), args=g.listed(x, w), attrs=conv, type_args="0")
    body = g.node("relay.Call", op=g.named("Op", "nn.relu"), args=g.listed(y), attrs="0", type_args="0")
    function = g.node("relay.Function", params=g.listed(x), body=body, ret_type="0", type_params="0", attrs="0",
                      virtual_device_="0")
    name = g.node("GlobalVar", name_hint=g.named("runtime.String", "main"))
    return g.node("IRModule", functions=g.listed(name, function, type_key="Map"), global_var_map_="0",
                  global_type_var_map_="0", source_map="0", type_definitions="0", attrs="0")


def test_a_convolution_of_tvm() -> None:
    """Numbers such as `groups`, references such as `channels`, texts as they are and as nodes, arrays, and defaults."""
    weight = np.arange(18, dtype="float32").reshape(3, 3, 1, 2)
    g = Graph()
    found = tvm.ir.load_json(g.text(convolution(g, weight)))
    x = relay.var("x", shape=(1, 4, 4, 1))
    wanted = relay.nn.relu(relay.nn.conv2d(x, relay.const(weight), channels=2, kernel_size=(3, 3), padding=(1, 1),
                                           data_layout="NHWC", kernel_layout="HWIO"))
    assert_structural_equal(found, IRModule.from_expr(wanted))
    assert_structural_equal(tvm.ir.load_json(tvm.ir.save_json(found)), found)


def test_numbers_and_references_of_the_same_name() -> None:
    """`axis` is a number in a softmax, and an object in a reduction."""
    g = Graph()
    kind = g.node("relay.TensorType", dtype="float32", shape=g.numbers(2, 3))
    x = g.node("relay.Var", vid=g.node("relay.Id", name_hint=g.named("runtime.String", "x")), type_annotation=kind)
    y = g.node("relay.Call", op=g.named("Op", "nn.softmax"), args=g.listed(x), type_args="0",
               attrs=g.node("relay.attrs.SoftmaxAttrs", axis="1"))
    z = g.node("relay.Call", op=g.named("Op", "sum"), args=g.listed(y), type_args="0", attrs=g.node(
        "relay.attrs.ReduceAttrs", axis=g.numbers(0), keepdims="1", exclude="0"))
    v = relay.var("x", shape=(2, 3))
    wanted = relay.sum(relay.nn.softmax(v, axis=1), axis=[0], keepdims=True)
    assert_structural_equal(
        relay.Function([v], wanted), relay.Function(relay.analysis.free_vars(e := tvm.ir.load_json(g.text(z))), e))


def test_names_before_version_0_8() -> None:
    old = {"nodes": [{"type_key": ""}, {"type_key": "relay.GlobalVar", "attrs": {"name_hint": "f", "span": "0"}},
                     {"type_key": "relay.TypeVar", "attrs": {"kind": "0", "span": "0", "var": "3"}},
                     {"type_key": "Variable", "attrs": {"dtype": "int32", "name": "n"}},
                     {"type_key": "StrMap", "keys": ["a", "b"], "data": [3, 1]}], "root": 4, "b64ndarrays": []}
    found = tvm.ir.load_json(json.dumps(old))
    assert found["a"].name == "n" and isinstance(found["b"], relay.GlobalVar) and found["b"].name_hint == "f"
    assert tvm.ir.load_json(json.dumps({**old, "root": 2})).name_hint == "n"


@pytest.mark.parametrize(("changed", "message"), [
    ({"root": 99}, "node 99 is not defined"),
    ({"nodes": [{"type_key": ""}, {"type_key": "relay.Tupel", "attrs": {}}]}, "there is no kind of node 'relay.Tupel'"),
    ({"nodes": [{"type_key": ""}, {"type_key": "Array", "data": [1]}]}, "contains itself"),
    ({"nodes": [{"type_key": ""}, {"type_key": "relay.Tuple", "attrs": {}}]}, "KeyError"),
])
def test_damaged_graphs(changed: dict[str, Any], message: str) -> None:
    text = json.dumps({"root": 1, "nodes": [{"type_key": ""}], "b64ndarrays": [], **changed})
    with pytest.raises(ParseError, match=message):
        tvm.ir.load_json(text)


def test_an_attribute_that_the_operator_lacks() -> None:
    g = Graph()
    root = convolution(g, np.zeros((3, 3, 1, 2), "float32"), threshold="0.5")
    with pytest.raises(ParseError, match=r"nn.conv2d has no attribute 'threshold', which is 0.5 here"):
        tvm.ir.load_json(g.text(root))


def test_arrays_beyond_the_limit() -> None:
    g = Graph()
    root = convolution(g, np.zeros((3, 3, 1, 2), "float32"))
    with pytest.raises(ParseError, match="the arrays exceed the size limit"):
        relay.serialization.load_json(g.text(root), max_bytes=16)
