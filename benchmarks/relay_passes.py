"""How long each pass over the graph of a network takes: those of compiling, in their order, and the others, each on its own.

Milliseconds of one core, the median of several runs of the whole list; passes that run more than once are added up.

    python benchmarks/relay_passes.py resnet50 --rounds 5
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict

from rich.console import Console
from rich.table import Table

import workloads
from tilewright.ir.instrument import PassTimingInstrument
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay import transform
from tilewright.relay.frontend import from_onnx
from tilewright.relay.transform import graph_passes

OTHERS: tuple[Pass, ...] = (
    transform.BatchingOps(),
    transform.Legalize(),
    transform.AlterOpLayout(),
    transform.ConvertLayout({"nn.conv2d": ["NHWC", "default"]}),
    transform.FlattenAtrousConv(),
    transform.FastMath(),
    transform.DivToMul(),
    transform.CanonicalizeCast(),
    transform.SimplifyExprPostAlterOp(),
    transform.SplitArgs(64),
    transform.PlanDevices(),
    transform.CapturePostDfsIndexInSpans(),
)


def compiling(mod: IRModule) -> dict[str, float]:
    """Seconds of each pass of compiling."""
    timing = PassTimingInstrument()
    with PassContext(opt_level=3, instruments=[timing]):
        graph_passes()(mod)
        rows = [(name, seconds) for depth, name, seconds in timing.rows if depth == 1]
    found: dict[str, float] = defaultdict(float)
    for name, seconds in rows:
        found[name] += seconds
    return dict(found)


def others(mod: IRModule) -> dict[str, float]:
    """Seconds of each of the other passes on the imported graph."""
    found = {}
    for p in OTHERS:
        begin = time.perf_counter()
        p(mod)
        found[p.name] = time.perf_counter() - begin
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("network", nargs="?", default="resnet50")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    work = workloads.find(options.network)
    mod, _ = from_onnx(str(work.path), {n: a.shape for n, a in work.inputs.items()})
    console = Console()
    for title, measure in (("compiling", compiling), ("others", others)):
        rounds = [measure(mod) for _ in range(options.rounds)]
        table = Table("pass", "ms", title=f"{options.network}: {title}")
        for name in rounds[0]:
            table.add_row(name, f"{1e3 * statistics.median(r[name] for r in rounds):.1f}")
        table.add_row("all", f"{1e3 * statistics.median(sum(r.values()) for r in rounds):.1f}")
        console.print(table)


if __name__ == "__main__":
    main()
