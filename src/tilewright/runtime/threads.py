"""Thread pools of the process: one for each number of threads, shared by all executables.

A pool is a `tw_context` made by the native `tw_pool_create` of the first library that requested it. That library stays
loaded, because the threads run its code. Threads do not survive a fork, so a child starts without pools. An executable
detects by `generation` that its context is stale.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from pathlib import Path
from typing import Final, Self

from tilewright.base.errors import InternalError, OptionError
from tilewright.base.forks import new_lock
from tilewright.runtime.program import Code

VARIABLE: Final = "TILEWRIGHT_NUM_THREADS"
BINDING: Final = "TILEWRIGHT_BIND_THREADS"
"""Environment variable that the native pool reads: with 0, the system places the threads; otherwise workers avoid the
core of the calling thread."""
_MOST: Final = 1024
_CREATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)
_DESTROY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Pools:
    """The pools of this process, by number of threads."""

    def __init__(self) -> None:
        self.generation = 0
        self.alone = 0
        """Number of open `NullThreadPool`s."""
        self._contexts: dict[int, tuple[int, Code]] = {}
        self._left_behind: list[Code] = []
        self._lock = new_lock()

    def context(self, count: int, code: Code) -> int:
        """Return the address of the context with `count` threads; the first call creates it with the thread pool of
        `code`."""
        with self._lock:
            if self.alone:
                count = 1  # overrides `count`
            known = self._contexts.get(count)
            if known is None:
                _check_binding()
                address = _CREATE(code.address("tw_pool_create"))(count)
                if not address:
                    raise InternalError(f"the system refused to start {count} threads")
                known = self._contexts[count] = (address, code)
            return known[0]

    def close(self) -> None:
        """End all threads; no call may be running. Later calls start them again."""
        with self._lock:
            contexts, self._contexts = self._contexts, {}
            self.generation += 1
        for address, code in contexts.values():
            _DESTROY(code.address("tw_pool_destroy"))(address)

    def forget(self) -> None:
        """Reset in a forked child, which has no pool threads, and in which other threads may have held the locks."""
        self._lock = new_lock()
        self._left_behind += [code for _, code in self._contexts.values()]
        self._contexts = {}
        self.generation += 1


POOLS: Final = Pools()


class NullThreadPool:
    """Inside `with NullThreadPool():` every program runs in the calling thread, for any number of threads it was made
    for.

    Entering it ends the threads of pools, so no call may be running; they start again after it is left. Useful for
    debuggers and recorders, which then see a single thread.
    """

    def __enter__(self) -> Self:
        POOLS.close()
        POOLS.alone += 1
        return self

    def __exit__(self, *_: object) -> None:
        POOLS.close()
        POOLS.alone -= 1


os.register_at_fork(after_in_child=POOLS.forget)
atexit.register(POOLS.close)


def default_threads() -> int:
    """Return `TILEWRIGHT_NUM_THREADS`, or the number of physical cores that this process may use."""
    text = os.environ.get(VARIABLE, "")
    if not text:
        return physical_cores()
    if not text.isdecimal():
        raise OptionError(
            f"{VARIABLE} is '{text}', which is not a number of threads; set it to 1 or more, or unset it", code="TW0208"
        )
    return checked_threads(int(text))


_CALL: Final = threading.local()


def threads_of_call() -> int:
    """Return the number of threads of the calling program, inside a function of a module; elsewhere `default_threads`.
    """
    count: int | None = getattr(_CALL, "threads", None)
    return default_threads() if count is None else count


def set_threads_of_call(count: int | None) -> int | None:
    """Set the result of `threads_of_call` in this thread; return its previous value."""
    before: int | None = getattr(_CALL, "threads", None)
    _CALL.threads = count
    return before


def _check_binding() -> None:
    text = os.environ.get(BINDING, "")
    if text not in ("", "0", "1"):
        raise OptionError(
            f"{BINDING} is '{text}'; set it to 0 to let the system place the threads, or to 1, or unset it, to keep "
            "them off the caller's core",
            code="TW0208")


def checked_threads(count: int) -> int:
    """Return `count`, or raise `OptionError` if it is out of range."""
    if not 1 <= count <= _MOST:
        raise OptionError(f"{count} is not a number of threads; use 1 to {_MOST}", code="TW0209")
    return count


def physical_cores() -> int:
    """Return the number of cores that this process may use; hardware threads of one core count once."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    allowed = os.sched_getaffinity(0)
    siblings = (Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") for cpu in allowed)
    return len({file.read_text() if file.exists() else str(file) for file in siblings}) or 1
