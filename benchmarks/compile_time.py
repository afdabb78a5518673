"""How long compiling takes: cold, in a fresh process with an empty cache, and again in a fresh process with the cache
filled.

The program can be called after the seconds shown; a large one is written to the cache meanwhile, which has a line of
its own. Seconds are of the clock and, in brackets, of the processor (all threads); start-up of Python and imports are
shown apart.

    python benchmarks/compile_time.py resnet50 bert_base --rounds 3

With `--open`, the symbolic dimensions of a model stay symbolic in a further program, for all sizes. Its rows show its
seconds, and how many times as long compiling takes and as large the artifact is as for the sizes of the workload.

    python benchmarks/compile_time.py --open ppocrv5_rec.onnx
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
from rich.console import Console
from rich.table import Table

import workloads

CHILD = """
import json, resource, sys, tempfile, time, warnings
path, shapes = sys.argv[1], json.loads(sys.argv[2])
begin = time.perf_counter()
import tilewright
compile = tilewright.compile
imported = time.perf_counter()
warnings.filterwarnings("error", category=tilewright.base.errors.OpenSizeWarning)
processor = time.process_time()
model = compile(path, shapes={name: tuple(shape) for name, shape in shapes.items()}, threads=1)
seconds = time.perf_counter() - imported
tilewright.compiler.cache.Cache.default().wait()
stored = time.perf_counter() - imported
processor = time.process_time() - processor
with tempfile.TemporaryDirectory() as folder:
    artifact = model.save(f"{folder}/program.so").stat().st_size
print(json.dumps({
    "import": imported - begin,
    "seconds": seconds,
    "stored": stored,
    "processor": processor,
    "artifact": artifact,
    "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    "report": dict(model.report.phases),
}))
"""


def once(work: workloads.Workload, cache: str, shapes: Mapping[str, Sequence[int | str]]) -> dict[str, Any]:
    """Compile in a fresh process; raises `RuntimeError` with what it said when it fails."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(work.path), json.dumps({name: list(dims) for name, dims in shapes.items()})],
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


def symbolic(path: Path) -> dict[str, tuple[int | str, ...]]:
    """The shapes of the inputs of a model, with a name for each symbolic dimension."""
    graph = onnx.load(str(path), load_external_data=False).graph
    stored = {t.name for t in graph.initializer}
    return {
        i.name: tuple(d.dim_value or d.dim_param or f"{i.name}_{k}" for k, d in enumerate(i.type.tensor_type.shape.dim))
        for i in graph.input if i.name not in stored
    }


def measure(work: workloads.Workload, rounds: int, is_open: bool) -> dict[str, list[dict[str, Any]]]:
    """`rounds` pairs of a cold compile and one from the cache, and a cold one for all sizes."""
    runs: dict[str, list[dict[str, Any]]] = {"cold": [], "cached": []}
    known = {name: array.shape for name, array in work.inputs.items()}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="compile-time-") as cache:
            runs["cold"].append(once(work, cache, known))
            runs["cached"].append(once(work, cache, known))
        if is_open:
            with tempfile.TemporaryDirectory(prefix="compile-time-") as cache:
                runs.setdefault("open", []).append(once(work, cache, symbolic(work.path)))
    return runs


def median(runs: list[dict[str, Any]], key: str) -> float:
    """The middle value of `key`."""
    return float(statistics.median(run[key] for run in runs))


def times(runs: dict[str, list[dict[str, Any]]], key: str) -> str:
    """How many times as much of `key` the program for all sizes has."""
    return f"{median(runs['open'], key) / median(runs['cold'], key):.2f}"


def seconds(runs: dict[str, list[dict[str, Any]]], kind: str) -> str:
    """Seconds of the clock and of the processor."""
    return f"{median(runs[kind], 'seconds'):.2f} ({median(runs[kind], 'processor'):.2f})"


Row = tuple[str, Callable[[dict[str, Any]], str]]
OPEN_ROWS: Sequence[Row] = [
    ("all sizes, cold", lambda runs: seconds(runs, "open")),
    ("  times as long", lambda runs: f"{times(runs, 'seconds')} ({times(runs, 'processor')})"),
    ("  times as large", lambda runs: times(runs, "artifact")),
]


def main() -> int:
    """Measure and show; 1 when a model did not compile."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", default=[], help="names or .onnx files; default: the standard ones")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="the same as naming a model; may be repeated"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--open", action="store_true", help="compile for all sizes as well")
    parser.add_argument("--json", type=Path, help="write every round to this file")
    options, console = parser.parse_args(), Console()
    results, failed = {}, False
    for name in (*options.models, *options.only) or workloads.STANDARD:
        try:
            results[name] = measure(workloads.find(name), options.rounds, options.open)
        except LookupError as missing:
            console.print(f"left out: {missing.args[0]}", highlight=False)
        except RuntimeError as error:
            console.print(f"{name}: failed: {error}", highlight=False)
            failed = True
    columns = list(dict.fromkeys(phase for runs in results.values() for phase in runs["cold"][0]["report"]))
    table = Table("seconds", *results, title=f"Compiling, median of {options.rounds} (processor seconds in brackets)")
    rows: list[Row] = [
        ("import tilewright", lambda runs: f"{median(runs['cold'], 'import'):.2f}"),
        *(
            (kind, lambda runs, k=kind: seconds(runs, k)) for kind in ("cold", "cached")
        ),
        ("cold, and in the cache", lambda runs: f"{median(runs['cold'], 'stored'):.2f}"),
        *(
            (
                f"  {phase}",
                lambda runs, p=phase: f"{statistics.median(r['report'].get(p, 0.0) for r in runs['cold']):.2f}"
            ) for phase in columns
        ),
        *(OPEN_ROWS if options.open else ()),
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
