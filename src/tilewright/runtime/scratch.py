"""Scratch memory of kernels while they run: bytes of a thread's stack, and bytes from the C library.

The manifest of a program has the maximum over its kernels. Before a run, the stack of the calling thread is checked;
worker threads have large enough stacks. If the C library refuses memory, a kernel counts the refusal in its context and
returns. The caller detects invalid results by that count.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tilewright.base.errors import RunError
from tilewright.base.limits import shown_bytes

REFUSED_AT: Final = 24
"""Byte offset in a context of the count of refused requests, an int64."""
ALWAYS_THERE: Final = 16 << 10
"""Number of bytes of stack that are assumed without a check."""
BESIDE: Final = 64 << 10
"""Bytes of stack for the frames between the check and the kernel, and for registers."""


@dataclass(frozen=True, slots=True)
class Scratch:
    """Bytes that a kernel takes of each thread's `stack` and of the C library (`heap`). Dynamic sizes count as one
    byte; `kernel` names the kernel."""

    stack: int = 0
    heap: int = 0
    kernel: str = ""

    def lacking(self, name: str) -> RunError:
        """Return the error for a failed allocation by the C library."""
        size = f"{shown_bytes(self.heap)} for each thread" if self.heap >= 64 else "an amount that depends on its sizes"
        return RunError(
            f"there is too little memory for the scratch buffers of '{name}': {self.kernel} needs the most, {size}; "
            "use smaller sizes, or fewer threads", code="TW0710")


NOTHING: Final = Scratch()


def most(found: Iterable[Scratch]) -> Scratch:
    """Return the maximum stack and heap, with the name of the kernel that takes most in total."""
    every = [*found]
    largest = max(every, key=lambda s: s.stack + s.heap, default=Scratch())
    return Scratch(
        max((s.stack for s in every), default=0), max((s.heap for s in every), default=0),
        largest.kernel if largest.stack + largest.heap else "")


def refused(context: int) -> int:
    """Return the number of refused requests of this context's kernels."""
    return ctypes.c_int64.from_address(context + REFUSED_AT).value


_USUAL: Final = 384 << 10
_ROOM: Final = threading.local()


def check_stack(name: str, scratch: Scratch) -> None:
    """Raise `RunError` if this thread's stack has no room for a kernel of the program `name`."""
    room: int | None = getattr(_ROOM, "bytes", None)
    if room is None:
        room = _ROOM.bytes = stack_room()
    if scratch.stack + BESIDE > room:
        raise RunError(
            f"the stack of this thread has {shown_bytes(room)} for kernels, but '{name}' needs "
            f"{shown_bytes(scratch.stack + BESIDE)} in {scratch.kernel}; call it from a thread with a larger stack "
            "(threading.stack_size, ulimit -s)", code="TW0711")


def stack_room() -> int:
    """Return the bytes of this thread's stack that kernels may use: three quarters of it, or of the usual minimum."""
    if sys.platform != "linux":
        return _USUAL
    library = ctypes.CDLL(None)
    attributes = ctypes.create_string_buffer(128)
    library.pthread_self.restype = ctypes.c_void_p
    if library.pthread_getattr_np(ctypes.c_void_p(library.pthread_self()), attributes):
        return _USUAL
    lowest, size = ctypes.c_void_p(), ctypes.c_size_t()
    library.pthread_attr_getstack(attributes, ctypes.byref(lowest), ctypes.byref(size))
    library.pthread_attr_destroy(attributes)
    return size.value * 3 // 4
