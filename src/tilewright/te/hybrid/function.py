"""Functions in hybrid script: run with arrays, or read with tensors."""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.base.errors import CompileError, ParseError
from tilewright.scalar import expr as E
from tilewright.scalar.expr import PrimExpr
from tilewright.te.extern import ExternOp
from tilewright.te.hybrid.reader import Reader
from tilewright.te.hybrid.runtime import HYBRID_GLOBALS
from tilewright.te.tensor import Tensor
from tilewright.tir.parse_python import Source


class HybridFunction:
    """A function in hybrid script; a call with tensors returns a tensor, a call with arrays runs it."""

    def __init__(self, function: types.FunctionType) -> None:
        self.function = function
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self.__globals__ = function.__globals__

    def __call__(self, *args: Any) -> Any:
        """Call with tensors, numbers and `te.var`, in the order of the parameters. Raises `ParseError` with the line,
        and `CompileError`."""
        return self._read(args) if are_symbolic(args) else self._run(args)

    def _run(self, args: tuple[Any, ...]) -> Any:
        f = self.function
        around = inspect.getclosurevars(f)
        scope = {**HYBRID_GLOBALS, **f.__globals__, **around.nonlocals}
        return types.FunctionType(f.__code__, scope, f.__name__, f.__defaults__, f.__closure__)(*args)

    def _read(self, args: tuple[Any, ...]) -> Any:
        try:
            lines, first = inspect.getsourcelines(self.function)
        except (OSError, TypeError):
            raise ParseError(
                f"the source of '{self.__name__}' is not in a file; define hybrid functions in a file"
            ) from None
        around = inspect.getclosurevars(self.function)
        source = Source(textwrap.dedent("".join(lines)), inspect.getsourcefile(self.function) or "", first)
        return read_function(source, {**around.globals, **around.nonlocals}, args)


def are_symbolic(args: Sequence[Any]) -> bool:
    """Return whether a call is one with tensors or variables, not with arrays and numbers."""
    return any(
        isinstance(a, (Tensor, PrimExpr))
        or (isinstance(a, (list, tuple)) and any(isinstance(x, Tensor) for x in a)) for a in args)


def read_function(source: Source, outer: Mapping[str, Any], args: Sequence[Any]) -> Any:
    """Return the results of the first function of a text for tensors: one, or a list of several.

    `outer` are the names around the function. Raises `ParseError` with the line, and `CompileError`.
    """
    definition = next(x for x in ast.walk(ast.parse("\n".join(source.lines))) if isinstance(x, ast.FunctionDef))
    names = [a.arg for a in definition.args.args]
    if len(names) != len(args):
        raise CompileError(
            f"hybrid function '{definition.name}' takes {len(names)} arguments ({', '.join(names)}), "
            f"but was given {len(args)}", code="TW0606")
    reader = Reader(source, outer, definition, dict(zip(names, args, strict=True)))
    body, results = reader.function()
    op = ExternOp(definition.name, tuple(reader.inputs), body, tuple(reader.inputs.values()), tuple(results))
    op.tensors.extend(Tensor(op, k, [E.as_expr(d) for d in b.shape], b.dtype) for k, b in enumerate(results))
    return op.tensors[0] if len(op.tensors) == 1 else list(op.tensors)


def script(function: Callable[..., Any]) -> HybridFunction:
    """Return a Python function as a `HybridFunction`."""
    if not isinstance(function, types.FunctionType):
        raise CompileError(
            f"te.hybrid.script decorates a Python function, not {type(function).__name__}",
            code="TW0606")
    return HybridFunction(function)


__all__ = ["HybridFunction", "are_symbolic", "read_function", "script"]
