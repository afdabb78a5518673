"""`T`, for writing TIR functions in Python:

    from tilewright.script import tir as T

    @T.prim_func
    def double(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        for i in T.serial(16):
            B[i] = A[i] * 2.0

The function's source is parsed, and the function is never run, so its body may use the whole language (`docs/tir.md`).
This module defines what Python itself evaluates: the decorator, the annotations of parameters, and outside of
functions the functions of expressions, such as `T.exp(x)`. Their results can be used in functions by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, overload

from tilewright.base.errors import CompileError
from tilewright.base.settings import nearest
from tilewright.base.types import DataType, PointerType, PrimType
from tilewright.scalar import expr as E
from tilewright.scalar.expr import Var, cast
from tilewright.tir import buffers
from tilewright.tir.parse_expr import FUNCTIONS
from tilewright.tir.parse_python import meta_var
from tilewright.tir.parse_views import PLACES
from tilewright.tir.parser import parse_python
from tilewright.tir.stmt import PrimFunc
from tilewright.tir.views import View, reshaped


class Annotation:
    """The annotation of a parameter. Python may index it; the parser reads its meaning from the source."""

    def __getitem__(self, items: object) -> Annotation:
        return self


class NumberType(Annotation):
    """The type of a number. `T.float32(2)` is a constant, and `T.int64()` a variable."""

    def __init__(self, name: str) -> None:
        self.dtype = DataType(name)

    def __call__(self, *args: Any, **options: object) -> Any:
        return cast(self.dtype, args[0]) if args else Var("v", self.dtype)


class BufferType(Annotation):
    """The type of a buffer. `T.Buffer((16,), "float32")` is also a buffer, and with `data=` the memory of another one.
    `script_name` is its name in functions.
    """

    def __init__(self, script_name: str) -> None:
        self.script_name = script_name

    def __call__(self, shape: Any = (), dtype: Any = "float32", data: Any = None, **options: Any) -> Any:
        kind = DataType(getattr(dtype, "dtype", dtype))
        options = {k: v for k, v in options.items() if k not in PLACES}
        if not isinstance(data, (E.Buffer, View)):
            return buffers.decl_buffer(shape, kind, data=data, **options)
        sizes = tuple(shape) if isinstance(shape, (list, tuple)) else (shape,)
        made = reshaped(options.get("name", "buffer"), data, sizes, E.as_expr(0))
        if isinstance(made, str) or kind is not made.dtype:
            raise CompileError(
                made if isinstance(made, str) else f"the memory of '{data.name}' holds {made.dtype}, not {kind}",
                code="TW0609")
        return made


class HandleType(Annotation):
    """The type of an address. `T.handle("float32", "global")` is also a variable that is one."""

    def __call__(self, dtype: Any = None, storage_scope: str = "global") -> Any:
        kind = None if dtype is None else PrimType(getattr(dtype, "dtype", dtype))
        return Var("v", "handle" if kind is None else PointerType(kind, storage_scope))


Buffer: Final = BufferType("Buffer")
decl_buffer: Final = BufferType("decl_buffer")
handle: Final = HandleType()
int8, int16, int32, int64 = map(NumberType, ("int8", "int16", "int32", "int64"))
uint8, uint16, uint32, uint64 = map(NumberType, ("uint8", "uint16", "uint32", "uint64"))
float32, float64 = NumberType("float32"), NumberType("float64")


def __getattr__(name: str) -> Any:
    """Return a function of expressions, such as `T.exp`, or another type of numbers, such as `T.bool`."""
    found = FUNCTIONS.get(name)
    if found is not None:
        return found
    try:
        return NumberType("bool" if name == "boolean" else name)
    except CompileError:
        text = f"T.{name} has no value outside of a function{nearest(name, FUNCTIONS)}; it has no attribute of its own"
        raise AttributeError(text, name=name) from None


@overload
def prim_func(function: Callable[..., Any]) -> PrimFunc: ...
@overload
def prim_func(*, name: str = ..., private: bool = ...) -> Callable[[Callable[..., Any]], PrimFunc]: ...


def prim_func(function: Callable[..., Any] | None = None, *, name: str = "", private: bool = False) -> Any:
    """Parse a Python function as a TIR function. `name` is its name if that is not a Python identifier.

    Raises `ParseError` with the line of the file.
    """
    return parse_python if function is None else parse_python(function)


__all__ = ["Buffer", "decl_buffer", "handle", "meta_var", "prim_func"]
