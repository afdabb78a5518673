"""Memory that is mapped for one array, and goes back to the system with it.

The C library keeps the memory of freed arrays of up to 32 MiB. Memory of large arrays that live for some calls is
therefore mapped here, in huge pages where the system has them.
"""

from __future__ import annotations

import mmap
from math import prod
from typing import Any, Final

import numpy as np

from tilewright.base.nd import aligned_empty, under_sanitizer

Array = np.ndarray[Any, Any]

LEAST_MAPPED: Final = 4 << 20
"""The least number of bytes for which memory is mapped."""
HUGE_PAGE: Final = 2 << 20
_PRIVATE: Final = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_ANONYMOUS") else {}


def map_memory(nbytes: int) -> mmap.mmap:
    """Map zeroed memory for `nbytes` bytes from the beginning of a huge page. Raises `MemoryError`."""
    try:
        block = mmap.mmap(-1, -(-nbytes // HUGE_PAGE) * HUGE_PAGE + HUGE_PAGE, **_PRIVATE)
    except OSError as error:
        raise MemoryError(f"{nbytes} bytes") from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        block.madvise(mmap.MADV_HUGEPAGE)
    return block


def room_of(block: mmap.mmap) -> int:
    """Return the number of bytes that mapped memory has from the beginning of a huge page."""
    return len(block) - HUGE_PAGE


def array_in(block: mmap.mmap, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return a flat array of the elements of `shape` in mapped memory, from the beginning of its first huge page."""
    start = -np.frombuffer(block, np.uint8, 1).__array_interface__["data"][0] % HUGE_PAGE
    return np.frombuffer(block, dtype, prod(shape), start)


def workspace_memory(nbytes: int) -> Array:
    """Return undefined bytes for a workspace. Raises `MemoryError`."""
    if nbytes < LEAST_MAPPED or under_sanitizer():
        return aligned_empty((nbytes,))
    return array_in(map_memory(nbytes), (nbytes,), np.dtype(np.uint8))
