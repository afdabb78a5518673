"""One program for open sizes beside programs that were compiled for each size alone.

    python benchmarks/open_sizes.py reader.onnx --shapes "x:[1,3,48,w=16..1280]" --at "x:[1,3,48,320]" --at
    "x:[1,3,48,101]"

Each `--at` is a combination of sizes: the outputs of both programs are compared, then calls of both take turns. A ratio
above 1 is what it costs not to know the sizes while compiling.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tilewright
from tilewright.base.errors import OpenSizeWarning
from tilewright.driver.options import input_shapes

TOLERANCE = 1e-4


@dataclass(frozen=True)
class Found:
    """Median seconds of a call for one combination of sizes, and the largest relative difference of the outputs."""

    shapes: str
    open: float
    static: float
    difference: float

    def __str__(self) -> str:
        return (
            f"{self.shapes:40} open {self.open * 1e3:9.3f} ms   static {self.static * 1e3:9.3f} ms   ratio "
            f"{self.open / self.static:.2f}   difference {self.difference:.0e}"
        )


def race(runs: Sequence[Callable[[], Any]], seconds: float) -> list[float]:
    """Median seconds of each, called in turns."""
    times: list[list[float]] = [[] for _ in runs]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 5:
        for run, taken in zip(runs, times, strict=True):
            start = time.perf_counter()
            run()
            taken.append(time.perf_counter() - start)
    return [float(np.median(t)) for t in times]


def measure(model: str, program: Any, text: str, threads: int, seconds: float) -> Found:
    """Compile for one combination of sizes, compare and time; raises `ValueError` where the outputs differ."""
    alone = tilewright.compile(model, shapes=input_shapes(text), threads=threads)
    inputs = alone.executable.example_inputs()
    pairs = [
        (np.asarray(a, np.float64), np.asarray(b, np.float64)) for a,
        b in zip(*(_listed(p(inputs)) for p in (program, alone)), strict=True)
    ]
    difference = max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)) for a, b in pairs)
    if difference > TOLERANCE:
        raise ValueError(f"at {text} the outputs differ by {difference:.0e}")
    shared, static = race([lambda: program(inputs), lambda: alone(inputs)], seconds)
    return Found(text, shared, static, difference)


def _listed(result: Any) -> Sequence[Any]:
    return result if isinstance(result, (tuple, list)) else [result]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each combination of sizes; 1 where the model has no program for open sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--shapes", required=True, help="the open sizes")
    parser.add_argument(
        "--at", required=True, action="append", help="one combination of sizes; may be given several times"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each race")
    options = parser.parse_args(arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("error", OpenSizeWarning)
        try:
            program = tilewright.compile(options.model, shapes=input_shapes(options.shapes), threads=options.threads)
        except OpenSizeWarning as warning:
            print(warning, file=sys.stderr)
            return 1
    for text in options.at:
        print(measure(options.model, program, text, options.threads, options.seconds), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
