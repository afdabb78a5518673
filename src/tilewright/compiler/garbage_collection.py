"""Garbage collection while compiling: none."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tilewright.base.forks import new_lock

MOST_UNCOLLECTED: Final = 500_000
"""Objects that may be made without a collection where compiles of several threads follow each other without a pause."""


class _Compiles:
    """How many compiles run in the process, and whether collection was enabled before the first of them."""

    def __init__(self) -> None:
        self.lock = new_lock()
        self.running: list[int] = []  # the thread of each
        self.enabled = False

    def begin(self) -> None:
        with self.lock:
            if not self.running:
                self.enabled = gc.isenabled()
                gc.disable()
            self.running.append(threading.get_ident())

    def end(self) -> None:
        with self.lock:
            self.running.remove(threading.get_ident())
            if not self.running and self.enabled:
                gc.enable()
            is_late = bool(self.running) and self.enabled and gc.get_count()[0] > MOST_UNCOLLECTED
        if is_late:
            gc.collect()

    def forked(self) -> None:
        """A child process has one thread: the compiles of the others ended with them."""
        mine = [t for t in self.running if t == threading.get_ident()]
        if self.running and not mine and self.enabled:
            gc.enable()
        self.running = mine


_COMPILES = _Compiles()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_COMPILES.forked)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Compiling makes no cycles worth collecting, and collecting costs a third of the time. Collection goes on when the last compile ends."""
    _COMPILES.begin()
    try:
        yield
    finally:
        _COMPILES.end()
