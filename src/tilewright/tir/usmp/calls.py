"""Calls of functions of the same module, and the memory that they pass.

A function calls another by its name, as a C function (`T.call_extern`) or by a calling convention of TVM
(`T.tvm_call_packed`, `T.tvm_call_cpacked`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from tilewright.ir.module import IRModule
from tilewright.scalar.expr import Buffer, Call, Cast, Load, PlacedBuffer, PrimExpr, Var
from tilewright.scalar.intrinsics import Extern, Opaque, Packed, address_of
from tilewright.tir.stmt import PrimFunc, Stmt, Store, expressions

_PACKED: Final = frozenset({"tvm_call_packed", "tvm_call_cpacked", "call_cpacked"})
Memory = Buffer | Var
"""Memory that an argument is the address of: a buffer, or a parameter that is an address."""


class Functions:
    """The loop programs of a module by the names that calls use."""

    def __init__(self, mod: IRModule) -> None:
        named = {str(f.attrs["global_symbol"]): f for _, f in mod.items()
                 if isinstance(f, PrimFunc) and "global_symbol" in f.attrs}
        self.by_name = {**named, **{name: f for name, f in mod.items() if isinstance(f, PrimFunc)}}

    def called(self, e: PrimExpr) -> tuple[PrimFunc | None, Sequence[PrimExpr]] | None:
        """Return the function that a call calls, None if it is outside of the module, and the arguments; None for other
        expressions."""
        name = name_called(e)
        return None if name is None or not isinstance(e, Call) else (self.by_name.get(name), e.args)


def name_called(e: PrimExpr) -> str | None:
    """Return the name of the function that an expression calls, or None."""
    if not isinstance(e, Call):
        return None
    if isinstance(e.op, Packed):
        return e.op.function
    if isinstance(e.op, Opaque):
        return e.op.texts[0][1] if e.op.spelling in _PACKED and e.op.texts else None
    return e.op.spelling if isinstance(e.op, Extern) else None


def passed(e: PrimExpr) -> Memory | None:
    """Return the memory that an argument is the address of, or None."""
    while isinstance(e, Cast) and e.dtype == "handle":
        e = e.value
    if isinstance(e, Call) and e.op is address_of and isinstance(load := e.args[0], Load):
        return root(load.buffer)
    return e if isinstance(e, Var) and e.dtype == "handle" else None


def root(buffer: Buffer) -> Memory:
    """Return the address of memory at an address, and other buffers unchanged."""
    return buffer.pointer if isinstance(buffer, PlacedBuffer) else buffer


def used(s: Stmt, functions: Functions) -> Iterator[Any]:
    """Yield the buffers and addresses that a statement itself uses, and its calls. Memory that it passes to a function
    of the module is left out, since this function uses it."""
    if isinstance(s, Store):
        yield root(s.buffer)
    stack: list[PrimExpr] = [*expressions(s)]
    while stack:
        e = stack.pop()
        if isinstance(e, Load):
            yield root(e.buffer)
        called = functions.called(e)
        if called is not None or (isinstance(e, Var) and e.dtype == "handle"):
            yield e
        inside = called is not None and called[0] is not None
        stack += [x for x in e.operands() if not inside or passed(x) is None]


__all__ = ["Functions", "Memory", "name_called", "passed", "root", "used"]
