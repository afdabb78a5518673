"""Constants of a program, in one block of memory that becomes part of the artifact."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.errors import InternalError
from tilewright.base.nd import aligned_empty

Array = np.ndarray[Any, Any]
Pack = Callable[..., Array]
_ALIGNMENT: Final = 64
"""Alignment in bytes: a cache line, and the widest vector."""


class ConstantPool:
    """Constants of the artifact: each packed once, at multiples of 64 bytes."""

    def __init__(self) -> None:
        self.offsets: dict[tuple[tuple[int, ...], Pack | None], int] = {}
        self.pending: list[tuple[int, int, Pack | None, Sequence[Array]]] = []
        self.size = 0

    def add(self, values: tuple[Array, ...], pack: Pack | None, nbytes: int) -> int:
        """Return the offset of `pack(*values)`, or of a single value unpacked; `nbytes` is its size."""
        key = (tuple(map(id, values)), pack)
        found = self.offsets.get(key)
        if found is None:
            found = self.offsets[key] = self.size
            self.pending.append((found, nbytes, pack, values))
            self.size += _aligned(nbytes)
        return found

    def blob(self) -> Array:
        """Return all constants in one array, 64-byte aligned. Each array is released once it is written, the largest
        first."""
        blob = aligned_empty((self.size,))
        self.pending.sort(key=lambda one: sum(v.nbytes for v in one[3]))
        while self.pending:
            offset, nbytes, pack, values = self.pending.pop()
            array = values[0] if pack is None else pack(*values)
            if array.nbytes != nbytes:
                raise InternalError(f"a packed constant has {array.nbytes} bytes, and its kernel reads {nbytes}")
            blob[offset : offset + nbytes].view(array.dtype).reshape(array.shape)[...] = array
            blob[offset + nbytes : offset + _aligned(nbytes)] = 0  # equal models give equal files
        return blob


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
