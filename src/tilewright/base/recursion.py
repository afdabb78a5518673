"""Python's recursion limit, raised while a deep program is traversed.

The limit belongs to the process, and several threads may traverse programs at once, so their needs are summed under a
lock.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tilewright.base.forks import new_lock

_FRAMES: Final = 24
"""Number of Python frames per level: a visit, the method of the class and of its subclass, and their callees."""
KERNEL: Final = 500
"""Number of nesting levels allowed in a kernel's expressions; fusion bounds the operators of a kernel."""


class _Depth:
    """Raises the recursion limit of the process by the sum of the frames that all running traversals need."""

    def __init__(self) -> None:
        self.lock = new_lock()
        self.running = 0
        self.usual = 0

    def begin(self, frames: int) -> None:
        with self.lock:
            if not self.running:
                self.usual = sys.getrecursionlimit()
            self.running += 1
            sys.setrecursionlimit(sys.getrecursionlimit() + frames)

    def end(self, frames: int) -> None:
        with self.lock:
            self.running -= 1
            sys.setrecursionlimit(sys.getrecursionlimit() - frames if self.running else self.usual)


_DEPTH: Final = _Depth()


@contextmanager
def room_for(levels: int) -> Iterator[None]:
    """Raise the recursion limit for a program of `levels` levels, which are nodes of a graph or nested statements."""
    frames = _FRAMES * levels
    _DEPTH.begin(frames)
    try:
        yield
    finally:
        _DEPTH.end(frames)
