"""Drops candidate parts that cannot help if a larger part costs no more than the smaller ones of its target in it.

    {a}, {b}, {a, b} of one target, {b} of another   ->   {a, b}, {b} of the other one, and {a}, which that leaves
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.relay.collage.candidates import Candidate


def largest(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the largest candidates of each target, and the largest ones inside what is left of a candidate where
    another one overlaps it, so that every call can still be computed once."""
    calls: dict[object, int] = {}
    for c in candidates:
        for e in c.calls:
            calls.setdefault(e, len(calls))
    masks = [sum(1 << calls[e] for e in c.calls) for c in candidates]
    kept: set[int] = set()
    waiting = _largest_inside(candidates, masks, (1 << len(calls)) - 1)
    known: set[int] = set()
    while waiting:
        new = waiting.pop()
        if new in kept:
            continue
        for other in kept:
            common = masks[other] & masks[new]
            inside = common in (masks[other], masks[new]) and candidates[other].target == candidates[new].target
            for rest in (masks[other] & ~common, masks[new] & ~common) if common and not inside else ():
                if rest and rest not in known:
                    known.add(rest)
                    waiting += _largest_inside(candidates, masks, rest)
        kept.add(new)
    return [c for k, c in enumerate(candidates) if k in kept]


def _largest_inside(candidates: Sequence[Candidate], masks: Sequence[int], within: int) -> list[int]:
    """Return the numbers of the candidates of each target that have calls of `within` only and are inside no other such
    candidate of the target."""
    found: dict[str, list[int]] = {}
    for k in sorted((k for k, mask in enumerate(masks) if not mask & ~within), key=lambda k: -masks[k].bit_count()):
        own = found.setdefault(candidates[k].target, [])
        if not any(masks[k] != masks[larger] and not masks[k] & ~masks[larger] for larger in own):
            own.append(k)
    return [k for own in found.values() for k in own]
