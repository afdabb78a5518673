"""The protocol between the reader of a format and the importer.

A reader turns a file into a `SourceGraph`: the names and types of the inputs, the constants by name, the nodes, and the
names of the outputs. Constants are functions, so that unused weights are never read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from tilewright.base.types import TensorType

Name: TypeAlias = "str | int"
"""Name of a tensor in a file: a string, or a number if the format numbers its tensors."""
Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class SourceNode:
    """One node of a file. None represents an omitted input and an unused output."""

    kind: str
    """Name of the operator."""
    inputs: Sequence[Name | None]
    outputs: Sequence[Name | None]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    domain: str = ""
    version: int | None = None
    """Version of the operator, or of the model's operator set; None in formats without versions."""
    captured: Sequence[Name] = ()
    """Names that inner graphs capture from the enclosing graphs."""

    @property
    def label(self) -> str:
        """The node's kind and name, for messages."""
        return f"{self.kind} '{self.name}'"


def given(names: Sequence[Name | None]) -> list[Name]:
    """The names of the operands that are present."""
    return [n for n in names if n is not None]


@dataclass(slots=True)
class SourceGraph:
    """One graph of a file."""

    name: str
    inputs: Mapping[Name, TensorType | None]
    """Types by name; None for an inner graph, whose inputs take the types of the arguments."""
    nodes: Sequence[SourceNode]
    outputs: Sequence[Name]
    constants: Mapping[Name, Callable[[], Array]] = field(default_factory=dict)
    """Function that reads each stored tensor."""

    def label(self, name: Name) -> str:
        """The name of a tensor in messages and origins."""
        return str(name)
