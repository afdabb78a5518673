"""The structure of the values that a program takes and returns, where they are not plain tensors.

    layout ::= ["tensor", dtype, [dimension, …]] | ["tuple", [layout, …]] | ["data", name of a data type]

A tuple is passed as its fields, one input each. A value of a data type is one word, the address of its cell: the
caller makes the cells of inputs, and reads those of results (`runtime/records.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

TENSOR: Final = "tensor"
TUPLE: Final = "tuple"
DATA: Final = "data"
UNKNOWN: Final = -1
"""A dimension that differs between calls."""

Layout = list[Any]


@dataclass(frozen=True, slots=True)
class EntryLayout:
    """The parameters of `main` by name, its result, and the data types: by name, the constructors in the order of their
    tags, each with its name and its fields."""

    inputs: tuple[tuple[str, Layout], ...]
    result: Layout
    types: Mapping[str, Sequence[tuple[str, Sequence[Layout]]]]

    @property
    def is_boxed(self) -> bool:
        """Whether the result contains a value of a data type; the program then returns the address of its cell."""
        return any(leaf[0] == DATA for leaf in leaves(self.result))

    @property
    def records(self) -> frozenset[int]:
        """The numbers of the inputs that are addresses of cells."""
        flat = [leaf for _, layout in self.inputs for leaf in leaves(layout)]
        return frozenset(k for k, leaf in enumerate(flat) if leaf[0] == DATA)

    def to_json(self) -> list[Any]:
        return [[list(i) for i in self.inputs], self.result, {n: [list(c) for c in t] for n, t in self.types.items()}]

    @staticmethod
    def from_json(content: Any) -> EntryLayout:
        """Read `to_json`. Raises `ValueError` or `TypeError` for a damaged value."""
        inputs, result, types = content
        found = EntryLayout(
            tuple((str(name), _checked(layout)) for name, layout in inputs), _checked(result),
            {
                str(name): [(str(n), [_checked(f) for f in fields]) for n, fields in constructors]
                for name, constructors in dict(types).items()
            })
        named = [f for t in found.types.values() for _, fields in t for f in fields]
        for layout in (*named, found.result, *(i for _, i in found.inputs)):
            for leaf in leaves(layout):
                if leaf[0] == DATA and leaf[1] not in found.types:
                    raise ValueError(f"there is no data type '{leaf[1]}'")
        return found


def leaves(layout: Layout) -> Iterator[Layout]:
    """Yield the tensors and data types of a layout, in order."""
    if layout[0] == TUPLE:
        for field in layout[1]:
            yield from leaves(field)
    else:
        yield layout


def _checked(layout: Any) -> Layout:
    kind = layout[0]
    if kind == TUPLE:
        return [TUPLE, [_checked(f) for f in layout[1]]]
    if kind == TENSOR and all(isinstance(n, int) and n >= UNKNOWN for n in layout[2]):
        return [TENSOR, str(layout[1]), list(layout[2])]
    if kind == DATA:
        return [DATA, str(layout[1])]
    raise ValueError(f"{layout!r} is no layout of a value")
