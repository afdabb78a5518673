"""A process of the tests that measures planted candidates into a file, until it is done or somebody kills it.

    python measuring_process.py FILE COUNT local|quick

Prints the number of each candidate when its result has been told, and at the end `done`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from functools import partial

from planted import planted
from tilewright.search.measure import Builder, Built, Candidate, Image, Measured, OnMeasured, Runner, measure
from tilewright.search.records import Records


class Quick:
    """A builder and runner that only waits a little."""

    form = ".tar"

    def build(self, candidates: Sequence[Candidate], form: str = ".tar") -> list[Built]:
        return [Built(c, Image(b"", "")) for c in candidates]

    def run(self, built: Sequence[Built], on_measured: OnMeasured | None = None) -> list[Measured]:
        results = []
        for k, _ in enumerate(built):
            time.sleep(0.002)
            results.append(Measured((1e-3,), timestamp=time.time(), machine="x" * 3000))
            if on_measured is not None:
                on_measured(k, results[-1])
        return results


def _local() -> tuple[Builder, Runner]:
    from tilewright.search.local import LocalBuilder, LocalRunner

    return LocalBuilder(n_parallel=1), LocalRunner(number=2, repeat=1, cooldown_interval=0)


def _tell(part: Sequence[Candidate], place: int, measured: Measured) -> None:
    """Print the index of the candidate that was measured."""
    print(json.loads(part[place].config)["index"], flush=True)


def main() -> None:
    path, count, kind = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    candidates = [planted("right", k) for k in range(count)]
    records = Records(path)
    builder, runner = (Quick(), Quick()) if kind == "quick" else _local()
    print("begin", flush=True)
    for first in range(0, count, 16):
        part = candidates[first : first + 16]
        measure(part, builder, runner, records, partial(_tell, part))
    print("done", flush=True)


if __name__ == "__main__":
    main()
