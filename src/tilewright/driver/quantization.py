"""Prints the result of `tilewright quantize`: a table of layers with their errors, worst first, and output errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from tilewright.relay.quantize.errors import Report


def show(report: Report, most: int = 20) -> None:
    """Print the report with the `most` layers of largest own error."""
    from tilewright.relay.quantize.errors import decibels

    console = Console(highlight=False, soft_wrap=True)
    table = Table("layer", "operator", "own error", "error", "runs in")
    for e in sorted(report.layers, key=lambda e: -e.own)[:most]:
        table.add_row(
            escape(e.name), e.operator, f"{e.own:.2%}", f"{e.error:.2%}",
            "[green]int8[/]" if e.quantized else "[yellow]float[/]")
    console.print(table)
    if len(report.layers) > most:
        console.print(f"and {len(report.layers) - most} layers with smaller errors; --report FILE has all")
    kept = sum(not e.quantized for e in report.layers)
    console.print(
        f"{len(report.layers) - kept} of {len(report.layers)} layers in int8; constants "
        f"{report.bytes_before / 1e6:.1f} -> {report.bytes_after / 1e6:.1f} MB")
    for name, error in report.outputs.items():
        ratio = decibels(error)
        console.print(
            escape(
                f"output {name}: relative error {error:.2%}" + ("" if ratio is None else f" ({ratio:.1f} dB)")
                + f", {report.samples} samples, {report.calibration}"))
