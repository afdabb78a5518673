"""`Scriptable`: the parts of programs that have a text in TVMScript of their own.

    tir.Var("n", "int32").script(verbose_expr=True)      n = T.int32()
                                                         n
"""

from __future__ import annotations

from typing import Any, Final

from tilewright.base.plugins import Hook

script_text: Final[Hook[[Any, bool], str]] = Hook("tilewright.tir.script.printer.part_text")
"""Returns the text of a part of a program: `script_text(part, verbose_expr)`."""


class Scriptable:
    """Base of expressions, statements, buffers, ranges, and the types of numbers and addresses."""

    __slots__ = ()

    def script(self, *, verbose_expr: bool = False) -> str:
        """Return the text in TVMScript.

        The text of a statement declares the variables and buffers that it does not bind. With `verbose_expr`, that of
        an expression does too. Numbers of int32 and int64 are written without a type, so the text of a program that
        has both does not give their types; `PrimFunc.script` does.
        """
        return script_text(self, verbose_expr)

    def show(self) -> None:
        """Print the text."""
        print(self.script())
