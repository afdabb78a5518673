"""The rules that the dimensions of a program's inputs obey, as texts: what a C program is told about a wrong size.

    x: float32[n, (h * 32), 3]      dimension 0 of input 'x' must be from 1 to 64
                                    dimension 1 of input 'x' must be a multiple of 32, at least 32
                                    dimension 2 of input 'x' must be 3

There is one rule for each dimension, in order, then one for each requirement of the model (`n * m == 24`); the status
of a call that breaks rule `k` is `k` after those of the run-time errors (`Manifest.failures`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tilewright.runtime.program import TensorInfo
from tilewright.runtime.sizes import Size, multiple_of, value

if TYPE_CHECKING:
    from tilewright.runtime.manifest import Symbol


@dataclass(frozen=True, slots=True)
class SizeRule:
    """The rule of dimension `axis` of an input: its `size`, and the symbol that it determines, if any."""

    tensor: int
    axis: int
    name: str
    """The name of the input."""
    size: Size
    symbol: Symbol | None = None
    factor: int = 1
    """The size is `symbol * factor`."""

    def __str__(self) -> str:
        start = f"dimension {self.axis} of input '{self.name}' must be "
        if self.symbol is None:
            return f"{start}{self.size}" if isinstance(self.size, int) else f"{start}equal to {self.size}"
        least = self.symbol.least * self.factor
        most = None if self.symbol.most is None else self.symbol.most * self.factor
        limits = f"at least {least}" if most is None else f"from {least} to {most}"
        return start + (limits if self.factor == 1 else f"a multiple of {self.factor}, {limits}")


RELATIONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {"==": operator.eq, ">=": operator.ge}


@dataclass(frozen=True, slots=True)
class Requirement:
    """A relation between sizes that every call must satisfy: `left == right` or `left >= right`."""

    left: Size
    relation: str
    right: Size

    def holds(self, known: Mapping[str, int]) -> bool:
        """Whether these values of the symbols satisfy the relation."""
        return RELATIONS[self.relation](value(self.left, known), value(self.right, known))

    def __str__(self) -> str:
        return f"the sizes must satisfy {_plain(self.left)} {self.relation} {_plain(self.right)}"


def _plain(size: Size) -> Size:
    """Return a size without parentheses around the whole."""
    return size[1:-1] if isinstance(size, str) and size.startswith("(") else size


def size_rules(inputs: Sequence[TensorInfo], symbols: Sequence[Symbol]) -> list[SizeRule]:
    """Return the rule of each dimension. A symbol is determined by the first dimension that is a multiple of it."""
    return list(_rules(inputs, {s.name: s for s in symbols}))


def _rules(inputs: Sequence[TensorInfo], unknown: dict[str, Symbol]) -> Iterator[SizeRule]:
    for k, info in enumerate(inputs):
        for axis, size in enumerate(info.shape):
            name, factor = multiple_of(size) or ("", 1)
            yield SizeRule(k, axis, info.name, size, unknown.pop(name, None), factor)
