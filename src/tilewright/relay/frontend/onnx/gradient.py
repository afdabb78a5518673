"""Gradient (domain ai.onnx.preview.training): derivatives of a tensor of the graph with respect to others, at given
values.

The node refers to tensors by name, so the nodes between them become a graph attribute of it (`with_graphs`). In that
graph, the tensors to differentiate by are inputs, even if the model computes them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx
from onnx import helper

from tilewright.relay.expr import Expr, Var
from tilewright.relay.frontend.onnx.deferred import captured_names
from tilewright.relay.frontend.onnx.node import Node
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.frontend.onnx.training import DOMAIN
from tilewright.relay.transform.reverse_mode import filled, gradients
from tilewright.relay.types_of import dtype_of, shape_of
from tilewright.relay.visitor import substitute

_GRAPH = "graph"


def with_graphs(nodes: Sequence[onnx.NodeProto]) -> Sequence[onnx.NodeProto]:
    """Attach to each Gradient node the graph that it differentiates."""
    found = list(nodes)
    for k, node in enumerate(nodes):
        if node.op_type == "Gradient" and node.domain == DOMAIN and all(a.name != _GRAPH for a in node.attribute):
            found[k] = onnx.NodeProto()
            found[k].CopyFrom(node)
            found[k].attribute.append(helper.make_attribute(_GRAPH, _between(found, node)))
    return found


def _between(nodes: Sequence[onnx.NodeProto], gradient: onnx.NodeProto) -> onnx.GraphProto:
    """The graph from the tensors that a Gradient node names to the tensor that it differentiates."""
    given = {a.name: a for a in gradient.attribute}
    names = [s.decode("utf-8", "replace") for key in ("xs", "zs") if key in given for s in given[key].strings]
    y = given["y"].s.decode("utf-8", "replace") if "y" in given else ""
    producers = {name: k for k, n in enumerate(nodes) for name in n.output}
    wanted, stack = set[int](), [y]
    while stack:
        name = stack.pop()
        k = producers.get(name)
        if name not in names and k is not None and k not in wanted:
            wanted.add(k)
            stack += [*filter(None, nodes[k].input), *captured_names(nodes[k])]
    return onnx.GraphProto(
        name=f"the part that computes {y}", node=[nodes[k] for k in sorted(wanted)],
        input=[onnx.ValueInfoProto(name=n) for n in names], output=[onnx.ValueInfoProto(name=y)])


@converter("Gradient", domain=DOMAIN)
def gradient(*values: Expr, xs: tuple[str, ...], y: str, zs: tuple[str, ...] = (), graph: onnx.GraphProto | None = None,
             node: Node) -> tuple[Expr, ...]:
    if graph is None:
        return node.refuse("it is inside a function, where derivatives are not supported; inline the functions of the "
                           "model")
    if len(values) != len(graph.input):
        node.refuse(f"{len(values)} values are given, but xs and zs name {len(graph.input)} tensors; the file is "
                    "damaged: export the model again")
    variables = [Var(i.name, v.tensor_type) for i, v in zip(graph.input, values, strict=True)]
    (result,) = node.import_graph(graph, variables)
    if (any(not isinstance(d, int) for d in shape_of(result)) or math.prod(shape_of(result)) != 1
            or not dtype_of(result).is_float):
        node.refuse(f"'{y}' is {dtype_of(result)} of shape {shape_of(result)}; only a single real number can be "
                    "differentiated: sum its elements first")
    given: dict[Expr, Expr] = dict(zip(variables, values, strict=True))
    wanted = variables[: len(xs)]
    return tuple(substitute(filled(d, x), given) for d, x in zip(gradients(result, wanted), wanted, strict=True))
