"""The declarations of a model, read without importing it: inputs, operators, and external files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import onnx
from onnx import TensorProto

from tilewright.base.model_formats import Contents, Signature
from tilewright.relay.frontend.onnx import functions
from tilewright.relay.frontend.onnx.importer import from_onnx, glance
from tilewright.relay.frontend.onnx.inputs import ModelInputs
from tilewright.relay.frontend.onnx.reading import read_model
from tilewright.relay.frontend.onnx.registry import CONVERTERS
from tilewright.scalar import expr as scalar


def signature(model: Any) -> Signature:
    """`(name, dimensions, dtype)` of each input; a symbolic dimension is its name. Raises `ModelError` for a bad model.

    A sequence has dimensions `...` and a dtype like "seq(float32)". An optional has a dtype like "optional(float32)".
    """
    return survey(model)[0]


def survey(model: Any, shapes: Mapping[str, Sequence[int | str]] | None = None) -> tuple[Signature, list[str]]:
    """The signature, and the locations of external data as written in the model: paths in the model's folder.

    `shapes` are needed for inputs whose rank the model does not declare.
    """
    with read_model(model) as (proto, _):
        open_ranks = [i.name for i in proto.graph.input if i.type.HasField("tensor_type")
                      and not i.type.tensor_type.HasField("shape")]
        given = {name: [scalar.Var(d) if isinstance(d, str) else d for d in shapes[name]] for name in open_ranks
                 if shapes and name in shapes}
        inputs = ModelInputs(proto.graph, given, None)
        order = [i.name for i in proto.graph.input if i.name in inputs.variables or i.name in inputs.unknown]
        files = {entry.value for t in _tensors(proto) for entry in t.external_data if entry.key == "location"}
    found: Signature = []
    for name in order:
        if name in inputs.unknown:
            found.append((name, ["..."], inputs.unknown[name].dtype))
            continue
        kind: Any = inputs.variables[name].type_annotation
        found.append((name, [d if isinstance(d, int) else d.name for d in kind.shape], str(kind.dtype)))
    return found, sorted(files)


read = from_onnx


def contents(model: Any, shapes: Mapping[str, Any] | None) -> Contents:
    """The declarations and operators of a model. Raises `ModelError` for a bad one."""
    with read_model(model) as (proto, source):
        versions = functions.opsets_of(proto, source, None)
        stored = {t.name for t in proto.graph.initializer}
        inputs, outputs = (list(map(_declared, infos))
                           for infos in ((i for i in proto.graph.input if i.name not in stored), proto.graph.output))
        nodes: dict[tuple[str, str], list[str]] = {}
        unknown: set[tuple[str, str]] = set()
        for domain, version, name, node in functions.operators(proto, functions.functions_of(proto), versions):
            nodes.setdefault((domain, node.op_type), []).append(name)
            if not functions.is_supported(domain, node.op_type, version):
                unknown.add((domain, node.op_type))
        producer = f"{proto.producer_name} {proto.producer_version}".strip()
    return Contents(versions, producer, inputs, outputs, nodes, unknown, CONVERTERS.advice,
                    lambda: glance(model, shapes))


def _declared(info: onnx.ValueInfoProto) -> tuple[str, tuple[int | str, ...], str]:
    """The declared name, shape and type; "?" for an unknown size."""
    which = info.type.WhichOneof("value")
    if which != "tensor_type":
        return info.name, (), (which or "unknown").removesuffix("_type")
    kind = info.type.tensor_type
    dims = tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in kind.shape.dim)
    code = kind.elem_type
    return (info.name, dims, TensorProto.DataType.Name(code).lower() if code in TensorProto.DataType.values()
            else str(code))


def _tensors(model: onnx.ModelProto) -> Iterator[TensorProto]:
    """The tensors stored in other files, including those in attributes, inner graphs and functions."""
    graphs = [model.graph]
    nodes = [n for f in model.functions for n in f.node]
    while graphs or nodes:
        if graphs:
            graph = graphs.pop()
            nodes += graph.node
            yield from (t for t in graph.initializer if t.data_location == TensorProto.EXTERNAL)
            continue
        for a in nodes.pop().attribute:
            graphs += [*([a.g] if a.HasField("g") else []), *a.graphs]
            yield from (t for t in (a.t, *a.tensors) if t.data_location == TensorProto.EXTERNAL)
