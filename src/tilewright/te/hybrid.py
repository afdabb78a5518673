"""Hybrid script: computations written as Python loops, `@te.hybrid.script`.

    @te.hybrid.script
    def outer_product(a, b):
        c = output_tensor((a.shape[0], b.shape[0]), "float32")
        for i in range(a.shape[0]):
            for j in parallel(b.shape[0]):
                c[i, j] = a[i] * b[j]
        return c

    C = outer_product(A, B)         # tensors: the function is parsed, and C is the result of its loops
    c = outer_product(a, b)         # arrays: the function is run, with numpy

Supported are `output_tensor`, `allocate`; loops over `range`, `serial`, `parallel`, `vectorize`, `unroll`, and
`const_range`, which is unrolled; `if`, assignments to elements and to scalars, arithmetic, and the functions in
`FUNCTIONS`. Numbers and tuples of the surrounding Python scopes can be used by name.
"""

from __future__ import annotations

import ast
import inspect
import math
import textwrap
import types
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from tilewright.base.errors import CompileError, ParseError
from tilewright.scalar import expr as E
from tilewright.scalar.expr import PrimExpr
from tilewright.te.extern import ExternOp
from tilewright.te.hybrid_reader import FUNCTIONS, Reader
from tilewright.te.tensor import Tensor
from tilewright.tir.parse_python import Source


def _zeros(shape: Any, dtype: str = "float32", scope: str = "global") -> np.ndarray[Any, Any]:
    return np.zeros(shape, dtype)


_RUNTIME: Final[Mapping[str, Any]] = {
    "output_tensor": _zeros, "allocate": _zeros, "serial": range, "parallel": range, "vectorize": range,
    "unroll": range, "const_range": range,
    "likely": lambda x: x, "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x),
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "power": np.power, "floor": np.floor, "ceil": np.ceil, "round": np.rint,
    "fabs": np.abs,
    "erf": math.erf, "ceil_div": lambda a, b: -(-a // b), "sin": np.sin, "cos": np.cos,
    **{
        t: np.dtype(t).type for t in (
            "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"
        )},
}
"""The names of hybrid script for a run in Python."""


class HybridFunction:
    """A function in hybrid script; a call with tensors returns a tensor, a call with arrays runs it."""

    def __init__(self, function: types.FunctionType) -> None:
        self.function = function
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__

    def __call__(self, *args: Any) -> Any:
        """Call with tensors, numbers and `te.var`, in the order of the parameters. Raises `ParseError` with the line,
        and `CompileError`."""
        if not any(
            isinstance(a, (Tensor, PrimExpr))
            or (isinstance(a, (list, tuple)) and any(isinstance(x, Tensor) for x in a)) for a in args
        ):
            return self._run(args)
        return self._read(args)

    def _run(self, args: tuple[Any, ...]) -> Any:
        f = self.function
        around = inspect.getclosurevars(f)
        scope = {**_RUNTIME, **f.__globals__, **around.nonlocals}
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
        definition = next(x for x in ast.walk(ast.parse("\n".join(source.lines))) if isinstance(x, ast.FunctionDef))
        names = [a.arg for a in definition.args.args]
        if len(names) != len(args):
            raise CompileError(
                f"hybrid function '{self.__name__}' takes {len(names)} arguments ({', '.join(names)}), "
                f"but was given {len(args)}", code="TW0606")
        reader = Reader(source, {**around.globals, **around.nonlocals}, definition, dict(zip(names, args, strict=True)))
        body, results = reader.function()
        inputs = list(reader.inputs)
        op = ExternOp(self.__name__, tuple(inputs), body, tuple(reader.inputs.values()), tuple(results))
        op.tensors.extend(Tensor(op, k, [E.as_expr(d) for d in b.shape], b.dtype) for k, b in enumerate(results))
        return op.tensors[0] if len(op.tensors) == 1 else list(op.tensors)


def script(function: Callable[..., Any]) -> HybridFunction:
    """Return a Python function as a `HybridFunction`."""
    if not isinstance(function, types.FunctionType):
        raise CompileError(
            f"te.hybrid.script decorates a Python function, not {type(function).__name__}",
            code="TW0606")
    return HybridFunction(function)


__all__ = ["FUNCTIONS", "HybridFunction", "script"]
