"""The command: `python -m fuzz --kind onnx --count 1000`, in the folder `tests`."""

from __future__ import annotations

import os

os.environ.setdefault("TILEWRIGHT_CACHE_DIR", "off")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import collections
import itertools
import secrets
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from fuzz.kinds import KINDS, load
from fuzz.outcomes import FINDINGS
from fuzz.report import Report
from fuzz.runner import Result, Runner, Task, dies

FOLDER = Path(__file__).parent.parent.parent / "fuzz-found"
SAME = 2
"""Cases with one label that are made smaller."""


def options(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of the command."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument(
        "--kind", action="append", choices=KINDS, help="a kind of program; all of them in turn, where none is given"
    )
    parser.add_argument("--minutes", type=float, default=0.0, help="how long to go on")
    parser.add_argument("--count", type=int, default=0, help="how many cases of each kind")
    parser.add_argument(
        "--seed", type=int, default=-1, help="the seed; a fresh one, which is printed, where none is given"
    )
    parser.add_argument("--start", type=int, default=0, help="the number of the first case")
    parser.add_argument("--workers", type=int, default=2, help="processes (2)")
    parser.add_argument("--found", type=Path, default=FOLDER, help="the folder for findings (fuzz-found)")
    parser.add_argument("--no-shrink", action="store_true", help="count findings without making them smaller")
    return parser.parse_args(arguments)


def tasks(kinds: Sequence[str], seed: int, start: int, count: int) -> Iterator[Task]:
    """The cases in turn, all kinds of one number before the next number."""
    for number in range(start, start + count) if count else itertools.count(start):
        for kind in kinds:
            yield Task(kind, seed, number)


def main(arguments: Sequence[str]) -> int:
    """Run the fuzzer; 1 where something was found."""
    chosen = options(arguments)
    kinds = {name: load(name) for name in chosen.kind or KINDS}
    seed = chosen.seed if chosen.seed >= 0 else secrets.randbelow(1 << 31)
    minutes = chosen.minutes or (10.0 if not chosen.count else 0.0)
    print(
        f"seed {seed}, kinds {', '.join(kinds)}, "
        + (f"{minutes:g} minutes" if minutes else f"{chosen.count} cases of each"), flush=True
    )
    report, shrunk, said = Report(chosen.found), collections.Counter[str](), time.monotonic()

    def follow(result: Result) -> Task | None:
        outcome = result.outcome
        if result.task.shrinks is not None or outcome.category not in FINDINGS or chosen.no_shrink or shrunk[
            outcome.label
        ] >= SAME:
            return None
        if dies(outcome) and "between" in outcome.detail:
            return None
        shrunk[outcome.label] += 1
        return Task(result.task.kind, result.task.seed, result.task.number, outcome)

    until = time.monotonic() + 60 * minutes if minutes else float("inf")
    last = chosen.start
    try:
        for result in Runner(kinds, chosen.workers).results(
            tasks([*kinds], seed, chosen.start, chosen.count), follow, until
        ):
            report.add(result)
            last = max(last, result.task.number)
            if result.outcome.category in FINDINGS and result.task.shrinks is None:
                print(f"  {result.outcome.category}: {result.outcome.label} ({result.task.name})", flush=True)
            if time.monotonic() - said > 10:
                said = time.monotonic()
                print(report.progress(), flush=True)
    except KeyboardInterrupt:
        print(f"\ninterrupted; go on with --seed {seed} --start {last + 1}")
    print(report.progress())
    print("\n".join(report.lines()), flush=True)
    return int(report.found > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
