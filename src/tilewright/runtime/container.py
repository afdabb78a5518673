"""Values with fields, under TVM's names: `tvm.runtime.container.ADT` and `tuple_object`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


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
