"""TVM's `tvm.contrib.popen_pool`: calls of functions in other processes, with a limit of time.

    pool = PopenPoolExecutor(max_workers=4, timeout=10)
    pool.submit(function, 1, 2).result()

A process is a new interpreter that is kept between calls. It is killed with its children when a call exceeds its time.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from enum import IntEnum
from typing import Any, BinaryIO, NamedTuple

from tilewright.compat.exec.popen_worker import dumps, read_message, write_message

__all__ = ["MapResult", "PopenPoolExecutor", "PopenWorker", "StatusKind"]


class StatusKind(IntEnum):
    """The state of a call."""

    RUNNING = 0
    COMPLETE = 1
    EXCEPTION = 2
    TIMEOUT = 3


class MapResult(NamedTuple):
    """The result of a call, or the exception that it raised; None after a timeout."""

    status: StatusKind
    value: Any


class PopenWorker:
    """One process, started at the first call: `send`, then `recv`."""

    def __init__(
        self, initializer: Callable[..., Any] | None = None, initargs: Sequence[Any] = (),
        maximum_uses: int | None = None, stdout: Any = None, stderr: Any = None
    ) -> None:
        """`initializer(*initargs)` runs first in each process; after `maximum_uses` calls, another process starts."""
        self._initializer, self._initargs, self._maximum_uses = initializer, tuple(initargs), maximum_uses
        self._stdout, self._stderr = stdout, stderr
        self._process: subprocess.Popen[bytes] | None = None
        self._to: BinaryIO | None = None
        self._from: BinaryIO | None = None
        self._uses = 0
        self._timer: threading.Timer | None = None
        self._late = threading.Event()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.kill()

    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end of the process, at most `timeout` seconds."""
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout)

    def kill(self) -> None:
        """End the process and its children; the next `send` starts another one."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (self._to, self._from):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def send(
        self, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None,
        timeout: float | None = None
    ) -> None:
        """Start a call. `recv` raises `TimeoutError` if it takes more than `timeout` seconds."""
        if self._process is not None and self._maximum_uses is not None and self._uses >= self._maximum_uses:
            self.kill()
        if self._process is None:
            self._start()
        self._uses += 1
        self._late.clear()
        assert self._to is not None
        with contextlib.suppress(BrokenPipeError):  # the process has ended: `recv` tells it
            write_message(self._to, dumps((fn, tuple(args), dict(kwargs or {}))))
        if timeout is not None:
            self._timer = threading.Timer(timeout, self._stop)
            self._timer.daemon = True
            self._timer.start()

    def recv(self) -> Any:
        """Return the result of the call. Raises the exception that it raised, `TimeoutError`, and `ChildProcessError`
        if the process has ended."""
        assert self._from is not None, "send a call first"
        try:
            succeeded, value = pickle.loads(read_message(self._from))
        except (EOFError, OSError, ValueError):
            is_late = self._late.is_set()
            self._end_timer()
            self.kill()
            if is_late:
                raise TimeoutError("the call took more than its time, and its process was killed") from None
            raise ChildProcessError("the process of the call has ended without a result") from None
        self._end_timer()
        if not succeeded:
            raise value
        return value

    def _end_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _stop(self) -> None:
        """End the process of a call that exceeds its time."""
        self._late.set()
        if self._process is not None:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _start(self) -> None:
        to_read, to_write = os.pipe()
        from_read, from_write = os.pipe()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tilewright.compat.exec.popen_worker", str(to_read), str(from_write)],
            pass_fds=(to_read, from_write), stdout=self._stdout, stderr=self._stderr, env=environment,
            start_new_session=True)
        os.close(to_read)
        os.close(from_write)
        self._to, self._from, self._uses = os.fdopen(to_write, "wb"), os.fdopen(from_read, "rb"), 0
        if self._initializer is not None:
            write_message(self._to, dumps((self._initializer, self._initargs, {})))
            succeeded, value = pickle.loads(read_message(self._from))
            if not succeeded:
                self.kill()
                raise value


class PopenPoolExecutor:
    """Calls in up to `max_workers` processes (default: one for each processor), each at most `timeout` seconds."""

    def __init__(
        self, max_workers: int | None = None, timeout: float | None = None,
        initializer: Callable[..., Any] | None = None, initargs: Sequence[Any] = (),
        maximum_process_uses: int | None = None, stdout: Any = None, stderr: Any = None
    ) -> None:
        self._threads = ThreadPoolExecutor(max_workers or os.cpu_count() or 1)
        self._timeout = timeout
        self._options = (initializer, initargs, maximum_process_uses, stdout, stderr)
        self._idle: list[PopenWorker] = []
        self._lock = threading.Lock()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self._threads.shutdown(wait=False, cancel_futures=True)
            for worker in self._idle:
                worker.kill()

    def submit(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        """Start a call; the result of the future is that of `PopenWorker.recv`."""
        return self._threads.submit(self._run, fn, args, kwargs)

    def _run(self, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        with self._lock:
            worker = self._idle.pop() if self._idle else None
        worker = worker or PopenWorker(*self._options)
        try:
            worker.send(fn, args, kwargs, self._timeout)
            return worker.recv()
        finally:
            with self._lock:
                self._idle.append(worker)

    def map_with_error_catching(self, fn: Callable[..., Any], iterator: Iterable[Any]) -> Iterator[MapResult]:
        """Yield the result of the function of each value, in order; exceptions are results, too."""
        for future in [self.submit(fn, value) for value in iterator]:
            try:
                yield MapResult(StatusKind.COMPLETE, future.result())
            except TimeoutError:
                yield MapResult(StatusKind.TIMEOUT, None)
            except Exception as error:
                yield MapResult(StatusKind.EXCEPTION, error)
