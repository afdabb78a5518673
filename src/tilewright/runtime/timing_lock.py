"""A machine-wide lock so that only one process measures at a time, in the order of requests.

    with exclusive(): …                  # in this process
    acquire({"seconds": 1.0}, ())        # in a worker process, which releases it after its trial or at exit

The lock is on a file, `/tmp/tilewright-timing` or the file named by `TILEWRIGHT_TIMING_LOCK`; the system releases it
when the process ends. A waiting process holds a second lock, `….queue`, so that the previous holder queues after it.
Processes that see different folders (containers) do not exclude each other.
"""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from tilewright.base.errors import OptionError
from tilewright.runtime.wire import Message

VARIABLE: Final = "TILEWRIGHT_TIMING_LOCK"
ACQUIRE: Final = "tilewright.runtime.timing_lock:acquire"
PATIENCE: Final = 60.0
"""Seconds to wait for one holder; after that, it is assumed to be stopped or timing something very long."""
_ASK_SECONDS: Final = 1.0
_POLL_SECONDS: Final = 0.005
_MAX_BYTES: Final = 64
"""Largest size of the lock file in bytes; it contains a process id."""
_LOG: Final = logging.getLogger(__name__)


class TimingLock:
    """The lock of a machine, as seen by one process."""

    def __init__(self, path: str | None = None) -> None:
        """`path` is the file of the lock; None: that of the environment variable, or the machine's."""
        self.path = path or os.environ.get(VARIABLE) or "/tmp/tilewright-timing"
        self._queue: int | None = None
        self._held: int | None = None

    def acquire(self, seconds: float) -> bool:
        """Wait up to `seconds` for the lock; return whether it is held.

        A waiting process keeps its place until `acquire` or `release` is called. Raises `OptionError` if the file
        cannot be opened.
        """
        end = time.monotonic() + seconds
        while self._held is None:
            if self._queue is None:
                self._queue = _locked(f"{self.path}.queue")
            if self._queue is not None:
                self._held = _locked(self.path)
            if self._held is None:
                if time.monotonic() >= end:
                    return False
                time.sleep(_POLL_SECONDS)
        _close(self._queue)
        self._queue = None
        os.ftruncate(self._held, 0)
        os.pwrite(self._held, f"{os.getpid()}\n".encode(), 0)
        return True

    def release(self) -> None:
        """Release the lock, or the place among the waiting processes."""
        _close(self._queue)
        _close(self._held)
        self._queue = self._held = None

    @property
    def holder(self) -> str:
        """Return the id of the process that holds the lock, as written in the file."""
        try:
            with open(self.path, encoding="ascii", errors="replace") as file:  # noqa: PTH123
                return file.read(20).strip() or "an unknown process"
        except OSError:
            return "an unknown process"


_HERE: Final[list[TimingLock]] = []


def of_this_process() -> TimingLock:
    """Return the lock of this process."""
    if not _HERE:
        _HERE.append(TimingLock())
    return _HERE[0]


def acquire(message: Message, pieces: Sequence[bytes]) -> tuple[Message, list[bytes]]:
    """Wait up to `message["seconds"]` for the lock; return `{"acquired", "holder"}`."""
    lock = of_this_process()
    acquired = lock.acquire(float(message["seconds"]))
    return {"acquired": acquired, "holder": "" if acquired else lock.holder}, []


def release() -> None:
    """Release the lock of this process, if it holds it."""
    of_this_process().release()


@contextmanager
def exclusive() -> Iterator[None]:
    """Hold the lock inside the `with` block; after `PATIENCE` seconds without it, warn and continue."""
    lock = of_this_process()
    try:
        wait(lambda seconds: (lock.acquire(seconds), lock.holder))
        yield
    finally:
        lock.release()


def wait(ask: Callable[[float], tuple[bool, str]], clock: Callable[[], float] = time.monotonic) -> bool:
    """Call `ask(seconds) -> (acquired, holder)` until the lock is acquired; return whether it was.

    After `PATIENCE` seconds of one holder, waiting ends with a warning that names it: a stopped process must not block
    all others.
    """
    begin, before = clock(), ""
    while True:
        acquired, holder = ask(_ASK_SECONDS)
        if acquired:
            return True
        if holder != before:
            begin, before = clock(), holder
        elif clock() - begin > PATIENCE:
            _LOG.warning(
                "process %s has held the timing lock for %.0f s, or is stopped; measuring continues without the lock, "
                "and may be disturbed",
                holder, PATIENCE)
            return False


def _is_lock(found: os.stat_result) -> bool:
    """Whether a file may be a lock. Acquiring overwrites it, so a link to another user's file must be refused."""
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_size <= _MAX_BYTES


def _locked(path: str) -> int | None:
    """Return a descriptor that holds the lock of a file; None if another process holds it."""
    try:
        try:  # a file of another user in a shared folder may be opened, but not created
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
            os.fchmod(descriptor, 0o666)
        if not _is_lock(os.fstat(descriptor)):
            os.close(descriptor)
            raise OSError(f"{path} is not a lock file: it must be a small regular file with one name")
    except OSError as error:
        raise OptionError(
            f"the timing lock cannot be opened: {error}; name a file that all users may write, by the variable "
            f"{VARIABLE}",
            code="TW0208") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _close(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)
