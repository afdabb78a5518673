"""How many candidates a second are built and timed, by who does it: builders here, workers of a Dask cluster, servers
of a tracker.

    python benchmarks/measuring.py [CANDIDATES] [--rounds 3] [--places here cluster tracker]

The candidates are configurations of a 3x3 convolution, each checked against the model's own choice. The places take
turns, and a row shows medians of the rounds; "building" is the speed of building against the first row of the same
kind. All of them are processes of this machine: those beyond its cores gain nothing, and since one of a machine times
at a time, neither do more servers.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tilewright as tvm
from tilewright import relay
from tilewright.runtime import rpc
from tilewright.search import autotvm
from tilewright.search.autotvm.measure import TaskCandidate
from tilewright.search.cluster import ClusterBuilder, ClusterRunner
from tilewright.search.local import LocalBuilder, LocalRunner
from tilewright.search.measure import Candidate, Measured, measure
from tilewright.search.remote import RPCRunner

OPTIONS: dict[str, Any] = {"number": 2, "repeat": 2, "cooldown_interval": 0}
SIZES: dict[str, Sequence[int]] = {"here": (1, 2), "cluster": (1, 3), "tracker": (1, 2)}
"""How many builders, workers, or servers with as many builders."""


def candidates(count: int) -> list[Candidate]:
    """Configurations of a convolution of 64 by 64 channels over 28x28 points, drawn with a fixed seed."""
    weights = relay.const((np.random.default_rng(1).random((64, 64, 3, 3), np.float32) - 0.5) / 24)
    mod = tvm.IRModule.from_expr(
        relay.nn.conv2d(relay.var("x", shape=(1, 64, 28, 28)), weights, padding=(1, 1), channels=64, kernel_size=(3, 3))
    )
    (task,) = autotvm.task.extract_from_program(mod["main"], target="llvm", params={})
    drawn = np.random.default_rng(0).choice(len(task.config_space), count, replace=False)
    return [TaskCandidate.of(task, task.config_space.get(int(k))) for k in drawn]


@contextmanager
def here(count: int) -> Iterator[tuple[Any, Any]]:
    with LocalBuilder(n_parallel=count) as builder, LocalRunner(**OPTIONS, threads=1) as runner:
        yield builder, runner


@contextmanager
def cluster(count: int) -> Iterator[tuple[Any, Any]]:
    from distributed import LocalCluster

    with LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=None) as started:
        started.wait_for_workers(count)
        with ClusterBuilder(started.scheduler_address) as builder, ClusterRunner(
            started.scheduler_address, **OPTIONS, threads=1
        ) as runner:
            yield builder, runner


@contextmanager
def tracker(count: int) -> Iterator[tuple[Any, Any]]:
    with ExitStack() as stack:
        hub = stack.enter_context(contextlib.closing(rpc.Tracker(port=0)))
        for _ in range(count):
            stack.enter_context(rpc.Server(port=0, key="board", tracker_addr=(hub.host, hub.port), threads=1))
        yield stack.enter_context(LocalBuilder(n_parallel=count)), RPCRunner("board", hub.host, hub.port, **OPTIONS)


PLACES: dict[str, Callable[[int], Any]] = {"here": here, "cluster": cluster, "tracker": tracker}


@dataclass
class Row:
    """What was measured at one place: seconds of the rounds."""

    building: list[float] = field(default_factory=list)
    timing: list[float] = field(default_factory=list)
    results: list[Measured] = field(default_factory=list)

    def add(self, work: Sequence[Candidate], first: Sequence[Candidate], builder: Any, runner: Any) -> None:
        """One round, once `first` has started the processes."""
        measure(first, builder, runner)
        start = time.perf_counter()
        built = builder.build(work)
        middle = time.perf_counter()
        self.results = runner.run(built)
        self.building.append(middle - start)
        self.timing.append(time.perf_counter() - middle)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("candidates", type=int, nargs="?", default=48)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--places", nargs="+", choices=list(PLACES), default=list(PLACES))
    given = parser.parse_args()
    work, first = candidates(given.candidates), candidates(2 * max(map(max, SIZES.values())))
    rows = {(place, count): Row() for place in given.places for count in SIZES[place]}
    for _ in range(given.rounds):
        for (place, count), row in rows.items():
            with PLACES[place](count) as (builder, runner):
                row.add(work, first, builder, runner)
    print(f"{'place':>8} {'count':>5} {'built/s':>8} {'timed/s':>8} {'building':>9} {'failed':>7} {'best':>10}")
    for (place, count), row in rows.items():
        base = statistics.median(rows[place, SIZES[place][0]].building)
        building, timing = statistics.median(row.building), statistics.median(row.timing)
        best = min(m.cost for m in row.results)
        print(
            f"{place:>8} {count:5} {given.candidates / building:8.1f} {given.candidates / timing:8.1f} "
            f"{base / building:8.2f}x "
            f"{sum(not m.ok for m in row.results):7} {1e3 * best:7.3f} ms"
        )


if __name__ == "__main__":
    main()
