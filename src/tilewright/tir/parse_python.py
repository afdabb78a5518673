"""Reads the parts of TVMScript that are values of the Python code around a function.

    n, dtype = 16, "float32"

    @T.prim_func
    def f(A: T.Buffer((n, sizes[0]), dtype)):           # `n`, `sizes[0]` and `dtype` are computed by Python
        ...

Python computes an expression only if each name in it is bound around the function, and none inside. A text without
surrounding code, as for `tir.parse`, is not executed.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from tilewright.base.errors import Origin, ParseError, excerpt
from tilewright.scalar.expr import PrimExpr

MODULES: Final = ("T", "tir")
"""Names of the module of TVMScript in functions."""


class meta_var:
    """A value of Python, `value`, that is not a variable of the program; a sequence gives one for each element."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __iter__(self) -> Iterator[meta_var]:
        return map(meta_var, self.value)


class Source:
    """The text of a program, for messages."""

    def __init__(self, text: str, file: str = "", first_line: int = 1) -> None:
        self.lines, self.file, self.first_line = text.split("\n"), file, first_line

    def line(self, node: ast.AST) -> int:
        """Return the line of a node in its file."""
        return getattr(node, "lineno", 1) + self.first_line - 1

    def error(self, node: ast.AST, message: str) -> ParseError:
        """Return an error with `message`, the line of `node`, and a caret below it."""
        row = getattr(node, "lineno", 1)
        text = self.lines[row - 1] if row <= len(self.lines) else ""
        start = _column(text, getattr(node, "col_offset", 0))
        end = (
            _column(text, getattr(node, "end_col_offset", None) or 0) if getattr(node, "end_lineno", row) == row
            else len(text)
        )
        return self.located(row, start, end, message)

    def located(self, row: int, start: int, end: int, message: str) -> ParseError:
        text = self.lines[row - 1] if 0 < row <= len(self.lines) else ""
        file, line = self.file or "the text", row + self.first_line - 1
        error = ParseError(f"{file}:{line}: {message}\n{excerpt(text, start, end)}")
        error.origin = Origin(file, file=self.file, line=line)
        return error


def _column(text: str, bytes_before: int) -> int:
    """Return the number of characters before a position that `ast` gives in bytes."""
    return len(text.encode()[:bytes_before].decode(errors="ignore"))


def around(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the current values of the names around a Python function.

    A function keeps only the names of its body, so those of its annotations are found in the frames that define it. A
    class that is still being defined has no value.
    """
    bound: dict[str, Any] = {}
    frame, code = inspect.currentframe(), function.__code__
    while frame is not None:
        if code in frame.f_code.co_consts and frame.f_locals is not frame.f_globals:
            bound = {**frame.f_locals, **bound}
            code = frame.f_code
        frame = frame.f_back
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):
            bound[name] = cell.cell_contents
    return {**function.__globals__, **bound}


class OwnNames(ast.NodeTransformer):
    """Writes a declaration of TVMScript that has a name in the surrounding code, `make = T.Buffer`, as `T.Buffer`."""

    def __init__(self, outer: Mapping[str, Any]) -> None:
        self.outer = outer

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        spelling = getattr(self.outer.get(name), "script_name", "")
        if isinstance(spelling, str) and spelling:
            node.func = ast.copy_location(
                ast.Attribute(ast.copy_location(ast.Name(MODULES[0], ast.Load()), node), spelling, ast.Load()), node)
        return node


class PythonReader:
    """Reads values of the surrounding Python code."""

    value: Callable[[ast.expr], Any]

    def __init__(self, source: Source, outer: Mapping[str, Any]) -> None:
        self.source = source
        self.outer = outer
        """The bindings of the surrounding Python code."""
        self.names: dict[str, Any] = {}

    def error(self, node: ast.AST, message: str) -> ParseError:
        return self.source.error(node, message)

    def is_outside(self, node: ast.expr) -> bool:
        """Return whether an expression has only names of the surrounding code and of Python, and one of the former."""
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        around = {n for n in names if n in self.outer and n not in self.names and n not in MODULES}
        return bool(around) and all(n in around or hasattr(builtins, n) for n in names)

    def outside(self, node: ast.expr) -> Any:
        """Return the value that Python computes for an expression of the surrounding code."""
        tree = ast.fix_missing_locations(ast.Expression(node))
        try:
            return eval(compile(tree, self.source.file or "<text>", "eval"), dict(self.outer))
        except Exception as error:
            raise self.error(
                node, f"Python cannot compute '{ast.unparse(node)}': {type(error).__name__}: {error}") from error

    def scalar_outside(self, node: ast.expr) -> Any:
        """Return the value of an expression of the surrounding code, which must be an expression or a number."""
        return self._scalar(node, self.outside(node), f"'{ast.unparse(node)}' is", "be")

    def python_call(self, node: ast.Call) -> Any:
        """Call a function of the surrounding Python code; it returns an expression or a number."""
        return self.number_returned(node, self.called(node))

    def number_returned(self, node: ast.Call, found: Any) -> Any:
        """Return what a function of the surrounding Python code returned, which must be an expression or a number."""
        return self._scalar(node, found, f"'{ast.unparse(node.func)}' returned", "return")

    def python_values(self, node: ast.Call) -> list[Any]:
        """Call a function of the surrounding Python code that returns several expressions or numbers."""
        found = self.called(node)
        name = f"'{ast.unparse(node.func)}' returned"
        return [self._scalar(node, v, name, "return") for v in (found if isinstance(found, (tuple, list)) else [found])]

    def called(self, node: ast.Call) -> Any:
        """Call a function of the surrounding Python code, which may also take and return buffers."""
        called = self.outside(node.func) if self.is_outside(node.func) else None
        if not callable(called) or isinstance(called, type):
            raise self.error(
                node.func, "this cannot be called in TVMScript; only functions T.name(…), and those of the Python code "
                           "around, can")
        args = [self._given(a) for a in node.args]
        found = called(*args, **{k.arg: self._given(k.value) for k in node.keywords if k.arg is not None})
        return found.value if isinstance(found, meta_var) else found

    def _given(self, node: ast.expr) -> Any:
        """Read an argument of a function of the surrounding code: a value of it, an expression, a buffer, a text, or
        a list of them."""
        if self.is_outside(node):
            return self.outside(node)
        if isinstance(node, (ast.List, ast.Tuple)):
            return [self._given(x) for x in node.elts]
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        known = self.names.get(node.id) if isinstance(node, ast.Name) else None
        return self.value(node) if known is None else known

    def _scalar(self, node: ast.expr, found: Any, what: str, verb: str) -> Any:
        found = found.item() if isinstance(found, np.generic) else found
        if not isinstance(found, (PrimExpr, bool, int, float)):
            raise self.error(
                node, f"{what} a {type(found).__name__}; in TVMScript it must {verb} an expression or a number")
        return found
