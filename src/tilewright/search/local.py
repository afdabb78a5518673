"""Builds and runs in worker processes of this machine: builds are concurrent, runs are not."""

from __future__ import annotations

import pickle
import queue
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from tilewright.base.closing import Closeable
from tilewright.base.errors import OptionError, WorkerCrashed, WorkerNotStarted, WorkerRaised, WorkerTimedOut
from tilewright.base.limits import usable_cores
from tilewright.base.settings import nearest
from tilewright.ir.transform import PassContext
from tilewright.runtime.threads import default_threads
from tilewright.runtime.trial import TRIAL, machine_name
from tilewright.runtime.worker import Worker
from tilewright.search.building import BUILD, BuildFunc, build_with_options, default_build, pickled, travelling
from tilewright.search.measure import Built, Candidate, Image, Measured, MeasureErrorNo, OnMeasured, Value, failed
from tilewright.search.runner import TrialRunner, one_by_one
from tilewright.search.trials import Trials

T = TypeVar("T")
R = TypeVar("R")
_BUILD_FUNCS: Final = {"default": default_build}
_SCRIPT: Final = {"__main__": "tilewright.relay.serialization"}
"""The module that workers need for candidates of the running script, which are sent as loops."""
_KEPT_REFERENCES: Final = 64
_TRIALS_PER_PROCESS: Final = 500
"""Number of trials after which a process is replaced, because each trial leaks some kilobytes."""


class Workers:
    """`count` worker processes, started at their first use and kept."""

    def __init__(
        self, count: int, memory_limit: int | None = None, threads: int | None = None, modules: Sequence[str] = (),
    ) -> None:
        self.workers = [Worker(memory_limit, threads, modules) for _ in range(count)]
        self._free: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        for worker in self.workers:
            self._free.put(worker)

    def map(self, work: Callable[[Worker, T], R], items: Sequence[T]) -> list[R]:
        """Return `work(worker, item)` for each item, in order; raises the first exception of `work`."""
        if not items:
            return []
        with ThreadPoolExecutor(min(len(self.workers), len(items)), "tilewright-worker") as threads:
            futures = [threads.submit(self._with_worker, work, item) for item in items]
            try:
                return [f.result() for f in futures]
            except BaseException:
                for future in futures:
                    future.cancel()
                self.close()
                raise

    def _with_worker(self, work: Callable[[Worker, T], R], item: T) -> R:
        worker = self._free.get()
        try:
            return work(worker, item)
        finally:
            self._free.put(worker)

    def close(self) -> None:
        """End the processes; the next `map` starts new ones."""
        for worker in self.workers:
            worker.close()


class LocalBuilder(Closeable):
    """Builds in `n_parallel` worker processes (None: one for each core that this process may use)."""

    def __init__(
        self, timeout: float = 10, n_parallel: int | None = None, build_func: str | BuildFunc = "default",
        memory_limit: int | None = None, *, build_kwargs: Mapping[str, Any] | None = None, do_fork: bool = False,
        runtime: Any = None,
    ) -> None:
        """`timeout` is seconds for one candidate, `memory_limit` bytes for one process (None: half of this machine's).

        A custom `build_func` takes a `PrimFunc` and a target, returns a `FunctionModule`, and is defined in a module.
        `build_kwargs` is `{"build_option": options}`, options of `PassContext`. `do_fork` and `runtime` have no effect:
        workers are processes, and code needs no runtime.
        Raises `OptionError` for arguments out of range.
        """
        if timeout <= 0 or (n_parallel is not None and n_parallel < 1):
            raise OptionError(
                f"timeout={timeout} must be above 0 seconds, and n_parallel={n_parallel} at least 1", code="TW1110")
        self.timeout, self.build_func = timeout, _with_options(_build_func(build_func), build_kwargs or {})
        self.n_parallel = n_parallel or usable_cores()
        self._workers = Workers(self.n_parallel, memory_limit, 1, (BUILD.partition(":")[0],))
        self._needed: set[str] = set()
        self._references: dict[tuple[str, str, str, str], Built] = {}

    def build(self, candidates: Sequence[Candidate], form: str = ".tar") -> list[Built]:
        """Return one `Built` for each candidate, in order, with the image of its default schedule."""
        self._needed |= {_SCRIPT.get(m, m) for m in {type(c).__module__ for c in candidates}}
        defaults = [_default_of(c) for c in candidates]
        wanted = {(*d.identity, form): d for d in defaults if isinstance(d, Candidate)}
        new = {key: d for key, d in wanted.items() if key not in self._references}
        everything = {**new, **{(*c.identity, form): c for c in candidates}}
        found = self._workers.map(lambda worker, c: self._one(worker, c, form), list(everything.values()))
        made = dict(zip(everything, found, strict=True))
        references = {key: made.get(key) or self._references[key] for key in wanted}
        self._references.update({key: built for key, built in references.items() if built.image is not None})
        built = [
            _with_reference(
                made[(*c.identity, form)], references[(*d.identity, form)] if isinstance(d, Candidate) else d)
            for c, d in zip(candidates, defaults, strict=True)]
        while len(self._references) > _KEPT_REFERENCES:
            del self._references[next(iter(self._references))]
        return built

    def _one(self, worker: Worker, candidate: Candidate, form: str) -> Built:
        start = time.perf_counter()

        def refused(error_no: int, error: object) -> Built:
            return Built(candidate, None, MeasureErrorNo(error_no), str(error), time.perf_counter() - start)

        try:
            data = travelling(candidate, self.build_func)
        except Exception as error:
            return refused(MeasureErrorNo.INSTANTIATION_ERROR, f"{type(error).__name__}: {error}")
        try:
            worker.need(sorted(self._needed))
            start = time.perf_counter()
            found, pieces = worker.call(BUILD, {"form": form}, [data], self.timeout)
        except WorkerTimedOut as error:
            return refused(MeasureErrorNo.BUILD_TIMEOUT, error)
        except (WorkerCrashed, WorkerRaised) as error:
            return refused(MeasureErrorNo.COMPILE_HOST, error)
        except WorkerNotStarted as error:
            return refused(MeasureErrorNo.UNKNOWN_ERROR, error)
        if "error_no" in found:
            return refused(found["error_no"], found["error"])
        described = zip(found["values"], pieces[1:], strict=True)
        values = tuple(Value(name, dtype, tuple(shape), data) for (name, dtype, shape), data in described)
        ranges = tuple((name, low, high) for name, low, high in found["ranges"])
        return Built(candidate, Image(pieces[0], found["ir_hash"], values, ranges), seconds=time.perf_counter() - start)

    def close(self) -> None:
        """End the worker processes; the next build starts new ones."""
        self._workers.close()


class LocalRunner(TrialRunner):
    """Times code in one worker process, one candidate after the other."""

    form = ".tar"

    def __init__(
        self, timeout: float = 10, number: int = 4, repeat: int = 3, min_repeat_ms: float = 0,
        cooldown_interval: float = 0.1,
        enable_cpu_cache_flush: bool = False, *, threads: int | None = None, memory_limit: int | None = None,
        seed: int = 0, noise: float = 0.1, module_loader: Any = None,
    ) -> None:
        """`threads` is the number of threads of the measured code (None: the default of programs).

        With `module_loader`, a `micro.AutoTvmModuleLoader`, its machine runs the code. The other options are those of
        `TrialRunner`. Raises `OptionError` or `InputError` for values out of range.
        """
        super().__init__(timeout, number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush, noise)
        modules = (TRIAL.partition(":")[0], "tilewright.backends.cpu.llvm.jit")
        self._worker = Worker(memory_limit, threads or default_threads(), modules)
        self._trials = Trials(self._worker, self.options, timeout, seed, machine_name())
        self._made = 0
        self._elsewhere = _runner_of(module_loader, timeout, number, repeat, min_repeat_ms, cooldown_interval)

    def run(self, built: Sequence[Built], on_measured: OnMeasured | None = None) -> list[Measured]:
        """Return one result for each, in order; those that were not built have the error of building."""
        if self._elsewhere is not None:
            found: list[Measured] = self._elsewhere.run(built, on_measured)
            return found
        return one_by_one(built, self.run_image, on_measured)

    def run_image(self, image: Image, reference: Image | None) -> Measured:
        """Return the result of one trial; `reference` is the code with the expected results."""
        self._made += 1
        if self._made % _TRIALS_PER_PROCESS == 0:
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
        if self._elsewhere is not None:
            self._elsewhere.close()


def _runner_of(loader: Any, *options: float) -> Any:
    """Return the runner of a module loader; None without one."""
    if loader is not None and not callable(getattr(loader, "runner", None)):
        raise OptionError(
            f"module_loader is a {type(loader).__name__}, which runs nothing; give a micro.AutoTvmModuleLoader",
            code="TW1110")
    return None if loader is None else loader.runner(*options)


def _with_options(build: BuildFunc, arguments: Mapping[str, Any]) -> BuildFunc:
    """Return the build function under the options of `build_kwargs`. Raises `OptionError` for other arguments."""
    unknown = [name for name in arguments if name != "build_option"]
    if unknown:
        raise OptionError(
            f"build_kwargs has no '{unknown[0]}'; it has 'build_option', options of PassContext by name", code="TW1110")
    options = dict(arguments.get("build_option") or {})
    PassContext(config=options)  # raises for unknown ones
    return partial(build_with_options, build, options) if options else build


def _build_func(given: str | BuildFunc) -> BuildFunc:
    if not callable(given):
        if given not in _BUILD_FUNCS:
            raise OptionError(
                f"there is no build_func '{given}'{nearest(given, _BUILD_FUNCS)}; use 'default', or a function "
                "(PrimFunc, target) -> FunctionModule", code="TW1110")
        return _BUILD_FUNCS[given]
    try:
        _, of_script = pickled(given)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise OptionError(
            f"build_func cannot be sent to other processes ({error}); define it at the top of a module",
            code="TW1110") from error
    if of_script:
        raise OptionError(
            "build_func is defined in the script that runs, which other processes do not have; define it in a module "
            "and import it",
            code="TW1110")
    return given


def _default_of(candidate: Candidate) -> Candidate | str | None:
    """Return the default schedule of a candidate, None if it has none, or the error of requesting it."""
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
        error=f"the default schedule of this workload cannot be built, so no result can be checked: {why}")
