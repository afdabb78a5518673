"""`tilewright cache`: shows the disk usage of compiled models and kernels, and removes them."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from tilewright.compiler.cache import VARIABLE, Cache
from tilewright.driver.application import Verbose, examples

EXAMPLES: Final = examples("tilewright cache", "tilewright cache --clear")


def cache_command(
    clear: Annotated[bool, typer.Option("--clear", help="Remove all entries.")] = False,
    verbose: Verbose = 0,
) -> None:
    """Show the folder and the contents of the cache, or clear it."""
    cache = Cache.default()
    if cache.folder is None:
        typer.echo(f"The cache is off: {VARIABLE} is 'off'.")
        return
    found = cache.contents()
    total = sum(nbytes for _, nbytes in found.values())
    if clear:
        cache.clear()
        typer.echo(f"Removed {_megabytes(total)} from {cache.folder}.")
        return
    typer.echo(
        f"{cache.folder}: {_megabytes(total)}, of at most {_megabytes(cache.limit)}; the variable {VARIABLE} names "
        "another folder")
    for kind, (count, nbytes) in found.items():
        typer.echo(f"  {kind:10s} {count:8d} {_megabytes(nbytes):>12s}")


def _megabytes(nbytes: int) -> str:
    return f"{nbytes / 1e6:,.1f} MB"
