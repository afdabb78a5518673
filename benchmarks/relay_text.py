"""How long a model takes to print and to read: without its constants, and with them in `#[metadata]`.

    python benchmarks/relay_text.py resnet50 bert_base --rounds 5
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import onnx
from rich.console import Console
from rich.table import Table

import workloads
from tilewright.ir.module import IRModule
from tilewright.ir.structural import assert_structural_equal
from tilewright.relay.frontend import from_onnx
from tilewright.relay.parser import parse
from tilewright.relay.printer import astext, constants_of


def seconds(run: Callable[[], Any], rounds: int) -> float:
    """The middle of `rounds` times."""
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        _ = run()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def measure(mod: IRModule, rounds: int) -> list[str]:
    """The figures of one module, which is read back to an equal one first."""
    short, whole = astext(mod), astext(mod, show_meta_data=True)
    table = {"relay.Constant": constants_of(mod)}
    assert_structural_equal(parse(short, init_meta_table=table), mod)
    assert_structural_equal(parse(whole), mod)
    runs: list[Callable[[], Any]] = [
        lambda: astext(mod), lambda: parse(short, init_meta_table=table), lambda: astext(mod, show_meta_data=True),
        lambda: parse(whole),
    ]
    return [
        f"{len(short) / 1e3:.0f} kB", f"{len(whole) / 1e6:.1f} MB", *(f"{seconds(run, rounds):.3f} s" for run in runs)
    ]


def main() -> int:
    """Measure and show."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", default=["resnet50"], help="names or .onnx files")
    parser.add_argument("--rounds", type=int, default=5)
    options, console = parser.parse_args(), Console()
    table = Table("model", "text", "with constants", "print", "read", "print with constants", "read with constants")
    for name in options.models:
        work = workloads.find(name)
        mod, _ = from_onnx(onnx.load(str(work.path)), {k: a.shape for k, a in work.inputs.items()}, freeze_params=True)
        table.add_row(name, *measure(mod, options.rounds))
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
