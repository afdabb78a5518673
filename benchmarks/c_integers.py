"""Kernels in C beside LLVM's, of the same network, with one thread: the outputs are compared, then both are timed turn
by turn.

    CC=gcc python benchmarks/c_integers.py vww_96_int8.tflite mobilenet_v1_0.25_224_quant.tflite --target "c
    -vector-width=512"
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

import numpy as np

import tilewright


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--target", default="c")
    parser.add_argument("--rounds", type=int, default=100)
    options = parser.parse_args()
    for file in options.models:
        programs = {target: tilewright.compile(file, target=target, threads=1) for target in ("llvm", options.target)}
        random = np.random.default_rng(0)
        inputs = [random.integers(0, 100, t.shape).astype(t.dtype.numpy()) for t in programs["llvm"].inputs]
        answers = [np.asarray(p(*inputs)) for p in programs.values()]
        if not np.array_equal(answers[0], answers[1]):
            print(f"{file.stem}: the outputs differ, by {np.abs(answers[0].astype(float) - answers[1]).max():g}")
            return 1
        times: dict[str, list[float]] = {name: [] for name in programs}
        for _ in range(options.rounds):
            for name, program in programs.items():
                begin = time.perf_counter()
                program(*inputs)
                times[name].append((time.perf_counter() - begin) * 1e3)
        best = {name: min(t) for name, t in times.items()}
        for name, t in times.items():
            print(
                f"{file.stem}  {name}: best {best[name]:.3f} ms, median {statistics.median(t):.3f} ms, "
                f"{best[name] / best['llvm']:.2f} times llvm's best"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
