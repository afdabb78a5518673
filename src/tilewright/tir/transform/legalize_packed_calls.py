"""Passes arrays to functions that take arrays, where a program passes addresses.

    T.tvm_call_cpacked("f", A, context)     # f takes a buffer of shape (8,) and float32, and the context of its device
      ->
    T.tvm_call_cpacked("f", T.tvm_stack_make_array(A, T.tvm_stack_make_shape(8), …, T.uint32(1), …), context)

An array has the address, the shape, the strides (none), the number of dimensions, a value of its type, and the offset.
"""

from __future__ import annotations

from typing import Final

from tilewright.base.errors import CompileError
from tilewright.base.types import DataType
from tilewright.ir.module import IRModule
from tilewright.scalar.expr import Buffer, Call, Cast, PrimExpr, as_expr, const
from tilewright.scalar.intrinsics import Opaque, Packed, call_opaque, reinterpret
from tilewright.scalar.walk import rewrite
from tilewright.tir.stmt import PrimFunc, map_expressions

_HANDLE: Final = DataType("handle")
_ARRAY: Final = "tvm_stack_make_array"


def legalize_packed_calls(mod: IRModule) -> IRModule:
    """Replace the addresses in packed calls of functions of the module by arrays with the shapes and types of the
    parameters. Raises `CompileError` for a call with fewer arguments than parameters."""
    functions = {name: f for name, f in mod.items() if isinstance(f, PrimFunc)}

    def call(e: PrimExpr) -> PrimExpr | None:
        if not isinstance(e, Call):
            return None
        last_is_context = isinstance(e.op, Opaque) and e.op.spelling == "tvm_call_cpacked"
        name = e.op.texts[0][1] if last_is_context and isinstance(e.op, Opaque) and e.op.texts else (
            e.op.function if isinstance(e.op, Packed) and not e.op.arrays else "")
        callee = functions.get(name)
        if callee is None or callee.scalars:
            return None
        count = len(e.args) - last_is_context
        if count > len(callee.params) or count + last_is_context < len(callee.params):
            raise CompileError(
                f"'{name}' has {len(callee.params)} parameters, but a call passes {len(e.args)}; pass one for each",
                code="TW0611")
        args = [
            _array(a, b) if a.dtype is _HANDLE and not _is_array(a) else a
            for a, b in zip(e.args[:count], callee.buffers, strict=False)]
        return Call(e.dtype, e.op, (*args, *e.args[count:]))

    def changed(func: PrimFunc) -> PrimFunc:
        memo: dict[PrimExpr, PrimExpr] = {}
        return func.with_body(map_expressions(func.body, lambda e: rewrite(e, call, memo)))

    return mod.map_functions(changed, PrimFunc)


def _is_array(e: PrimExpr) -> bool:
    return isinstance(e, Call) and isinstance(e.op, Opaque) and e.op.spelling == _ARRAY


def _array(start: PrimExpr, buffer: Buffer) -> PrimExpr:
    """Return the array of a parameter's shape and type at an address."""
    shape = call_opaque("tvm_stack_make_shape", *map(as_expr, buffer.shape))
    strides = Call(_HANDLE, reinterpret, (const(0, "uint64"),))
    rank, zero = const(len(buffer.shape), "uint32"), const(0, "int64")
    return call_opaque(_ARRAY, start, shape, strides, rank, Cast(buffer.dtype, zero), zero)
