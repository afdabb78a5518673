"""Replace calls of functions with another target.

    Module.kernel(A.data)     # on another device, with T.launch_thread("threadIdx.x", 16)
      ->
    T.call_packed("kernel", A.data, 16)

    Module.other(A.data)      # on the same device, by another code generator
      ->
    T.call_extern("void", "other", A.data)

The numbers of threads are passed after the parameters of a kernel; its attribute `tir.kernel_launch_params` has their
kinds. Calls between functions with one target, or without targets, stay.
"""

from __future__ import annotations

from typing import Any, Final

from tilewright.base.errors import CompileError
from tilewright.ir.module import IRModule
from tilewright.scalar.expr import Call, PrimExpr, as_expr, mul
from tilewright.scalar.intrinsics import Subroutine, extern, packed
from tilewright.scalar.walk import free_vars, rewrite, substitute
from tilewright.tir.stmt import THREAD, Allocate, For, PrimFunc, map_expressions, walk_stmt
from tilewright.tir.threads import is_virtual
from tilewright.tir.transform.function_attributes import CONVENTION, EXPORTED, LAUNCHED, SYMBOL, TARGET

LAUNCH: Final = "tir.kernel_launch_params"
"""Attribute of a kernel: the kinds of the numbers of its launch, in order."""
SHARED_BYTES: Final = "tir.use_dyn_shared_memory"
"""Kind of the number of a launch that is the size of the memory of scope `shared.dyn`, in bytes."""


def lower_kernel_launches(mod: IRModule) -> IRModule:
    """Make calls of functions with another target calls of kernels or of C functions.

    Raises `CompileError` for a call with a wrong number of arguments, and for threads that the caller cannot count.
    """
    calls = _Calls({name: f for name, f in mod.items() if isinstance(f, PrimFunc)})
    new = mod.copy()
    for name, func in calls.functions.items():
        new[name] = calls.changed(func)
    for name, mark in calls.marks.items():
        new[name] = new[name].with_attr(mark)
    return new


class _Calls:
    """The calls of one module. `marks` are the new attributes of the called functions, by name."""

    def __init__(self, functions: dict[str, PrimFunc]) -> None:
        self.functions = functions
        self.marks: dict[str, dict[str, Any]] = {}

    def changed(self, func: PrimFunc) -> PrimFunc:
        """Return a function with new calls."""
        memo: dict[PrimExpr, PrimExpr] = {}
        target = func.attrs.get(TARGET)
        return func if target is None else func.with_body(
            map_expressions(func.body, lambda e: rewrite(e, lambda x: self.call(x, target), memo)))

    def call(self, e: PrimExpr, caller: Any) -> PrimExpr | None:
        if not isinstance(e, Call) or not isinstance(e.op, Subroutine):
            return None
        name = e.op.name_hint
        callee = self.functions.get(name)
        target = None if callee is None else callee.attrs.get(TARGET)
        if callee is None or target is None or target == caller:
            return None
        if len(e.args) != len(callee.params):
            raise CompileError(
                f"'{name}' has {len(callee.params)} parameters, but a call passes {len(e.args)}; pass one for each",
                code="TW0611")
        symbol = str(callee.attrs.get(SYMBOL, name))
        mark = self.marks.setdefault(name, {SYMBOL: symbol, EXPORTED: True})
        if target.get_target_device_type() == caller.get_target_device_type():
            return Call("void", extern(symbol), e.args)
        launch = launch_parameters(callee)
        mark.update({CONVENTION: LAUNCHED, LAUNCH: list(launch)})
        given: dict[Any, PrimExpr] = dict(zip(callee.params, e.args, strict=True))
        return Call("int32", packed(symbol), (*e.args, *(substitute(n, given) for n in launch.values())))


def launch_parameters(func: PrimFunc) -> dict[str, PrimExpr]:
    """Return the numbers of a launch of a kernel by their kinds: the extents of its threads, in order of their first
    loops, then the bytes of dynamic shared memory. Raises `CompileError` for a number that depends on more than the
    parameters, and for several dynamic shared memories."""
    found: dict[str, PrimExpr] = {}
    for s in walk_stmt(func.body):
        tag = str(s.annotations.get(THREAD, "")) if isinstance(s, For) else ""
        if isinstance(s, For) and tag and not is_virtual(s):
            found.setdefault(tag, s.extent)
    dynamic = [s for s in walk_stmt(func.body) if isinstance(s, Allocate) and s.buffer.scope == "shared.dyn"]
    if len(dynamic) > 1:
        raise CompileError(
            f"kernel '{func.name}' allocates '{dynamic[0].buffer.name}' and '{dynamic[1].buffer.name}' in shared.dyn, "
            "but a launch has one such memory; merge them", func.origin, code="TW0611")
    for s in dynamic:
        found[SHARED_BYTES] = _bytes(s)
    for kind, number in found.items():
        unknown = next((v for v in free_vars(number) if v not in func.params), None)
        if unknown is not None:
            raise CompileError(
                f"{kind} of kernel '{func.name}' depends on '{unknown.name}', which is no parameter, so the caller "
                "does not know it", func.origin, code="TW0611")
    return found


def _bytes(s: Allocate) -> PrimExpr:
    total: PrimExpr = as_expr(s.buffer.dtype.itemsize)
    for d in s.extents:
        total = mul(total, d)
    return total
