"""`tilewright explain MODEL -o report.html`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tilewright.base.errors import OptionError
from tilewright.driver import files

if TYPE_CHECKING:
    from tilewright.compiler.model import Model

SUFFIXES = (".html", ".htm")


def report_path(model: Path, output: Path | None) -> Path:
    """Return the path of the page. Raises `OptionError` for an extension other than that of a web page."""
    path = output or Path(f"{model.stem}.html")
    if path.suffix not in SUFFIXES:
        raise OptionError(
            f"--output: '{path}' has none of the extensions of the report: {', '.join(SUFFIXES)}", code="TW0206")
    return path


def write_report(model: Model, name: str, path: Path, run: bool) -> None:
    """Write the page of a compiled model, and print a summary of its contents."""
    from tilewright.driver.explain.content import explained
    from tilewright.driver.explain.page import page_of

    begin = time.perf_counter()
    content = explained(model, name, run)
    files.write_text(path, page_of(content))
    if run and content.measurement is None:
        typer.echo(f"Not measured: {content.not_measured}", err=True)
    typer.echo(
        f"Wrote {path} ({path.stat().st_size / 1e6:.1f} MB) in {time.perf_counter() - begin:.2f} s: "
        f"{len(content.states)} states of the graph, {len(content.kernels)} kernels")
