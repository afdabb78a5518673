"""How long the steps of a program take, and how that compares with what the machine can do.

Seconds are those of `Executable.profile`. Operations are two for each multiply-accumulate (or one for each element of a result where there are none),
bytes are those of all arguments and results, each read or written once: what no program can do without.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tilewright.autotvm.task.kernels import operations
from tilewright.errors import RunError

if TYPE_CHECKING:
    from tilewright.driver.explain.graphs import ProgramStep
    from tilewright.runtime.executable import Executable
    from tilewright.target.target import Target

_SECONDS: Final = 0.6
_MOST: Final = 20
"""Steps are timed as often as fits into so many seconds, at most so many times."""
_PROBES: Final = 400
"""What is measured of the machine is timed more often, and short: some of the runs shall be undisturbed."""
_PRODUCT: Final = 512
_ELEMENTS: Final = 1 << 24


@dataclass(frozen=True, slots=True)
class Peaks:
    """What a machine does in a second at best: operations on float32, and bytes to and from memory."""

    operations: float
    nbytes: float


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


def measure(executable: Executable, steps: Sequence[ProgramStep], target: Target) -> Measurement:
    """Run the program on random inputs. Raises `RunError` where its steps cannot be timed apart, `ArtifactError` where it does not run here."""
    once = executable.profile(number=1)
    times = int(min(_MOST, _SECONDS / max(once.seconds, 1e-9)))
    profile = executable.profile(number=times) if times > 1 else once
    parts = executable.manifest.parts
    if not isinstance(parts, int):
        raise RunError(f"'{executable.manifest.name}' is computed in as many parts as a call says, and is timed as a whole alone")
    found = tuple(
        StepMeasure(timed.seconds, float(parts * (operations(s.function) if s.function is not None else 0)), float(parts * s.nbytes))
        for timed, s in zip(profile.steps, steps, strict=True)
    )
    whole = executable.benchmark(repeat=5 if times > 1 else 1, number=1, min_repeat_ms=20).median
    return Measurement(found, whole, peaks_of(str(target), executable.threads), executable.threads)


@functools.cache
def peaks_of(target: str, threads: int) -> Peaks:
    """What a product of matrices and a sum of long vectors reach here, compiled for the same target, at their best of several runs."""
    from tilewright import relay
    from tilewright.compiler.model import compile as compiled
    from tilewright.relay.expr import Function

    def best(result: Any, *inputs: Any) -> float:
        model = compiled(Function(inputs, result), target=target, threads=threads)
        first = model.benchmark(repeat=3, number=1).min
        return float(min(first, model.benchmark(repeat=int(min(_PROBES, max(3, _SECONDS / first))), number=1).min))

    x, w = relay.var("x", shape=(_PRODUCT, _PRODUCT)), relay.const(np.ones((_PRODUCT, _PRODUCT), np.float32))
    v = relay.var("v", shape=(_ELEMENTS,))
    return Peaks(2.0 * _PRODUCT**3 / best(relay.nn.dense(x, w), x), 8.0 * _ELEMENTS / best(v + relay.const(1.0), v))
