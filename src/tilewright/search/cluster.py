"""Building and running on a Dask cluster: `ClusterBuilder("tcp://scheduler:8786")`,
`ClusterRunner("tcp://scheduler:8786")`.

Each worker of the cluster builds and times in its own worker processes, so that a bad candidate harms none of them.
When a worker of the cluster dies during a trial, the scheduler gives the trial to another one. The client stores
results, once.

Workers are chosen by their names or resources: `dask worker tcp://scheduler:8786 --name board-1 --resources "board=1"
--nthreads 1`. A worker for trials should have one thread, so that it runs one trial at a time, and a machine one such
    worker.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import pickle
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tilewright.base.closing import Closeable
from tilewright.base.errors import OptionError
from tilewright.runtime.trial import TrialOptions
from tilewright.search.building import default_build, travelling
from tilewright.search.local import LocalBuilder, LocalRunner
from tilewright.search.measure import Built, Candidate, Image, Measured, MeasureErrorNo, OnMeasured, failed
from tilewright.search.runner import not_built, warn_of_noise, with_build

_CONNECT_SECONDS: Final = 15.0
"""Time to wait for the scheduler, and for a first worker."""
_RETRIES: Final = 3
_Options = tuple[tuple[str, Any], ...]
"""The arguments of a `LocalRunner`, by which a worker of the cluster finds its own."""


class _OnCluster(Closeable):
    """Base class of the builder and the runner: a connection to a scheduler, which is made with the first work."""

    def __init__(
        self, address: str, workers: str | Sequence[str] | None, resources: Mapping[str, float] | None
    ) -> None:
        self._address = address
        self._workers = [workers] if isinstance(workers, str) else [*workers] if workers is not None else None
        self._resources = dict(resources) if resources else None
        self._client: Any = None
        self._lock = threading.Lock()

    def _connected(self) -> Any:
        """Return a client with a suitable worker. Raises `OptionError` if there is none."""
        try:
            import distributed
        except ImportError as error:
            text = "measuring on a cluster needs Dask; `pip install distributed`, on its workers too"
            raise OptionError(text, code="TW1111") from error
        with self._lock:
            try:
                self._client = self._client or self._connect(distributed.Client)
            except (OSError, TimeoutError, ValueError) as error:
                raise OptionError(
                    f"no Dask scheduler answers at '{self._address}' ({error}); start one with `dask scheduler`",
                    code="TW1111") from error
            try:
                self._client.wait_for_workers(1, timeout=_CONNECT_SECONDS)
            except TimeoutError as error:
                raise OptionError(
                    f"the Dask scheduler at '{self._address}' has no workers; start some with "
                    f"`dask worker {self._address}`", code="TW1111") from error
            self._check_workers(self._client)
            return self._client

    def _connect(self, client: Any) -> Any:
        """Return a new client. `distributed` asserts that the scheduler's first message holds one answer, but a busy
        scheduler may send two in one; a new connection gets its own first message."""
        connect = functools.partial(client, self._address, timeout=_CONNECT_SECONDS, set_as_default=False)
        for _ in range(_RETRIES):
            with contextlib.suppress(AssertionError):
                return connect()
        return connect()

    def _run(self, function: Any, jobs: Mapping[int, tuple[Any, ...]], on_done: Callable[[int, Any], None]) -> None:
        """Call `on_done(place, result or exception)` in this thread as jobs end; raises its exceptions."""
        client, finished = self._connected(), queue.SimpleQueue[int]()
        options = {"workers": self._workers, "resources": self._resources, "retries": _RETRIES, "pure": False}
        futures = {k: client.submit(function, *job, **options) for k, job in jobs.items()}
        try:
            for k, future in futures.items():
                future.add_done_callback(lambda _, k=k: finished.put(k))
            for _ in range(len(futures)):
                k = self._next(client, finished)
                error = futures[k].exception()
                on_done(k, error if error is not None else futures[k].result())
        finally:
            client.cancel([f for f in futures.values() if not f.done()], force=True)

    def _next(self, client: Any, finished: queue.SimpleQueue[int]) -> int:
        """Return the next job that ended. Raises `OptionError` when the scheduler, or each wanted worker, is gone."""
        while True:
            try:
                return finished.get(timeout=_CONNECT_SECONDS)
            except queue.Empty:
                if client.status != "running":
                    text = f"the Dask scheduler is gone (the connection is {client.status})"
                    raise OptionError(text, code="TW1111") from None
                self._check_workers(client)

    def _check_workers(self, client: Any) -> None:
        """Raise `OptionError` if no worker fits."""
        there = client.scheduler_info(n_workers=-1)["workers"]
        wanted = self._resources or {}
        if not any(
            (self._workers is None or {str(w["name"]), a} & set(self._workers))
            and all(w["resources"].get(r, 0) >= n for r, n in wanted.items()) for a, w in there.items()):
            names = ", ".join(sorted(str(w["name"]) for w in there.values())) or "none"
            raise OptionError(
                f"the cluster has no worker named {self._workers or 'anything'} with resources "
                f"{self._resources or 'of any kind'}; its workers: {names}", code="TW1111")

    def close(self) -> None:
        """Leave the cluster; the next work connects again."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close(_CONNECT_SECONDS)


class ClusterBuilder(_OnCluster):
    """Builds on the workers of a cluster, on each as many candidates at once as it has threads."""

    def __init__(
        self, address: str, timeout: float = 10, *, workers: str | Sequence[str] | None = None,
        resources: Mapping[str, float] | None = None, memory_limit: int | None = None,
    ) -> None:
        """`workers` are names or addresses of the workers to use, `resources` those that they must have.

        `timeout` is seconds for one candidate. Raises `OptionError`; the scheduler is asked when there is something to
        build.
        """
        super().__init__(address, workers, resources)
        LocalBuilder(timeout, 1, memory_limit=memory_limit).close()  # checks the values, here
        self._options = timeout, memory_limit

    def build(self, candidates: Sequence[Candidate], form: str = ".tar") -> list[Built]:
        """Return one `Built` for each candidate, in order, with the image of its default schedule."""
        results: dict[int, Built] = {}

        def done(k: int, result: Any) -> None:
            if isinstance(result, BaseException):
                error = f"no worker of the cluster could build it: {result}"
                result = Built(candidates[k], None, MeasureErrorNo.UNKNOWN_ERROR, error)
            results[k] = dataclasses.replace(result, candidate=candidates[k])

        jobs = {}
        for k, candidate in enumerate(candidates):
            try:
                jobs[k] = (travelling(candidate, default_build, with_default=True), form, *self._options)
            except Exception as error:
                results[k] = Built(
                    candidate, None, MeasureErrorNo.INSTANTIATION_ERROR, f"{type(error).__name__}: {error}")
        if jobs:
            self._run(build_one, jobs, done)
        return [results[k] for k in range(len(candidates))]


class ClusterRunner(_OnCluster):
    """Times code on the workers of a cluster."""

    form = ".so"

    def __init__(
        self, address: str, timeout: float = 10, number: int = 4, repeat: int = 3, min_repeat_ms: float = 0,
        cooldown_interval: float = 0.1, enable_cpu_cache_flush: bool = False, *,
        workers: str | Sequence[str] | None = None,
        resources: Mapping[str, float] | None = None, threads: int | None = None, memory_limit: int | None = None,
        seed: int = 0, noise: float = 0.1,
    ) -> None:
        """`workers` are names or addresses of the workers to use, `resources` those that they must have.

        The other options are those of `LocalRunner`. Raises `OptionError` or `InputError`; the scheduler is asked when
        there is something to run.
        """
        super().__init__(address, workers, resources)
        TrialOptions(number, repeat, min_repeat_ms, enable_cpu_cache_flush, noise)  # checks the values, here
        self._options: _Options = (
            ("timeout", timeout), ("number", number), ("repeat", repeat), ("min_repeat_ms", min_repeat_ms),
            ("cooldown_interval", cooldown_interval), ("enable_cpu_cache_flush", enable_cpu_cache_flush),
            ("threads", threads), ("memory_limit", memory_limit), ("seed", seed), ("noise", noise),
        )

    def run(self, built: Sequence[Built], on_measured: OnMeasured | None = None) -> list[Measured]:
        """Return one result for each, in order; those that were not built have the error of building."""
        results: dict[int, Measured] = {}

        def done(k: int, result: Any) -> None:
            if built[k].image is None:
                result = not_built(built[k])
            elif isinstance(result, BaseException):
                result = failed(
                    MeasureErrorNo.UNKNOWN_ERROR, f"no worker of the cluster could run it: {result}", built[k].seconds)
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
            self._run(run_one, jobs, done)
        found = [results[k] for k in range(len(built))]
        warn_of_noise(found)
        return found


# ---- On the workers of the cluster

_LOCK: Final = threading.Lock()
"""Only one trial at a time in a process of the cluster, however many threads it has."""


@functools.lru_cache(maxsize=2)
def _builder(timeout: float, memory_limit: int | None) -> LocalBuilder:
    return LocalBuilder(timeout, memory_limit=memory_limit)


@functools.lru_cache(maxsize=2)
def _runner(options: _Options) -> LocalRunner:
    arguments: dict[str, Any] = dict(options)
    return LocalRunner(**arguments)


def build_one(candidate: bytes, form: str, timeout: float, memory_limit: int | None) -> Built:
    """Build the candidate, with its default schedule, in a worker process of this machine."""
    loaded, _ = pickle.loads(candidate)
    (built,) = _builder(timeout, memory_limit).build([loaded], form)
    return dataclasses.replace(built, candidate=None)  # type: ignore[arg-type]  # the client has it


def run_one(image: Image, reference: Image | None, options: _Options) -> Measured:
    """Run it in the worker process that these options have on this machine."""
    with _LOCK:
        return _runner(options).run_image(image, reference)
