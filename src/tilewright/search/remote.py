"""Runs on devices of a tracker: `RPCRunner("board", "127.0.0.1", 9190)`.

Code is compiled on this machine for the device's target and sent as shared libraries, so devices need no compiler. When
a device dies during a trial, another device repeats the trial; its result is stored once.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tilewright.base.errors import OptionError, RPCError
from tilewright.runtime.rpc.client import RPCSession, TrackerSession, connect_tracker
from tilewright.search.measure import Built, Image, Measured, MeasureErrorNo, OnMeasured, failed
from tilewright.search.runner import TrialRunner, not_built, warn_of_noise, with_build
from tilewright.search.trials import Trials

_ATTEMPTS: Final = 3
_SESSION_SECONDS: Final = 600.0
"""Longest session, so that more urgent requests are served."""


@dataclass(slots=True)
class _Job:
    place: int
    built: Built
    image: Image
    attempts: int = 0


class RPCRunner(TrialRunner):
    """Times code on all devices with the key `key` (or on `n_parallel` of them), one trial at a time on each."""

    form = ".so"

    def __init__(
        self, key: str, host: str, port: int, priority: int = 1, timeout: float = 10, n_parallel: int | None = None,
        number: int = 4, repeat: int = 3, min_repeat_ms: float = 0, cooldown_interval: float = 0.1,
        enable_cpu_cache_flush: bool = False, *, seed: int = 0, noise: float = 0.1, secret: str | None = None,
        patience: float = 60,
    ) -> None:
        """`host` and `port` are those of the tracker, `patience` the seconds to wait for a device.

        The other options are those of `TrialRunner`. Raises `OptionError` or `InputError` for values out of range.
        """
        if n_parallel is not None and n_parallel < 1:
            raise OptionError(f"n_parallel={n_parallel} must be at least 1", code="TW1110")
        super().__init__(timeout, number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush, noise)
        self.key, self.host, self.port, self.priority = key, host, port, priority
        self.n_parallel, self.patience = n_parallel, patience
        self._seed, self._secret = seed, secret

    def run(self, built: Sequence[Built], on_measured: OnMeasured | None = None) -> list[Measured]:
        """Return one result for each, in order; `UNKNOWN_ERROR` if no device was available, or each one failed."""
        run = _Run(built, on_measured)
        devices = self._devices() if run.left else 0
        threads = [
            threading.Thread(target=self._on_device, args=(run,), daemon=True) for _ in range(min(devices, run.left))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        run.give_up("no device was available any more")
        results = run.results()
        warn_of_noise(results)
        return results

    def _devices(self) -> int:
        """Return the number of devices to use: at least one, which may register while a thread waits for it."""
        if self.n_parallel is not None:
            return self.n_parallel
        try:
            tracker = connect_tracker(self.host, self.port, self._secret)
        except RPCError:
            return 1  # the thread that waits for the device reports the reason
        try:
            keys = [s["key"] for s in tracker.summary()["server_info"]]
            return max(1, keys.count(f"server:{self.key}"))
        finally:
            tracker.close()

    def _on_device(self, run: _Run) -> None:
        """Run trials on one device after another until no trial, or no device, is left."""
        tracker: TrackerSession | None = None
        try:
            while run.left:
                tracker = tracker or connect_tracker(self.host, self.port, self._secret)
                with tracker.request(self.key, self.priority, _SESSION_SECONDS, patience=self.patience) as session:
                    self._trials(run, session, time.monotonic() + _SESSION_SECONDS / 2)
        except (OSError, RPCError) as error:
            run.reason = str(error)
        finally:
            if tracker is not None:
                tracker.close()

    def _trials(self, run: _Run, session: RPCSession, end: float) -> None:
        """Run trials in one session until none is left or the time is over; return the trial of a broken device to the
        queue."""
        trials = Trials(session, self.options, self.timeout, self._seed, session.machine)
        while time.monotonic() < end and (job := run.take()) is not None:
            try:
                measured = with_build(trials.run(job.image, job.built.reference), job.built)
            except (OSError, RPCError) as error:
                run.put_back(job, str(error))
                return
            except BaseException:
                run.put_back(job, "the runner was stopped")
                raise
            run.finish(job, measured)
            time.sleep(self.cooldown_interval)


class _Run:
    """The trials that are left, and the results so far."""

    def __init__(self, built: Sequence[Built], on_measured: OnMeasured | None) -> None:
        self._built, self._on_measured = built, on_measured
        self._results: dict[int, Measured] = {}
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._failure: BaseException | None = None
        self.reason = ""
        for k, one in enumerate(built):
            if one.image is None:
                self._tell(k, not_built(one))
            else:
                self._jobs.put(_Job(k, one, one.image))

    @property
    def left(self) -> int:
        """Trials without a result."""
        with self._lock:
            return 0 if self._failure else len(self._built) - len(self._results)

    def take(self) -> _Job | None:
        """Return the next trial; None when there is none."""
        while self.left:
            try:
                return self._jobs.get(timeout=0.2)
            except queue.Empty:  # the last ones run on other devices, which may still break
                continue
        return None

    def put_back(self, job: _Job, why: str) -> None:
        """Requeue the trial of a broken device, unless the trial seems to break devices."""
        job.attempts += 1
        if job.attempts < _ATTEMPTS:
            self._jobs.put(job)
        else:
            self.finish(
                job, failed(MeasureErrorNo.UNKNOWN_ERROR, f"each of {_ATTEMPTS} devices broke during this trial: {why}")
            )

    def finish(self, job: _Job, measured: Measured) -> None:
        """Store the result of a trial."""
        self._tell(job.place, measured)

    def give_up(self, why: str) -> None:
        """Fail the trials that are left."""
        for k, one in enumerate(self._built):
            if k not in self._results:
                self._tell(k, with_build(failed(MeasureErrorNo.UNKNOWN_ERROR, self.reason or why), one))

    def results(self) -> list[Measured]:
        """Return the results in the order of the candidates; raises an exception of `on_measured`."""
        if self._failure is not None:
            raise self._failure
        return [self._results[k] for k in range(len(self._built))]

    def _tell(self, k: int, measured: Measured) -> None:
        with self._lock:
            self._results[k] = measured
            if self._on_measured is not None and self._failure is None:
                try:
                    self._on_measured(k, measured)
                except BaseException as error:  # raised again where `run` was called
                    self._failure = error
