"""How an instruction on whole tensors is cut into tiles that fit into the near memory.

All axes of the output may be cut. Candidates are a few sizes of each axis and a few orders of the loops; that with the fewest cycles by
the accelerator's own model is taken, transfers running beside computation: an operand whose tile changes from step to step has two
places, so that the next is there when it is wanted.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tilewright.contrib.accelerator.access import Range
from tilewright.contrib.accelerator.declaration import OUTPUT, Accelerator, Emitted, Operand, Refused

_LONGEST: Final = 0xFFFF
"""Elements along a dimension, as far as commands can say."""
_SIZES: Final = 6
"""Sizes of an axis that are tried."""


@dataclass(frozen=True)
class Tiling:
    """The size of the tiles along each axis, the axes from the outermost loop on, how many places each operand has, and what that costs."""

    sizes: Mapping[str, int]
    order: tuple[str, ...]
    places: Mapping[str, int]
    bytes: Mapping[str, int]
    cycles: int

    @property
    def near(self) -> int:
        """Bytes of the near memory."""
        return sum(self.places[n] * self.bytes[n] for n in self.bytes)

    def steps(self, extents: Mapping[str, int]) -> Iterator[dict[str, Range]]:
        """The ranges of all axes, tile by tile, in order."""
        spans = [[(a, min(a + self.sizes[axis], extents[axis])) for a in range(0, extents[axis], self.sizes[axis])] for axis in self.order]
        whole = {a: (0, n) for a, n in extents.items()}
        for ranges in itertools.product(*spans):
            yield {**whole, **dict(zip(self.order, ranges, strict=True))}


def choose(accelerator: Accelerator, e: Emitted) -> Tiling:
    """The tiling with the fewest cycles. Raises `Refused` where not even the smallest tiles fit."""
    axes = [a for a in dict.fromkeys(e.instruction.cut) if e.extents[a] > 1]
    once = tuple(a for a in dict.fromkeys(e.instruction.cut) if e.extents[a] <= 1)
    search = _Search(accelerator, e)
    best: Tiling | None = None
    smallest = None
    for sizes in itertools.product(*(_sizes(e.extents[a]) for a in axes)):
        tile = {**dict.fromkeys(once, 1), **dict(zip(axes, sizes, strict=True))}
        size_of = search.sizes(tile)
        least = sum(size_of.values())
        smallest = least if smallest is None else min(smallest, least)
        if least > accelerator.near.size or search.too_long(tile):
            continue
        cut = [a for a in axes if tile[a] < e.extents[a]]
        for order in _orders(cut):
            made = search.tiling(tile, (*once, *(a for a in axes if a not in cut), *order), size_of)
            if made is not None and (best is None or made.cycles < best.cycles):
                best = made
    if best is None:
        raise Refused(
            f"the smallest tiles of {e.instruction.name} take {smallest:,} bytes of {accelerator.near.name}, which has {accelerator.near.size:,}",
            f"split the operator's channels, so that its tiles fit into {accelerator.near.size:,} bytes",
        )
    return best


def _sizes(extent: int) -> list[int]:
    """Sizes of a tile that are tried: the axis in one, two, four, … parts, and its smallest parts, of 16 and of one."""
    parts = [-(-extent >> k) for k in range(_SIZES)] + [n for n in (64, 32, 16, 1) if n < extent]
    return sorted(set(parts), reverse=True)


def _orders(cut: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Each axis as the innermost loop once, the others as they are."""
    if not cut:
        yield ()
    for inner in cut:
        yield (*(a for a in cut if a != inner), inner)


class _Search:
    """What is the same for all tilings of one instruction."""

    def __init__(self, accelerator: Accelerator, e: Emitted) -> None:
        self.accelerator, self.e = accelerator, e
        self.items = {n: np.dtype(str(o.dtype)).itemsize for n, o in e.operands.items()}
        self.axes = {n: frozenset(a for d in access for a in d.axes) for n, access in e.instruction.accesses.items()}
        self.times: dict[tuple[int, ...], int] = {}

    def shape(self, name: str, tile: Mapping[str, int]) -> list[int]:
        ranges = {a: (0, tile.get(a, n)) for a, n in self.e.extents.items()}
        spans = (d.range(ranges, self.e.fields) for d in self.e.instruction.accesses[name])
        return [end - begin for begin, end in spans]

    def sizes(self, tile: Mapping[str, int]) -> dict[str, int]:
        """Bytes of a tile of each operand, as the near memory aligns them."""
        align = self.accelerator.near.align
        return {n: -(-math.prod(self.shape(n, tile)) * item // align) * align for n, item in self.items.items()}

    def too_long(self, tile: Mapping[str, int]) -> bool:
        return any(max(self.shape(n, tile), default=0) > _LONGEST for n in self.items)

    def tiling(self, tile: dict[str, int], order: tuple[str, ...], size_of: dict[str, int]) -> Tiling | None:
        """The tiling with its cycles; None where it does not fit."""
        counts = {a: -(-self.e.extents[a] // tile[a]) for a in order}
        steps = math.prod(counts.values())
        places, transfers, first = {}, 0, 0
        for n, size in size_of.items():
            depends = [i for i, a in enumerate(order) if a in self.axes[n] and counts[a] > 1]
            loads = math.prod(counts[a] for a in order[: depends[-1] + 1]) if depends else 1
            places[n] = 2 if loads > 1 else 1
            once = self.accelerator.transfer_cycles(size)
            transfers += loads * once
            first += once
        if sum(places[n] * size_of[n] for n in size_of) > self.accelerator.near.size:
            return None
        compute = self.compute(tile, counts)
        return Tiling(tile, order, places, size_of, max(transfers, compute) + first + compute // steps)

    def compute(self, tile: Mapping[str, int], counts: Mapping[str, int]) -> int:
        """The cycles of all tiles: those of whole ones, and those at the ends of axes."""
        key = tuple(tile.values())
        if key not in self.times:
            total = 0
            kinds = []
            for a, count in counts.items():
                rest = self.e.extents[a] - (count - 1) * tile[a]
                kinds.append([(a, tile[a], count - 1), (a, rest, 1)] if count > 1 and rest != tile[a] else [(a, tile[a], count)])
            for combination in itertools.product(*kinds):
                extents = {**self.e.extents, **{a: n for a, n, _ in combination}}
                total += math.prod(c for _, _, c in combination) * self.e.instruction.cycles(extents, self.e.fields)
            self.times[key] = total
        return self.times[key]


def box_of(e: Emitted, name: str, ranges: Mapping[str, Range]) -> tuple[tuple[int, int, int, int], ...]:
    """What a step reads of an operand, or writes: of each dimension the first element, how many there are, and how many filled ones before and after."""
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


__all__ = ["OUTPUT", "Tiling", "box_of", "choose"]
