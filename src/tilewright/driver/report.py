"""Prints the result of `tilewright check` as tables or JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tilewright.base.limits import shown_bytes

if TYPE_CHECKING:
    from tilewright.compiler.check import ModelReport, Value

_COLOURS: Final = {"native": "green", "staged": "cyan", "numpy": "yellow", "unknown": "red"}


def show(report: ModelReport) -> None:
    """Print the report as tables."""
    console = Console(highlight=False, soft_wrap=True)
    opsets = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in report.opsets.items())
    console.print(
        escape(
            f"{'' if 'TFLite' in report.opsets else 'opset '}{opsets}"
            + (f"; made by {report.producer}" if report.producer else "")))
    for title, values in (("input", report.inputs), ("output", report.outputs)):
        for v in values:
            console.print(escape(f"{title:7s}{_described(v)}"))
    table = Table("operator", "times", "runs")
    for o in report.operators:
        name = f"{o.domain}.{o.name}" if o.domain else o.name
        table.add_row(escape(name), str(o.count), f"[{_COLOURS[o.runs]}]{o.runs}[/]")
    console.print(table)
    for o in report.operators:
        if o.why:
            console.print(escape(f"{o.name} ({', '.join(o.nodes)}): {o.why}"), style=_COLOURS[o.runs])
    for name, sizes in report.open_sizes.items():
        console.print(escape(f"'{name}' has symbolic sizes ({', '.join(sizes)})"))
    for line in _served(report):
        console.print(escape(line))
    if report.refused:
        console.print(escape(f"refused: {report.refused}"), style="red")


def show_json(report: ModelReport) -> None:
    """Print the report as one JSON object."""
    print(json.dumps(report.as_dict(), indent=1))


def _served(report: ModelReport) -> list[str]:
    """Return how programs serve the symbolic sizes, with their rules and the memory that they take."""
    if report.symbolic is None:
        return []
    if report.in_stages:
        return [f"Stages serve the sizes, compiled for all of them if possible, because {report.why_not_symbolic}"]
    if not report.symbolic:
        return [f"A program is compiled for each combination of sizes, because {report.why_not_symbolic}"]
    memory = [f"  memory between kernels for {sizes}: {shown_bytes(n)}" for sizes, n in report.memory]
    kept = [f"  weights that calls with large sizes add: {shown_bytes(report.kept)}"] if report.kept else []
    return ["One program serves all sizes.", *(f"  {rule}" for rule in report.rules), *memory, *kept]


def _described(v: Value) -> str:
    return f"{v.name}: {v.dtype}[{', '.join(map(str, v.shape))}]"
