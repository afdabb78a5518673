"""Real ONNX models with open sizes, ours beside ONNX Runtime: `InferenceSession` in the place of `InferenceSession`,
ten shapes each.

Answers are compared before anything is timed, and at a shape whose answer is wrong nothing is. Calls of the two take
turns, shape by shape. What compiling takes is not in the times (`Model.warm_up`); with a cache (`TILEWRIGHT_CACHE_DIR`)
that is filled, a second run compiles nothing. Where what a program does depends on the contents (`ssdlite_unseen`: how
many boxes of each class a picture has), each of the ten calls that are timed has contents that none had before, and
whatever it takes to be ready for them is in its time.

    python benchmarks/onnx_models.py                                # every model that is here
    python benchmarks/onnx_models.py silero_vad ssdlite --threads 1
    python benchmarks/onnx_models.py --rounds 0                     # agreement alone
    python benchmarks/onnx_models.py lstm_lm --each                 # a line for each shape
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import onnx_workloads
from compare import PAUSE

SHORTEST = 0.01
"""Seconds: quicker calls are made several times in one round."""
TOLERANCE = 1e-3
EXACT_ENOUGH = {"minilm_int8": 0.1, "mobilenet_v2_qdq": 0.1}
"""Where a step of a quantization rounds the other way after float arithmetic in another order."""


@dataclass
class Row:
    """What was found for one model with one number of threads at one shape; times in seconds, ours and ONNX
    Runtime's."""

    model: str
    threads: int
    shape: str
    difference: float = float("nan")
    compiling: float = 0.0
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    failure: str = ""

    @property
    def ratio(self) -> float:
        """Our median over theirs; not a number when nothing was timed."""
        return statistics.median(self.ours) / statistics.median(self.theirs) if self.ours else float("nan")


def difference(found: Any, right: Any) -> float:
    """The largest relative L2 distance of two answers; infinite when they differ in kind, shape, a text or a whole
    number."""
    if isinstance(right, (list, tuple)):
        fits = isinstance(found, (list, tuple)) and len(found) == len(right)
        return max((difference(f, r) for f, r in zip(found, right, strict=True)), default=0.0) if fits else float("inf")
    if isinstance(right, dict):
        fits = isinstance(found, dict) and list(found) == list(right)
        return difference(list(found.values()), list(right.values())) if fits else float("inf")
    found, right = np.asarray(found), np.asarray(right)
    if found.shape != right.shape or found.dtype != right.dtype:
        return float("inf")
    if right.dtype.kind != "f":
        return 0.0 if np.array_equal(found, right) else float("inf")
    distance = np.linalg.norm(found.astype(np.float64) - right.astype(np.float64))
    return float(
        distance / max(float(np.linalg.norm(right.astype(np.float64))), 1e-30)
    ) if distance <= np.inf else float("inf")


def sessions(path: Path, threads: int) -> tuple[Any, Any]:
    """Ours and ONNX Runtime's of the same file and options."""
    import onnxruntime

    import tilewright

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = threads, 1, 3
    given = {"sess_options": options, "providers": ["CPUExecutionProvider"]}
    return tilewright.InferenceSession(str(path), **given), onnxruntime.InferenceSession(str(path), **given)


def measure(real: onnx_workloads.Real, threads: int, rounds: int) -> list[Row]:
    """Every shape of a model: agreement, then times."""
    ours, theirs = sessions(real.path, threads)
    if real.unseen:
        return measure_unseen(real, threads, rounds, ours, theirs)
    tolerance = EXACT_ENOUGH.get(real.name, TOLERANCE)
    rows, feeds = [], real.feeds()
    for shape, feed in feeds.items():
        row = Row(real.name, threads, shape)
        rows.append(row)
        try:
            begin = time.perf_counter()
            ours.model.warm_up(feed)
            row.compiling = time.perf_counter() - begin
            found = ours.run(None, feed)
        except Exception as error:  # whatever is raised is the result
            row.failure = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            continue
        row.difference = difference(found, theirs.run(None, feed))
        if not row.difference <= tolerance:
            row.failure = f"wrong answer: relative difference {row.difference:.1e}"
    for row in rows:
        if rounds and not row.failure:
            race(row, partial(ours.run, None, feeds[row.shape]), partial(theirs.run, None, feeds[row.shape]), rounds)
    return rows


def measure_unseen(real: onnx_workloads.Real, threads: int, rounds: int, ours: Any, theirs: Any) -> list[Row]:
    """Contents that no call before had: each round has ten others, which the two take one after another; answers are
    compared behind the clock."""
    contents = real.contents()
    warm = list(itertools.islice(contents, real.unseen))
    for feed in warm:
        ours.run(None, feed)
        theirs.run(None, feed)
    rows = [Row(real.name, threads, f"number {k}", difference=0.0) for k in range(len(real.sizes))]
    for turn in range(max(1, rounds)):
        feeds = list(itertools.islice(contents, len(rows)))
        answers: dict[int, list[Any]] = {}
        for k in (turn % 2, 1 - turn % 2):
            session = (ours, theirs)[k]
            if threads > 1:
                time.sleep(PAUSE)
            session.run(None, warm[0])
            for row, feed in zip(rows, feeds, strict=True):
                begin = time.perf_counter()
                answers.setdefault(k, []).append(session.run(None, feed))
                (row.ours, row.theirs)[k].append(time.perf_counter() - begin)
        for row, found, right in zip(rows, answers[0], answers[1], strict=True):
            row.difference = max(row.difference, difference(found, right))
    for row in rows:
        if not row.difference <= TOLERANCE:
            row.failure = f"wrong answer: relative difference {row.difference:.1e}"
        if row.failure or not rounds:
            row.ours, row.theirs = [], []
    return rows


def race(row: Row, ours: Callable[[], Any], theirs: Callable[[], Any], rounds: int) -> None:
    """Time the two turn by turn; with more threads than one, after a pause in which the other's go to sleep."""
    pairs = [(ours, row.ours), (theirs, row.theirs)]
    counts = []
    for call, _ in pairs:
        call()
        begin = time.perf_counter()
        call()
        counts.append(max(1, min(200, int(SHORTEST / (time.perf_counter() - begin)))))
    for turn in range(rounds):
        for k in (turn % 2, 1 - turn % 2):
            call, seconds = pairs[k]
            if row.threads > 1:
                time.sleep(PAUSE)
            call()
            begin = time.perf_counter()
            for _ in range(counts[k]):
                call()
            seconds.append((time.perf_counter() - begin) / counts[k])


def line(rows: list[Row]) -> list[str]:
    """The table's line of the shapes of one model."""
    ratios = {r.shape: r.ratio for r in rows if r.ours}
    worst = max((r.difference for r in rows if r.difference == r.difference), default=float("nan"))
    failed = sum(bool(r.failure) for r in rows)
    cells = [rows[0].model, str(rows[0].threads), f"{len(rows) - failed} of {len(rows)}", f"{worst:.0e}"]
    if not ratios:
        return [*cells, "", "", ""]
    slowest = max(ratios, key=ratios.__getitem__)
    return [
        *cells, f"{min(ratios.values()):.2f}", f"{statistics.geometric_mean(ratios.values()):.2f}",
        f"{ratios[slowest]:.2f} ({slowest})"
    ]


def show(groups: list[list[Row]], console: Console, each: bool) -> None:
    """Print the table; with `each`, the lines of every shape too."""
    if each:
        for r in (r for rows in groups for r in rows if r.ours):
            ours, theirs = statistics.median(r.ours) * 1e3, statistics.median(r.theirs) * 1e3
            console.print(
                f"{r.model}, {r.threads} thread(s), {r.shape}: {ours:.3f} ms, ONNX Runtime {theirs:.3f} ms, "
                f"{r.ratio:.2f}", highlight=False
            )
    table = Table(
        "model", "threads", "shapes", "difference", "ratio: best", "mean", "worst",
        title="ours / ONNX Runtime, below 1 is faster"
    )
    for rows in groups:
        table.add_row(*line(rows))
    console.print(table)
    for r in (r for rows in groups for r in rows if r.failure):
        console.print(f"{r.model}, {r.threads} thread(s), {r.shape}: {r.failure}", highlight=False)


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", help=f"of: {', '.join(r.name for r in onnx_workloads.REAL)}")
    parser.add_argument("--threads", default="1,2", help="numbers of threads, comma separated")
    parser.add_argument("--rounds", type=int, default=7, help="0: agreement alone")
    parser.add_argument("--each", action="store_true", help="a line for each shape too")
    parser.add_argument("--json", type=Path, help="write every round to this file")
    return parser.parse_args()


def main() -> int:
    """Measure and show; 1 when an answer of ours was wrong or missing."""
    options, console = arguments(), Console()
    groups: list[list[Row]] = []
    try:
        chosen = onnx_workloads.named(options.models)
    except LookupError as unknown:
        console.print(unknown.args[0], highlight=False)
        return 2
    for real in chosen:
        for threads in map(int, options.threads.split(",")):
            try:
                groups.append(measure(real, threads, options.rounds))
            except LookupError as missing:
                console.print(f"left out: {missing.args[0]}", highlight=False)
                break
    show(groups, console, options.each)
    if options.json:
        options.json.write_text(
            json.dumps([dataclasses.asdict(r) | {"ratio": r.ratio} for rows in groups for r in rows], indent=1)
        )
    return 1 if any(r.failure for rows in groups for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
