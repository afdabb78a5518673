"""The declarations of a model, read without importing it: its inputs and operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.base.model_formats import Contents, Signature
from tilewright.ir.module import IRModule
from tilewright.relay.frontend.tflite.importer import from_tflite, inputs_of
from tilewright.relay.frontend.tflite.model import read_model
from tilewright.relay.frontend.tflite.registry import CONVERTERS


def signature(model: Any) -> Signature:
    """`(name, dimensions, dtype)` of each input. Raises `ModelError` for a bad model."""
    variables = inputs_of(read_model(model).graphs[0], None, None)
    return [(v.name_hint, list(v.tensor_type.shape), str(v.tensor_type.dtype)) for v in variables]


def survey(model: Any, shapes: Mapping[str, Any] | None = None) -> tuple[Signature, list[str]]:
    """The signature, and an empty list: no other files hold tensors."""
    return signature(model), []


def read(model: Any, shapes: Mapping[str, Any] | None) -> tuple[IRModule, dict[str, Any]]:
    """`from_tflite` with these input shapes."""
    return from_tflite(model, shapes)


def contents(model: Any, shapes: Mapping[str, Any] | None) -> Contents:
    """The declarations and operators of a model. Raises `ModelError` for a bad one."""
    whole = read_model(model)
    main = whole.graphs[0]
    inputs, outputs = ([(t.name, t.shape, t.dtype) for t in (main.tensors[n] for n in numbers)]
                       for numbers in (main.inputs, main.outputs))
    nodes: dict[tuple[str, str], list[str]] = {}
    for graph in whole.graphs:
        for o in graph.operators:
            nodes.setdefault(("", o.kind), []).append(next((graph.tensors[n].name for n in o.outputs),
                f"{o.kind}_{o.number}"))
    unknown = {key for key in nodes if key[1] not in CONVERTERS}
    return Contents({"TFLite": 3}, whole.description, inputs, outputs, nodes, unknown, CONVERTERS.advice,
                    lambda: from_tflite(model, shapes)[0])
