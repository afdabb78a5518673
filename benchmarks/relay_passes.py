"""How long Relay takes over a network: its text, its types, every pass, and patterns.

First the whole: printing, reading, `InferType` where no node knows its type, all passes of compiling, and 50 patterns
over 5,000 calls (`patterns.py`), each beside the time that it shall stay below. Then each pass: those of compiling, in
their order, and the others, each on its own. Milliseconds of one core, the median of several runs; passes that run more
than once are added up.

    python benchmarks/relay_passes.py resnet50 --rounds 5
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table

import patterns
import workloads
from tilewright.ir.instrument import PassTimingInstrument
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay import transform
from tilewright.relay.expr import Constant, Var
from tilewright.relay.frontend import from_onnx
from tilewright.relay.parser import parse
from tilewright.relay.printer import astext, constants_of
from tilewright.relay.transform import graph_passes
from tilewright.relay.visitor import post_order

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


LIMITS = {
    "print": 200, "read": 500, "InferType from nothing": 200, "all passes of compiling": 1000,
    "5,000 calls x 50 patterns": 1000
}
"""Milliseconds that the whole of each shall stay below for resnet50."""


def timed(run: Callable[[], Any]) -> float:
    """Seconds of one run."""
    begin = time.perf_counter()
    _ = run()
    return time.perf_counter() - begin


def language(mod: IRModule) -> dict[str, float]:
    """Seconds of the text, the types, all passes, and patterns."""
    text, table = astext(mod), {"relay.Constant": constants_of(mod)}
    untyped = parse(text, init_meta_table=table)
    for e in post_order(untyped["main"]):
        if not isinstance(e, (Var, Constant)):
            e.set_type(None)
    graph, fifty = patterns.graph(), patterns.patterns()
    found = [
        timed(lambda: astext(mod)), timed(lambda: parse(text, init_meta_table=table)),
        timed(lambda: transform.InferType()(untyped)), timed(lambda: graph_passes()(mod)),
        timed(lambda: patterns.matched(graph, fifty)),
    ]
    if untyped["main"].checked_type != mod["main"].checked_type:
        raise AssertionError("InferType found other types than the importer")
    return dict(zip(LIMITS, found, strict=True))


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
    for title, measure in (("Relay", language), ("compiling", compiling), ("others", others)):
        rounds = [measure(mod) for _ in range(options.rounds)]
        table = Table(
            "what" if measure is language else "pass", "ms", *(["limit"] if measure is language else []),
            title=f"{options.network}: {title}"
        )
        for name in rounds[0]:
            table.add_row(
                name, f"{1e3 * statistics.median(r[name] for r in rounds):.1f}",
                *([str(LIMITS[name])] if measure is language else [])
            )
        if measure is not language:
            table.add_row("all", f"{1e3 * statistics.median(sum(r.values()) for r in rounds):.1f}")
        console.print(table)


if __name__ == "__main__":
    main()
