"""The source of a Python function, class or text, with its place in its file."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import Any


class Source:
    """The source of a program: `source_name` is its file, `start_line` and `start_column` its place there.

    `source` is the text of the program and `full_source` that of its file. For a text, both are the text itself, and
    the file is "<str>". Raises `OSError` for a function without a file.
    """

    def __init__(self, program: str | Callable[..., Any] | type) -> None:
        if isinstance(program, str):
            self.source_name, self.start_line, self.start_column = "<str>", 1, 0
            self.source = self.full_source = program
            return
        self.source_name = str(inspect.getsourcefile(program))
        lines, self.start_line = inspect.getsourcelines(program)
        self.source = "".join(lines)
        self.start_column = min((len(x) - len(x.lstrip()) for x in lines if x.strip()), default=0)
        whole, _ = inspect.findsource(program)
        self.full_source = "".join(whole)

    def as_ast(self) -> ast.Module:
        """Return the syntax tree. Raises `SyntaxError`."""
        return ast.parse(textwrap.dedent(self.source))
