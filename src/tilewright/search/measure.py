"""Candidates, the results of measuring them, and the measuring loop: build, run, store.

    measured = measure(candidates, LocalBuilder(), LocalRunner(number=4, repeat=3), records)

A `Candidate` is one way to compute a workload. A `Builder` makes native code of candidates; a `Runner` times that code
and compares its answers with those of the default schedule. Neither raises for a bad candidate: its result has a
`MeasureErrorNo` and a text. They work in processes of this machine (`search/local.py`), on a cluster
(`search/cluster.py`), on devices of a tracker (`search/remote.py`) or on a board (`search/boards.py`).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from tilewright.tir.stmt import PrimFunc


class MeasureErrorNo(IntEnum):
    """The outcome of measuring a candidate; the numbers are those of AutoTVM's records."""

    NO_ERROR = 0
    INSTANTIATION_ERROR = 1
    """The decisions give no program: `Candidate.lower` raised."""
    COMPILE_HOST = 2
    """The program cannot be compiled, or the compiler crashed."""
    COMPILE_DEVICE = 3
    """The part for another device than the host cannot be compiled; not used for CPUs."""
    RUNTIME_DEVICE = 4
    """The program raised an exception, or crashed its process."""
    WRONG_ANSWER = 5
    """The result differs from that of the default schedule."""
    BUILD_TIMEOUT = 6
    RUN_TIMEOUT = 7
    UNKNOWN_ERROR = 8
    """Probably not caused by the candidate: no worker, no device, or a broken connection."""


class Candidate(ABC):
    """One way to compute a workload. Candidates are pickled; those of the running script are lowered first.

    Candidates with equal `key`, `config` and `target` are equal and are measured once. These three are fields or
    properties.
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
        """Return the loops for `tvm.build`. Called in a worker process; may raise any exception."""

    def default(self) -> Candidate | None:
        """Return the default schedule of the workload, whose results are the reference; None: results are not checked.
        """
        return None

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """Return the ranges of random data by parameter name, if the default range does not fit.

        An integer parameter that indexes another one needs a range. The ranges of the default schedule apply. Called
        after `lower`.
        """
        return {}

    def values(self) -> Mapping[str, np.ndarray[Any, Any]]:
        """Return the values of constant parameters by name, in the layout that this candidate chooses.

        Called after `lower`, in the same process. The other parameters are those of the default schedule, in the same
        order.
        """
        return {}

    @property
    def ansor(self) -> str:
        """The fields of records in Ansor's form (`Record.ansor`); "" for AutoTVM's form."""
        return ""

    @property
    def is_own(self) -> bool:
        """Whether this is known to be the compiler's own choice for the workload."""
        return False

    @property
    def identity(self) -> tuple[str, str, str]:
        return self.key, self.config, self.target


@dataclass(frozen=True, slots=True)
class Value:
    """The value of a parameter, as sent to other processes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: bytes


@dataclass(frozen=True, slots=True)
class Image:
    """Native code, as sent to other processes: the bytes of an artifact of functions (`runtime.load_module`).

    A shared library (`.so`) runs without a compiler; objects (`.tar`) are built faster, without linking.
    """

    library: bytes = field(repr=False)
    ir_hash: str
    """The digest of the loops from which it was made."""
    values: tuple[Value, ...] = field(default=(), repr=False)
    """The constants among its parameters."""
    ranges: tuple[tuple[str, float, float], ...] = ()
    """The ranges of random data: `Candidate.ranges`."""


@dataclass(frozen=True, slots=True)
class Built:
    """A candidate and its code, or the error of building it."""

    candidate: Candidate
    image: Image | None
    error_no: MeasureErrorNo = MeasureErrorNo.NO_ERROR
    error: str = ""
    seconds: float = 0.0
    """Seconds that building took."""
    reference: Image | None = field(default=None, repr=False)
    """The code of the default schedule, which all candidates of a workload share; None: answers are not checked."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The result of measuring, in seconds per call. Unpacks to the four fields of AutoTVM's records."""

    costs: tuple[float, ...]
    error_no: int = MeasureErrorNo.NO_ERROR
    """A `MeasureErrorNo`; the costs of a failed candidate are meaningless."""
    all_cost: float = 0.0
    """Total seconds of building and running."""
    timestamp: float = 0.0
    """Time of the measurement, in seconds since 1970."""
    error: str = ""
    noisy: bool = False
    """Whether the repetitions still disagreed after another measurement."""
    spread: float = 0.0
    """Spread of the costs, as a fraction of their median."""
    machine: str = ""
    """Name of the machine."""
    ir_hash: str = ""
    """The digest of the measured loops."""

    @property
    def ok(self) -> bool:
        return self.error_no == MeasureErrorNo.NO_ERROR

    @property
    def cost(self) -> float:
        """The median of the costs, in seconds; infinite for a failed candidate."""
        return float(np.median(self.costs)) if self.ok and self.costs else float("inf")

    @property
    def error_msg(self) -> str:
        """`error` under auto_scheduler's name."""
        return self.error

    def __str__(self) -> str:
        return (
            f"MeasureResult(costs={tuple(map(float, self.costs))}, error_no={int(self.error_no)}, "
            f"all_cost={float(self.all_cost)}, timestamp={float(self.timestamp)})")

    def __iter__(self) -> Iterator[Any]:
        return iter((self.costs, self.error_no, self.all_cost, self.timestamp))


OnMeasured = Callable[[int, Measured], object]
"""Called with the number of a candidate and its result as soon as it is known."""


class Builder(Protocol):
    """Makes native code of candidates."""

    def build(self, candidates: Sequence[Candidate], form: str = ".tar") -> list[Built]:
        """Return one `Built` for each candidate, in order. `form` is the form of images: `.tar` or `.so`."""


class Runner(Protocol):
    """Times native code, and checks its results."""

    @property
    def form(self) -> str:
        """The form of accepted images: `.so` if code is sent to devices, else `.tar`."""

    def run(self, built: Sequence[Built], on_measured: OnMeasured | None = None) -> list[Measured]:
        """Return one result for each, in order; those that were not built have the error of building."""


class Memory(Protocol):
    """Stores results (`search/records.py`)."""

    def find(self, candidate: Candidate) -> Measured | None:
        """Return the result of this candidate, if there is one."""

    def add(self, candidate: Candidate, measured: Measured) -> None:
        """Store a result permanently before returning, so that it survives the end of this process."""


def measure(
    candidates: Sequence[Candidate], builder: Builder, runner: Runner, records: Memory | None = None,
    on_measured: OnMeasured | None = None,
) -> list[Measured]:
    """Build and run candidates; return one result for each, in order.

    Candidates in `records`, and duplicates, are not measured again. Each result is stored at once, so that an
    interrupted process loses no finished trial.
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
    """Return the result of a candidate that could not be timed."""
    return Measured((), error_no, all_cost, time.time(), error, **more)
