"""The bench, a worker process in which cases are tried. It may crash or hang, and reports its last activity.

    with Bench(settings) as bench:
        bench.check(case, Way(WHOLE))      None, or a `Verdict`
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from tilewright.base.closing import Closeable
from tilewright.base.errors import InternalError, OptionError, TVMError, WorkerCrashed, WorkerRaised, WorkerTimedOut
from tilewright.driver.diagnosis.case import Array, Case, load_arrays
from tilewright.driver.diagnosis.children import CRASHED, SILENT
from tilewright.driver.diagnosis.ways import CRASH, HANG, NoReference, Settings, Verdict, Way
from tilewright.runtime.wire import Message
from tilewright.runtime.worker import Worker

_PROBES: Final = "tilewright.driver.diagnosis.probes"
_CHILDREN: Final = "tilewright.driver.diagnosis.children"
_IMPORT: Final = "tilewright.runtime.worker_main:import_modules"
_START: Final = 120.0


class Ended(Exception):
    """The process of a probe ended or did not answer; has the verdict, and the last activity."""

    def __init__(self, verdict: Verdict, trail: Message) -> None:
        super().__init__(verdict.text)
        self.verdict, self.trail = verdict, trail


class Bench(Closeable):
    """A process for all probes of a diagnosis. A given `worker` is used and kept open.

    A probe has `timeout` seconds. `tried` is called before each.
    """

    def __init__(
        self, settings: Settings, timeout: float = 60.0, worker: Worker | None = None,
        tried: Callable[[], None] = lambda: None
    ) -> None:
        self.settings, self.timeout, self.tried = settings, timeout, tried
        self.probes = 0
        self._own = worker is None
        self._ended = False
        """Whether a probe has ended its process; from then on, each probe has its own child process."""
        self._worker = worker or Worker(threads=settings.threads)
        self._folder = tempfile.TemporaryDirectory(prefix="tilewright-diagnose-")

    def close(self) -> None:
        """End the process, and delete the folder."""
        if self._own:
            self._worker.close()
        self._folder.cleanup()

    def check(self, case: Case, way: Way) -> Verdict | None:
        """Return the fault of the result of a case, or None. Raises `NoReference` if the interpreter cannot run it."""
        try:
            found, _ = self.ask("check_case", case, way=asdict(way))
        except Ended as ended:
            if ended.trail.get("at") == "reference":
                raise NoReference(f"the interpreter: {ended.verdict.text}") from ended
            return ended.verdict
        if "none" in found:
            raise NoReference(found["none"])
        return verdict_of(found)

    def arrays(self, probe: str, case: Case) -> list[Array]:
        """Return the arrays that a probe returns."""
        return [*load_arrays(self.ask(probe, case)[1][0]).values()]

    def ask(self, probe: str, case: Case, **more: Any) -> tuple[Message, list[bytes]]:
        """Return the answer of a probe. Raises `Ended`, and `InternalError` for an exception of the probe."""
        self.tried()
        self.probes += 1
        trail = Path(self._folder.name) / "trail.json"
        trail.unlink(missing_ok=True)
        message = {"settings": self.settings.to_json(), "trail": str(trail), "keep": self._folder.name, **more}
        try:
            if self._worker.pid is None:  # importing the compiler is not what takes too long
                self._worker.call(_IMPORT, {"modules": [_CHILDREN]}, (), _START)
            if not self._ended:
                return self._worker.call(f"{_PROBES}:{probe}", message, case.to_bytes(), self.timeout)
            asked = {**message, "probe": probe, "seconds": self.timeout}
            told, pieces = self._worker.call(f"{_CHILDREN}:in_child", asked, case.to_bytes(), self.timeout + _START)
        except WorkerCrashed as error:
            self._ended = True
            raise Ended(Verdict(CRASH, str(error)), _read(trail)) from error
        except WorkerTimedOut as error:
            self._ended = True
            raise Ended(Verdict(HANG, self._silent()), _read(trail)) from error
        except WorkerRaised as error:
            raise _failure(probe, error.kind, error.text) from error
        if SILENT in told or CRASHED in told:
            raise Ended(
                Verdict(CRASH, told[CRASHED]) if CRASHED in told else Verdict(HANG, self._silent()), _read(trail)
            )
        if "raised" in told:
            raise _failure(probe, *told["raised"])
        return told["answer"], pieces

    def _silent(self) -> str:
        return f"no answer within {self.timeout:g} s"

    def kept(self) -> Case:
        """Return the case that the process saved before it ended."""
        return Case.from_bytes(
            [Path(self._folder.name, name).read_bytes() for name in ("module.json", "inputs.params")]
        )


def _failure(probe: str, kind: str, text: str) -> TVMError:
    """Return the error for an exception of a probe: a missing plugin, or a fault of the compiler."""
    return (
        OptionError(text, code="TW0205") if kind == OptionError.__name__
        else InternalError(f"the probe {probe} of a diagnosis failed: {kind}: {text}")
    )


def verdict_of(message: Message) -> Verdict | None:
    """Return the verdict in an answer."""
    return Verdict(**message["verdict"]) if message.get("verdict") else None


def _read(trail: Path) -> Message:
    return dict(json.loads(trail.read_text(encoding="utf-8"))) if trail.exists() else {}
