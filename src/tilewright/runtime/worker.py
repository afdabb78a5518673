"""Worker processes: they run calls of the parent process, and may crash, hang or exhaust their memory.

    worker = Worker(memory_limit=4 << 30)
    reply, pieces = worker.call("tilewright.runtime.trial:trial", {...}, [library], timeout=10)

A worker is a new interpreter that is kept between calls. It runs in its own session under a memory limit, and ends with
its parent process, even if that is killed. On a timeout it is killed together with its children. After a crash or a
timeout, the next call starts another worker.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Iterable, Sequence
from typing import BinaryIO, Final

from tilewright.base.errors import WorkerCrashed, WorkerNotStarted, WorkerRaised, WorkerTimedOut
from tilewright.base.forks import new_lock
from tilewright.runtime.threads import VARIABLE
from tilewright.runtime.wire import Channel, Message

_START_SECONDS: Final = 60.0
_SEND_SECONDS: Final = 30.0
_TAIL: Final = 2000
"""Number of bytes of a worker's standard error that a message quotes."""


class Worker:
    """A process that is started at its first use. Calls run one at a time; calls of other threads wait."""

    def __init__(
        self, memory_limit: int | None = None, threads: int | None = None, modules: Sequence[str] = ()
    ) -> None:
        """`memory_limit` is the address space in bytes (None: half of this machine's memory), `threads` the number of
        threads for native code.

        `modules` are imported when a process starts, so that calls do not wait for imports; a failed import is reported
        by the call that needs the module.
        """
        self.memory_limit = memory_limit or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
        self.threads, self.modules = threads, tuple(modules)
        self.started = 0
        """Number of processes started so far."""
        self._process: _Process | None = None
        self._lock = new_lock()

    def call(
        self, function: str, message: Message, pieces: Sequence[bytes | memoryview] = (), timeout: float | None = None
    ) -> tuple[Message, list[bytes]]:
        """Return the answer of `function`, written `module:name`, which takes and returns a message and pieces.

        Raises `WorkerRaised` if the function raised, `WorkerCrashed` if the process ended, `WorkerTimedOut`, and
        `WorkerNotStarted` if no process could be started.
        """
        with self._lock:
            process = self._running()
            try:
                process.channel.send({"call": function, "with": message}, pieces, _SEND_SECONDS)
                answer, got = process.channel.receive(timeout)
            except TimeoutError as error:
                self._end()
                raise WorkerTimedOut(f"no answer within {timeout:g} s; the process was ended") from error
            except ConnectionError as error:
                how = process.how_it_ended()
                self._end()
                raise WorkerCrashed(how) from error
            except BaseException:
                self._end()
                raise
        if "raised" in answer:
            raise WorkerRaised(answer["raised"], answer["text"])
        return answer["gives"], got

    def need(self, modules: Iterable[str]) -> None:
        """Import these modules now if a process runs, and whenever one starts. Raises as `call`."""
        new = [m for m in dict.fromkeys(modules) if m not in self.modules]
        self.modules = (*self.modules, *new)
        if new and self._process is not None:
            self.call("tilewright.runtime.worker_main:import_modules", {"modules": new}, (), _START_SECONDS)

    def restart(self) -> None:
        """End the process; the next call starts another."""
        with self._lock:
            self._end()

    def close(self) -> None:
        """End the process. A call of another thread that waits for it raises `WorkerCrashed`."""
        if self._lock.acquire(blocking=False):
            try:
                self._end()
            finally:
                self._lock.release()
        elif (process := self._process) is not None:
            process.kill()

    @property
    def pid(self) -> int | None:
        """The process id, or None if no process runs."""
        return self._process.pid if self._process is not None else None

    def _running(self) -> _Process:
        if self._process is None or not self._process.alive:
            self._end()
            self._process = _Process(self.memory_limit, self.threads, self.modules)
            self.started += 1
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.end()


class _Process:
    """A process, and the pipes to it."""

    def __init__(self, memory_limit: int, threads: int | None, modules: Sequence[str]) -> None:
        self._errors: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        theirs_life, ours_life = os.pipe()
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        if threads is not None:
            environment[VARIABLE] = str(threads)
        try:
            self._popen = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, _source_folder(), *map(str, (theirs_in, theirs_out, theirs_life))],
                stdin=subprocess.DEVNULL, stdout=self._errors, stderr=self._errors,
                pass_fds=(theirs_in, theirs_out, theirs_life),
                start_new_session=True, env=environment)
        except BaseException:
            for descriptor in (ours_in, ours_out, ours_life):
                os.close(descriptor)
            raise
        finally:
            for descriptor in (theirs_in, theirs_out, theirs_life):
                os.close(descriptor)
        self.channel = Channel(ours_in, ours_out)
        self.end = weakref.finalize(self, _end, os.getpid(), self._popen, (ours_in, ours_out, ours_life), self._errors)
        try:
            self.channel.send(
                {"path": sys.path, "memory_limit": memory_limit, "modules": modules}, timeout=_START_SECONDS)
            self.channel.receive(_START_SECONDS)
        except (TimeoutError, ConnectionError) as error:
            how = self.how_it_ended() if isinstance(error, ConnectionError) else "it does not answer"
            self.end()
            raise WorkerNotStarted(f"a worker process could not be started: {how}") from error

    @property
    def pid(self) -> int:
        return self._popen.pid

    def kill(self) -> None:
        """Kill the process and its children; pending calls raise an error."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)

    @property
    def alive(self) -> bool:
        return self._popen.poll() is None

    def how_it_ended(self) -> str:
        """Return the signal or status with which it ended, and the end of its standard error."""
        try:
            status = self._popen.wait(5)
        except subprocess.TimeoutExpired:
            return "the process has closed its end of the connection"
        how = (
            f"the process was ended by {_signal_name(-status)}" if status < 0
            else f"the process ended with status {status}"
        )
        length = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, length - _TAIL))
        said = self._errors.read().decode(errors="replace").strip()
        return f"{how}: {said}" if said else how


_PROGRAM: Final = "import sys; sys.path.insert(0, sys.argv[1]); from tilewright.runtime.worker_main import main; main()"


def _source_folder() -> str:
    """Return the folder of this package, which a worker must use, too."""
    import tilewright

    return os.path.dirname(os.path.dirname(os.path.abspath(tilewright.__file__)))  # noqa: PTH100, PTH120


def _end(owner: int, process: subprocess.Popen[bytes], descriptors: Sequence[int], errors: BinaryIO) -> None:
    if os.getpid() != owner:
        return  # in a forked copy of the worker's parent
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for descriptor in descriptors:
        os.close(descriptor)
    errors.close()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
