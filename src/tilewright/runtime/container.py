"""Values of programs under TVM's names: `tvm.runtime.container.ADT`, `tuple_object`, `ShapeTuple` and `String`."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex


class ADT(tuple[Any, ...]):
    """A tuple, or a value of a data type: the `tag` of its constructor (0 for a tuple), and its fields."""

    tag: int

    def __new__(cls, tag: int, fields: Iterable[Any]) -> ADT:
        """Return a value with these fields: arrays, or other values."""
        made = super().__new__(cls, fields)
        made.tag = tag
        return made

    def __getnewargs__(self) -> tuple[int, tuple[Any, ...]]:
        return self.tag, tuple(self)


def tuple_object(fields: Sequence[Any] | None = None) -> ADT:
    """Return a tuple of these fields."""
    return ADT(0, fields or ())


class ShapeTuple(tuple[int, ...]):
    """Sizes of an array; equal to a list or a tuple of the same sizes."""

    __hash__ = tuple.__hash__

    def __new__(cls, shape: Iterable[SupportsIndex]) -> ShapeTuple:
        return super().__new__(cls, map(operator.index, shape))

    def __eq__(self, other: object) -> bool:
        return tuple.__eq__(self, tuple(other) if isinstance(other, list) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other


String = str
"""TVM's boxed string; Python's own serves here."""
