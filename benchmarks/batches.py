"""The time for one image, or one text, by how many are given at once; ONNX Runtime beside.

    python benchmarks/batches.py                                    # six networks, batches of 1 to 32, 1 and 2 threads
    python benchmarks/batches.py resnet50 my_model.onnx --batches 1,8 --threads 2 --json found.json

All batch sizes of a network take turns in one process, as the contestants of `compare.py` do, so that a machine that
drifts does not pass for a batch that is slow. Each row says by how much one image takes longer than in the batch before
all.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import agreement
import compare
import peers
import workloads

MODELS = ("resnet50", "resnet18", "mobilenet_v2", "densenet121", "deit_small_patch16_224", "convnext_tiny", "minilm_l6")
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Found:
    """Both runtimes' rows for one batch size."""

    batch: int
    rows: dict[str, compare.Row]

    def each(self, runtime: str) -> float:
        """Milliseconds for one of the batch; not a number where nothing was timed."""
        return self.rows[runtime].median / self.batch * 1e3


def measure(name: str, batches: list[int], runtimes: list[str], threads: int, rounds: int) -> list[Found]:
    """Load, check and time a network with each batch size; raises `LookupError` where one cannot be had."""
    found, running = [], []
    with tempfile.TemporaryDirectory() as scratch:
        for batch in batches:
            case = agreement.case(name, batch, Path(scratch))
            work = workloads.Workload(f"{name} x {batch}", case.path, case.inputs)
            rows, able = compare.loaded(work, runtimes, threads, TOLERANCE)
            found.append(Found(batch, {row.runtime: row for row in rows}))
            running += able
        compare.race(running, rounds)
    return found


def lines(name: str, threads: int, found: list[Found]) -> list[str]:
    """The findings of one network as text."""
    made = []
    for one in found:
        cells = []
        for runtime, row in one.rows.items():
            each = one.each(runtime)
            cells.append(
                f"{row.failure[:25]:>25}" if row.failure
                else f"{each:10.3f} ±{row.spread:4.0%} {each / found[0].each(runtime):8.2f}"
            )
        ours = one.each(compare.OURS) / min((one.each(r) for r in one.rows if r != compare.OURS), default=float("nan"))
        made.append(f"{name:24} {threads:>7} {one.batch:>5} {' '.join(cells)} {ours:8.2f}")
    return made


def main() -> int:
    """Print a line for each network, number of threads and batch; 1 when ours failed or gave a wrong answer."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", help=f"names or .onnx files; default: {', '.join(MODELS)}")
    parser.add_argument(
        "--batches", default="1,2,4,8,16,32",
        help="batch sizes, comma separated; the first one is what the others are compared with"
    )
    parser.add_argument("--peers", default="ort", help="runtimes beside ours, comma separated: ort, ov")
    parser.add_argument("--threads", default="1,2", help="numbers of threads, comma separated")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="write every round to this file")
    options = parser.parse_args()
    batches = [int(n) for n in options.batches.split(",")]
    runtimes = [compare.OURS, *peers.installed(options.peers.split(",") if options.peers else [])]
    print(
        f"{'ms for one':24} {'threads':>7} {'batch':>5} " + " ".join(f"{r:>16} {'of first':>8}" for r in runtimes)
        + f" {'ratio':>8}"
    )
    everything = []
    for name in options.models or MODELS:
        for threads in map(int, options.threads.split(",")):
            try:
                found = measure(name, batches, runtimes, threads, options.rounds)
            except LookupError as missing:
                print(f"left out: {missing.args[0]}")
                continue
            print("\n".join(lines(name, threads, found)), flush=True)
            everything += [
                dataclasses.asdict(row) | {"batch": one.batch, "median": row.median} for one in found
                for row in one.rows.values()
            ]
    if options.json:
        options.json.write_text(json.dumps(everything, indent=1))
    return 1 if any(row["failure"] and row["runtime"] == compare.OURS for row in everything) else 0


if __name__ == "__main__":
    sys.exit(main())
