"""Replace allocations in special memory, a scope with a tag, by the address of this memory.

    A = T.allocate((16,), "float32", "global.pad")       A = T.call_extern("handle", "pad_address")
    A[0] = 1.0                                      ->   A_1 = T.Buffer((16,), data=A); A_1[0] = 1.0

A program describes the memory by a registered function:

    @tvm.register_func("tvm.info.mem.global.pad")
    def pad():
        return tvm.ir.make_node("MemoryInfo", unit_bits=8, max_num_bits=128, max_simd_bits=32,
                                head_address=tvm.tir.call_extern("handle", "pad_address"))
"""

from __future__ import annotations

from typing import Final

from tilewright.base.errors import CompileError
from tilewright.base.global_functions import get_global_func
from tilewright.base.types import PointerType, PrimType
from tilewright.ir.memory_info import MemoryInfo
from tilewright.scalar.expr import Var
from tilewright.tir.free_names import undefined_names
from tilewright.tir.placed_memory import at_address
from tilewright.tir.stmt import Allocate, Let, PrimFunc, Stmt, map_bodies
from tilewright.tir.transform.tagged_memory import is_tagged

_INFO: Final = "tvm.info.mem."
"""Prefix of the names of the functions that describe a memory scope."""


def lower_storage_access(func: PrimFunc) -> PrimFunc:
    """Remove the allocations in special memory. Raises `CompileError` for memory that no function describes, and for a
    use of memory that the CPU does not see."""
    return func.with_body(_stmt(func.body, func))


def _stmt(s: Stmt, func: PrimFunc) -> Stmt:
    inner = map_bodies(s, lambda b: _stmt(b, func)) or s
    if not isinstance(inner, Allocate) or not is_tagged(inner.buffer.scope):
        return inner
    buffer = inner.buffer
    address = _info(buffer.scope, func).head_address
    if address is None:
        if buffer in undefined_names(inner.body)[1]:
            raise CompileError(
                f"'{func.name}' uses '{buffer.name}' in '{buffer.scope}', which the CPU does not see; lower its "
                "accesses to calls of the device", func.origin, code="TW0611")
        return inner.body
    pointer = Var(buffer.name, PointerType(PrimType(buffer.dtype), buffer.scope))
    return Let(pointer, address, at_address(inner.body, buffer, pointer))


def _info(scope: str, func: PrimFunc) -> MemoryInfo:
    found = get_global_func(f"{_INFO}{scope}", allow_missing=True)
    info = None if found is None else found()
    if not isinstance(info, MemoryInfo):
        raise CompileError(
            f"'{func.name}' allocates memory of scope '{scope}', which is not described; register a function "
            f"'{_INFO}{scope}' that returns a MemoryInfo", func.origin, code="TW0611")
    return info
