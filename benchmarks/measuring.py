"""How many candidates a minute are built and timed, by the number of builders: `python benchmarks/measuring.py [CANDIDATES]`.

The candidates are tilings of a matrix product of 256 rows, columns and terms, each checked against the unscheduled loops.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from dataclasses import dataclass

from tilewright import te, tir
from tilewright.tir.stmt import PrimFunc
from tilewright.tuning.local import LocalBuilder, LocalRunner
from tilewright.tuning.measure import Candidate, measure

SIZE = 256


@dataclass(frozen=True, slots=True)
class Tiled(Candidate):
    """A product in tiles of `config["tile"]` rows and columns."""

    key: str
    config: str
    target: str

    def lower(self) -> PrimFunc:
        a, b = te.placeholder((SIZE, SIZE), name="a"), te.placeholder((SIZE, SIZE), name="b")
        k = te.reduce_axis((0, SIZE), name="k")
        c = te.compute((SIZE, SIZE), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
        sch = tir.Schedule(te.create_prim_func([a, b, c]))
        rows, columns, deep = json.loads(self.config)["tile"]
        i, j, r = sch.get_loops(sch.get_block("c"))
        (io, ii), (jo, ji), (ro, ri) = (sch.split(loop, factors=[None, n]) for loop, n in ((i, rows), (j, columns), (r, deep)))
        sch.reorder(io, jo, ro, ri, ii, ji)
        return sch.mod["main"]

    def default(self) -> Candidate:
        return tiled((1, SIZE, 1))


def tiled(tile: tuple[int, int, int]) -> Tiled:
    """The candidate of these tiles."""
    return Tiled(json.dumps(["product", [SIZE], {}]), json.dumps({"tile": tile}), "llvm")


def main() -> None:
    """Print a row for each number of builders."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 48
    candidates = [tiled(t) for t in itertools.islice(itertools.product((2, 4, 8, 16), (16, 32, 64, 128), (1, 2, 4, 8)), count)]
    print(f"{'builders':>8} {'built/s':>8} {'timed/s':>8} {'failed':>7} {'best':>10}")
    for builders in sorted({1, 2, os.cpu_count() or 1}):
        with LocalBuilder(n_parallel=builders) as builder, LocalRunner(number=2, repeat=2, cooldown_interval=0, threads=1) as runner:
            measure(candidates[:builders], builder, runner)  # starts the processes
            start = time.perf_counter()
            built = builder.build(candidates)
            middle = time.perf_counter()
            results = runner.run(built)
            end = time.perf_counter()
        best = min(m.cost for m in results)
        print(f"{builders:8} {count / (middle - start):8.1f} {count / (end - middle):8.1f} {sum(not m.ok for m in results):7} {1e3 * best:7.3f} ms")


if __name__ == "__main__":
    main()
