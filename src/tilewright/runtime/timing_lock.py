"""A machine-wide lock so that only one process measures at a time, in the order of the requests.

    with turn(): …                       # in this process
    take({"seconds": 1.0}, ())           # in a worker process, which releases the lock after its trial, or when it exits

The lock is a lock on the file `/tmp/tilewright-timing`, or the file that `TILEWRIGHT_TIMING_LOCK` names; the system releases it when
its process exits. A waiting process holds a second lock, `….queue`, so that the last holder queues up after it. Processes with
different `/tmp` folders (containers) do not see each other's locks.
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
TAKE: Final = "tilewright.runtime.timing_lock:take"
PATIENCE: Final = 60.0
"""Maximum seconds to wait for the lock: by then its holder is stopped, or measures something very long."""
_ASKED_FOR: Final = 1.0
_PAUSE: Final = 0.005
_LONGEST: Final = 64
"""Maximum size of a lock file, in bytes: it holds a process id."""

_LOG: Final = logging.getLogger(__name__)


class TimingLock:
    """The timing lock of a machine, as used by one process."""

    def __init__(self, path: str | None = None) -> None:
        """`path` is the path of the lock file; None: the file that the variable names, or the default."""
        self.path = path or os.environ.get(VARIABLE) or "/tmp/tilewright-timing"
        self._queue: int | None = None
        self._turn: int | None = None

    def take(self, seconds: float) -> bool:
        """Wait up to `seconds` for the lock, and return whether it is held. A waiting process keeps its position in the queue until `leave`.

        Raises `OptionError` where the lock file cannot be used.
        """
        end = time.monotonic() + seconds
        while self._turn is None:
            if self._queue is None:
                self._queue = _locked(f"{self.path}.queue")
            if self._queue is not None:
                self._turn = _locked(self.path)
            if self._turn is None:
                if time.monotonic() >= end:
                    return False
                time.sleep(_PAUSE)
        _close(self._queue)
        self._queue = None
        os.ftruncate(self._turn, 0)
        os.pwrite(self._turn, f"{os.getpid()}\n".encode(), 0)
        return True

    def leave(self) -> None:
        """Release the lock, or leave the queue."""
        _close(self._queue)
        _close(self._turn)
        self._queue = self._turn = None

    @property
    def holder(self) -> str:
        """Return the process id of the holder, as recorded in the file."""
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


def take(message: Message, pieces: Sequence[bytes]) -> tuple[Message, list[bytes]]:
    """Wait up to `message["seconds"]` for the lock; returns `{"taken", "holder"}`."""
    lock = of_this_process()
    taken = lock.take(float(message["seconds"]))
    return {"taken": taken, "holder": "" if taken else lock.holder}, []


def leave() -> None:
    """Release the lock of this process."""
    of_this_process().leave()


@contextmanager
def turn() -> Iterator[None]:
    """Hold the lock inside the `with` block; after `PATIENCE` seconds of waiting, warn and continue without it."""
    lock = of_this_process()
    try:
        wait(lambda seconds: (lock.take(seconds), lock.holder))
        yield
    finally:
        lock.leave()


def wait(ask: Callable[[float], tuple[bool, str]], clock: Callable[[], float] = time.monotonic) -> bool:
    """Call `ask(seconds) -> (taken, holder)` until the lock is taken; return whether it is.

    After `PATIENCE` seconds with one holder the wait ends with a warning that names it: a stopped process must not block all others.
    """
    begin, before = clock(), ""
    while True:
        taken, holder = ask(_ASKED_FOR)
        if taken:
            return True
        if holder != before:
            begin, before = clock(), holder
        elif clock() - begin > PATIENCE:
            _LOG.warning("process %s has held the timing lock for %.0f s, or is stopped; measuring continues without the lock, and may be disturbed", holder, PATIENCE)
            return False


def _is_lock(found: os.stat_result) -> bool:
    """Return whether a file may be a lock file. Taking the lock overwrites it, so a hard link to another file must not pass for one."""
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_size <= _LONGEST


def _locked(path: str) -> int | None:
    """Return a descriptor that holds the lock of a file; None where another process holds it."""
    try:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)  # a file of another user in a shared folder may be opened, but not created
        except FileNotFoundError:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
            os.fchmod(descriptor, 0o666)
        if not _is_lock(os.fstat(descriptor)):
            os.close(descriptor)
            raise OSError(f"{path} is not a lock file: it must be a small regular file with one name")
    except OSError as error:
        raise OptionError(f"the timing lock cannot be used: {error}; set the variable {VARIABLE} to a file that all users may write", code="TW0208") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _close(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)
