"""Make functions with a global symbol C functions: buffers become addresses, and the result is 0.

    def main(A: T.Buffer((8,), "float32")):           def main(A: T.handle):
        A[0] = 1.0                              ->        A_1 = T.Buffer((8,), data=A)
                                                          with T.attr("default", "device_id", 0):
                                                              with T.attr("default", "device_type", 1):
                                                                  A_1[0] = 1.0
                                                                  T.ret(T.int32(0))
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tilewright.base.errors import CompileError
from tilewright.base.types import PointerType, PrimType
from tilewright.ir.module import IRModule
from tilewright.scalar.expr import Buffer, Call, PrimExpr, Var, as_expr, const
from tilewright.scalar.intrinsics import Opaque, Subroutine, ret
from tilewright.scalar.walk import rewrite
from tilewright.tir.free_names import free_names
from tilewright.tir.placed_memory import at_address
from tilewright.tir.stmt import AttrStmt, Evaluate, PrimFunc, Seq, Stmt, map_expressions, seq
from tilewright.tir.transform.function_attributes import TARGET, host_of, is_exposed, target_of


def make_unpacked_api(mod: IRModule) -> IRModule:
    """Give the functions with a global symbol parameters that are addresses and numbers, and the target of their host.

    Calls of these functions pass addresses where they passed arrays. Raises `CompileError` for a function without a
    target, and for a size that is no parameter.
    """
    exposed = {name for name, f in mod.items() if isinstance(f, PrimFunc) and is_exposed(f)}

    def call(e: PrimExpr) -> PrimExpr | None:
        if isinstance(e, Call) and isinstance(e.op, Subroutine) and e.op.name_hint in exposed:
            return Call(e.dtype, e.op, [_address(a) for a in e.args])
        return None

    def changed(func: PrimFunc) -> PrimFunc:
        memo: dict[PrimExpr, PrimExpr] = {}
        made = func.with_body(map_expressions(func.body, lambda e: rewrite(e, call, memo))) if exposed else func
        return _unpacked(made) if is_exposed(func) else made

    return mod.map_functions(changed, PrimFunc)


def _address(e: PrimExpr) -> PrimExpr:
    """Return the address of the elements of an array; other arguments unchanged."""
    is_array = isinstance(e, Call) and isinstance(e.op, Opaque) and e.op.spelling == "tvm_stack_make_array"
    return e.args[0] if is_array and isinstance(e, Call) else e


def _unpacked(func: PrimFunc) -> PrimFunc:
    target = target_of(func, "MakeUnpackedAPI")
    params = [Var(p.name, PointerType(PrimType(p.dtype), p.scope)) if isinstance(p, Buffer) else p for p in func.params]
    body = func.body
    for p, pointer in zip(func.params, params, strict=True):
        if isinstance(p, Buffer):
            body = at_address(body, p, pointer)
    body = body if _ends_with_result(body) else seq(body, Evaluate(ret(const(0, "int32"))))
    if func.buffers:
        body = on_device(body, as_expr(0), target)
    made = replace(func, params=tuple(params), body=body).with_attr(TARGET, host_of(target))
    unknown = next(iter(free_names(made)[0]), None)
    if unknown is not None:
        raise CompileError(
            f"'{unknown.name}' in '{func.name}' is no parameter, and an address does not determine it; add it to the "
            "parameters", func.origin, code="TW0611")
    return made


def on_device(body: Stmt, number: PrimExpr, target: Any) -> Stmt:
    """Return statements with the attributes of their device: its number, and DLPack's number of its kind."""
    kind = as_expr(target.get_target_device_type())
    return AttrStmt("default", "device_id", number, AttrStmt("default", "device_type", kind, body))


def _ends_with_result(s: Stmt) -> bool:
    while isinstance(s, (Seq, AttrStmt)):
        if isinstance(s, Seq) and not s.stmts:
            return False
        s = s.stmts[-1] if isinstance(s, Seq) else s.body
    return isinstance(s, Evaluate) and isinstance(s.value, Call) and s.value.op is ret
