"""Algorithms that place buffers in memory pools, registered under TVM's names `tir.usmp.algo.…`.

A program can register its own: a function of the buffers and of the size that they need at the same time, which returns
a place for each buffer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from tilewright.base.errors import OptionError
from tilewright.base.global_functions import register_func
from tilewright.base.memory_placement import round_up
from tilewright.tir.usmp.utils import BufferInfo, PoolAllocation

Places = dict[BufferInfo, PoolAllocation]
_ATTEMPTS: Final = 200
"""Number of orders that `hill_climb` tries without progress."""


def _no_pool(buffer: BufferInfo) -> OptionError:
    return OptionError(
        "TVM USMP Error: the space available in the provided pools exceeded when trying to allocate the buffer "
        f"'{buffer.name_hint}' of {buffer.size_bytes} bytes; enlarge size_hint_bytes of one of the pools "
        f"{', '.join(p.pool_name for p in buffer.pool_candidates) or '(no pool)'}", code="TW0204")


def _end(buffer: BufferInfo, place: PoolAllocation) -> int:
    return place.byte_offset.value + buffer.size_bytes.value


def _aligned(offset: int, buffer: BufferInfo) -> int:
    return round_up(offset, buffer.alignment.value)


def _place(
    buffer: BufferInfo, placed: Places, offset_in: Callable[[BufferInfo, list[tuple[int, int]]], int]
) -> PoolAllocation:
    """Return the place in the first pool with enough room; `offset_in` gives it among the places of conflicting
    buffers. Raises `OptionError` if no pool has room."""
    for pool in buffer.pool_candidates:
        taken = sorted(
            (placed[c].byte_offset.value, _end(c, placed[c])) for c in buffer.conflicts
            if c in placed and placed[c].pool_info == pool)
        offset = offset_in(buffer, taken)
        limit: int = pool.size_hint_bytes
        if limit < 0 or offset + buffer.size_bytes.value <= limit:
            return PoolAllocation(pool, offset)
    raise _no_pool(buffer)


def _behind(buffer: BufferInfo, taken: list[tuple[int, int]]) -> int:
    """Return the offset behind all places that are taken."""
    return _aligned(max((end for _, end in taken), default=0), buffer)


def _first_gap(buffer: BufferInfo, taken: list[tuple[int, int]]) -> int:
    """Return the lowest offset of a gap that is large enough."""
    offset = 0
    for start, end in taken:
        if offset + buffer.size_bytes.value <= start:
            break
        offset = max(offset, _aligned(end, buffer))
    return offset


def _in_order(
    buffers: Iterable[BufferInfo], offset_in: Callable[[BufferInfo, list[tuple[int, int]]], int]
) -> Places:
    placed: Places = {}
    for b in buffers:
        placed[b] = _place(b, placed, offset_in)
    return placed


def _by_size(b: BufferInfo) -> tuple[int, int, str]:
    return b.size_bytes.value, len(b.conflicts), b.name_hint


@register_func("tir.usmp.algo.greedy_by_size")
def greedy_by_size(buffer_info_arr: Sequence[BufferInfo], memory_pressure: int) -> Places:
    """Place the largest buffers first, each behind those that conflict with it. Raises `OptionError` if the pools have
    no room; `memory_pressure`, the bytes that are live at the same time, has no effect."""
    return _in_order(sorted(buffer_info_arr, key=_by_size, reverse=True), _behind)


@register_func("tir.usmp.algo.greedy_by_conflicts")
def greedy_by_conflicts(buffer_info_arr: Sequence[BufferInfo], memory_pressure: int) -> Places:
    """Place the buffers with the most conflicts first, each behind those that conflict with it. Raises `OptionError` if
    the pools have no room; `memory_pressure` has no effect."""
    return _in_order(
        sorted(buffer_info_arr, key=lambda b: (len(b.conflicts), b.size_bytes.value, b.name_hint), reverse=True),
        _behind)


@register_func("tir.usmp.algo.hill_climb")
def hill_climb(buffer_info_arr: Sequence[BufferInfo], memory_pressure: int) -> Places:
    """Place buffers in the lowest gaps, the largest first; then exchange pairs in this order while the pools get
    smaller, or until they need only `memory_pressure` bytes. Raises `OptionError` if the pools have no room."""
    order = sorted(buffer_info_arr, key=_by_size, reverse=True)
    best = _in_order(order, _first_gap)
    generator, attempts = random.Random(0), 0
    while attempts < _ATTEMPTS and len(order) > 1 and _sizes(best) > memory_pressure:
        attempts += 1
        a, b = generator.sample(range(len(order)), 2)
        order[a], order[b] = order[b], order[a]
        try:
            found = _in_order(order, _first_gap)
        except OptionError:
            found = None
        if found is None or _sizes(found) > _sizes(best):
            order[a], order[b] = order[b], order[a]
        else:
            attempts = attempts if _sizes(found) == _sizes(best) else 0
            best = best if _sizes(found) == _sizes(best) else found
    return best


def _sizes(places: Places) -> int:
    """Return the bytes that all pools need together."""
    ends: dict[str, int] = {}
    for b, place in places.items():
        pool = place.pool_info.pool_name
        ends[pool] = max(ends.get(pool, 0), _end(b, place))
    return sum(ends.values())


__all__ = ["greedy_by_conflicts", "greedy_by_size", "hill_climb"]
