"""One reliable timing of native code: on random data, with a check of its results, repeated until the times agree.

It runs in a worker process, locally or on a device without the compiler. `prepare` runs the code of the default
schedule once and keeps its results. Each `trial` gets the same data, and its results are compared.
"""

from __future__ import annotations

import functools
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np

from tilewright.base.errors import InputError
from tilewright.base.limits import usable_cores
from tilewright.base.types import DataType
from tilewright.runtime import timing_lock
from tilewright.runtime.functions import FunctionModule
from tilewright.runtime.manifest import Parameter
from tilewright.runtime.module import load_module
from tilewright.runtime.threads import default_threads
from tilewright.runtime.trial_data import Array, Guarded, arrays_of, difference, random_array
from tilewright.runtime.wire import Message

ATTEMPTS: Final = 3
LONGER_MS: Final = 5.0
"""Minimum milliseconds of a repetition when it is measured again."""
_LARGEST_FLUSH: Final = 64 << 20

PREPARE: Final = "tilewright.runtime.trial:prepare"
TRIAL: Final = "tilewright.runtime.trial:trial"


@dataclass(frozen=True, slots=True)
class TrialOptions:
    """Timing options: `repeat` measurements, each the mean of `number` calls, or of enough to take `min_repeat_ms`."""

    number: int = 4
    repeat: int = 3
    min_repeat_ms: float = 0
    flush: bool = False
    """Whether the caches are emptied before every call: up to `_LARGEST_FLUSH` bytes, more than any second-level cache.
    """
    noise: float = 0.1
    """Largest spread of the measurements, relative to their median, that is accepted without measuring again."""

    def __post_init__(self) -> None:
        if self.number < 1 or self.repeat < 1 or self.min_repeat_ms < 0 or self.noise <= 0:
            raise InputError(
                f"number={self.number} and repeat={self.repeat} must be at least 1, min_repeat_ms={self.min_repeat_ms} "
                f"at least 0, noise={self.noise} above 0", code="TW0717")

    def to_message(self) -> Message:
        return asdict(self)


@dataclass(slots=True)
class _Prepared:
    """Data and expected results of a workload, without constant parameters; no results if nothing is checked."""

    key: str
    params: tuple[Parameter, ...]
    first: list[Array]
    answers: dict[int, Array]


_PREPARED: list[_Prepared] = []
"""The current workload of this process; only one, because its data may be large."""


def prepare(message: Message, pieces: Sequence[bytes]) -> tuple[Message, list[bytes]]:
    """Create random data for the workload `message["key"]`, and with `message["check"]` the results of its default
    schedule with the code `pieces[0]`.

    Raises the errors of running it.
    """
    _PREPARED.clear()
    code = _Code.of(message, pieces)
    first = [random_array(p, k, message["seed"], message["ranges"]) for k, p in enumerate(code.params)]
    answers = {}
    if message["check"]:
        given = code.given(first)
        code.module(*(g.array for g in given.all))
        answers = {k: g.array.copy() for k, (p, g) in enumerate(zip(code.params, given.open, strict=True)) if p.written}
    _PREPARED.append(_Prepared(message["key"], code.params, first, answers))
    return {}, []


def trial(message: Message, pieces: Sequence[bytes]) -> tuple[Message, list[bytes]]:
    """Time the code `pieces[0]` of the prepared workload: `{"costs", "spread", "noisy"}`, or `{"wrong": why}`. Release
    the timing lock of this process."""
    try:
        return _trial(message, pieces)
    finally:
        timing_lock.release()


def _trial(message: Message, pieces: Sequence[bytes]) -> tuple[Message, list[bytes]]:
    if not _PREPARED or _PREPARED[0].key != message["key"]:
        raise InputError("the workload of this trial was not prepared", code="TW0717")
    prepared, options = _PREPARED[0], TrialOptions(**message["options"])
    code = _Code.of(message, pieces)
    if [(p.shape, p.dtype) for p in code.params] != [(p.shape, p.dtype) for p in prepared.params]:
        return {
            "wrong": f"the code takes ({', '.join(map(str, code.params))}), and the default schedule "
            f"({', '.join(map(str, prepared.params))})"
        }, []
    given = code.given(prepared.first)
    call = code.module.entry_func.bind(*(g.array for g in given.all))
    call()
    if wrong := _wrong(prepared, given):
        return {"wrong": wrong}, []
    costs, spread = timed(call, options)
    return {"costs": costs, "spread": spread, "noisy": spread > options.noise}, []


@dataclass(frozen=True, slots=True)
class _Given:
    """The arrays of one call: `all` of them, and the `open` ones, which are not constants."""

    all: list[Guarded]
    open: list[Guarded]


@dataclass(frozen=True, slots=True)
class _Code:
    """Functions, the parameters of the first, and its constants with their values."""

    module: FunctionModule
    all_params: tuple[Parameter, ...]
    values: dict[str, Array]

    @classmethod
    def of(cls, message: Message, pieces: Sequence[bytes]) -> _Code:
        module = load_library(pieces[0])
        params = arrays_of(module.entry_name, module.entry_func.params)
        described = zip(message["values"], pieces[1:], strict=True)
        values = {
            name: np.frombuffer(data, DataType(dtype).numpy()).reshape(shape) for (name, dtype, shape),
            data in described}
        for name, value in values.items():
            if not any(p.name == name and p.shape == value.shape and p.dtype == DataType(value.dtype) for p in params):
                raise InputError(
                    f"'{name}', {value.dtype}{list(value.shape)}, is given a value and is no parameter of "
                    f"{module.entry_func}", code="TW0717")
        return cls(module, params, values)

    @property
    def params(self) -> tuple[Parameter, ...]:
        """The parameters that are not constants."""
        return tuple(p for p in self.all_params if p.name not in self.values)

    def given(self, first: Sequence[Array]) -> _Given:
        """Return new arrays: the constants, and copies of `first` for the other parameters."""
        rest = iter(first)
        every, some = [], []
        for p in self.all_params:
            x = self.values[p.name] if p.name in self.values else next(rest)
            one = Guarded([int(d) for d in p.shape], x.dtype)
            one.array[...] = x
            every.append(one)
            if p.name not in self.values:
                some.append(one)
        return _Given(every, some)


def load_library(image: bytes) -> FunctionModule:
    """Load the functions of an artifact from its bytes: a shared library, or a tar of objects, which needs the
    compiler."""
    with tempfile.TemporaryDirectory(prefix="tilewright-trial-") as folder:
        path = Path(folder) / ("code.so" if image[:4] == b"\x7fELF" else "code.tar")
        path.write_bytes(image)
        module = load_module(path)
        if not isinstance(module, FunctionModule):
            raise InputError("a trial takes a library of functions, and this is a model", code="TW0717")
        _ = module.entry_func
        return module


def _wrong(prepared: _Prepared, given: _Given) -> str:
    """Describe the differences from the results of the default schedule."""
    if any(g.broken for g in given.all):
        return "the code wrote beside one of its arrays"
    for k, (p, g) in enumerate(zip(prepared.params, given.open, strict=True)):
        if not p.written and not _same_bytes(g.array, prepared.first[k]):
            return f"the code wrote into {p.name}, which it only reads"
        if k in prepared.answers and (text := difference(g.array, prepared.answers[k], p.name)):
            return text
    return ""


def _same_bytes(a: Array, b: Array) -> bool:
    return np.array_equal(a.reshape(-1).view(np.uint8), b.reshape(-1).view(np.uint8))


def timed(call: Callable[[], None], options: TrialOptions) -> tuple[list[float], float]:
    """Return seconds per call for each repetition, and their spread. While they disagree, measurements are repeated
    with more calls; the smallest spread counts."""
    best: tuple[list[float], float] | None = None
    for attempt in range(ATTEMPTS):
        least_ms = options.min_repeat_ms if options.flush else max(options.min_repeat_ms, attempt * LONGER_MS)
        costs, spread = _repetitions(call, options, least_ms)
        if best is None or spread < best[1]:
            best = costs, spread
        if spread <= options.noise:
            break
    assert best is not None
    return best


def _repetitions(call: Callable[[], None], options: TrialOptions, least_ms: float) -> tuple[list[float], float]:
    """Time each repetition in two halves if possible, so that the spread of a single repetition is known."""
    number, costs, halves = options.number, [], []
    for _ in range(options.repeat):
        while True:
            parts = [number // 2, number - number // 2] if number > 1 else [1]
            seconds = [_time(call, n, options.flush) for n in parts]
            if 1e3 * sum(seconds) >= least_ms:
                break
            wanted = 1.1 * number * least_ms / max(1e3 * sum(seconds), 1e-6)
            number = max(number + 1, min(int(wanted), 100 * number))
        costs.append(sum(seconds) / number)
        halves += [s / n for s, n in zip(seconds, parts, strict=True)]
    return costs, spread_of(halves)


def spread_of(figures: Sequence[float]) -> float:
    """Return the spread of values relative to their median; the interquartile range for more than three values."""
    low, middle, high = np.percentile(figures, [25, 50, 75]) if len(figures) > 3 else (
        min(figures), np.median(figures), max(figures)
    )
    return float((high - low) / middle) if middle > 0 else 0.0


def _time(call: Callable[[], None], number: int, flush: bool) -> float:
    if not flush:
        start = time.perf_counter()
        for _ in range(number):
            call()
        return time.perf_counter() - start
    seconds = 0.0
    for _ in range(number):
        flush_caches()
        start = time.perf_counter()
        call()
        seconds += time.perf_counter() - start
    return seconds


def flush_caches() -> None:
    """Evict the contents of the caches."""
    _other_data()[::64] += 1


@functools.cache
def _other_data() -> Array:
    return np.zeros(_LARGEST_FLUSH, np.uint8)


def machine_name() -> str:
    """Return the name of this machine in records: host name, processor, and number of cores for this process."""
    return f"{os.uname().nodename}, {_processor()}, {usable_cores()} cores"


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(errors="replace").splitlines() if cpuinfo.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), os.uname().machine)


def threads_of_worker(message: Message, pieces: Sequence[bytes]) -> tuple[Message, list[bytes]]:
    """Return the number of threads of native code in this process: `{"threads"}`."""
    return {"threads": default_threads()}, []
