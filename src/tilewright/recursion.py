"""Python's recursion limit, raised while a deep program is walked.

The limit belongs to the process, and several threads may walk programs at once: what they need is added up under a lock.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_FRAMES: Final = 24
"""Python frames that one level may take: a visit, the class's method, the subclass's, and what these call."""
KERNEL: Final = 500
"""Levels that the expressions of a kernel may have: fusion bounds the operators of one, and an operator has a few."""


class _Depth:
    """The recursion limit of the process, which all threads share: raised by what all running walks need together."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
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

    def forked(self) -> None:
        """A child process has one thread, and nobody else there opens the lock; its limit stays as deep as it was."""
        self.lock = threading.Lock()


_DEPTH: Final = _Depth()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_DEPTH.forked)


@contextmanager
def room_for(levels: int) -> Iterator[None]:
    """Let Python calls nest as deep as a program of so many levels: nodes of a graph, or statements inside one another."""
    frames = _FRAMES * levels
    _DEPTH.begin(frames)
    try:
        yield
    finally:
        _DEPTH.end(frames)
