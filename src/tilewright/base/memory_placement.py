"""Placement of live ranges in one workspace: ranges that are live at the same time never overlap.

The largest ranges come first, each into the tightest gap that is left (Sekiyama et al., "Profile-guided memory
optimization for deep neural networks", 2018).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol

ALIGNMENT: Final = 64
_TRIES: Final = 400
"""Number of random orders that are tried before a workspace counts as too small."""


class LiveRange(Protocol):
    """`nbytes` bytes, live from step `birth` through `death`."""

    @property
    def nbytes(self) -> Any: ...
    @property
    def birth(self) -> int: ...
    @property
    def death(self) -> int: ...


def place_pieces(pieces: Sequence[LiveRange], limit: int | None = None) -> tuple[list[int], int]:
    """Return the offset of each live range, and the size of the workspace in bytes.

    Above `limit`, other orders are tried until one fits, and the smallest workspace is returned. None is below
    `peak_bytes`.
    """
    sizes, clashes = [p.nbytes for p in pieces], find_clashes(pieces)
    best = place_sizes(sizes, clashes)
    if limit is None or best[1] <= limit or peak_bytes(pieces) > limit:
        return best
    for order in _orders(pieces):
        best = min(best, _placed(sizes, clashes, order), key=lambda found: found[1])
        if best[1] <= limit:
            break
    return best


def place_sizes(sizes: Sequence[int], clashes: Sequence[Sequence[int]]) -> tuple[list[int], int]:
    """Return the offset of each live range of these sizes, the largest first, and the size of the workspace."""
    return _placed(sizes, clashes, sorted(range(len(sizes)), key=lambda k: -sizes[k]))


def ranges_below(offsets: Sequence[int], clashes: Sequence[Sequence[int]]) -> list[tuple[int, list[int]]]:
    """Return each live range of a placement, from the lowest, and the ranges directly below it that are live at the
    same time. `stack_sizes` places other sizes in this order."""
    order = sorted(range(len(offsets)), key=lambda k: (offsets[k], k))
    rank = {k: at for at, k in enumerate(order)}
    found: list[tuple[int, list[int]]] = []
    for k in order:
        direct: list[int] = []
        for c in sorted((c for c in clashes[k] if rank[c] < rank[k]), key=rank.__getitem__, reverse=True):
            if not any(c in clashes[d] for d in direct):  # else it is below that range
                direct.append(c)
        found.append((k, direct))
    return found


def stack_sizes(sizes: Sequence[int], below: Sequence[tuple[int, Sequence[int]]]) -> tuple[list[int], int]:
    """Place live ranges of these sizes, each directly above those of `ranges_below`; return the offsets and the size of
    the workspace. This takes a tenth of the time of `place_sizes`."""
    offsets, ends = [0] * len(sizes), [0] * len(sizes)
    for k, under in below:
        at = offsets[k] = max([ends[u] for u in under]) if under else 0
        ends[k] = at + (-(-sizes[k] // ALIGNMENT) * ALIGNMENT or ALIGNMENT)
    return offsets, max(ends, default=0)


def alive_bytes(pieces: Sequence[LiveRange], step: int) -> int:
    """Return the bytes that are live at a step, each range rounded up to the alignment."""
    return sum(_aligned(p.nbytes) for p in pieces if p.birth <= step <= p.death)


def peak_bytes(pieces: Sequence[LiveRange]) -> int:
    """Return the largest number of bytes that are live at one step."""
    return max((alive_bytes(pieces, step) for step in {p.birth for p in pieces}), default=0)


def _orders(pieces: Sequence[LiveRange]) -> Iterator[list[int]]:
    """Yield orders of placement: by bytes times steps, by steps only, then by bytes with random changes."""
    known = range(len(pieces))
    yield sorted(known, key=lambda k: -pieces[k].nbytes * (1 + pieces[k].death - pieces[k].birth))
    yield sorted(known, key=lambda k: (pieces[k].birth, -pieces[k].nbytes))
    yield sorted(known, key=lambda k: (-pieces[k].death, -pieces[k].nbytes))
    yield sorted(known, key=lambda k: (pieces[k].birth - pieces[k].death, -pieces[k].nbytes))
    chance = random.Random(0)
    for _ in range(_TRIES):
        spread = chance.choice((0.2, 0.5, 1.0))
        yield sorted(known, key=lambda k: -pieces[k].nbytes * (1 + spread * (chance.random() - 0.5)))


def _placed(
    sizes: Sequence[int], clashes: Sequence[Sequence[int]], order: Sequence[int]
) -> tuple[list[int], int]:
    """Place the ranges in this order; return the offsets and the size of the workspace."""
    offsets, ends = [-1] * len(sizes), [-1] * len(sizes)
    total = 0
    for k in order:
        size = _aligned(sizes[k])
        taken = sorted((offsets[c], ends[c]) for c in clashes[k] if offsets[c] >= 0)
        offsets[k] = _best_gap(taken, size)
        ends[k] = offsets[k] + size
        total = max(total, ends[k])
    return offsets, total


def find_clashes(pieces: Sequence[LiveRange]) -> list[list[int]]:
    """Return, for each range, the ranges that are live at the same time."""
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
    """Return the start of the smallest gap that holds `size`, else the end."""
    best, room, end = -1, 0, 0
    for begin, stop in taken:
        gap = begin - end
        if gap >= size and (best < 0 or gap < room):
            best, room = end, gap
        end = max(end, stop)
    return end if best < 0 else best


def _aligned(n: int) -> int:
    return max(ALIGNMENT, round_up(n, ALIGNMENT))


def round_up(n: int, multiple: int) -> int:
    """Return the least multiple of `multiple` that is at least `n`."""
    return -(-n // multiple) * multiple
