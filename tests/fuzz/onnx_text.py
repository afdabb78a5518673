"""ONNX models as Python source: test files that need nothing but the packages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, helper, numpy_helper

from fuzz.outcomes import Outcome

_HEAD = '''"""{about}"""

from __future__ import annotations

import numpy as np
import onnx
from numpy import array
from onnx import TensorProto, helper, numpy_helper

from fuzz.onnx_kind import Case, OnnxKind
from fuzz.outcomes import AGREES, EXPLAINED, REFUSED, silent
from tilewright.base.types import DataType

nan, inf = float("nan"), float("inf")


'''
_TEST = '''

def feeds() -> dict[str, object]:
    return {{
{feeds}
    }}


REFERENCES = {{
{references}
}}
OURS = {ours}
"""What was computed when this file was written; for the reader."""


def test_found() -> None:
    outcome = OnnxKind().run(Case(model(), feeds(), {level}), silent)
    assert outcome.category in (AGREES, EXPLAINED, REFUSED), outcome.detail
'''


def array_text(a: Any) -> str:
    """An array as an expression."""
    if a is None:
        return "None"
    if isinstance(a, list):
        return f"[{', '.join(map(array_text, a))}]"
    a = np.asarray(a)
    if a.dtype.kind in "OSU":
        return f"np.array({a.astype(str).tolist()!r}, object).reshape({a.shape})"
    if a.dtype.kind == "V" or a.dtype.name not in np.sctypeDict:
        kind = f"DataType({a.dtype.name!r}).numpy()"
        return f"np.array({a.astype(np.float32).tolist()!r}, np.float32).astype({kind}).reshape({a.shape})"
    return f"np.array({a.tolist()!r}, np.dtype({a.dtype.name!r})).reshape({a.shape})"


def node_text(node: NodeProto, indent: str) -> str:
    """A call of `make_node`."""
    parts = [repr(node.op_type), repr([*node.input]), repr([*node.output])]
    if node.domain:
        parts.append(f"domain={node.domain!r}")
    parts += [f"{a.name}={attribute_text(a, indent)}" for a in node.attribute]
    return f"helper.make_node({', '.join(parts)})"


def attribute_text(a: AttributeProto, indent: str) -> str:
    """The value of an attribute."""
    value = helper.get_attribute_value(a)
    if isinstance(value, onnx.TensorProto):
        return f"numpy_helper.from_array({array_text(numpy_helper.to_array(value))})"
    if isinstance(value, GraphProto):
        return graph_text(value, indent + "    ")
    if isinstance(value, bytes):
        return repr(value.decode())
    if isinstance(value, (list, tuple)) or hasattr(value, "__len__"):
        return repr([v.decode() if isinstance(v, bytes) else v for v in value])
    return repr(value)


def info_text(info: onnx.ValueInfoProto) -> str:
    """A value's name and type."""
    kind = info.type
    if kind.HasField("tensor_type"):
        shape = [
            d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in kind.tensor_type.shape.dim
        ] if kind.tensor_type.HasField("shape") else None
        return f"helper.make_tensor_value_info({info.name!r}, {kind.tensor_type.elem_type}, {shape})"
    return f"onnx.ValueInfoProto.FromString({info.SerializeToString()!r})"


def graph_text(graph: GraphProto, indent: str) -> str:
    """A call of `make_graph`."""
    deep = indent + "    "
    nodes = "".join(f"{deep}    {node_text(n, deep)},\n" for n in graph.node)
    inits = "".join(
        f"{deep}    numpy_helper.from_array({array_text(numpy_helper.to_array(t))}, {t.name!r}),\n"
        for t in graph.initializer
    )
    lists = [", ".join(map(info_text, values)) for values in (graph.input, graph.output)]
    return (
        f"helper.make_graph(\n{deep}[\n{nodes}{deep}],\n{deep}'g', "
        f"[{lists[0]}],\n{deep}[{lists[1]}],\n{deep}[\n{inits}{deep}],\n{indent})"
    )


def model_text(model: ModelProto) -> str:
    """A function that makes the model."""
    opsets = ", ".join(f"helper.make_opsetid({o.domain!r}, {o.version})" for o in model.opset_import)
    if model.functions:
        return (
            f"def model() -> onnx.ModelProto:\n    return onnx.ModelProto.FromString({model.SerializeToString()!r})\n"
        )
    graph = graph_text(model.graph, "    ")
    return (
        f"def model() -> onnx.ModelProto:\n    graph = {graph}\n    return helper.make_model(graph, "
        f"opset_imports=[{opsets}], ir_version={model.ir_version})\n"
    )


def test(model: ModelProto, feeds: Mapping[str, Any], level: int, outcome: Outcome) -> str:
    """A test file."""
    fed = "\n".join(f"        {n!r}: {array_text(v)}," for n, v in feeds.items())
    answers = "\n".join(f"    {n!r}: [{', '.join(map(array_text, v))}]," for n, v in outcome.references.items())
    ours = f"[{', '.join(map(array_text, outcome.ours))}]" if outcome.ours else repr(outcome.detail)
    return _HEAD + model_text(model) + _TEST.format(feeds=fed, references=answers, ours=ours, level=level)


