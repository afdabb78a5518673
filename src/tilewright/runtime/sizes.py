"""Symbolic sizes of a function's arrays: integer arithmetic over names, as text in the manifest.

    int64 n; float32 A[n, (n * 2)]      A of shape (3, 6) gives n = 3; shape (3, 5) does not fit

A name is determined where it is a dimension or stride by itself. Other sizes are checked against these values.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

Size: TypeAlias = int | str
"""A dimension or a stride: a number, or integer arithmetic over the names of sizes (`n`, `(n * 2)`)."""

_BINARY: Final[dict[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_MULTIPLE: Final = re.compile(r"([^\W\d]\w*)|\(([^\W\d]\w*) \* (\d+)\)")
_CALLS: Final[dict[str, Callable[..., int]]] = {"min": min, "max": max}


def value(text: int | str, known: Mapping[str, int]) -> int | None:
    """Return the value of a size, or None while a name in it is unknown."""
    if isinstance(text, int):
        return text
    direct = known.get(text)
    return direct if direct is not None or text.isidentifier() else _value(parsed(text), known)


def multiple_of(size: Size) -> tuple[str, int] | None:
    """Return the name and the factor of a size such as `n` or `(n * 32)`; None for other sizes."""
    match = _MULTIPLE.fullmatch(size) if isinstance(size, str) else None
    return None if match is None else (match[1] or match[2], int(match[3] or 1))


def check_size(text: str) -> str:
    """Return `text` if it is a valid size; raises `ValueError` otherwise."""
    _value(parsed(text), {})
    return text


def parsed(text: str) -> ast.expr:
    """Return a size as a tree. Raises `ValueError` for a text that is no expression."""
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"{text!r} is not a size") from error


def _value(e: ast.expr, known: Mapping[str, int]) -> int | None:
    match e:
        case ast.Constant(value=int() as number):
            return number
        case ast.Name(id=name):
            return known.get(name)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            operands: list[ast.expr] = [ast.Constant(0), inner]
            function: Callable[..., int] | None = operator.sub
        case ast.BinOp(left=a, op=op, right=b):
            operands, function = [a, b], _BINARY.get(type(op))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
            operands, function = list(args), _CALLS.get(name)
        case _:
            operands, function = [], None
    if function is None:
        raise ValueError(f"{ast.unparse(e)!r} is not a size")
    values: list[Any] = [_value(o, known) for o in operands]
    return None if any(v is None for v in values) else function(*values)
