"""Turns at timing: of all programs of one machine that time code, one does so at a time, in the order in which they asked.

    with turn(): …                       # in this process
    take({"seconds": 1.0}, ())           # in a worker process, which lets go when its trial is over, or when it ends

A turn is a lock on a file, `/tmp/tilewright-timing` or what `TILEWRIGHT_TIMING_LOCK` names, which the system takes away from a process that ends. Who waits
holds a second one, `….queue`, so that who had the last turn stands behind. Programs that see different folders there (containers) do not see each other.
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
TAKE: Final = "tilewright.runtime.turns:take"
PATIENCE: Final = 60.0
"""Seconds after which nobody waits longer: who holds the turn is stopped, or times something very long."""
_ASKED_FOR: Final = 1.0
_PAUSE: Final = 0.005
_LONGEST: Final = 64
"""Bytes of a lock's file at most: it holds the number of a process."""

_LOG: Final = logging.getLogger(__name__)


class Turns:
    """The turns of a machine as one process sees them."""

    def __init__(self, path: str | None = None) -> None:
        """`path` is that of the lock's file; None: what the variable names, or the machine's."""
        self.path = path or os.environ.get(VARIABLE) or "/tmp/tilewright-timing"
        self._queue: int | None = None
        self._turn: int | None = None

    def take(self, seconds: float) -> bool:
        """Wait up to so many seconds for the turn; whether it is ours now. Who waits keeps its place until `take` is called again, or `leave`.

        Raises `OptionError` where the file cannot be had.
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
        """Let the turn go, or the place among those who wait."""
        _close(self._queue)
        _close(self._turn)
        self._queue = self._turn = None

    @property
    def holder(self) -> str:
        """Who has the turn, as far as the file says: the number of a process."""
        try:
            with open(self.path, encoding="ascii", errors="replace") as file:  # noqa: PTH123
                return file.read(20).strip() or "an unknown process"
        except OSError:
            return "an unknown process"


_HERE: Final[list[Turns]] = []


def of_this_process() -> Turns:
    """The turns of this process, which has one at a time."""
    if not _HERE:
        _HERE.append(Turns())
    return _HERE[0]


def take(message: Message, pieces: Sequence[bytes]) -> tuple[Message, list[bytes]]:
    """Wait up to `message["seconds"]` for this process's turn: `{"taken", "holder"}`."""
    turns = of_this_process()
    taken = turns.take(float(message["seconds"]))
    return {"taken": taken, "holder": "" if taken else turns.holder}, []


def leave() -> None:
    """The turn of this process, if it has one, is over."""
    of_this_process().leave()


@contextmanager
def turn() -> Iterator[None]:
    """The turn of this process inside the `with` block; behind `PATIENCE` seconds without one a warning, and none."""
    turns = of_this_process()
    try:
        wait(lambda seconds: (turns.take(seconds), turns.holder))
        yield
    finally:
        turns.leave()


def wait(ask: Callable[[float], tuple[bool, str]], clock: Callable[[], float] = time.monotonic) -> bool:
    """Ask for the turn until it is there, by `ask(seconds) -> (taken, holder)`; whether it came.

    Behind `PATIENCE` seconds of one holder nobody waits longer, and a warning names it: a process that was stopped must not stop all others.
    """
    begin, before = clock(), ""
    while True:
        taken, holder = ask(_ASKED_FOR)
        if taken:
            return True
        if holder != before:
            begin, before = clock(), holder
        elif clock() - begin > PATIENCE:
            _LOG.warning("process %s has been timing for %.0f s, or is stopped; times are taken beside it, and may be disturbed by it", holder, PATIENCE)
            return False


def _is_lock(found: os.stat_result) -> bool:
    """Whether a file may be one of ours. Taking a turn overwrites it, so a second name of somebody's file must not pass for a lock."""
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_size <= _LONGEST


def _locked(path: str) -> int | None:
    """A descriptor that holds the lock of a file; None where another has it."""
    try:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)  # a file of another user in a shared folder may be opened, but not created
        except FileNotFoundError:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
            os.fchmod(descriptor, 0o666)
        if not _is_lock(os.fstat(descriptor)):
            os.close(descriptor)
            raise OSError(f"{path} is no lock: it is not a small file with one name")
    except OSError as error:
        raise OptionError(f"no turn at timing can be had: {error}; name a file that all users may write, by the variable {VARIABLE}", code="TW0208") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _close(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)
