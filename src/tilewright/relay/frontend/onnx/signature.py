"""What a model says about itself without being imported: its inputs, and the files that hold its tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import onnx
from onnx import TensorProto

from tilewright.relay.frontend.onnx.inputs import ModelInputs
from tilewright.relay.frontend.onnx.reading import read_model
from tilewright.scalar import expr as scalar

Signature = list[tuple[str, list[int | str], str]]


def signature(model: Any) -> Signature:
    """`(name, dimensions, dtype)` of each input; a symbolic dimension is its name. Raises `ModelError` for a bad model.

    A sequence has `...` for its dimensions and "seq(float32)" for its dtype; an optional "optional(float32)", "optional(seq(float32))".
    """
    return survey(model)[0]


def survey(model: Any, shapes: Mapping[str, Sequence[int | str]] | None = None) -> tuple[Signature, list[str]]:
    """The signature, and the locations of external data as the model writes them: paths in the model's folder.

    `shapes` are looked at for inputs of which the model does not say how many dimensions they have.
    """
    with read_model(model) as (proto, _):
        open_ranks = [i.name for i in proto.graph.input if i.type.HasField("tensor_type") and not i.type.tensor_type.HasField("shape")]
        given = {name: [scalar.Var(d) if isinstance(d, str) else d for d in shapes[name]] for name in open_ranks if shapes and name in shapes}
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


def _tensors(model: onnx.ModelProto) -> Iterator[TensorProto]:
    """The tensors in other files: initializers and attributes, those of inner graphs and of functions too."""
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
