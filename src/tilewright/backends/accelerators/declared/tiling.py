"""Cuts an instruction on whole tensors into tiles that fit into the near memory.

All axes of the output may be cut. Candidates are a few sizes of each axis and a few loop orders. The accelerator's
cycle model, with overlapping transfers, selects the fastest. An operand whose tile changes between steps has two
buffers, so that the next tile is loaded in advance.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tilewright.backends.accelerators.declared.access import Dimension, Range
from tilewright.backends.accelerators.declared.declaration import Accelerator, Emitted, Operand, Refused

_LONGEST: Final = 0xFFFF
"""Largest number of elements along a dimension in a command."""
_SIZES: Final = 5
"""Number of sizes tried per axis."""


@dataclass(frozen=True)
class Tiling:
    """Tile sizes by axis, the axes from the outermost loop on, the number of buffers of each operand, and the cost."""

    sizes: Mapping[str, int]
    order: tuple[str, ...]
    places: Mapping[str, int]
    bytes: Mapping[str, int]
    cycles: int

    @property
    def near(self) -> int:
        """Bytes of near memory."""
        return sum(self.places[n] * self.bytes[n] for n in self.bytes)

    def steps(self, extents: Mapping[str, int]) -> Iterator[dict[str, Range]]:
        """Yield the ranges of all axes, tile by tile, in order."""
        spans = [
            [(a, min(a + self.sizes[axis], extents[axis])) for a in range(0, extents[axis], self.sizes[axis])]
            for axis in self.order]
        whole = {a: (0, n) for a, n in extents.items()}
        for ranges in itertools.product(*spans):
            yield {**whole, **dict(zip(self.order, ranges, strict=True))}


def choose(accelerator: Accelerator, e: Emitted) -> Tiling:
    """Return the tiling with the fewest cycles. Raises `Refused` if not even the smallest tiles fit."""
    known = accelerator.tilings
    key = _key(e)
    if key not in known:
        known[key] = _Search(accelerator, e).best()
    found: Tiling | int = known[key]
    if isinstance(found, int):
        raise Refused(
            f"the smallest tiles of {e.instruction.name} take {found:,} bytes of {accelerator.near.name}, which has "
            f"{accelerator.near.size:,}",
            f"split the operator's channels, so that its tiles fit into {accelerator.near.size:,} bytes")
    return found


def _key(e: Emitted) -> tuple[Any, ...]:
    """Return the fields that a tiling depends on: factors of axes in accesses, and fields that the cycles depend on."""
    factors = {t.factor for access in e.instruction.accesses.values() for d in access for t in d.terms}
    fields = tuple((n, v) for n, v in e.fields.items() if n in factors or n in e.instruction.asked)
    return e.instruction.name, tuple(e.extents.items()), fields, tuple(str(o.dtype) for o in e.operands.values())


def _sizes(extent: int, block: int) -> list[int]:
    """Return the tile sizes to try, in whole blocks: the axis in one, two, four, … parts, and sizes of 16 and 1."""
    wanted = [-(-extent >> k) for k in range(_SIZES)] + [n for n in (16, 1) if n < extent]
    parts = [-(-n // block) * block for n in wanted]
    return sorted(set(parts), reverse=True)


def _orders(cut: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield loop orders in which each axis is innermost once, and the others keep their order."""
    if not cut:
        yield ()
    for inner in cut:
        yield (*(a for a in cut if a != inner), inner)


class _Search:
    """Common data of all tilings of one instruction."""

    def __init__(self, accelerator: Accelerator, e: Emitted) -> None:
        self.accelerator, self.e = accelerator, e
        self.cut = tuple(dict.fromkeys(e.instruction.cut))
        self.items = {n: np.dtype(str(o.dtype)).itemsize for n, o in e.operands.items()}
        self.axes = {n: frozenset(a for d in access for a in d.axes) for n, access in e.instruction.accesses.items()}
        self.sides = {n: [self._side(d) for d in access] for n, access in e.instruction.accesses.items()}

    def _side(self, d: Dimension) -> tuple[int, tuple[tuple[str, int], ...]]:
        """Return the extent of a tile's dimension: a constant, and the contribution per element of each cut axis."""
        if not d.terms:
            return d.size, ()
        times = [(t.axis, t.times(self.e.fields)) for t in d.terms]
        fixed = 1 + sum(c * ((0 if a in self.cut else self.e.extents[a]) - 1) for a, c in times)
        return fixed, tuple((a, c) for a, c in times if a in self.cut)

    def best(self) -> Tiling | int:
        """Return the best tiling; if none fits, the bytes of the smallest tiles."""
        axes = [a for a in self.cut if self.e.extents[a] > 1]
        once = tuple(a for a in self.cut if self.e.extents[a] <= 1)
        best: Tiling | None = None
        smallest = 0
        for sizes in itertools.product(*(_sizes(self.e.extents[a], self.e.instruction.blocks.get(a, 1)) for a in axes)):
            tile = {**dict.fromkeys(once, 1), **dict(zip(axes, sizes, strict=True))}
            size_of = self.sizes(tile)
            least = sum(size_of.values())
            smallest = min(smallest or least, least)
            if least > self.accelerator.near.size:
                continue
            cut = [a for a in axes if tile[a] < self.e.extents[a]]
            counts = {a: -(-self.e.extents[a] // n) for a, n in tile.items()}
            compute = self.compute(tile, counts)
            if best is not None and compute >= best.cycles:
                continue
            for order in _orders(cut):
                made = self.tiling(tile, (*once, *(a for a in axes if a not in cut), *order), counts, size_of, compute)
                if best is None or made.cycles < best.cycles:
                    best = made
        return smallest if best is None else best

    def sizes(self, tile: Mapping[str, int]) -> dict[str, int]:
        """Return the aligned bytes of each operand's tile; a size beyond any memory if a dimension exceeds the command
        format."""
        align = self.accelerator.near.align
        found = {}
        for n, sides in self.sides.items():
            size = self.items[n]
            for fixed, grows in sides:
                length = fixed
                for a, c in grows:
                    length += c * tile[a]
                size *= length if length <= _LONGEST else 1 << 60
            found[n] = -(-size // align) * align
        return found

    def tiling(
        self, tile: dict[str, int], order: tuple[str, ...], counts: Mapping[str, int], size_of: Mapping[str, int],
        compute: int
    ) -> Tiling:
        """Return the tiling with its cycles; if two buffers per operand do not fit, with one and without overlap."""
        steps = math.prod(counts.values())
        places, transfers, first, near = {}, 0, 0, 0
        for n, size in size_of.items():
            loads = steps_so_far = 1
            for a in order:
                steps_so_far *= counts[a]
                if counts[a] > 1 and a in self.axes[n]:
                    loads = steps_so_far
            places[n] = 2 if loads > 1 else 1
            near += places[n] * size
            once = self.accelerator.transfer_cycles(size)
            transfers += loads * once
            first += once
        if near > self.accelerator.near.size:
            return Tiling(tile, order, dict.fromkeys(places, 1), size_of, transfers + compute)
        return Tiling(tile, order, places, size_of, max(transfers, compute) + first + compute // steps)

    def compute(self, tile: Mapping[str, int], counts: Mapping[str, int]) -> int:
        """Return the cycles of all tiles: whole ones, and those at the ends of axes."""
        total = 0
        kinds = []
        for a, count in counts.items():
            rest = self.e.extents[a] - (count - 1) * tile[a]
            kinds.append(
                [(a, tile[a], count - 1), (a, rest, 1)] if count > 1 and rest != tile[a] else [(a, tile[a], count)])
        for combination in itertools.product(*kinds):
            extents = {**self.e.extents, **{a: n for a, n, _ in combination}}
            total += math.prod(c for _, _, c in combination) * self.e.instruction.cycles(extents, self.e.fields)
        return total


def box_of(e: Emitted, name: str, ranges: Mapping[str, Range]) -> tuple[tuple[int, int, int, int], ...]:
    """Return the tile of an operand that a step accesses: for each dimension the first element, the count, and the
    filled elements before and after."""
    operand: Any = e.operands[name]
    before = operand.before if isinstance(operand, Operand) else (0,) * operand.ndim
    box = []
    for d, size, pad in zip(e.instruction.accesses[name], operand.shape, before, strict=True):
        begin, end = d.range(ranges, e.fields)
        begin, end = begin - pad, end - pad
        first, last = min(max(begin, 0), size), max(min(end, size), 0)
        last = max(first, last)
        lead = min(max(0, -begin), end - begin)
        box.append((first, last - first, lead, end - begin - lead - (last - first)))
    return tuple(box)
