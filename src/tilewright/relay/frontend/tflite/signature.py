"""What a model says about itself without being imported: its inputs."""

from __future__ import annotations

from typing import Any

from tilewright.relay.frontend.tflite.importer import inputs_of
from tilewright.relay.frontend.tflite.model import read_model

Signature = list[tuple[str, list[int | str], str]]


def signature(model: Any) -> Signature:
    """`(name, dimensions, dtype)` of each input. Raises `ModelError` for a bad model."""
    variables = inputs_of(read_model(model).graphs[0], None, None)
    return [(v.name_hint, list(v.tensor_type.shape), str(v.tensor_type.dtype)) for v in variables]


def survey(model: Any) -> tuple[Signature, list[str]]:
    """The signature, and the files beside the model that hold its tensors: none."""
    return signature(model), []
