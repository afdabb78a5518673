"""Deferred conversion of ONNX nodes: a node becomes a call, and is converted once the missing values are known.

    ReduceSum(x, axes)  ->  frontend.deferred(%x, %axes, op_type="ReduceSum", …)  ->  sum(%x, axis=[1])

The arguments of the call are the inputs of the node that are present, then the values that its subgraphs capture. The
model in the call lists their names in this order. A sequence is a tuple. An empty optional is only a name, declared as
an optional.
"""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Final

import numpy as np
import onnx
from onnx import numpy_helper

from tilewright.base.errors import Origin
from tilewright.relay.expr import Call, Constant, Expr
from tilewright.relay.frontend.core.deferral import settled, waiting
from tilewright.relay.frontend.core.known import KnownValues
from tilewright.relay.frontend.core.reading import Name
from tilewright.relay.op.deferred import Ask, Deferred, register_resolver
from tilewright.relay.sequence_values import NOTHING

_RANDOM: Final = frozenset({"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial",
                            "Bernoulli", "Dropout"})
_EMPTY: Final = onnx.TypeProto(optional_type=onnx.TypeProto.Optional())
_ORDINARY: Final = frozenset({"", "ai.onnx"})


def captured_names(node: onnx.NodeProto) -> list[str]:
    """The names that the subgraphs of a node use but do not define, in order."""
    graphs = [a.g for a in node.attribute if a.HasField("g")]
    if not graphs:
        return []
    used: dict[str, None] = {}
    for graph in graphs:
        made = {*(i.name for i in graph.input), *(t.name for t in graph.initializer),
                *(o for n in graph.node for o in n.output)}
        wanted = [*(o.name for o in graph.output),
                  *(name for n in graph.node for name in (*n.input, *captured_names(n)))]
        used.update((name, None) for name in wanted if name and name not in made)
    return list(used)


def defer(
    node: onnx.NodeProto, origin: Origin, opsets: Mapping[str, int], local: Iterable[onnx.FunctionProto],
    config: Mapping[str, Any], named: Mapping[str, Expr | None], for_sizes: bool = False,
) -> list[Expr]:
    """Defer a node; return its outputs. `named` holds its inputs and captured values."""
    if node.op_type == "ConstantOfShape" and node.domain in _ORDINARY:
        node, named = _expanded(node, named)
    given = {name: e for name, e in named.items() if e is not None}
    args = [e for e in given.values() if e is not NOTHING]
    model = onnx.ModelProto()
    model.graph.node.append(node)
    model.graph.node[0].name = origin.name
    model.graph.input.extend(onnx.ValueInfoProto(name=name, type=_EMPTY if e is NOTHING else None)
                             for name, e in given.items())
    for domain, version in opsets.items():
        model.opset_import.add(domain=domain, version=version)
    if any(a.HasField("g") for a in node.attribute):
        model.functions.extend(local)
    text = base64.b64encode(model.SerializeToString(deterministic=True)).decode()
    op = Deferred("onnx", node.op_type, text, json.dumps(dict(config), sort_keys=True), _is_random(node), for_sizes)
    return waiting(op, args, origin, len(node.output))


def _expanded(node: onnx.NodeProto,
              named: Mapping[str, Expr | None]) -> tuple[onnx.NodeProto, Mapping[str, Expr | None]]:
    """`ConstantOfShape(shape, value=v)` -> `Expand(v, shape)`, so that nodes with different fill values convert alike.
    """
    value = numpy_helper.to_array(node.attribute[0].t) if node.attribute else np.zeros(1, np.float32)
    if value.size != 1:
        return node, named
    (shape,) = node.input
    name = "value" if shape != "value" else "fill"
    return onnx.helper.make_node("Expand", [name, shape], node.output, node.name), {name: Constant(value.reshape(())),
        **named}


def _is_random(node: onnx.NodeProto) -> bool:
    inside = (n for a in node.attribute if a.HasField("g") for n in a.g.node)
    return (node.domain in _ORDINARY and node.op_type in _RANDOM) or any(map(_is_random, inside))


@functools.lru_cache(4096)
def _model(text: str) -> onnx.ModelProto:
    model: onnx.ModelProto = onnx.ModelProto.FromString(base64.b64decode(text))
    return model


class _Resolver:
    """Converts the deferred nodes of ONNX models."""

    def convert(self, op: Deferred, call: Call, ask: Ask) -> Expr | None:
        """The converted node, or None if `ask` lacks a value that it needs. Raises `CompileError`."""
        from tilewright.relay.frontend.onnx.importer import convert_node

        model = _model(op.model)
        args = iter(call.args)
        named: dict[Name, Expr] = {i.name: NOTHING if i.type.HasField("optional_type") else next(args)
                                   for i in model.graph.input}
        results = convert_node(model, named, call.span, json.loads(op.context), KnownValues(ask))
        return settled(op, results, len(model.graph.node[0].output), call.span)

    def is_branch(self, op: Deferred) -> bool:
        """Whether a node is an `If`."""
        (node,) = _model(op.model).graph.node
        return node.domain in _ORDINARY and node.op_type == "If"

    def content(self, op: Deferred) -> Hashable:
        """The node without irrelevant names, and the options: nodes of equal content convert alike."""
        return _nameless(op.model), op.context


register_resolver("onnx", _Resolver())


@functools.lru_cache(4096)
def _nameless(text: str) -> bytes:
    """The serialized model of a deferred node without its name and the names of values that no inner graph uses."""
    model = onnx.ModelProto()
    model.CopyFrom(_model(text))
    (node,) = model.graph.node
    node.name = ""
    if not any(a.HasField("g") for a in node.attribute) and node.domain in _ORDINARY:
        numbers = {name: str(k) for k, name in enumerate(dict.fromkeys((*(i.name for i in model.graph.input),
            *node.output))) if name}
        node.input[:], node.output[:] = [numbers.get(n, n) for n in node.input], [numbers.get(n, n)
            for n in node.output]
        for i in model.graph.input:
            i.name = numbers[i.name]
    content: bytes = model.SerializeToString(deterministic=True)
    return content
