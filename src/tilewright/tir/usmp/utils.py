"""Buffers to be placed in memory pools, and their places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.ir.memory_pools import PoolInfo
from tilewright.scalar.expr import IntImm, Value, as_expr

CANDIDATE_MEMORY_POOL_ATTR: Final = "candidate_memory_pools"
"""Key of the annotation of an allocation with the pools that it may be placed in."""
INPUT: Final = "input_tensor"
"""Key of the annotation of an allocation with the name of the input of a program that it holds."""
OUTPUT: Final = "output_tensor"
"""Key of the annotation with the name of an output."""


def _size(value: Value) -> IntImm:
    found = as_expr(value)
    assert isinstance(found, IntImm)
    return found


class BufferInfo:
    """A buffer of `size_bytes` bytes, which may be placed in one of `pool_candidates`, the preferred one first.

    Its place must not overlap with those of the buffers `conflicts`, which are live at the same time.
    """

    def __init__(
        self, name_hint: str, size_bytes: int, pool_candidates: Sequence[PoolInfo], alignment: int | None = None
    ) -> None:
        self.name_hint, self.pool_candidates = name_hint, tuple(pool_candidates)
        self.size_bytes, self.alignment = _size(size_bytes), _size(alignment or 1)
        self.conflicts: tuple[BufferInfo, ...] = ()

    def set_pool_candidates(self, pool_candidates: Sequence[PoolInfo]) -> None:
        """Replace the pools that the buffer may be placed in."""
        self.pool_candidates = tuple(pool_candidates)

    def set_conflicts(self, conflicts: Sequence[BufferInfo]) -> None:
        """Replace the buffers whose places must not overlap with that of this one."""
        self.conflicts = tuple(conflicts)

    def __repr__(self) -> str:
        return f"BufferInfo({self.name_hint}, {self.size_bytes} bytes, {len(self.conflicts)} conflicts)"


class PoolAllocation:
    """A place: a pool, and the offset from its beginning in bytes."""

    def __init__(self, pool_info: PoolInfo, byte_offset: int) -> None:
        self.pool_info, self.byte_offset = pool_info, _size(byte_offset)

    def __repr__(self) -> str:
        return f"PoolAllocation({self.pool_info.pool_name}, {self.byte_offset})"


__all__ = ["CANDIDATE_MEMORY_POOL_ATTR", "INPUT", "OUTPUT", "BufferInfo", "PoolAllocation"]
