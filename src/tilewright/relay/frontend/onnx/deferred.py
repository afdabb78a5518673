"""Nodes that cannot be converted yet: the call that stands for one, and its conversion when what was missing is known.

    ReduceSum(x, axes), axes computed  ->  onnx.deferred(%x, %axes, op_type="ReduceSum", model="…")  ->  sum(%x, axis=[1])

The inputs of the call are the node's, without those that are left out, then what its subgraphs take from around it; the model in the
call names them all, so that they are found again. A sequence is a tuple; of an optional that is empty there is only the name, declared as
an optional.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import onnx
from onnx import numpy_helper

from tilewright.base.errors import Origin
from tilewright.relay.expr import Call, Constant, Expr, Tuple, TupleGetItem
from tilewright.relay.frontend.known import KnownValues
from tilewright.relay.frontend.shaping import fields
from tilewright.relay.op.deferred import Ask, Deferred
from tilewright.relay.sequence_values import NOTHING

_RANDOM: Final = frozenset({"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli", "Dropout"})
_EMPTY: Final = onnx.TypeProto(optional_type=onnx.TypeProto.Optional())
_ORDINARY: Final = frozenset({"", "ai.onnx"})


def captured_names(node: onnx.NodeProto) -> list[str]:
    """The names that the subgraphs of a node use and do not make, in order."""
    graphs = [a.g for a in node.attribute if a.HasField("g")]
    used: dict[str, None] = {}
    for graph in graphs:
        made = {*(i.name for i in graph.input), *(t.name for t in graph.initializer), *(o for n in graph.node for o in n.output)}
        wanted = [*(o.name for o in graph.output), *(name for n in graph.node for name in (*n.input, *captured_names(n)))]
        used.update((name, None) for name in wanted if name and name not in made)
    return list(used)


def defer(
    node: onnx.NodeProto, origin: Origin, opsets: Mapping[str, int], local: Iterable[onnx.FunctionProto], config: Mapping[str, Any],
    named: Mapping[str, Expr | None],
) -> list[Expr]:
    """The outputs of a node that is converted later; `named` are its inputs, and what its subgraphs take from around it."""
    if node.op_type == "ConstantOfShape" and node.domain in _ORDINARY:
        node, named = _expanded(node, named)
    given = {name: e for name, e in named.items() if e is not None}
    args = [e for e in given.values() if e is not NOTHING]
    model = onnx.ModelProto()
    model.graph.node.append(node)
    model.graph.node[0].name = origin.name
    model.graph.input.extend(onnx.ValueInfoProto(name=name, type=_EMPTY if e is NOTHING else None) for name, e in given.items())
    for domain, version in opsets.items():
        model.opset_import.add(domain=domain, version=version)
    if any(a.HasField("g") for a in node.attribute):
        model.functions.extend(local)
    made = Deferred(
        node.op_type, base64.b64encode(model.SerializeToString(deterministic=True)).decode(), tuple(sorted(config.items())), _is_random(node),
    )
    call = Call(made, args, span=origin)
    return [call] if len(node.output) == 1 else list(fields(call, len(node.output)))


def _expanded(node: onnx.NodeProto, named: Mapping[str, Expr | None]) -> tuple[onnx.NodeProto, Mapping[str, Expr | None]]:
    """`ConstantOfShape(shape, value=v)` -> `Expand(v, shape)`: nodes that differ in what they fill are converted alike."""
    value = numpy_helper.to_array(node.attribute[0].t) if node.attribute else np.zeros(1, np.float32)
    if value.size != 1:
        return node, named
    (shape,) = node.input
    name = "value" if shape != "value" else "fill"
    return onnx.helper.make_node("Expand", [name, shape], node.output, node.name), {name: Constant(value.reshape(())), **named}


def _is_random(node: onnx.NodeProto) -> bool:
    inside = (n for a in node.attribute if a.HasField("g") for n in a.g.node)
    return (node.domain in _ORDINARY and node.op_type in _RANDOM) or any(map(_is_random, inside))


@functools.lru_cache(4096)
def _model(text: str) -> onnx.ModelProto:
    model: onnx.ModelProto = onnx.ModelProto.FromString(base64.b64decode(text))
    return model


def convert(deferred: Deferred, call: Call, ask: Ask) -> Expr | None:
    """What the node is converted to; None when that needs a value that `ask` does not know. Raises `CompileError` naming the node."""
    from tilewright.relay.frontend.onnx.importer import convert_node

    model = _model(deferred.model)
    args = iter(call.args)
    named = {i.name: NOTHING if i.type.HasField("optional_type") else next(args) for i in model.graph.input}
    results = convert_node(model, named, call.span, dict(deferred.config), KnownValues(ask))
    if any(_waits(r, deferred.model) for r in results):
        return None
    return results[0] if len(model.graph.node[0].output) == 1 else Tuple(tuple(results), call.span)


@functools.lru_cache(4096)
def nameless(text: str) -> bytes:
    """The model of a deferred node without the names of the node and of its values, where no graph in it knows these."""
    model = onnx.ModelProto()
    model.CopyFrom(_model(text))
    (node,) = model.graph.node
    node.name = ""
    if not any(a.HasField("g") for a in node.attribute) and node.domain in _ORDINARY:
        numbers = {name: str(k) for k, name in enumerate(dict.fromkeys((*(i.name for i in model.graph.input), *node.output))) if name}
        node.input[:], node.output[:] = [numbers.get(n, n) for n in node.input], [numbers.get(n, n) for n in node.output]
        for i in model.graph.input:
            i.name = numbers[i.name]
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def is_branch(deferred: Deferred) -> bool:
    """Whether a node is one of two graphs, as its first input says."""
    (node,) = _model(deferred.model).graph.node
    return node.domain in _ORDINARY and node.op_type == "If"


def _waits(result: Expr, model: str) -> bool:
    """Whether a result is that of the same node, deferred once more."""
    call = result.tuple_value if isinstance(result, TupleGetItem) else result
    return isinstance(call, Call) and isinstance(call.op, Deferred) and call.op.model == model

