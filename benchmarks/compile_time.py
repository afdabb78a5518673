"""How long compiling takes: cold, in a fresh process with an empty cache, and again in a fresh process with the cache
filled.

The program can be called after the seconds shown; a large one is written to the cache meanwhile, which has a line of
its own. Seconds are of the clock and, in brackets, of the processor (all threads); start-up of Python and imports are
shown apart.

    python benchmarks/compile_time.py resnet50 bert_base --rounds 3
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import workloads

CHILD = """
import json, resource, sys, time
path, shapes = sys.argv[1], json.loads(sys.argv[2])
begin = time.perf_counter()
import tilewright
compile = tilewright.compile
imported = time.perf_counter()
processor = time.process_time()
model = compile(path, shapes={name: tuple(shape) for name, shape in shapes.items()}, threads=1)
seconds = time.perf_counter() - imported
tilewright.compiler.cache.Cache.default().wait()
stored = time.perf_counter() - imported
print(json.dumps({
    "import": imported - begin,
    "seconds": seconds,
    "stored": stored,
    "processor": time.process_time() - processor,
    "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    "report": dict(model.report.phases),
}))
"""


def once(work: workloads.Workload, cache: str) -> dict[str, Any]:
    """Compile in a fresh process; raises `RuntimeError` with what it said when it fails."""
    shapes = json.dumps({name: list(array.shape) for name, array in work.inputs.items()})
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(work.path), shapes],
        env=os.environ | {"TILEWRIGHT_CACHE_DIR": cache},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(
            done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit code {done.returncode}"
        )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def measure(work: workloads.Workload, rounds: int) -> dict[str, list[dict[str, Any]]]:
    """`rounds` pairs of a cold compile and one from the cache."""
    runs: dict[str, list[dict[str, Any]]] = {"cold": [], "cached": []}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="compile-time-") as cache:
            runs["cold"].append(once(work, cache))
            runs["cached"].append(once(work, cache))
    return runs


def median(runs: list[dict[str, Any]], key: str) -> float:
    """The middle value of `key`."""
    return float(statistics.median(run[key] for run in runs))


def main() -> int:
    """Measure and show; 1 when a model did not compile."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", default=[], help="names or .onnx files; default: the standard ones")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="the same as naming a model; may be repeated"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write every round to this file")
    options, console = parser.parse_args(), Console()
    results, failed = {}, False
    for name in (*options.models, *options.only) or workloads.STANDARD:
        try:
            results[name] = measure(workloads.find(name), options.rounds)
        except LookupError as missing:
            console.print(f"left out: {missing.args[0]}", highlight=False)
        except RuntimeError as error:
            console.print(f"{name}: failed: {error}", highlight=False)
            failed = True
    columns = list(dict.fromkeys(phase for runs in results.values() for phase in runs["cold"][0]["report"]))
    table = Table("seconds", *results, title=f"Compiling, median of {options.rounds} (processor seconds in brackets)")
    rows: list[tuple[str, Callable[[dict[str, Any]], str]]] = [
        ("import tilewright", lambda runs: f"{median(runs['cold'], 'import'):.2f}"),
        *(
            (kind, lambda runs, k=kind: f"{median(runs[k], 'seconds'):.2f} ({median(runs[k], 'processor'):.2f})")
            for kind in ("cold", "cached")
        ),
        ("cold, and in the cache", lambda runs: f"{median(runs['cold'], 'stored'):.2f}"),
        *(
            (
                f"  {phase}",
                lambda runs, p=phase: f"{statistics.median(r['report'].get(p, 0.0) for r in runs['cold']):.2f}"
            ) for phase in columns
        ),
        ("memory, MB", lambda runs: f"{median(runs['cold'], 'memory'):.0f}"),
    ]
    for title, cell in rows:
        table.add_row(title, *(cell(runs) for runs in results.values()))
    console.print(table)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
