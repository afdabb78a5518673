"""The inputs of a model without importing it: names, dimensions, element types."""

from __future__ import annotations

from typing import Any

from tilewright.relay.frontend.onnx.inputs import ModelInputs
from tilewright.relay.frontend.onnx.reading import read_model

Signature = list[tuple[str, list[int | str], str]]


def signature(model: Any) -> Signature:
    """`(name, dimensions, dtype)` of each input; a symbolic dimension is its name. Raises `ModelError` for a bad model."""
    with read_model(model) as (proto, _):
        variables = ModelInputs(proto.graph, None, None).variables
    found: Signature = []
    for name, v in variables.items():
        kind: Any = v.type_annotation
        found.append((name, [d if isinstance(d, int) else d.name for d in kind.shape], str(kind.dtype)))
    return found
