"""What is measured, what measuring gives, and the loop between: build, run, remember.

    measured = measure(candidates, LocalBuilder(), LocalRunner(number=4, repeat=3), records)

A `Candidate` is one way to compute a workload. A `Builder` makes native code of candidates, a `Runner` times that code and compares its
answers with those of the default schedule. Neither raises for a bad candidate: what went wrong is a `MeasureErrorNo` and a text. Where they
do their work, in processes of this machine (`tuning/local.py`), on a cluster (`tuning/cluster.py`), on devices behind a tracker
(`tuning/remote.py`), is theirs alone.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from tilewright.tir.stmt import PrimFunc


class MeasureErrorNo(IntEnum):
    """What became of a candidate; the numbers are those of AutoTVM's records."""

    NO_ERROR = 0
    INSTANTIATION_ERROR = 1
    """The decisions give no program: `Candidate.lower` raised."""
    COMPILE_HOST = 2
    """The program cannot be compiled, or the compiler ended while it tried."""
    COMPILE_DEVICE = 3
    """The part for another device than the host cannot be compiled; not given for CPUs."""
    RUNTIME_DEVICE = 4
    """The program raised, or ended the process that ran it."""
    WRONG_ANSWER = 5
    """The program computed something else than the default schedule does."""
    BUILD_TIMEOUT = 6
    RUN_TIMEOUT = 7
    UNKNOWN_ERROR = 8
    """Not the candidate's fault, as far as is known: no worker, no device, a connection that broke each time."""


class Candidate(ABC):
    """One way to compute a workload. Candidates are pickled, and what is of the running script itself is lowered before (`tuning/building.py`).

    Two candidates with equal `key`, `config` and `target` are the same one and are measured once. These three are fields or properties.
    """

    __slots__ = ()

    if TYPE_CHECKING:  # no attributes of the class, which a dataclass would take for defaults of its fields

        @property
        def key(self) -> str:
            """The workload: JSON of `[task name, args, kwargs]`, as in the "input" of AutoTVM's records."""

        @property
        def config(self) -> str:
            """The decisions: a JSON object; for AutoTVM `{"index": …, "code_hash": …, "entity": […]}`."""

        @property
        def target(self) -> str:
            """The target as text: `llvm -mcpu=…`."""

    @abstractmethod
    def lower(self) -> PrimFunc:
        """The loops, with blocks or flat: what `tvm.build` takes. Called in a worker process, whose limits hold for it; may raise anything."""

    def default(self) -> Candidate | None:
        """The same workload with the default schedule, whose answers are the right ones; None: answers are not checked."""
        return None

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """Between which numbers the random data of a parameter is, by its name, where the usual range does not fit (`tuning/data.py`).

        An integer parameter that chooses places in another needs one. Those of the default schedule count. Called after `lower`, as `values`.
        """
        return {}

    def values(self) -> Mapping[str, np.ndarray[Any, Any]]:
        """What parameters hold that are constants, by their names: stored as this candidate wants them, so that their shapes may be its own.

        Called after `lower`, in the same process. The other parameters are those of the default schedule, in their order.
        """
        return {}

    @property
    def identity(self) -> tuple[str, str, str]:
        """What makes two candidates the same one."""
        return self.key, self.config, self.target


@dataclass(frozen=True, slots=True)
class Value:
    """What a parameter holds, as it travels."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: bytes


@dataclass(frozen=True, slots=True)
class Image:
    """Native code as it travels: the bytes of an artifact of functions, as `runtime.load_module` reads it from a file.

    A shared library (`.so`) runs where no compiler is installed; objects (`.tar`) are made faster, since nothing is linked.
    """

    library: bytes = field(repr=False)
    ir_hash: str
    """The digest of the loops that it was made from."""
    values: tuple[Value, ...] = field(default=(), repr=False)
    """The constants among its parameters."""
    ranges: tuple[tuple[str, float, float], ...] = ()
    """Between which numbers the random data of a parameter is: `Candidate.ranges`."""


@dataclass(frozen=True, slots=True)
class Built:
    """A candidate and its code, or what kept it from having any."""

    candidate: Candidate
    image: Image | None
    error_no: MeasureErrorNo = MeasureErrorNo.NO_ERROR
    error: str = ""
    seconds: float = 0.0
    """How long building took."""
    reference: Image | None = field(default=None, repr=False)
    """The code of the default schedule, which all candidates of one workload share; None: answers are not checked."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds per call, one figure for each repetition; none when `error_no` is not 0."""

    costs: tuple[float, ...]
    error_no: MeasureErrorNo = MeasureErrorNo.NO_ERROR
    all_cost: float = 0.0
    """Seconds that building and running took in all."""
    timestamp: float = 0.0
    """When it was measured, seconds since 1970."""
    error: str = ""
    noisy: bool = False
    """Whether the repetitions still disagreed when they had been measured again."""
    spread: float = 0.0
    """How far the figures are apart, as a part of their median."""
    machine: str = ""
    """Where it was measured."""
    ir_hash: str = ""
    """The digest of the loops that were measured."""

    @property
    def ok(self) -> bool:
        return self.error_no == MeasureErrorNo.NO_ERROR

    @property
    def cost(self) -> float:
        """The median, seconds; infinite for a candidate that failed."""
        return float(np.median(self.costs)) if self.ok else float("inf")


OnMeasured = Callable[[int, Measured], None]
"""Told of each result as soon as it is there: the number of the candidate among those given, and its result."""


class Builder(Protocol):
    """Makes native code of candidates."""

    def build(self, candidates: Sequence[Candidate], form: str = ".tar") -> list[Built]:
        """One `Built` for each candidate, in order. `form` is that of their images: `.tar` or `.so`."""


class Runner(Protocol):
    """Times native code, and checks what it computes."""

    @property
    def form(self) -> str:
        """The form of images that it takes: `.so` where code travels to devices, else `.tar`."""

    def run(self, built: Sequence[Built], on_measured: OnMeasured | None = None) -> list[Measured]:
        """One result for each, in order; those that were not built give the error they have."""


class Memory(Protocol):
    """What has been measured before (`tuning/records.py`)."""

    def find(self, candidate: Candidate) -> Measured | None:
        """The result of this candidate, if there is one."""

    def add(self, candidate: Candidate, measured: Measured) -> None:
        """Remember a result; it outlives this process when the call returns."""


def measure(
    candidates: Sequence[Candidate], builder: Builder, runner: Runner, records: Memory | None = None, on_measured: OnMeasured | None = None,
) -> list[Measured]:
    """Build and run candidates; one result for each, in order.

    One that `records` know, or that comes twice, is not measured again. Results go to `records` one by one as they come, so that what
    ends this process loses no finished trial.
    """
    results: list[Measured | None] = [records.find(c) if records is not None else None for c in candidates]
    places: dict[tuple[str, str, str], list[int]] = {}
    for k, c in enumerate(candidates):
        if results[k] is None:
            places.setdefault(c.identity, []).append(k)
    for k, known in enumerate(results):
        if known is not None and on_measured is not None:
            on_measured(k, known)
    new = [candidates[ks[0]] for ks in places.values()]

    def finished(n: int, measured: Measured) -> None:
        if records is not None:
            records.add(new[n], measured)
        for k in places[new[n].identity]:
            results[k] = measured
            if on_measured is not None:
                on_measured(k, measured)

    if new:
        runner.run(builder.build(new, runner.form), finished)
    return [m for m in results if m is not None]


def failed(error_no: MeasureErrorNo, error: str, all_cost: float = 0.0, **more: Any) -> Measured:
    """The result of a candidate that could not be timed."""
    return Measured((), error_no, all_cost, time.time(), error, **more)


def not_built(built: Built) -> Measured:
    """The result of a candidate without code."""
    return failed(built.error_no, built.error, built.seconds)


def with_build(measured: Measured, built: Built) -> Measured:
    """A result with what is known from building."""
    return replace(measured, all_cost=measured.all_cost + built.seconds, ir_hash=built.image.ir_hash if built.image else "")
