"""Calls of linked C functions, and of functions of LLVM. Numbers are passed by value, memory by its address."""

from __future__ import annotations

import functools

from tilewright.backends.cpu.llvm.function import FunctionText, Value
from tilewright.backends.cpu.llvm.memory import address
from tilewright.backends.cpu.llvm.read_apart import read_apart
from tilewright.backends.cpu.llvm.text import FOREIGN, register_type
from tilewright.base.errors import CompileError, InternalError
from tilewright.scalar import expr as E
from tilewright.scalar import intrinsics as I


@functools.cache
def is_llvm_function(name: str) -> bool:
    """Return whether LLVM has a function of that name, such as `llvm.ctlz`, also with types in the name."""
    if not name.startswith("llvm.") or not name.replace(".", "").replace("_", "").isalnum():
        return False
    return not read_apart(f"declare void @{name}()").unknown


def call_extern(f: FunctionText, e: E.Call) -> Value:
    """Write a call; return its value, or the empty text for a function without one."""
    of_llvm = isinstance(e.op, I.LLVMIntrinsic)
    if of_llvm and e.op.spelling.isdigit():
        raise CompileError(
            f"LLVM's function {e.op.spelling} is given by its number, which differs between versions of LLVM; write "
            "its name, such as 'llvm.ctlz'", code="TW0602")
    if of_llvm and not is_llvm_function(e.op.spelling):
        raise CompileError(f"LLVM has no function '{e.op.spelling}'", code="TW0602")
    passed = [_argument(f, a, vectors=of_llvm) for a in (e.args[1:] if of_llvm else e.args)]
    kinds = [kind for kind, _ in passed]
    result = "void" if e.dtype == "void" else register_type(e.dtype)
    if e.op is I.call_address:
        name = f.put(f"inttoptr i64 {passed.pop(0)[1]} to ptr", f.here)
    else:
        name = f.declare(e.op.spelling, result, ", ".join(kinds))
        if of_llvm and f.declarations[e.op.spelling] != f"declare {result} {name}({', '.join(kinds)})":
            raise CompileError(
                f"'{e.op.spelling}' is called with several types; write the types in its name, such as "
                f"'{e.op.spelling}.i32'", code="TW0602")
        if of_llvm:
            f.declarations.setdefault(FOREIGN, FOREIGN)
        if of_llvm and not read_apart(f.declarations[e.op.spelling]).accepted:
            raise CompileError(
                f"LLVM's function '{e.op.spelling}' does not take ({', '.join(kinds)}) and return {result}",
                code="TW0602")
    call = f"call {result} {name}({', '.join(f'{kind} {text}' for kind, text in passed)})"
    if result != "void":
        return f.put(call, f.here), f.here
    f.do(call)
    return "", f.here


def _argument(f: FunctionText, e: E.PrimExpr, *, vectors: bool = False) -> tuple[str, str]:
    if isinstance(e, E.Call) and e.op is I.address_of and isinstance(load := e.args[0], E.Load):
        return "ptr", address(f, load)
    if e.dtype.lanes > 1 and not vectors:
        raise InternalError(f"a vector is passed to a C function: {e}")
    return register_type(e.dtype), f.value(e)[0]
