"""`tilewright migrate PATH`: lists the names of TVM that a program uses, and the state of each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from tilewright.driver.application import Verbose, examples
from tilewright.driver.migration.rows import migration

MIGRATE_EXAMPLES: Final = examples("tilewright migrate my_project", "tilewright migrate script.py --all --json")


def migrate_command(
    path: Annotated[
        Path,
        typer.Argument(exists=True, help="A program written for TVM, or the folder of one: Python files and notebooks.")
    ],
    everything: Annotated[bool, typer.Option("--all", help="Also list the names that are simply here.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object with all rows instead of text.")] = False,
    verbose: Verbose = 0,
) -> None:
    """List the names of TVM that PATH uses, and which of them are here. The exit code is 1 if any is not."""
    found = migration(path)
    typer.echo(found.to_json() if as_json else found.text(everything))
    if not found.works:
        raise typer.Exit(1)
