"""One trial in whatever can make calls: a worker process here, or a session on a device."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from tilewright.base.errors import WorkerCrashed, WorkerError, WorkerRaised, WorkerTimedOut
from tilewright.runtime import turns
from tilewright.runtime.trial import PREPARE, TRIAL, TrialOptions
from tilewright.runtime.turns import TAKE
from tilewright.runtime.wire import Message
from tilewright.search.measure import Image, Measured, MeasureErrorNo, failed

_PREPARE_SECONDS: Final = 60.0
"""The default schedule is no candidate that may be slow, but it may be large."""


class Bench(Protocol):
    """Where trials are made."""

    def call(
        self, function: str, message: Message, pieces: Sequence[bytes | memoryview] = (), timeout: float | None = None
    ) -> tuple[Message, list[bytes]]:
        """As `runtime.worker.Worker.call`."""

    def restart(self) -> None:
        """Go on in a new process."""


@dataclass(slots=True)
class Trials:
    """Trials on one bench, one after the other; the workload of the last one stays prepared there."""

    bench: Bench
    options: TrialOptions
    timeout: float
    seed: int
    machine: str
    _prepared: str = ""

    def run(self, image: Image, reference: Image | None) -> Measured:
        """Time the image; `reference` gives the right answers. Raises only what has to do with the bench: `OSError`, `RPCError`."""
        try:
            return self._run(image, reference)
        except KeyboardInterrupt:
            self.fresh()  # it may have its machine's turn, which others wait for
            raise

    def _run(self, image: Image, reference: Image | None) -> Measured:
        start = time.perf_counter()
        error_no, text = MeasureErrorNo.RUNTIME_DEVICE, ""
        try:
            turns.wait(self._take)
        except WorkerError as error:
            self.fresh()
            return self._failed(MeasureErrorNo.UNKNOWN_ERROR, str(error), start)
        try:
            self._prepare(reference or image, reference is not None)
        except WorkerError as error:
            self.fresh()
            if reference is None:
                return self._failed(_kind(error), str(error), start)
            return self._failed(MeasureErrorNo.UNKNOWN_ERROR, f"the default schedule of this workload cannot be run, so no answer can be checked: {error}", start)
        try:
            found, _ = self.bench.call(TRIAL, {"key": self._prepared, "options": self.options.to_message(), **_values(image)}, _pieces(image), self.timeout)
        except WorkerError as error:
            error_no, text = _kind(error), str(error)
        else:
            if "wrong" not in found:
                return Measured(
                    tuple(found["costs"]), all_cost=time.perf_counter() - start, timestamp=time.time(), noisy=found["noisy"], spread=found["spread"],
                    machine=self.machine,
                )
            error_no, text = MeasureErrorNo.WRONG_ANSWER, found["wrong"]
        self.fresh()  # code that fails may have written anywhere
        return self._failed(error_no, text, start)

    def _take(self, seconds: float) -> tuple[bool, str]:
        """Whether the bench has its machine's turn at timing, which ends with the trial, or with the process; and who has it."""
        found, _ = self.bench.call(TAKE, {"seconds": seconds}, (), seconds + _PREPARE_SECONDS)
        return bool(found["taken"]), str(found["holder"])

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
        """Go on in a new process, with nothing prepared."""
        self._prepared = ""
        self.bench.restart()

    def _failed(self, error_no: MeasureErrorNo, error: str, start: float) -> Measured:
        return failed(error_no, error, time.perf_counter() - start, machine=self.machine)


def _values(image: Image) -> Message:
    return {"values": [[v.name, v.dtype, list(v.shape)] for v in image.values]}


def _pieces(image: Image) -> list[bytes]:
    return [image.library, *(v.data for v in image.values)]


def _kind(error: WorkerError) -> MeasureErrorNo:
    if isinstance(error, WorkerTimedOut):
        return MeasureErrorNo.RUN_TIMEOUT
    return MeasureErrorNo.RUNTIME_DEVICE if isinstance(error, (WorkerCrashed, WorkerRaised)) else MeasureErrorNo.UNKNOWN_ERROR
