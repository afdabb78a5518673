"""Memory of large outputs, which later calls of a program use again.

    call 1 makes an output of 16 MiB; the caller drops it;  call 2 makes one of 15 MiB
    ->  call 2 has the memory of call 1, without faults and zeroed pages; after `PATIENCE` calls without need for it,
        the memory goes back to the system

The C library does neither: it returns arrays of more than 32 MiB at once, so that each call gets them page by page from
the system, and keeps smaller ones for as long as the process lives.
"""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Callable
from math import prod
from typing import Any, Final

import numpy as np

from tilewright.base.forks import new_lock
from tilewright.base.mapped_memory import LEAST_MAPPED, array_in, map_memory, room_of
from tilewright.base.nd import under_sanitizer

Array = np.ndarray[Any, Any]

PATIENCE: Final = 16
"""Number of calls after which unused memory is returned."""
_MOST_WASTE: Final = 2
"""Factor by which memory that is used again may exceed the output."""


class OutputMemory:
    """The free memory of large outputs of a program. Safe to use from several threads."""

    def __init__(self) -> None:
        self.free: list[tuple[int, mmap.mmap]] = []
        """Memory that no array uses, each with the number of calls before it became free."""
        self._calls = 0
        self._lock = new_lock()

    def maker(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Callable[..., Array]:
        """Return the function that makes an output of this shape and dtype: `empty` if it is large, or numpy's."""
        nbytes = prod(shape) * dtype.itemsize
        return np.empty if nbytes < LEAST_MAPPED or dtype.hasobject or under_sanitizer() else self.empty

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return an undefined array in free memory, or in new memory. Raises `MemoryError`."""
        nbytes = prod(shape) * dtype.itemsize
        block = self._taken(nbytes) or map_memory(nbytes)
        flat = array_in(block, shape, dtype)
        weakref.finalize(flat, self._give, block).atexit = False
        return flat.reshape(shape)

    def end_call(self) -> None:
        """Count a call, and return memory that the last `PATIENCE` calls did not need to the system."""
        with self._lock:
            self._calls += 1
            self.free = [entry for entry in self.free if entry[0] + PATIENCE > self._calls]

    def _taken(self, nbytes: int) -> mmap.mmap | None:
        """Remove the smallest free memory that has `nbytes`, and not far more, and return it."""
        with self._lock:
            usable = [e for e in self.free if nbytes <= room_of(e[1]) <= _MOST_WASTE * nbytes]
            if not usable:
                return None
            found = min(usable, key=lambda entry: len(entry[1]))
            self.free.remove(found)
            return found[1]

    def _give(self, block: mmap.mmap) -> None:
        """Take back the memory of an array that is gone. Takes no lock, since a garbage collection may call it while
        this thread holds the lock."""
        self.free.append((self._calls, block))
