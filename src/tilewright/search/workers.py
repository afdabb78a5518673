"""Several worker processes at once: calls are handed to whichever is free."""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tilewright.runtime.worker import Worker

T = TypeVar("T")
R = TypeVar("R")


class Workers:
    """`count` worker processes, started when they are first needed and kept warm."""

    def __init__(self, count: int, memory_limit: int | None = None, threads: int | None = None, modules: Sequence[str] = ()) -> None:
        self.workers = [Worker(memory_limit, threads, modules) for _ in range(count)]
        self._free: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        for worker in self.workers:
            self._free.put(worker)

    def map(self, work: Callable[[Worker, T], R], items: Sequence[T]) -> list[R]:
        """`work(worker, item)` for each item, as many at once as there are workers; the results in order. Raises what `work` raises first."""
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
        """End the processes. The workers can be used again, which starts new ones."""
        for worker in self.workers:
            worker.close()
