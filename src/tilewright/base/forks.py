"""Locks and lazily computed attributes that stay usable in a forked child process while other threads run.

A child process contains only the thread that forked. A lock held by another thread of the parent would never be
released in the child, so locks made here are reset there.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar, overload

T = TypeVar("T")
_LOCKS: weakref.WeakSet[Any] = weakref.WeakSet()
_REENTRANT: weakref.WeakSet[Any] = weakref.WeakSet()


def new_lock() -> threading.Lock:
    """Return a lock that is released in child processes, whichever thread held it. Do not fork while holding it."""
    lock = threading.Lock()
    _LOCKS.add(lock)
    return lock


def new_reentrant_lock() -> threading.RLock:
    """Return a `threading.RLock` with this property; if the forking thread holds it, the child holds it too."""
    lock = threading.RLock()
    _REENTRANT.add(lock)
    return lock


def _open_all() -> None:
    for lock in list(_LOCKS):
        lock._at_fork_reinit()
    for lock in list(_REENTRANT):
        if not lock._is_owned():
            lock._at_fork_reinit()


class _MainThread:
    """The main thread of this process; in a forked child, the thread that forked."""

    __slots__ = ("ident",)

    def __init__(self) -> None:
        self.ident = threading.main_thread().ident

    def move(self) -> None:
        """Make the calling thread the main one."""
        self.ident = threading.get_ident()


MAIN_THREAD: Final = _MainThread()
"""Its `ident` is read in a tenth of the time of `threading.main_thread().ident`."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_open_all)
    os.register_at_fork(after_in_child=MAIN_THREAD.move)


class lazy_attribute(Generic[T]):  # a decorator
    """An attribute computed on first read, like `functools.cached_property` but without the lock of Python 3.11.

    Threads that read it at the same time may each compute it; the value stored last is kept.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> lazy_attribute[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> lazy_attribute[T] | T:
        if instance is None:
            return self
        value = self._compute(instance)
        vars(instance)[self._name] = value
        return value
