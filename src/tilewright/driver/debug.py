"""`tilewright debug`: runs Python scripts under memory checkers.

`tilewright debug asan SCRIPT` runs a script with AddressSanitizer in its process, for libraries that `export_library(…,
sanitize="address")` wrote. If their functions access invalid memory, the process ends with status 1. The
line of the C text in the report is then shown with its enclosing loops.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from tilewright.backends.cpu.c.compile import find_compilers, named_compiler, sanitizer_of
from tilewright.base.errors import InputError
from tilewright.driver.application import examples
from tilewright.runtime.host import host_arch

_OPTIONS: Final = "detect_leaks=0:allocator_may_return_null=1"
"""Python does not free all memory at exit, and handles failed allocations."""
_PLACE: Final = re.compile(r"(?:^|\s)(?P<file>/\S+/sources/\S+\.c):(?P<line>\d+)")
_INDENT: Final = "    "

app = typer.Typer(name="debug", help="Run a Python script under a memory checker.", rich_markup_mode=None)


@app.callback()
def debug() -> None:
    """Run a Python script under a memory checker."""


@app.command("asan", epilog=examples("tilewright debug asan script.py", "tilewright debug asan script.py 16 --verbose"),
             context_settings={
                 "allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False
             })
def asan_command(
    context: typer.Context,
    script: Annotated[
        Path, typer.Argument(metavar="SCRIPT [ARGUMENTS]...", help="The Python script, followed by its arguments.")
    ],
) -> None:
    """Run SCRIPT with AddressSanitizer, and show the loops that its report names."""
    if not script.is_file():
        raise InputError(f"'{script}' is not a file; name the Python script to run", code="TW0803")
    status = asan(script, context.args)
    if status:
        raise typer.Exit(status)


def asan(script: Path, arguments: Sequence[str] = ()) -> int:
    """Run a Python script with gcc's AddressSanitizer; return its status. Raises `TargetError` if gcc lacks
    AddressSanitizer."""
    compilers = [c for c in find_compilers(host_arch()) if not c.is_zig]
    library = sanitizer_of(compilers[0] if compilers else named_compiler("gcc"))
    given = os.environ.get("ASAN_OPTIONS")
    environment = {
        **os.environ, "LD_PRELOAD": str(library), "ASAN_OPTIONS": f"{_OPTIONS}:{given}" if given else _OPTIONS
    }
    places: dict[tuple[Path, int], None] = {}
    with subprocess.Popen(
        [sys.executable, str(script), *arguments], env=environment, stderr=subprocess.PIPE, text=True, errors="replace"
    ) as process:
        assert process.stderr is not None
        for text in process.stderr:
            sys.stderr.write(text)
            places.update((place, None) for place in places_in(text))
    for path, line in places:
        typer.echo(explained(path, line), err=True)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def places_in(report: str) -> Iterator[tuple[Path, int]]:
    """Yield the lines of generated C text that a sanitizer's report names."""
    for found in _PLACE.finditer(report):
        yield Path(found["file"]), int(found["line"])


def explained(path: Path, number: int) -> str:
    """Return a line of C text with the loops around it and the comment of its function."""
    try:
        lines = path.read_text().splitlines()
        text = lines[number - 1]
    except (OSError, IndexError):
        return f"{path}:{number}: the source file no longer exists; export the library again"
    around, depth, at = [], _depth(text), number - 1
    while at > 0 and depth > 0:
        at -= 1
        line = lines[at]
        if line.strip() and _depth(line) < depth:
            depth = _depth(line)
            around.append(line.strip().removesuffix("{").rstrip())
    comments = []
    while at > 0 and (lines[at - 1].startswith(("/*", " *")) or (around and lines[at - 1].rstrip(";") == around[-1])):
        at -= 1
        if not lines[at].endswith(";"):
            comments.append(lines[at].strip().removeprefix("/*").removesuffix("*/").strip(" *"))
    *loops, function = around or [path.stem]
    rows = [f"{path.name}:{number}:", _INDENT + text.strip()]
    if loops:
        rows += ["in the loops", *(_INDENT + loop for loop in reversed(loops))]
    rows += ["of", _INDENT + function, *(_INDENT + c for c in reversed(comments) if c)]
    return "\n".join(rows)


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
