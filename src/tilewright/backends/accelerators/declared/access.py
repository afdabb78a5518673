"""Access patterns of instructions: one text per operand, with its dimensions as sums over axes.

    x="n h*sh+kh*dh w*sw+kw*dw ci"  w="kh kw ci co"  q="co 4"  y="n h w co"

A name alone, or before `*`, is an axis. The factor after `*` is an integer or a field of the instruction. A number
alone is the size of a dimension that is never tiled. The axes of `y` may be tiled; all others are read whole for every
tile.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tilewright.base.errors import OptionError

_TERM: Final = re.compile(r"([A-Za-z_]\w*)(?:\*(\w+))?")

Range = tuple[int, int]
"""The first index, and the index after the last."""


@dataclass(frozen=True)
class Term:
    """An axis times a number or a field."""

    axis: str
    factor: int | str = 1

    def times(self, fields: Mapping[str, int]) -> int:
        return fields[self.factor] if isinstance(self.factor, str) else self.factor


@dataclass(frozen=True)
class Dimension:
    """A sum of terms; without terms, a dimension of `size` that is read whole."""

    terms: tuple[Term, ...]
    size: int = 0

    @property
    def axis(self) -> str | None:
        """The axis, if the dimension is a single axis with factor 1."""
        return self.terms[0].axis if len(self.terms) == 1 and self.terms[0].factor == 1 else None

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(t.axis for t in self.terms)

    def range(self, ranges: Mapping[str, Range], fields: Mapping[str, int]) -> Range:
        """Return the range of indices that are read when each axis runs over its range."""
        if not self.terms:
            return 0, self.size
        begin = sum(t.times(fields) * ranges[t.axis][0] for t in self.terms)
        return begin, 1 + sum(t.times(fields) * (ranges[t.axis][1] - 1) for t in self.terms)


Access = tuple[Dimension, ...]


def parse(text: str, where: str) -> Access:
    """Parse the dimensions of an operand. Raises `OptionError`, prefixed with `where`, for invalid text."""
    return tuple(_dimension(word, where) for word in text.split())


def _dimension(word: str, where: str) -> Dimension:
    if word.isdecimal():
        return Dimension((), int(word))
    terms = []
    for part in word.split("+"):
        found = _TERM.fullmatch(part)
        if found is None:
            raise OptionError(
                f"{where}: '{word}' is not a dimension; write a size, or a sum of axes, each times a number or a "
                "field, as in h*stride+kh",
                code="TW0903")
        factor = found[2] or "1"
        terms.append(Term(found[1], int(factor) if factor.isdecimal() else factor))
    return Dimension(tuple(terms))


def axes_of(accesses: Mapping[str, Access]) -> tuple[str, ...]:
    """Return the axes of all operands without duplicates."""
    return tuple(dict.fromkeys(a for access in accesses.values() for d in access for a in d.axes))


def extents(
    accesses: Mapping[str, Access], shapes: Mapping[str, Sequence[int]], fields: Mapping[str, int]
) -> tuple[dict[str, int], str]:
    """Return the extent of each axis, from dimensions that are a single axis and from fields with its name.

    Also returns a description of the first contradiction, or an empty text.
    """
    found: dict[str, int] = {a: fields[a] for a in axes_of(accesses) if a in fields}
    for name, access in accesses.items():
        shape = shapes[name]
        if len(shape) != len(access):
            return found, f"{name} has {len(shape)} dimensions, and {len(access)} are declared"
        for size, d in zip(shape, access, strict=True):
            known = found.setdefault(d.axis, size) if d.axis else d.size if not d.terms else size
            if known != size:
                return found, f"{name} is {size} along {d.axis or 'a dimension of known size'}, where {known} is wanted"
    missing = [a for a in axes_of(accesses) if a not in found]
    return found, f"no operand or field determines the extent of {missing[0]}" if missing else ""
