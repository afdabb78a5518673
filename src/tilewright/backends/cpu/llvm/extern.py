"""Calls of linked C functions. Numbers are passed by value, memory by its address."""

from __future__ import annotations

from tilewright.backends.cpu.llvm.function import FunctionText, Value
from tilewright.backends.cpu.llvm.memory import address
from tilewright.backends.cpu.llvm.text import register_type
from tilewright.base.errors import InternalError
from tilewright.scalar import expr as E
from tilewright.scalar import intrinsics as I


def call_extern(f: FunctionText, e: E.Call) -> Value:
    """Write a call; return its value, or the empty text for a function without one."""
    passed = [_argument(f, a) for a in e.args]
    kinds = [kind for kind, _ in passed]
    result = "void" if e.dtype == "void" else register_type(e.dtype)
    if e.op is I.call_address:
        name = f.put(f"inttoptr i64 {passed.pop(0)[1]} to ptr", f.here)
    else:
        name = f.declare(e.op.spelling, result, ", ".join(kinds))
    call = f"call {result} {name}({', '.join(f'{kind} {text}' for kind, text in passed)})"
    if result != "void":
        return f.put(call, f.here), f.here
    f.do(call)
    return "", f.here


def _argument(f: FunctionText, e: E.PrimExpr) -> tuple[str, str]:
    if isinstance(e, E.Call) and e.op is I.address_of and isinstance(load := e.args[0], E.Load):
        return "ptr", address(f, load)
    if e.dtype.lanes > 1:
        raise InternalError(f"a vector is passed to a C function: {e}")
    return register_type(e.dtype), f.value(e)[0]
