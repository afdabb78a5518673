"""Calls of linked C functions, and of functions of LLVM. Numbers are passed by value, memory by its address."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path
from typing import Final

import llvmlite

from tilewright.backends.cpu.llvm.function import FunctionText, Value
from tilewright.backends.cpu.llvm.memory import address
from tilewright.backends.cpu.llvm.text import register_type
from tilewright.base.errors import CompileError, InternalError
from tilewright.scalar import expr as E
from tilewright.scalar import intrinsics as I

_READ: Final = "read"
_UNKNOWN: Final = "unknown"
_READER: Final = f"""
import sys
sys.path.insert(0, sys.argv[1])
import llvmlite.binding as llvm
text = str(llvm.parse_assembly(sys.argv[2]))
print("{_UNKNOWN}" if "; Unknown intrinsic" in text else "{_READ}")
"""


@functools.cache
def is_llvm_function(name: str) -> bool:
    """Return whether LLVM has a function of that name, such as `llvm.ctlz`, also with types in the name."""
    if not name.startswith("llvm.") or not name.replace(".", "").replace("_", "").isalnum():
        return False
    return _answer(f"declare void @{name}()") != _UNKNOWN


@functools.cache
def _answer(declaration: str) -> str:
    """Return what another process prints that reads a declaration: `_READ`, `_UNKNOWN` if LLVM has no such function, or
    nothing if LLVM ended it. For older functions, LLVM ends its process unless they have the right arguments."""
    folder = str(Path(llvmlite.__file__).parents[1])
    command = [sys.executable, "-c", _READER, folder, declaration]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


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
        if of_llvm and _answer(f.declarations[e.op.spelling]) != _READ:
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
