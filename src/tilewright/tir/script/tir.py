"""`T`, for writing TIR functions in Python:

    from tilewright.script import tir as T

    @T.prim_func
    def double(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        for i in T.serial(16):
            B[i] = A[i] * 2.0

The function's source is parsed, and the function is never run, so its body may use the whole language (`docs/tir.md`).
This module defines what Python itself evaluates: the decorator and the annotations of parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, overload

from tilewright.tir.parser import parse_python
from tilewright.tir.stmt import PrimFunc


class Annotation:
    """The annotation of a parameter. Python may call or index it; the parser reads its meaning from the source."""

    def __call__(self, *args: object, **options: object) -> Annotation:
        return self

    def __getitem__(self, items: object) -> Annotation:
        return self


Buffer: Final = Annotation()
handle: Final = Annotation()
int8 = int16 = int32 = int64 = uint8 = uint16 = uint32 = uint64 = float32 = float64 = Annotation()

if TYPE_CHECKING:  # the words of a function's body, which is read and never run
    def __getattr__(name: str) -> Any: ...


@overload
def prim_func(function: Callable[..., Any]) -> PrimFunc: ...
@overload
def prim_func(*, name: str = ..., private: bool = ...) -> Callable[[Callable[..., Any]], PrimFunc]: ...


def prim_func(function: Callable[..., Any] | None = None, *, name: str = "", private: bool = False) -> Any:
    """Parse a Python function as a TIR function. `name` is its name if that is not a Python identifier.

    Raises `ParseError` with the line of the file.
    """
    return parse_python if function is None else parse_python(function)


__all__ = ["Buffer", "handle", "prim_func"]
