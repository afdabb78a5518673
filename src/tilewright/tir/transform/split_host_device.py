"""Move the regions for another device into functions of their own.

    def main(n: T.int32):                                def main(n: T.int32):
        with T.attr(T.target("cuda"), "target", 0):          Module.main_kernel(n)
            T.evaluate(n)                          ->
                                                         def main_kernel(n: T.int32):
                                                             T.evaluate(n)
"""

from __future__ import annotations

from typing import Any

from tilewright.ir.module import IRModule
from tilewright.scalar.addresses import address
from tilewright.scalar.expr import Buffer, Call, PlacedBuffer, PrimExpr, Var
from tilewright.scalar.intrinsics import subroutine
from tilewright.scalar.walk import substitute
from tilewright.tir import stmt_functor
from tilewright.tir.free_names import undefined_names
from tilewright.tir.stmt import AttrStmt, Evaluate, PrimFunc, Stmt, map_bodies, redirect
from tilewright.tir.transform.function_attributes import EXPORTED, SYMBOL, TARGET


def split_host_device(mod: IRModule) -> IRModule:
    """Replace each attribute `target` of statements by a call of a new function with this target.

    The function takes the memory and the variables that the statements use, memory first, in the order of their names.
    It shares no variables with its caller. Its name is that of the caller with `_kernel` at the end.
    """
    made = mod.copy()
    for name, func in mod.items():
        if isinstance(func, PrimFunc):
            splitter = _Splitter(str(func.attrs.get(SYMBOL, name)), made)
            body = splitter.stmt(func.body)
            if body is not func.body:
                made[name] = func.with_body(body)
    return made


class _Splitter:
    """Splits one function, whose name is `caller`, and adds the new functions to a module."""

    def __init__(self, caller: str, mod: IRModule) -> None:
        self.caller, self.mod = caller, mod

    def stmt(self, s: Stmt) -> Stmt:
        if isinstance(s, AttrStmt) and s.attr_key == TARGET:
            return self.call(s)
        return map_bodies(s, self.stmt) or s

    def call(self, region: AttrStmt) -> Stmt:
        variables, buffers = undefined_names(region.body)
        held: list[Buffer | Var] = [b for b in buffers if not isinstance(b, PlacedBuffer)]
        memory = sorted([*held, *(v for v in variables if v.dtype == "handle")], key=_name)
        given = [*memory, *sorted((v for v in variables if v.dtype != "handle"), key=_name)]
        name = self.free_name()
        self.mod[name] = _kernel(name, region, given, buffers)
        args = [address(p) if isinstance(p, Buffer) else p for p in given]
        return Evaluate(Call("void", subroutine(name), args))

    def free_name(self) -> str:
        name, number = f"{self.caller}_kernel", 0
        while name in self.mod:
            number += 1
            name = f"{self.caller}_kernel_{number}"
        return name


def _name(p: Buffer | Var) -> str:
    return p.name


def _kernel(name: str, region: AttrStmt, given: list[Buffer | Var], buffers: list[Buffer]) -> PrimFunc:
    """Return the function of a region, over parameters of its own for those given. `buffers` is all memory that is
    used, also at addresses."""
    own = {v: Var(v.name, v.type_annotation) for v in given if isinstance(v, Var)}
    values: dict[Any, PrimExpr] = dict(own.items())
    body = stmt_functor.substitute(region.body, values)
    memory: dict[Buffer, Buffer] = {}
    for old in buffers:
        memory[old] = _renewed(old, values)
        body = redirect(body, old, memory[old])
    params = tuple(memory[p] if isinstance(p, Buffer) else own[p] for p in given)
    return PrimFunc(name, params, body, {TARGET: region.node, "tir.noalias": True, EXPORTED: True})


def _renewed(b: Buffer, values: dict[Any, PrimExpr]) -> Buffer:
    """Return new memory like `b`, with variables replaced in its sizes and its address."""
    shape, strides = ([substitute(d, values) if isinstance(d, PrimExpr) else d for d in dims]
                      for dims in (b.shape, b.strides))
    if isinstance(b, PlacedBuffer):
        pointer = values.get(b.pointer, b.pointer)  # an address that is bound inside keeps its variable
        assert isinstance(pointer, Var)
        return PlacedBuffer(b.name, shape, b.dtype, pointer, b.scope, strides)
    return Buffer(b.name, shape, b.dtype, b.scope, strides)
