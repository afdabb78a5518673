"""Reads calls in TVMScript of functions that are not built in: other functions of the module, and registered ones; and
calls of functions by their full names.

    Module.f(A.data, n)                                 another function of the module
    T.call_packed("f", A, A.data, 3, "text")            a registered function
    T.Call("int32", "tir.tvm_throw_last_error", [])     a function by its full name
    T.Call("void", "tir.call_extern", ["f", A.data])    a function whose first argument is a name
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, Final, TypeGuard

from tilewright.base.errors import CompileError
from tilewright.base.types import DataType
from tilewright.scalar import intrinsics as I
from tilewright.scalar.expr import Buffer, Call, Intrinsic, PrimExpr
from tilewright.tir.packed_calls import packed_call
from tilewright.tir.parse_python import PythonReader

MODULE: Final = "Module"
"""Name of the module in texts of single functions, which call others of it."""


class CallReader(PythonReader):
    """Reads calls of other functions of the module, of registered ones, and by full names."""

    module: str
    """The name of the class around the function, through which the function calls others of the module."""
    arguments: Callable[..., list[ast.expr]]
    keywords: Callable[..., dict[str, ast.expr]]
    argument: Callable[[ast.expr], PrimExpr]
    literal: Callable[[ast.expr], Any]
    dtype: Callable[[ast.expr], DataType]

    def is_subroutine(self, node: ast.expr) -> TypeGuard[ast.Attribute]:
        """Return whether a called function is another one of the module: that of the class around, or of `Module`."""
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name) or node.value.id in self.names:
            return False
        name = node.value.id
        return name == self.module or (name == MODULE and name not in self.outer)

    def subroutine(self, node: ast.Call, function: ast.Attribute) -> PrimExpr:
        """Read `Module.f(A.data, n)`."""
        self.keywords(node)
        return Call("void", I.subroutine(function.attr), [self.argument(a) for a in node.args])

    def called_by_name(self, node: ast.Call) -> PrimExpr:
        """Read `T.Call("int32", "tir.name", [argument, …])`. The function is also given as an operator, and its
        arguments may be strings."""
        dtype, name, args = self.arguments(node, 3)
        if not isinstance(args, (ast.List, ast.Tuple)):
            raise self.error(args, "the arguments must be a list")
        function = self.literal(name)
        spelling = function.name if isinstance(function, Intrinsic) else str(function)
        values: list[Any] = [a.value if is_text(a) else self.argument(a) for a in args.elts]
        try:
            if not any(isinstance(v, str) for v in values):
                return Call(self.dtype(dtype), spelling, values)
            if spelling.removeprefix("tir.") == "tvm_call_packed":
                return packed_call(self.dtype(dtype), values)
            return I.call_named(self.dtype(dtype), spelling, values)
        except CompileError as error:
            raise self.error(node, error.message) from None

    def packed(self, node: ast.Call) -> PrimExpr:
        """Read `T.call_packed("f", A, A.data, 3, "text")`, a call of a registered function; `A` is the whole buffer."""
        given = self.keywords(node, "dtype")
        args: list[Any] = []
        for a in node.args:
            known = self.names.get(a.id) if isinstance(a, ast.Name) else None
            args.append(known if isinstance(known, Buffer) else a.value if is_text(a) else self.argument(a))
        try:
            return packed_call(self.dtype(given["dtype"]) if "dtype" in given else "int32", args)
        except CompileError as error:
            raise self.error(node, error.message) from None


def is_text(node: ast.expr) -> TypeGuard[ast.Constant]:
    """Return whether an argument is a string."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
