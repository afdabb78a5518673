"""Symbolic sizes of a function's arrays: integer arithmetic over names, as text in the manifest.

    int64 n; float32 A[n, (n * 2)]      A of shape (3, 6) gives n = 3; shape (3, 5) does not fit

A name is determined where it is a dimension or stride by itself. Other sizes are checked against these values.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import CodeType, FunctionType
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


def solved(shapes: Iterable[tuple[Sequence[Size], Sequence[Any]]]) -> dict[str, int]:
    """Return the values of the names that dimensions determine, for pairs of dimensions and their numbers. The first
    dimension that is a multiple of a name determines it; what is not a number yet determines none."""
    known: dict[str, int] = {}
    for dims, numbers in shapes:
        for size, number in zip(dims, numbers, strict=False):
            if isinstance(number, int) and (found := multiple_of(size)) is not None:
                known.setdefault(found[0], number // found[1])
    return known


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


def compiled(sizes: Sequence[Any], names: Sequence[str]) -> Callable[..., tuple[Any, ...]]:
    """Return a function of the values of `names` that computes all `sizes`, numbers and texts in nested tuples, in the
    same form. Raises `ValueError` for a text that is not a size of these names."""
    tree = ast.Expression(_Translation(names).function(tuple(sizes)))
    code = compile(ast.fix_missing_locations(tree), "<sizes>", "eval")
    (body,) = (c for c in code.co_consts if isinstance(c, CodeType))
    return FunctionType(body, {"__builtins__": {}, **_CALLS})


class _Translation:
    """Translates sizes to a Python function that computes each of them once: `lambda s0: ((t0 := s0 * 4), t0)`.

    The function consists of nodes that are made here, never of nodes of a text: of numbers, the arguments, arithmetic,
    and the functions in `_CALLS`.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._arguments = {name: f"s{k}" for k, name in enumerate(names)}
        self._computed: dict[str, str] = {}

    def function(self, sizes: tuple[Any, ...]) -> ast.Lambda:
        arguments = ast.arguments([], [ast.arg(a) for a in self._arguments.values()], None, [], [], None, [])
        return ast.Lambda(arguments, self._expression(sizes))

    def _expression(self, size: Any) -> ast.expr:
        if isinstance(size, tuple):
            return ast.Tuple([self._expression(s) for s in size], ast.Load())
        if isinstance(size, int):
            return ast.Constant(int(size))
        if size in self._computed:
            return ast.Name(self._computed[size], ast.Load())
        tree = self._node(parsed(size))
        if isinstance(tree, ast.Name):
            return tree
        name = self._computed[size] = f"t{len(self._computed)}"
        return ast.NamedExpr(ast.Name(name, ast.Store()), tree)

    def _node(self, e: ast.expr) -> ast.expr:
        match e:
            case ast.Constant(value=int() as number):
                return ast.Constant(int(number))
            case ast.Name(id=name) if name in self._arguments:
                return ast.Name(self._arguments[name], ast.Load())
            case ast.Name(id=name):
                raise ValueError(f"the size {name!r} cannot be derived from {', '.join(self._arguments) or 'no sizes'}")
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return ast.UnaryOp(ast.USub(), self._node(inner))
            case ast.BinOp(left=a, op=op, right=b) if type(op) in _BINARY:
                return ast.BinOp(self._node(a), type(op)(), self._node(b))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _CALLS:
                return ast.Call(ast.Name(name, ast.Load()), [self._node(x) for x in args], [])
        raise ValueError(f"{ast.unparse(e)!r} is not a size")


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
