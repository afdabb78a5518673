"""TVM's `tvm.ir.diagnostics`: functions that show the errors of parsing and of type inference.

    override_renderer(lambda context: print(context.diagnostics[0].message))

An error has its whole text, so nothing else is shown unless a program overrides the renderer.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from tilewright.base.errors import CompileError, Origin

__all__ = [
    "Diagnostic", "DiagnosticContext", "DiagnosticLevel", "DiagnosticRenderer", "get_renderer", "override_renderer",
    "reporting",
]


class DiagnosticLevel(enum.IntEnum):
    """How serious a diagnostic is, with TVM's numbers."""

    BUG = 10
    ERROR = 20
    WARNING = 30
    NOTE = 40
    HELP = 50


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """A message about a node of the program."""

    level: DiagnosticLevel
    span: Origin | None
    message: str


@dataclass(frozen=True, slots=True)
class DiagnosticContext:
    """The diagnostics of one error."""

    diagnostics: Sequence[Diagnostic]


class DiagnosticRenderer:
    """Shows diagnostics by a function of a `DiagnosticContext`."""

    def __init__(self, render_func: Callable[[DiagnosticContext], None]) -> None:
        self.render_func = render_func

    def render(self, ctx: DiagnosticContext) -> None:
        """Show the diagnostics."""
        self.render_func(ctx)


_OVERRIDDEN: Final[ContextVar[DiagnosticRenderer | None]] = ContextVar("renderer", default=None)


def _print(ctx: DiagnosticContext) -> None:
    for diagnostic in ctx.diagnostics:
        print(f"{diagnostic.level.name.lower()}: {diagnostic.message}", file=sys.stderr)


def get_renderer() -> DiagnosticRenderer:
    """Return the renderer that `override_renderer` set, or one that prints to the standard error."""
    return _OVERRIDDEN.get() or DiagnosticRenderer(_print)


def override_renderer(render_func: Callable[[DiagnosticContext], None] | None) -> None:
    """Call this function with the diagnostics of each error before it is raised; None shows nothing again."""
    _OVERRIDDEN.set(None if render_func is None else DiagnosticRenderer(render_func))


@contextmanager
def reporting() -> Iterator[None]:
    """Show errors inside by the overridden renderer, if there is one."""
    try:
        yield
    except CompileError as error:
        if (renderer := _OVERRIDDEN.get()) is not None:
            renderer.render(DiagnosticContext([Diagnostic(DiagnosticLevel.ERROR, error.origin, error.message)]))
        raise
