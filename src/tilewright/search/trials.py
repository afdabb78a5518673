"""A trial on a bench: a worker process of this machine, or a session on a device."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from tilewright.base.errors import WorkerCrashed, WorkerError, WorkerRaised, WorkerTimedOut
from tilewright.runtime import timing_lock
from tilewright.runtime.trial import PREPARE, TRIAL, TrialOptions
from tilewright.runtime.wire import Message
from tilewright.search.measure import Image, Measured, MeasureErrorNo, failed

_PREPARE_SECONDS: Final = 60.0
"""Time limit of the default schedule in seconds; it may be large, but is not expected to be slow."""


class Bench(Protocol):
    """A place where trials run."""

    def call(
        self, function: str, message: Message, pieces: Sequence[bytes | memoryview] = (), timeout: float | None = None
    ) -> tuple[Message, list[bytes]]:
        """Call a function, as `runtime.worker.Worker.call` does."""

    def restart(self) -> None:
        """Continue in a new process."""


@dataclass(slots=True)
class Trials:
    """Sequential trials on one bench, on which the workload of the last trial stays prepared."""

    bench: Bench
    options: TrialOptions
    timeout: float
    seed: int
    machine: str
    _prepared: str = ""

    def run(self, image: Image, reference: Image | None) -> Measured:
        """Time the image; `reference` computes the expected results. Raises errors of the bench: `OSError`, `RPCError`.
        """
        start = time.perf_counter()
        try:
            found = self._run(image, reference)
        except KeyboardInterrupt:
            self.fresh()  # it may hold its machine's timing lock, for which other processes wait
            raise
        if isinstance(found, Measured):
            return found
        self.fresh()  # failing code may have overwritten any memory
        error_no, text = found
        return failed(error_no, text, time.perf_counter() - start, machine=self.machine)

    def _run(self, image: Image, reference: Image | None) -> Measured | tuple[MeasureErrorNo, str]:
        """Return the result, or the error of the trial."""
        start = time.perf_counter()
        try:
            timing_lock.wait(self._acquire)
        except WorkerError as error:
            return MeasureErrorNo.UNKNOWN_ERROR, str(error)
        try:
            self._prepare(reference or image, reference is not None)
        except WorkerError as error:
            if reference is None:
                return _kind(error), str(error)
            text = f"the default schedule of this workload cannot be run, so no result can be checked: {error}"
            return MeasureErrorNo.UNKNOWN_ERROR, text
        message = {"key": self._prepared, "options": self.options.to_message(), **_values(image)}
        try:
            found, _ = self.bench.call(TRIAL, message, _pieces(image), self.timeout)
        except WorkerError as error:
            return _kind(error), str(error)
        if "wrong" in found:
            return MeasureErrorNo.WRONG_ANSWER, found["wrong"]
        return Measured(
            tuple(found["costs"]), all_cost=time.perf_counter() - start, timestamp=time.time(), noisy=found["noisy"],
            spread=found["spread"], machine=self.machine)

    def _acquire(self, seconds: float) -> tuple[bool, str]:
        """Request the bench's timing lock, which the trial releases; return whether it was acquired, and its holder."""
        found, _ = self.bench.call(timing_lock.ACQUIRE, {"seconds": seconds}, (), seconds + _PREPARE_SECONDS)
        return bool(found["acquired"]), str(found["holder"])

    def _prepare(self, reference: Image, check: bool) -> None:
        ranges = {name: [low, high] for name, low, high in reference.ranges}
        message = {"seed": self.seed, "ranges": ranges, "check": check, **_values(reference)}
        pieces = _pieces(reference)
        digest = hashlib.sha256(json.dumps(message).encode())
        for piece in pieces:
            digest.update(piece)
        key = digest.hexdigest()
        if self._prepared != key:
            self._prepared = ""
            self.bench.call(PREPARE, {**message, "key": key}, pieces, max(self.timeout, _PREPARE_SECONDS))
            self._prepared = key

    def fresh(self) -> None:
        """Continue in a new process, with nothing prepared."""
        self._prepared = ""
        self.bench.restart()


def _values(image: Image) -> Message:
    return {"values": [[v.name, v.dtype, list(v.shape)] for v in image.values]}


def _pieces(image: Image) -> list[bytes]:
    return [image.library, *(v.data for v in image.values)]


def _kind(error: WorkerError) -> MeasureErrorNo:
    if isinstance(error, WorkerTimedOut):
        return MeasureErrorNo.RUN_TIMEOUT
    return MeasureErrorNo.RUNTIME_DEVICE if isinstance(
        error, (WorkerCrashed, WorkerRaised)
    ) else MeasureErrorNo.UNKNOWN_ERROR
