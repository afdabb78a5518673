"""Where pieces of memory stand in one workspace: those that live at the same time never overlap.

The largest come first, each into the tightest gap that is left (Sekiyama et al., "Profile-guided memory optimization for deep neural networks", 2018).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol

ALIGNMENT: Final = 64
_TRIES: Final = 400
"""Orders that are tried at random before a workspace counts as too small."""


class Living(Protocol):
    """So many bytes, needed from the step `birth` to the step `death`."""

    @property
    def nbytes(self) -> Any: ...
    @property
    def birth(self) -> int: ...
    @property
    def death(self) -> int: ...


def place_pieces(pieces: Sequence[Living], limit: int | None = None) -> tuple[list[int], int]:
    """The offset of each piece, and the bytes of the workspace.

    Where that is more than `limit`, the pieces are placed in other orders, until they fit or many were tried; the smallest workspace counts.
    No order can do with less than `peak_bytes`.
    """
    clashes = _clashes(pieces)
    best = _placed(pieces, clashes, sorted(range(len(pieces)), key=lambda k: -pieces[k].nbytes))
    if limit is None or best[1] <= limit or peak_bytes(pieces) > limit:
        return best
    for order in _orders(pieces):
        best = min(best, _placed(pieces, clashes, order), key=lambda found: found[1])
        if best[1] <= limit:
            break
    return best


def alive_bytes(pieces: Sequence[Living], step: int) -> int:
    """The bytes of the pieces that live at a step, each with what follows it up to the next multiple of the alignment."""
    return sum(_aligned(p.nbytes) for p in pieces if p.birth <= step <= p.death)


def peak_bytes(pieces: Sequence[Living]) -> int:
    """The bytes of the pieces that live at the same time, at the step where these are most."""
    return max((alive_bytes(pieces, step) for step in {p.birth for p in pieces}), default=0)


def _orders(pieces: Sequence[Living]) -> Iterator[list[int]]:
    """Orders in which pieces may fit better: by what they take of memory and time, by time alone, then the first with some pieces moved."""
    known = range(len(pieces))
    yield sorted(known, key=lambda k: -pieces[k].nbytes * (1 + pieces[k].death - pieces[k].birth))
    yield sorted(known, key=lambda k: (pieces[k].birth, -pieces[k].nbytes))
    yield sorted(known, key=lambda k: (-pieces[k].death, -pieces[k].nbytes))
    yield sorted(known, key=lambda k: (pieces[k].birth - pieces[k].death, -pieces[k].nbytes))
    chance = random.Random(0)
    for _ in range(_TRIES):
        spread = chance.choice((0.2, 0.5, 1.0))
        yield sorted(known, key=lambda k: -pieces[k].nbytes * (1 + spread * (chance.random() - 0.5)))


def _placed(pieces: Sequence[Living], clashes: Sequence[Sequence[int]], order: Sequence[int]) -> tuple[list[int], int]:
    """The offsets when the pieces are placed in this order."""
    offsets = [-1] * len(pieces)
    total = 0
    for k in order:
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
