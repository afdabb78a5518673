"""Building and running on a Dask cluster: `ClusterBuilder("tcp://scheduler:8786")`, `ClusterRunner("tcp://scheduler:8786")`.

Each worker of the cluster builds and times in worker processes of its own, so that a bad candidate harms none of them. Where a worker of the
cluster dies during a trial, the scheduler gives the trial to another one; results are told, and recorded, by the process that asked, once.

Workers are chosen by their names or resources: `dask worker tcp://scheduler:8786 --name board-1 --resources "board=1" --nthreads 1`. A
worker that is given trials should have one thread, so that it makes one trial at a time, and a machine should have one such worker.
"""

from __future__ import annotations

import dataclasses
import functools
import pickle
import queue
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from tilewright.base.errors import OptionError
from tilewright.runtime.trial import TrialOptions
from tilewright.search.building import default_build, travelling
from tilewright.search.local import LocalBuilder, LocalRunner, tell_of_noise
from tilewright.search.measure import Built, Candidate, Image, Measured, MeasureErrorNo, OnMeasured, failed, not_built, with_build

_CONNECT_SECONDS: Final = 15.0
"""How long to wait for the scheduler, and for a first worker."""
_RETRIES: Final = 3


class _Cluster:
    """A connection to a scheduler, and which of its workers are used."""

    def __init__(self, address: str, workers: str | Sequence[str] | None, resources: Mapping[str, float] | None) -> None:
        try:
            import distributed
        except ImportError as error:
            raise OptionError("measuring on a cluster needs Dask; `pip install distributed`, on its workers too", code="TW1111") from error
        self.workers = [workers] if isinstance(workers, str) else [*workers] if workers is not None else None
        self.resources = dict(resources) if resources else None
        try:
            connect: Any = distributed.Client
            self.client = connect(address, timeout=_CONNECT_SECONDS, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise OptionError(f"no Dask scheduler answers at '{address}' ({error}); start one with `dask scheduler`", code="TW1111") from error

    def run(self, function: Any, jobs: Mapping[int, tuple[Any, ...]], on_done: Any) -> None:
        """`on_done(place, result or exception)` in this thread, in the order in which the jobs end. Raises what `on_done` raises."""
        finished: queue.SimpleQueue[int] = queue.SimpleQueue()
        futures = {
            k: self.client.submit(function, *job, workers=self.workers, resources=self.resources, retries=_RETRIES, pure=False) for k, job in jobs.items()
        }
        try:
            for k, future in futures.items():
                future.add_done_callback(lambda _, k=k: finished.put(k))
            for _ in range(len(futures)):
                k = self._next(finished)
                error = futures[k].exception()
                on_done(k, error if error is not None else futures[k].result())
        finally:
            self.client.cancel([f for f in futures.values() if not f.done()], force=True)

    def _next(self, finished: queue.SimpleQueue[int]) -> int:
        """The next job that ended; raises `OptionError` where there is no scheduler any more, or none of the workers that are wanted."""
        while True:
            try:
                return finished.get(timeout=_CONNECT_SECONDS)
            except queue.Empty:
                if self.client.status != "running":
                    raise OptionError(f"the Dask scheduler is gone (the connection is {self.client.status})", code="TW1111") from None
                self.check_workers()

    def check_workers(self) -> None:
        """Raises `OptionError` where no worker can take the work."""
        there = self.client.scheduler_info(n_workers=-1)["workers"]
        fitting = [
            w for a, w in there.items()
            if (self.workers is None or {str(w["name"]), a} & set(self.workers)) and all(w["resources"].get(r, 0) >= n for r, n in (self.resources or {}).items())
        ]
        if not fitting:
            names = ", ".join(sorted(str(w["name"]) for w in there.values())) or "none"
            raise OptionError(f"the cluster has no worker named {self.workers or 'anything'} with resources {self.resources or 'of any kind'}; its workers: {names}", code="TW1111")

    def wait(self) -> None:
        """Until there is a worker that can take work."""
        self.client.wait_for_workers(1, timeout=_CONNECT_SECONDS)
        self.check_workers()


class _OnCluster:
    """What builder and runner have in common: the connection is made with the first work."""

    def __init__(self, address: str, workers: str | Sequence[str] | None, resources: Mapping[str, float] | None) -> None:
        self._arguments = address, workers, resources
        self._known: _Cluster | None = None
        self._lock = threading.Lock()

    def _cluster(self) -> _Cluster:
        with self._lock:
            if self._known is None:
                self._known = _Cluster(*self._arguments)
            try:
                self._known.wait()
            except TimeoutError as error:
                raise OptionError(f"the Dask scheduler at '{self._arguments[0]}' has no workers; start some with `dask worker {self._arguments[0]}`", code="TW1111") from error
            return self._known

    def close(self) -> None:
        """Leave the cluster; the next work connects again."""
        with self._lock:
            known, self._known = self._known, None
        if known is not None:
            known.client.close(_CONNECT_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class ClusterBuilder(_OnCluster):
    """Builds on the workers of a cluster, each as many candidates at once as it has threads."""

    def __init__(
        self, address: str, timeout: float = 10, *, workers: str | Sequence[str] | None = None, resources: Mapping[str, float] | None = None,
        memory_limit: int | None = None,
    ) -> None:
        """`workers` are names or addresses of those that may build, `resources` what they must have; `timeout` is seconds for one candidate.

        Raises `OptionError`; the scheduler is asked when there is something to build.
        """
        super().__init__(address, workers, resources)
        LocalBuilder(timeout, 1, memory_limit=memory_limit).close()  # refuses what makes no sense, here
        self._options = timeout, memory_limit

    def build(self, candidates: Sequence[Candidate], form: str = ".tar") -> list[Built]:
        """One `Built` for each candidate, in order, with the image of its default schedule."""
        results: dict[int, Built] = {}

        def done(k: int, result: Any) -> None:
            results[k] = (
                Built(candidates[k], None, MeasureErrorNo.UNKNOWN_ERROR, f"no worker of the cluster could build it: {result}") if isinstance(result, BaseException)
                else dataclasses.replace(result, candidate=candidates[k])
            )

        jobs = {}
        for k, candidate in enumerate(candidates):
            try:
                jobs[k] = (travelling(candidate, default_build, with_default=True), form, *self._options)
            except Exception as error:
                results[k] = Built(candidate, None, MeasureErrorNo.INSTANTIATION_ERROR, f"{type(error).__name__}: {error}")
        if jobs:
            self._cluster().run(build_one, jobs, done)
        return [results[k] for k in range(len(candidates))]


class ClusterRunner(_OnCluster):
    """Times code on the workers of a cluster."""

    form = ".so"

    def __init__(
        self, address: str, timeout: float = 10, number: int = 4, repeat: int = 3, min_repeat_ms: float = 0, cooldown_interval: float = 0.1,
        enable_cpu_cache_flush: bool = False, *, workers: str | Sequence[str] | None = None, resources: Mapping[str, float] | None = None,
        threads: int | None = None, memory_limit: int | None = None, seed: int = 0, noise: float = 0.1,
    ) -> None:
        """`workers` are names or addresses of those that may time, `resources` what they must have; the others are as in `LocalRunner`.

        Raises `OptionError` or `InputError`; the scheduler is asked when there is something to run.
        """
        super().__init__(address, workers, resources)
        TrialOptions(number, repeat, min_repeat_ms, enable_cpu_cache_flush, noise)
        self._options = _RunnerOptions(
            timeout, number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush, threads, memory_limit, seed, noise,
        )

    def run(self, built: Sequence[Built], on_measured: OnMeasured | None = None) -> list[Measured]:
        """One result for each, in order; those that were not built give the error they have."""
        results: dict[int, Measured] = {}

        def done(k: int, result: Any) -> None:
            if built[k].image is None:
                result = not_built(built[k])
            elif isinstance(result, BaseException):
                result = failed(MeasureErrorNo.UNKNOWN_ERROR, f"no worker of the cluster could run it: {result}", built[k].seconds)
            else:
                result = with_build(result, built[k])
            results[k] = result
            if on_measured is not None:
                on_measured(k, result)

        for k, one in enumerate(built):
            if one.image is None:
                done(k, None)
        jobs = {k: (one.image, one.reference, self._options) for k, one in enumerate(built) if one.image is not None}
        if jobs:
            self._cluster().run(run_one, jobs, done)
        found = [results[k] for k in range(len(built))]
        tell_of_noise(found)
        return found


@dataclasses.dataclass(frozen=True, slots=True)
class _RunnerOptions:
    """The arguments of a `LocalRunner`, by which a worker of the cluster finds the one that it has."""

    timeout: float
    number: int
    repeat: int
    min_repeat_ms: float
    cooldown_interval: float
    enable_cpu_cache_flush: bool
    threads: int | None
    memory_limit: int | None
    seed: int
    noise: float


# ---- on the workers of the cluster

_TURN: Final = threading.Lock()
"""One trial at a time in a process of the cluster, however many threads it has."""


@functools.lru_cache(maxsize=2)
def _builder(timeout: float, memory_limit: int | None) -> LocalBuilder:
    return LocalBuilder(timeout, memory_limit=memory_limit)


@functools.lru_cache(maxsize=2)
def _runner(options: _RunnerOptions) -> LocalRunner:
    return LocalRunner(**{f.name: getattr(options, f.name) for f in dataclasses.fields(options)})


def build_one(candidate: bytes, form: str, timeout: float, memory_limit: int | None) -> Built:
    """Build the candidate, with its default schedule, in a worker process of this machine."""
    loaded, _ = pickle.loads(candidate)
    (built,) = _builder(timeout, memory_limit).build([loaded], form)
    return dataclasses.replace(built, candidate=None)  # type: ignore[arg-type]  # who asked has it


def run_one(image: Image, reference: Image | None, options: _RunnerOptions) -> Measured:
    """Run it in the worker process of this machine that is for it."""
    with _TURN:
        return _runner(options).run_image(image, reference)
