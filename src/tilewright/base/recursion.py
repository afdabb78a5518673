"""Python's recursion limit, raised while a deep program is walked.

The limit belongs to the process, and several threads may walk programs at once: what they need is added up under a
lock.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tilewright.base.forks import new_lock

_FRAMES: Final = 24
"""Python frames that one level may take: a visit, the class's method, the subclass's, and what these call."""
KERNEL: Final = 500
"""Levels that the expressions of a kernel may have: fusion bounds the operators of one, and an operator has a few."""


class _Depth:
    """The recursion limit of the process, which all threads share: raised by what all running walks need together."""

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
