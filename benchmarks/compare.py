"""Speed beside other runtimes: the same file, the same inputs, the same threads, turn by turn in one process.

Outputs are compared before anything is timed; a runtime whose answer is wrong gets no time. Between two contestants
there is a short pause and a call that does not count, so that nobody pays for threads that the one before left
spinning.

    python benchmarks/compare.py                          # the standard models
    python benchmarks/compare.py resnet50 my_model.onnx --threads 1 --peers ort
    python benchmarks/compare.py --precision bf16         # ours in bfloat16, OpenVINO as it comes
    python benchmarks/compare.py --json out.json --markdown out.md
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import peers
import workloads

OURS, REFERENCE = "tilewright", "onnxruntime"
PAUSE = 0.06  # a worker of ONNX Runtime was seen to spin for 25 to 35 ms after a call
TOLERANCE = {"f32": 1e-3, "bf16": 0.15}
SHORTEST = 0.02  # seconds: quicker models are called several times in one round


@dataclass
class Row:
    """What was measured for one runtime on one model; times in seconds."""

    model: str
    runtime: str
    threads: int
    load: float = 0.0
    difference: float = 0.0
    seconds: list[float] = field(default_factory=list)
    report: dict[str, float] = field(default_factory=dict)
    failure: str = ""

    @property
    def median(self) -> float:
        """The middle round, or not a number when nothing was timed."""
        return statistics.median(self.seconds) if self.seconds else float("nan")

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles, relative to the median."""
        if len(self.seconds) < 2:
            return float("nan")
        low, _, high = statistics.quantiles(self.seconds, n=4)
        return (high - low) / 2 / self.median


def difference(answers: list[NDArray[Any]], expected: list[NDArray[Any]]) -> float:
    """The largest relative L2 distance of an output from what is expected; infinite when the shapes differ."""
    if [a.shape for a in answers] != [e.shape for e in expected]:
        return float("inf")
    worst = 0.0
    for answer, right in zip(answers, expected, strict=True):
        distance = float(np.linalg.norm(answer.astype(np.float64) - right.astype(np.float64)))
        if not distance <= np.inf:
            return float("inf")
        worst = max(worst, distance / max(float(np.linalg.norm(right.astype(np.float64))), 1e-30))
    return worst


Contestant = tuple[Row, peers.Run, peers.Inputs]


def measure(
    work: workloads.Workload, runtimes: list[str], threads: int, rounds: int, tolerance: float, precision: str = "f32"
) -> list[Row]:
    """Load, check and time `work` on every runtime."""
    rows, running = loaded(work, runtimes, threads, tolerance, precision)
    race(running, rounds)
    return rows


def loaded(
    work: workloads.Workload, runtimes: list[str], threads: int, tolerance: float, precision: str = "f32"
) -> tuple[list[Row], list[Contestant]]:
    """Load `work` on every runtime and check the answers: a row for each, and those that were right."""
    expected = peers.LOADERS[work.reference](work.path, work.inputs, threads, "f32")(work.inputs)
    rows: list[Row] = []
    running: list[Contestant] = []
    for runtime in runtimes:
        row = Row(work.name, runtime, threads)
        rows.append(row)
        try:
            begin = time.perf_counter()
            run = peers.LOADERS[runtime](work.path, work.inputs, threads, precision)
            row.load = time.perf_counter() - begin
            row.report = getattr(run, "report", {})
            row.difference = difference(run(work.inputs), expected)
        except Exception as error:  # whatever a runtime raises is its result
            row.failure = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            continue
        if row.difference > tolerance:
            row.failure = f"wrong answer: relative difference {row.difference:.1e}"
            continue
        running.append((row, run, work.inputs))
    return rows, running


def race(running: list[Contestant], rounds: int) -> None:
    """Time the contestants turn by turn, each round starting with the next one."""
    calls = []
    for _, run, inputs in running:
        begin = time.perf_counter()
        run(inputs)
        calls.append(max(1, int(SHORTEST / (time.perf_counter() - begin))))
    for turn in range(rounds):
        for k in range(len(running)):
            which = (turn + k) % len(running)
            row, run, inputs = running[which]
            time.sleep(PAUSE)
            run(inputs)
            begin = time.perf_counter()
            for _ in range(calls[which]):
                run(inputs)
            row.seconds.append((time.perf_counter() - begin) / calls[which])


def cells(rows: list[Row]) -> list[list[str]]:
    """The table's body: one line for each model and number of threads and runtime."""
    body = []
    base = {(r.model, r.threads): r.median for r in rows if r.runtime == REFERENCE}
    for r in rows:
        reference = base.get((r.model, r.threads), float("nan"))
        body.append(
            [r.model, str(r.threads), r.runtime, "failed", "", "", ""]
            if r.failure
            else [
                r.model,
                str(r.threads),
                r.runtime,
                f"{r.median * 1e3:.2f} ± {r.spread:.0%}",
                f"{r.median / reference:.2f}",
                f"{r.difference:.0e}",
                f"{r.load:.2f}",
            ]
        )
    return body


HEAD = ("model", "threads", "runtime", "median ms", "of ORT's", "difference", "load s")


def ratios(rows: list[Row]) -> dict[tuple[str, int], float]:
    """By model and number of threads: our median over the best of the other runtimes'; below 1 is faster."""
    best: dict[tuple[str, int], float] = {}
    for r in rows:
        if r.runtime != OURS and r.seconds:
            best[r.model, r.threads] = min(r.median, best.get((r.model, r.threads), float("inf")))
    return {
        (r.model, r.threads): r.median / best[r.model, r.threads] for r in rows if r.runtime == OURS and r.seconds
        and (r.model, r.threads) in best
    }


def geometric_means(rows: list[Row]) -> dict[int, float]:
    """By number of threads: the geometric mean of `ratios` over all models."""
    found = ratios(rows)
    counts = dict.fromkeys(threads for _, threads in found)
    return {n: statistics.geometric_mean(v for (_, threads), v in found.items() if threads == n) for n in counts}


def markdown(rows: list[Row]) -> str:
    """The table for a document: one line a model, for each number of threads the milliseconds of each runtime and our
    ratio."""
    runtimes, counts = list(dict.fromkeys(r.runtime for r in rows)), list(dict.fromkeys(r.threads for r in rows))
    times = {(r.model, r.threads, r.runtime): f"{r.median * 1e3:#.3g}" if r.seconds else "failed" for r in rows}
    found, means = ratios(rows), geometric_means(rows)
    head = ["model"]
    for n in counts:
        head += [f"{n} thread{'s' if n > 1 else ''}: {runtimes[0]}", *runtimes[1:], "ratio"]
    lines = [head, ["---"] * len(head)]
    for model in dict.fromkeys(r.model for r in rows):
        line = [model]
        for n in counts:
            line += [times.get((model, n, runtime), "") for runtime in runtimes]
            line.append(f"{found[model, n]:.2f}" if (model, n) in found else "")
        lines.append(line)
    last = ["geometric mean"]
    for n in counts:
        last += [""] * len(runtimes) + [f"{means[n]:.2f}" if n in means else ""]
    return "".join(f"| {' | '.join(line)} |\n" for line in [*lines, last])


def phases(rows: list[Row]) -> Table | None:
    """Where our compile times went, one column a phase; none when no model reported."""
    reports = {r.model: r.report for r in rows if r.runtime == OURS and r.report}
    if not reports:
        return None
    columns = list(dict.fromkeys(phase for report in reports.values() for phase in report))
    table = Table("seconds of", *columns, title="Compile time by phase (from the cache where that was filled)")
    for model, report in reports.items():
        table.add_row(model, *(f"{report.get(phase, 0.0):.2f}" for phase in columns))
    return table


def show(rows: list[Row], console: Console) -> None:
    """Print the tables."""
    table = Table(*HEAD, title=f"{os.cpu_count()} cores, ± half the interquartile range")
    for line in cells(rows):
        table.add_row(*line)
    console.print(table)
    for r in filter(lambda r: r.failure, rows):
        console.print(f"{r.model}, {r.threads} thread(s), {r.runtime}: {r.failure}", highlight=False)
    for threads, ratio in geometric_means(rows).items():
        console.print(
            f"{threads} thread(s): geometric mean of ours / the best of the others = {ratio:.2f} (below 1 is faster)"
        )
    if (split := phases(rows)) is not None:
        console.print(split)


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "models", nargs="*", default=[], help=f"names or .onnx files; default: {', '.join(workloads.STANDARD)}"
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="the same as naming a model; may be repeated"
    )
    parser.add_argument("--peers", default="ort,ov", help="runtimes beside ours, comma separated: ort, ov")
    parser.add_argument("--threads", default="1,2", help="numbers of threads, comma separated")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--precision", choices=list(TOLERANCE), default="f32",
        help="bf16: ours in bfloat16, OpenVINO as it comes; ONNX Runtime stays float32"
    )
    parser.add_argument(
        "--tolerance", type=float,
        help=f"largest relative L2 difference from ONNX Runtime; default: {TOLERANCE} by --precision"
    )
    parser.add_argument("--without-ours", action="store_true", help="only the other runtimes")
    parser.add_argument("--json", type=Path, help="write every round to this file")
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    return parser.parse_args()


def main() -> int:
    """Measure and show; 1 when a runtime of ours failed or gave a wrong answer."""
    options, console = arguments(), Console()
    runtimes = ([] if options.without_ours else [OURS]) + peers.installed(options.peers.split(","))
    rows: list[Row] = []
    for name in (*options.models, *options.only) or workloads.STANDARD:
        try:
            work = workloads.find(name)
        except LookupError as missing:
            console.print(f"left out: {missing.args[0]}", highlight=False)
            continue
        for threads in map(int, options.threads.split(",")):
            console.print(f"measuring {name}, {threads} thread(s) …", highlight=False)
            rows += measure(
                work, runtimes, threads, options.rounds, options.tolerance or TOLERANCE[options.precision],
                options.precision
            )
    show(rows, console)
    if options.json:
        options.json.write_text(
            json.dumps([dataclasses.asdict(row) | {"median": row.median} for row in rows], indent=1)
        )
    if options.markdown:
        options.markdown.write_text(markdown(rows))
    return 1 if any(row.failure and row.runtime == OURS for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
