"""The reading protocol: what the reader of a format gives to the importer.

A reader turns a file into a `SourceGraph`: the names and types of the inputs, the constants by name, the nodes, and the
names of the outputs. Constants are functions, so that a weight that nothing uses is never read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from tilewright.base.types import TensorType

Name: TypeAlias = "str | int"
"""The name of a tensor in a file: a string, or a number where the format counts its tensors."""
Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class SourceNode:
    """One node of a file. An input that is left out, and an output that nothing uses, is None."""

    kind: str
    """The operator."""
    inputs: Sequence[Name | None]
    outputs: Sequence[Name | None]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    domain: str = ""
    version: int | None = None
    """Version of the operator, or of the model's operator set; None in formats without versions."""
    captured: Sequence[Name] = ()
    """Names that inner graphs take from around the node."""

    @property
    def label(self) -> str:
        """The node in messages."""
        return f"{self.kind} '{self.name}'"


def given(names: Sequence[Name | None]) -> list[Name]:
    """The names of the operands that are not left out."""
    return [n for n in names if n is not None]


@dataclass(slots=True)
class SourceGraph:
    """One graph of a file."""

    name: str
    inputs: Mapping[Name, TensorType | None]
    """Types by name; None for an inner graph, whose inputs have the types of the values given to it."""
    nodes: Sequence[SourceNode]
    outputs: Sequence[Name]
    constants: Mapping[Name, Callable[[], Array]] = field(default_factory=dict)
    """For each stored tensor, the function that reads it."""

    def label(self, name: Name) -> str:
        """The name of a tensor in messages and origins."""
        return str(name)
