"""Guards: the conditions on the inputs of a call under which compiled code may serve it.

    x: float32[1, 3, 224, 224]                       code of fixed sizes
    x: float32[n, 384], mask: int64[n], 1 <= n <= 64  code of dynamic sizes: `n` is solved for at each call
    x: float32[7, 4], axes: int64[1] == [1]          one stage of a program whose values decide its shapes

Fixed sizes are the case without symbols. A dimension is a number, or arithmetic over the symbols as text
(`runtime/sizes.py`).
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.base.errors import InputError
from tilewright.base.nd import content
from tilewright.runtime.manifest import Manifest, Symbol
from tilewright.runtime.program import TensorInfo
from tilewright.runtime.size_rules import Requirement
from tilewright.runtime.sizes import Size, multiple_of, solved, value

Shapes = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class Guards:
    """Names, dtypes and dimensions of the inputs, the ranges of the symbols in these, and the inputs that must have
    known contents.

    `contents` has pairs of the number of an input and its `nd.content`.
    """

    inputs: tuple[TensorInfo, ...]
    symbols: tuple[Symbol, ...] = ()
    contents: tuple[tuple[int, Hashable], ...] = ()
    requirements: tuple[Requirement, ...] = ()

    @staticmethod
    def of(manifest: Manifest) -> Guards:
        """Return the guards of a program."""
        return Guards(manifest.inputs, manifest.symbols, requirements=manifest.requirements)

    def hold(self, inputs: Sequence[np.ndarray[Any, Any]]) -> bool:
        """Whether the code may serve a call with these inputs, in order."""
        if len(inputs) != len(self.inputs):
            return False
        try:
            self.sizes([x.shape for x in inputs])
        except InputError:
            return False
        return all(content(inputs[k]) == known for k, known in self.contents)

    def sizes(self, shapes: Shapes) -> dict[str, int]:
        """Solve for the symbols, in order. Raises `InputError` for shapes that contradict the guards, or each other."""
        for info, shape in zip(self.inputs, shapes, strict=True):
            if len(shape) != len(info.shape) or any(
                isinstance(w, int) and w != d for w, d in zip(info.shape, shape, strict=True)
            ):
                raise InputError(f"input '{info.name}' has shape {list(shape)}, expected {info}", code="TW0704")
        known = solved(zip((t.shape for t in self.inputs), shapes, strict=True))
        for info, shape in zip(self.inputs, shapes, strict=True):
            for axis, (w, d) in enumerate(zip(info.shape, shape, strict=True)):
                if value(w, known) != d:
                    place = f"dimension {axis} of input '{info.name}'"
                    raise InputError(f"{place} is {d}, and must be {self._rule(w, known, place)}", code="TW0704")
        for s in self.symbols:
            if not s.least <= known[s.name] or (s.most is not None and known[s.name] > s.most):
                raise self._out_of_range(s, known[s.name])
        for r in self.requirements:
            if not r.holds(known):
                told = ", ".join(f"{name} = {n}" for name, n in known.items())
                raise InputError(f"{r}, as the model requires, but {told}; give inputs of other shapes", code="TW0709")
        return {s.name: known[s.name] for s in self.symbols}

    def _rule(self, size: Size, known: Mapping[str, int], place: str) -> str:
        """Return the rule for a size, at this place, that contradicts the inputs: `a multiple of 8`, or `2, like
        dimension 0 of input 'x' (n)`."""
        found, wanted = multiple_of(size), value(size, known)
        if found is not None and self._place(found[0])[0] == size:
            first = self._place(found[0])[1]
            return f"a multiple of {found[1]}" if first == place else f"{wanted}, like {first} ({size})"
        names = [n for n in known if re.search(rf"\b{n}\b", str(size))]
        told = ", ".join(f"{n} is {known[n]} ({self._place(n)[1]})" for n in names)
        return f"{size} = {wanted}, where {told}" if wanted is not None else str(size)

    def _place(self, name: str) -> tuple[Size, str]:
        """Return the size that determines a symbol, and its place: `dimension 0 of input 'x'`."""
        for t in self.inputs:
            for axis, size in enumerate(t.shape):
                if (found := multiple_of(size)) is not None and found[0] == name:
                    return size, f"dimension {axis} of input '{t.name}'"
        return name, "the inputs"

    def rules(self) -> tuple[str, ...]:
        """Return the rule of each symbolic size: `n (dimension 0 of input 'x'): from 1`, `…: multiples of 8 from 8`."""
        return tuple(f"{s.name} ({self._place(s.name)[1]}): {self._range(s)}" for s in self.symbols)

    def _range(self, symbol: Symbol) -> str:
        step = (multiple_of(self._place(symbol.name)[0]) or ("", 1))[1]
        multiples, most = "" if step == 1 else f"multiples of {step} ", symbol.most
        return f"{multiples}from {symbol.least * step}" + ("" if most is None else f" to {most * step}")

    def _out_of_range(self, symbol: Symbol, number: int) -> InputError:
        size, place = self._place(symbol.name)
        found = multiple_of(size)
        told = f"{symbol.name} " if found is None or found[1] == 1 else ""
        return InputError(
            f"{place} is {number * (found[1] if found else 1)}, but the program was compiled for {told}"
            f"{self._range(symbol)}; compile it with a wider range in shapes=", code="TW0709")

    def __str__(self) -> str:
        known = {self.inputs[k].name for k, _ in self.contents}
        inputs = (f"{t}{' of known values' if t.name in known else ''}" for t in self.inputs)
        return ", ".join((*inputs, *map(str, self.symbols)))


def number(size: Size, known: Mapping[str, int]) -> int:
    """Return a size for these values of the symbols. Raises `InputError` if they do not determine it."""
    found = value(size, known)
    if found is None:
        raise InputError(
            f"the size {size} cannot be derived from the inputs, which determine "
            f"{', '.join(known) or 'none'}", code="TW0709")
    return found


def shape_of(info: TensorInfo, known: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape of an input or output for these values of the symbols."""
    return tuple(number(d, known) for d in info.shape)
