"""TIR functions written in Python: `from tilewright.script import tir as T`, then `@T.prim_func`."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

from tilewright.ir.module import IRModule
from tilewright.tir.parser import parse, parse_module, parse_python
from tilewright.tir.script import ir, tir
from tilewright.tir.script.ir import ir_module
from tilewright.tir.stmt import PrimFunc


def from_source(program: str | Callable[..., Any] | type) -> PrimFunc | IRModule:
    """Return the function or the module of a text, a Python function or a Python class in TVMScript.

    A class, and a text with a class, several functions or the version with which the text of a module begins, is a
    module. Raises `ParseError`.
    """
    if isinstance(program, str):
        return _parsed(program)
    return _parsed(inspect.getsource(program)) if isinstance(program, type) else parse_python(program)


def _parsed(text: str) -> PrimFunc | IRModule:
    text = textwrap.dedent(text)
    try:
        tree = ast.parse(text)
    except (SyntaxError, MemoryError, RecursionError):
        return parse(text)  # raises the error with its place
    functions = [s for s in tree.body if isinstance(s, ast.FunctionDef)]
    of_module = text.lstrip().startswith("#[version")
    if of_module or any(isinstance(s, ast.ClassDef) for s in tree.body) or len(functions) > 1:
        return parse_module(text)
    return parse(text)


__all__ = ["from_source", "ir", "ir_module", "tir"]
