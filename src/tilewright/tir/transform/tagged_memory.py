"""Put the values in one special memory, a scope with a tag such as `local.L0A` or `global:tag`, into one allocation.

    a = T.allocate((8,), scope="global:tag")                  a = T.allocate((16,), scope="global:tag")
    b = T.allocate((8,), scope="global:tag")          ->      a[i] = A[i]
    a[i] = A[i];  b[i] = a[i] + a[0]                          a[8 + i] = a[i] + a[0]

Values of several types are several allocations. Each value begins at a multiple of 32 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.scalar.expr import Buffer, PrimExpr, add, broadcast, const
from tilewright.tir.stmt import Stmt, redirect

_RANKS: Final = ("global", "shared", "warp", "local")
_PLAIN: Final = ("", ".dyn", ".vtcm", ".workspace")
_ALIGNMENT: Final = 32
"""Bits."""


def is_tagged(scope: str) -> bool:
    """Return whether a scope is a special memory, with one allocation for all its values."""
    rank = next((r for r in _RANKS if scope.startswith(r)), None)
    tag = "" if rank is None else scope.removeprefix(rank)
    return tag not in _PLAIN and not tag.startswith(".texture")


def merged(buffers: Sequence[Buffer]) -> tuple[list[Buffer], dict[Buffer, tuple[Buffer, int]]]:
    """Return the buffers to be allocated in place of `buffers`, and the allocation and the offset in elements of each
    value in special memory."""
    groups: dict[tuple[object, ...], list[Buffer]] = {}
    for b in buffers:
        fixed = is_tagged(b.scope) and len(b.shape) == 1 and isinstance(b.shape[0], int)
        groups.setdefault((b.scope, b.dtype) if fixed else (b,), []).append(b)
    made: list[Buffer] = []
    places: dict[Buffer, tuple[Buffer, int]] = {}
    for group in groups.values():
        whole, offsets = _together(group)
        made.append(whole)
        places |= {b: (whole, at) for b, at in zip(group, offsets, strict=True) if b is not whole}
    return made, places


def _together(group: Sequence[Buffer]) -> tuple[Buffer, list[int]]:
    """Return one buffer for several, and the first element of each."""
    first = group[0]
    if len(group) == 1:
        return first, [0]
    bits = first.dtype.bits * first.dtype.lanes
    unit = max(1, _ALIGNMENT // bits)
    offsets, end = list[int](), 0
    for b in group:
        start = -(-end // unit) * unit
        offsets.append(start)
        end = start + b.shape[0]
    return Buffer(first.name, (end,), first.dtype, first.scope), offsets


def at_offset(body: Stmt, old: Buffer, new: Buffer, offset: int) -> Stmt:
    """Replace a value by the part of an allocation from `offset` elements on."""

    def shifted(indices: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        (i,) = indices
        return (add(i, broadcast(const(offset, i.dtype.element), i.dtype.lanes)),)

    return redirect(body, old, new, shifted)


__all__ = ["at_offset", "is_tagged", "merged"]
