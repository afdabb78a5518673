"""Memory that kernels take for themselves while they run: how much of a thread's stack, and how much of the C library.

The manifest of a program has the maximum over its kernels. Before a run, the stack of the calling thread is checked;
worker threads have stacks that are large enough. Where the C library refuses memory, a kernel counts that in its
context and returns; the caller sees from the count that the results are invalid.
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
"""The byte of a context where the count of refused requests is, an int64."""
ALWAYS_THERE: Final = 16 << 10
"""Bytes of stack that are not asked for."""
BESIDE: Final = 64 << 10
"""Bytes of stack for what stands between the one who asks and the kernel, and for registers."""


@dataclass(frozen=True, slots=True)
class Scratch:
    """Bytes that a kernel takes of each thread's `stack`, and of the C library (`heap`), where open sizes count as one
    byte each; `kernel` says which."""

    stack: int = 0
    heap: int = 0
    kernel: str = ""

    def lacking(self, name: str) -> RunError:
        """What is said where the C library has no memory for it."""
        size = f"{shown_bytes(self.heap)} for each thread" if self.heap >= 64 else "as much as its sizes ask for"
        return RunError(
            f"there is too little memory for the scratch buffers of '{name}': {self.kernel} needs the most, {size}; "
            "use smaller sizes, or fewer threads", code="TW0710")


NOTHING: Final = Scratch()


def most(found: Iterable[Scratch]) -> Scratch:
    """The most stack and the most heap of any of these, with the name of the one that takes most in all."""
    every = [*found]
    largest = max(every, key=lambda s: s.stack + s.heap, default=Scratch())
    return Scratch(
        max((s.stack for s in every), default=0), max((s.heap for s in every), default=0),
        largest.kernel if largest.stack + largest.heap else "")


def refused(context: int) -> int:
    """How often kernels of this context were refused memory."""
    return ctypes.c_int64.from_address(context + REFUSED_AT).value


_USUAL: Final = 384 << 10
_ROOM: Final = threading.local()


def check_stack(name: str, scratch: Scratch) -> None:
    """Raise `RunError` where the stack of this thread has no room for a kernel of the program `name`."""
    room: int | None = getattr(_ROOM, "bytes", None)
    if room is None:
        room = _ROOM.bytes = stack_room()
    if scratch.stack + BESIDE > room:
        raise RunError(
            f"the stack of this thread has {shown_bytes(room)} for kernels, and '{name}' takes "
            f"{shown_bytes(scratch.stack + BESIDE)} of it in {scratch.kernel}; "
            "call it from a thread with a larger stack (threading.stack_size, ulimit -s)", code="TW0711")


def stack_room() -> int:
    """Bytes of this thread's stack that kernels may count on: three quarters of it; where the system does not say,
    what threads have at least."""
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
