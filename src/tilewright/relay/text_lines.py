"""Finds the line of a program's text that computes a value, for messages about a node."""

from __future__ import annotations

from typing import Any, Final

from tilewright.ir import dialects
from tilewright.relay.expr import Expr
from tilewright.relay.printer import astext
from tilewright.tir.stmt import Stmt

_MARK: Final = "\N{LEFT-POINTING DOUBLE ANGLE QUOTATION MARK}here"


@dialects.line_of.provide
def line_of(program: Any, wanted: Any) -> str | None:
    """Return the line of `program`, a module or an expression, that computes `wanted`; None if it has no line.

    The whole text is printed to find it. For a TIR statement, it is the first line of the statement's text.
    """

    def annotate(e: Expr) -> str:
        known = e.known_type()
        typed = "" if known is None else f" /* ty={known!r} */"
        return f"{typed}{_MARK}" if e is wanted else typed

    if isinstance(wanted, Stmt):
        return repr(wanted).split("\n", 1)[0].strip()
    if not isinstance(wanted, Expr):
        return None
    for line in astext(program, annotate=annotate).split("\n"):
        if _MARK in line:
            return line.replace(_MARK, "").strip()
    return None
