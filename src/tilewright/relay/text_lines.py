"""The line of a program's text in which a value stands: what messages about a node show."""

from __future__ import annotations

from typing import Any, Final

from tilewright.ir import dialects
from tilewright.relay.expr import Expr
from tilewright.relay.printer import astext
from tilewright.tir.stmt import Stmt

_MARK: Final = "\N{LEFT-POINTING DOUBLE ANGLE QUOTATION MARK}here"


@dialects.line_of.provide
def line_of(program: Any, wanted: Any) -> str | None:
    """The line of `program`, a module or an expression, that computes the value `wanted`; None when it has no line.

    The whole text is printed to find it. Of a statement of loops it is the first line of its own text.
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
