"""Suspension of Python's cyclic garbage collection while a program is compiled or loaded, or modules are imported."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tilewright.base.forks import new_lock

FEWEST_UNCOLLECTED, MOST_UNCOLLECTED = 20_000, 500_000
"""Limits of the number of uncollected objects above which the end of a compile triggers a collection."""


class _Compiles:
    """The running compiles of the process, and whether collection was enabled before the first."""

    def __init__(self) -> None:
        self.lock = new_lock()
        self.running: list[int] = []  # the thread of each
        self.enabled = False
        self.left = 0
        """Number of objects that compiles have left since the last collection here."""
        self.most_left = FEWEST_UNCOLLECTED
        """Number of them above which the next collection is due: that of all objects after the last collection.
        Collections then take a constant share of the time of compiles, and the first compile, which imports most
        modules, is followed by one: Python itself would start it in some later call of the program."""

    def begin(self) -> None:
        with self.lock:
            if not self.running:
                self.enabled = gc.isenabled()
                gc.disable()
            self.running.append(threading.get_ident())

    def end(self) -> None:
        with self.lock:
            self.running.remove(threading.get_ident())
            left = self.left + gc.get_count()[0]
            is_late = self.enabled and left > self.most_left
            if is_late or not self.running:
                self.left = 0 if is_late else left
            if not self.running and self.enabled:
                _age()
                gc.enable()
        if is_late:
            gc.collect()
            _return_memory()
            self.most_left = min(max(len(gc.get_objects()), FEWEST_UNCOLLECTED), MOST_UNCOLLECTED)

    def forked(self) -> None:
        """Forget the compiles of other threads in a child process, which has one thread."""
        mine = [t for t in self.running if t == threading.get_ident()]
        if self.running and not mine and self.enabled:
            gc.enable()
        self.running = mine


def _age() -> None:
    """Move all objects to the oldest generation, so that no collection of young objects walks through those that a
    compile has left. Objects that the program has frozen stay frozen; the young ones are then collected instead."""
    if gc.get_freeze_count():
        gc.collect(1)
    else:
        gc.freeze()
        gc.unfreeze()


def _return_memory() -> None:
    """Return free memory to the system. The GNU C library keeps what the compiler has freed: some 35 MB after a network
    of 12 layers."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))


_COMPILES = _Compiles()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_COMPILES.forked)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Suspend collection until the last running compile ends. Compiling makes few cycles, and collecting takes a third
    of its time."""
    _COMPILES.begin()
    try:
        yield
    finally:
        _COMPILES.end()
