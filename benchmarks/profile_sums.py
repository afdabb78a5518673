"""Do the rows of a profile sum up to the time of a run? Of each model: the steps' sum, a timed run, and a run that
nobody looks into.

    python benchmarks/profile_sums.py model.onnx model.tflite --threads 1 --runs 100

Rounds of profiles and of plain runs take turns, so that a slow spell of the machine is in both; the quickest of each
counts.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import tilewright
from tilewright.runtime.profile import Profile


def measured(path: Path, threads: int, runs: int, rounds: int) -> tuple[Profile, float]:
    """The quickest profile, and the quickest plain run in seconds."""
    program = tilewright.compile(path, threads=threads).executable
    given = program.example_inputs()
    out = program(given)
    profiles, plain = [], []
    for _ in range(rounds):
        profiles.append(program.profile(given, number=runs))
        for _ in range(runs):
            begin = time.perf_counter()
            program(given, out=out)
            plain.append(time.perf_counter() - begin)
    return min(profiles, key=lambda p: min(p.all_runs)), min(plain)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(
        f"{'model':40} {'steps':>5} {'sum of rows us':>15} {'timed run us':>13} {'rows/run':>9} {'plain run us':>13} "
        f"{'timed/plain':>12}"
    )
    for path in options.models:
        profile, plain = measured(path, options.threads, options.runs, options.rounds)
        quickest = min(profile.all_runs)
        print(
            f"{path.stem[:40]:40} {len(profile.steps):5} {1e6 * profile.seconds:15.2f} {1e6 * profile.wall:13.2f} "
            f"{profile.seconds / profile.wall:9.2%} "
            f"{1e6 * plain:13.2f} {quickest / plain:12.3f}")


if __name__ == "__main__":
    main()
