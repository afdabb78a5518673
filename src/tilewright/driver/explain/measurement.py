"""Times of the steps of a program, compared with the peak rates of the machine.

Seconds are those of `Executable.profile`. Each multiply-accumulate counts as two operations; without any, each element
of a result counts as one. Bytes are those of all arguments and results, each accessed once: the minimum of any program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tilewright.base.errors import RunError
from tilewright.compiler.peaks import peaks
from tilewright.relay.analysis.operation_counts import operations

if TYPE_CHECKING:
    from tilewright.driver.explain.graphs import ProgramStep
    from tilewright.runtime.executable import Executable
    from tilewright.runtime.roofline import Peaks

_SECONDS: Final = 0.6
_MOST: Final = 20
"""Limits of the measurement: seconds, and number of runs."""


@dataclass(frozen=True, slots=True)
class StepMeasure:
    """A step of a program: seconds, operations, bytes."""

    seconds: float
    operations: float
    nbytes: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """All steps, the seconds of a whole call, and the peaks, with `threads` threads."""

    steps: tuple[StepMeasure, ...]
    seconds: float
    peaks: Peaks
    threads: int


def measure(executable: Executable, steps: Sequence[ProgramStep]) -> Measurement:
    """Run the program on random inputs. Raises `RunError` if its steps cannot be timed separately, `ArtifactError` if
    it does not run on this machine."""
    once = executable.profile(number=1)
    times = int(min(_MOST, _SECONDS / max(once.seconds, 1e-9)))
    profile = executable.profile(number=times) if times > 1 else once
    parts = executable.manifest.parts
    if not isinstance(parts, int):
        raise RunError(
            f"the number of parts of '{executable.manifest.name}' is only known at run time; time it as a whole",
            code="TW0714")
    found = tuple(
        StepMeasure(
            timed.seconds, float(parts * (operations(s.function) if s.function is not None else 0)),
            float(parts * s.nbytes))
        for timed, s in zip(profile.steps, steps, strict=True))
    whole = executable.benchmark(repeat=5 if times > 1 else 1, number=1, min_repeat_ms=20).median
    return Measurement(found, whole, peaks(executable.threads), executable.threads)
