"""Where pieces of memory stand in one workspace: those that live at the same time never overlap.

The largest come first, each into the tightest gap that is left (Sekiyama et al., "Profile-guided memory optimization for deep neural networks", 2018).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

ALIGNMENT: Final = 64


class Living(Protocol):
    """So many bytes, needed from the step `birth` to the step `death`."""

    @property
    def nbytes(self) -> Any: ...
    @property
    def birth(self) -> int: ...
    @property
    def death(self) -> int: ...


def place_pieces(pieces: Sequence[Living]) -> tuple[list[int], int]:
    """The offset of each piece, and the bytes of the workspace."""
    clashes = _clashes(pieces)
    offsets = [-1] * len(pieces)
    total = 0
    for k in sorted(range(len(pieces)), key=lambda k: -pieces[k].nbytes):
        size = _aligned(pieces[k].nbytes)
        taken = sorted((offsets[c], offsets[c] + _aligned(pieces[c].nbytes)) for c in clashes[k] if offsets[c] >= 0)
        offsets[k] = _best_gap(taken, size)
        total = max(total, offsets[k] + size)
    return offsets, total


def _clashes(pieces: Sequence[Living]) -> list[list[int]]:
    """For each piece, those that live at the same time."""
    found: list[list[int]] = [[] for _ in pieces]
    alive: list[int] = []
    for k in sorted(range(len(pieces)), key=lambda k: pieces[k].birth):
        alive = [a for a in alive if pieces[a].death >= pieces[k].birth]
        for a in alive:
            found[a].append(k)
            found[k].append(a)
        alive.append(k)
    return found


def _best_gap(taken: Sequence[tuple[int, int]], size: int) -> int:
    """The start of the smallest gap that holds `size`, else the end."""
    best, room, end = -1, 0, 0
    for begin, stop in taken:
        gap = begin - end
        if gap >= size and (best < 0 or gap < room):
            best, room = end, gap
        end = max(end, stop)
    return end if best < 0 else best


def _aligned(n: int) -> int:
    return max(ALIGNMENT, -(-n // ALIGNMENT) * ALIGNMENT)
