"""`tilewright explain-error CODE`: prints meaning, cause and remedy of an error code; without a code, lists all by
area."""

from __future__ import annotations

from typing import Annotated, Final

import typer
from rich.console import Console
from rich.markdown import Markdown
from rich.markup import escape
from rich.table import Table

from tilewright.base import catalogue
from tilewright.driver.application import Verbose, examples

EXPLAIN_EXAMPLES: Final = examples("tilewright explain-error TW0101", "tilewright explain-error")


def explain_error_command(
    code: Annotated[
        str,
        typer.Argument(
            metavar="[CODE]", help="The code in brackets after a message, such as TW0101; tw101 and 101 work too."
        )
    ] = "",
    verbose: Verbose = 0,
) -> None:
    """Explain the cause and the remedy of an error by its CODE; without one, list all codes."""
    console = Console()
    if code:
        entry = catalogue.find(code)
        text = entry.text()
        if console.is_terminal:
            console.print(Markdown(text))
        else:
            typer.echo(text, nl=False)
        return
    for area in catalogue.areas():
        if console.is_terminal:
            table = Table("code", "title", title=escape(area.title), title_justify="left", show_header=False)
            for e in area.entries:
                table.add_row(e.code, escape(e.title))
            console.print(table)
        else:
            typer.echo(f"{area.title}\n" + "".join(f"  {e.code}  {e.title}\n" for e in area.entries))
