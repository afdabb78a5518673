"""Building and running in worker processes of this machine: many build at once, one runs at a time."""

from __future__ import annotations

import logging
import os
import pickle
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Final, Self

from tilewright.base.errors import OptionError, WorkerCrashed, WorkerNotStarted, WorkerRaised, WorkerTimedOut
from tilewright.base.settings import nearest
from tilewright.runtime.threads import default_threads
from tilewright.runtime.trial import TRIAL, TrialOptions, machine_name
from tilewright.runtime.worker import Worker
from tilewright.search.building import BUILD, BuildFunc, default_build, pickled, travelling
from tilewright.search.measure import Built, Candidate, Image, Measured, MeasureErrorNo, OnMeasured, Value, failed, not_built, with_build
from tilewright.search.trials import Trials
from tilewright.search.workers import Workers

_LOG: Final = logging.getLogger(__name__)
_BUILD_FUNCS: Final = {"default": default_build}
_SCRIPT: Final = {"__main__": "tilewright.relay.serialization"}
"""What workers need for candidates of the script itself: these travel as loops."""
_KEPT_REFERENCES: Final = 64
_FRESH_AFTER: Final = 500
"""Trials that one process makes before another takes over: each leaves some kilobytes behind."""


class LocalBuilder:
    """Builds in `n_parallel` worker processes (None: as many as this process may use cores)."""

    def __init__(
        self, timeout: float = 10, n_parallel: int | None = None, build_func: str | BuildFunc = "default", memory_limit: int | None = None
    ) -> None:
        """`timeout` is seconds for one candidate, `memory_limit` bytes for one process (None: half of this machine's).

        A `build_func` of your own takes a `PrimFunc` and a target, and gives a `FunctionModule`; it is defined in a module.
        Raises `OptionError`.
        """
        if timeout <= 0 or (n_parallel is not None and n_parallel < 1):
            raise OptionError(f"timeout={timeout} must be above 0 seconds, and n_parallel={n_parallel} at least 1", code="TW1110")
        self.timeout, self.build_func = timeout, _build_func(build_func)
        self.n_parallel = n_parallel or cores()
        self._workers = Workers(self.n_parallel, memory_limit, 1, (BUILD.partition(":")[0],))
        self._needed: set[str] = set()
        self._references: dict[tuple[str, str, str, str], Built] = {}

    def build(self, candidates: Sequence[Candidate], form: str = ".tar") -> list[Built]:
        """One `Built` for each candidate, in order, with the image of its default schedule."""
        self._needed |= {_SCRIPT.get(m, m) for m in {type(c).__module__ for c in candidates}}
        defaults = [_default_of(c) for c in candidates]
        wanted = {(*d.identity, form): d for d in defaults if isinstance(d, Candidate)}
        new = {key: d for key, d in wanted.items() if key not in self._references}
        everything = {**new, **{(*c.identity, form): c for c in candidates}}
        made = dict(zip(everything, self._workers.map(lambda worker, c: self._one(worker, c, form), list(everything.values())), strict=True))
        references = {key: made.get(key) or self._references[key] for key in wanted}
        self._references.update({key: built for key, built in references.items() if built.image is not None})
        built = [
            _with_reference(made[(*c.identity, form)], references[(*d.identity, form)] if isinstance(d, Candidate) else d)
            for c, d in zip(candidates, defaults, strict=True)
        ]
        while len(self._references) > _KEPT_REFERENCES:
            del self._references[next(iter(self._references))]
        return built

    def _one(self, worker: Worker, candidate: Candidate, form: str) -> Built:
        start = time.perf_counter()
        try:
            data = travelling(candidate, self.build_func)
        except Exception as error:
            return Built(candidate, None, MeasureErrorNo.INSTANTIATION_ERROR, f"{type(error).__name__}: {error}", time.perf_counter() - start)
        try:
            worker.need(sorted(self._needed))
            start = time.perf_counter()
            found, pieces = worker.call(BUILD, {"form": form}, [data], self.timeout)
        except WorkerTimedOut as error:
            return Built(candidate, None, MeasureErrorNo.BUILD_TIMEOUT, str(error), time.perf_counter() - start)
        except (WorkerCrashed, WorkerRaised) as error:
            return Built(candidate, None, MeasureErrorNo.COMPILE_HOST, str(error), time.perf_counter() - start)
        except WorkerNotStarted as error:
            return Built(candidate, None, MeasureErrorNo.UNKNOWN_ERROR, str(error), time.perf_counter() - start)
        seconds = time.perf_counter() - start
        if "error_no" in found:
            return Built(candidate, None, MeasureErrorNo(found["error_no"]), found["error"], seconds)
        values = tuple(Value(name, dtype, tuple(shape), data) for (name, dtype, shape), data in zip(found["values"], pieces[1:], strict=True))
        ranges = tuple((name, low, high) for name, low, high in found["ranges"])
        return Built(candidate, Image(pieces[0], found["ir_hash"], values, ranges), seconds=seconds)

    def close(self) -> None:
        """End the worker processes; the next build starts new ones."""
        self._workers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class LocalRunner:
    """Times code in one worker process, one candidate after the other."""

    form = ".tar"

    def __init__(
        self, timeout: float = 10, number: int = 4, repeat: int = 3, min_repeat_ms: float = 0, cooldown_interval: float = 0.1,
        enable_cpu_cache_flush: bool = False, *, threads: int | None = None, memory_limit: int | None = None, seed: int = 0, noise: float = 0.1,
    ) -> None:
        """`repeat` figures for each candidate, each the mean of `number` calls or of as many as take `min_repeat_ms`; `timeout` and
        `cooldown_interval` (after each trial) in seconds; `threads` as many as the code may use (None: as programs do by themselves).

        Raises `OptionError` or `InputError` for values that make no sense.
        """
        if timeout <= 0 or cooldown_interval < 0:
            raise OptionError(f"timeout={timeout} must be above 0 seconds, and cooldown_interval={cooldown_interval} at least 0", code="TW1110")
        self.options = TrialOptions(number, repeat, min_repeat_ms, enable_cpu_cache_flush, noise)
        self.cooldown_interval = cooldown_interval
        self._worker = Worker(memory_limit, threads or default_threads(), (TRIAL.partition(":")[0], "tilewright.backends.cpu.llvm.jit"))
        self._trials = Trials(self._worker, self.options, timeout, seed, machine_name())
        self._made = 0

    def run(self, built: Sequence[Built], on_measured: OnMeasured | None = None) -> list[Measured]:
        """One result for each, in order; those that were not built give the error they have."""
        return one_by_one(built, self.run_image, on_measured)

    def run_image(self, image: Image, reference: Image | None) -> Measured:
        """The result of one trial; `reference` is the code whose answers are right."""
        self._made += 1
        if self._made % _FRESH_AFTER == 0:
            self._trials.fresh()
        try:
            measured = self._trials.run(image, reference)
        except OSError as error:
            return failed(MeasureErrorNo.UNKNOWN_ERROR, f"no trial could be made: {error}")
        time.sleep(self.cooldown_interval)
        return measured

    def close(self) -> None:
        """End the worker process; the next run starts another."""
        self._worker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def one_by_one(built: Sequence[Built], run: Callable[[Image, Image | None], Measured], on_measured: OnMeasured | None) -> list[Measured]:
    """One result for each, in order, of the trials that `run` makes of what was built; each is told as it comes."""
    results = []
    for k, one in enumerate(built):
        measured = not_built(one) if one.image is None else with_build(run(one.image, one.reference), one)
        results.append(measured)
        if on_measured is not None:
            on_measured(k, measured)
    tell_of_noise(results)
    return results


def tell_of_noise(results: Sequence[Measured]) -> None:
    """Warn of results that cannot be trusted."""
    noisy = [m.spread for m in results if m.noisy]
    if noisy:
        _LOG.warning(
            "the figures of %d of %d candidates are up to %.0f %% apart, also when measured again: other programs use this machine, or its clock changes",
            len(noisy), len(results), 100 * max(noisy),
        )


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _build_func(given: str | BuildFunc) -> BuildFunc:
    if callable(given):
        try:
            _, of_script = pickled(given)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise OptionError(f"build_func cannot be given to other processes ({error}); define it at the top of a module", code="TW1110") from error
        if of_script:
            raise OptionError("build_func is defined in the script that runs, which other processes do not have; define it in a module and import it", code="TW1110")
        return given
    if given not in _BUILD_FUNCS:
        raise OptionError(f"there is no build_func '{given}'{nearest(given, _BUILD_FUNCS)}; use 'default', or a function (PrimFunc, target) -> FunctionModule", code="TW1110")
    return _BUILD_FUNCS[given]


def _default_of(candidate: Candidate) -> Candidate | str | None:
    """The default, None where there is none, or why it cannot be said."""
    try:
        return candidate.default()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _with_reference(built: Built, reference: Built | str | None) -> Built:
    if built.image is None or reference is None:
        return built
    if isinstance(reference, Built) and reference.image is not None:
        return replace(built, reference=reference.image)
    why = reference.error if isinstance(reference, Built) else reference
    return replace(
        built, image=None, error_no=MeasureErrorNo.UNKNOWN_ERROR,
        error=f"the default schedule of this workload cannot be built, so no answer can be checked: {why}",
    )
