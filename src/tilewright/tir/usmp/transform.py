"""Passes that place the memory of a program in pools: `tir.usmp.transform`.

    UnifiedStaticMemoryPlanner()(mod)      all of these steps, of the module whose main function is `__tvm_main__`

    1. CreateAllocatesForIO                inputs and outputs become memory of the main function, if that is asked for
    2. extract_buffer_info                 live ranges and conflicts
    3. tir.usmp.algo.…                     a pool and an offset for each buffer
    4. convert_pool_allocations_to_offsets     A = T.allocate((8,), "int8")  ->  A = T.address_of(pool[64])
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tilewright.base.errors import CompileError, OptionError
from tilewright.base.global_functions import get_global_func, register_func
from tilewright.base.types import DataType
from tilewright.ir.memory_pools import AllocatedPoolInfo, ConstantInfo, ConstantPoolInfo, PoolInfo, WorkspacePoolInfo
from tilewright.ir.module import IRModule
from tilewright.ir.transform import ModulePass, PassContext
from tilewright.scalar.addresses import address
from tilewright.scalar.expr import Buffer, Call, Load, PrimExpr, Var, const
from tilewright.scalar.intrinsics import address_of
from tilewright.scalar.walk import rewrite, walk
from tilewright.tir.analysis import bytes_of
from tilewright.tir.placed_memory import at_address
from tilewright.tir.stmt import (
    Allocate,
    AllocateConst,
    Let,
    PrimFunc,
    Stmt,
    Store,
    expressions,
    map_bodies,
    map_expressions,
    walk_stmt,
)
from tilewright.tir.usmp.analysis import extract_buffer_info
from tilewright.tir.usmp.calls import Functions, Memory, name_called, passed, root
from tilewright.tir.usmp.utils import CANDIDATE_MEMORY_POOL_ATTR, INPUT, OUTPUT, BufferInfo, PoolAllocation

MAIN: Final = "__tvm_main__"
"""Name of the main function of a program."""
ARGUMENTS: Final = "argument_names"
"""Attribute of a main function: the names of its arguments in the text, where those of its buffers differ."""
POOLS: Final = "pool_args"
"""Attribute of a main function and of a module: the pools with the sizes that are used, in the order of the arguments.
"""
_HANDLE: Final = DataType("handle")


@register_func("tir.usmp.AssignStmtPoolAllocations")
def assign_stmt_pool_allocations(
    buffer_info_map: Mapping[BufferInfo, Allocate], allocations: Mapping[BufferInfo, PoolAllocation]
) -> dict[Allocate, PoolAllocation]:
    """Return the places of buffers by the statements that allocate them."""
    return {buffer_info_map[b]: place for b, place in allocations.items()}


@dataclass(frozen=True)
class ConvertPoolAllocationsToOffsets(ModulePass):
    """Replaces allocations by addresses in pools, whose memory the caller of the main function passes.

    The main function and those that it calls get the pools as their last parameters; a last parameter that is an
    address of no buffer, such as the context of a device, stays last. Pools are in the order of their names. The
    attribute `pool_args` of the module and of the main function has their sizes, unless `emit_tvmscript_printable`,
    which leaves all attributes out.
    """

    pool_allocations: Mapping[Allocate, PoolAllocation] = field(default_factory=dict)
    emit_tvmscript_printable: bool = False

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        main = main_function(mod)
        pools = _allocated(self.pool_allocations)
        conversion = _Conversion(Functions(mod), self.pool_allocations, pools)
        new = mod.copy()
        for name, f in mod.items():
            if isinstance(f, PrimFunc) and f in conversion.reached(main):
                made = conversion.function(f)
                own = {} if self.emit_tvmscript_printable else dict(made.attrs)
                if f is main and not self.emit_tvmscript_printable:
                    first = _insertion(f)
                    own[POOLS] = [replace(p, pool_var_idx=first + k) for k, p in enumerate(pools)]
                new[name] = replace(made, attrs=own)
        return new if self.emit_tvmscript_printable else new.with_attr(POOLS, list(pools))


def convert_pool_allocations_to_offsets(
    pool_allocations: Mapping[Allocate, PoolAllocation], emit_tvmscript_printable: bool = False
) -> ConvertPoolAllocationsToOffsets:
    """Return the pass that replaces allocations by addresses in pools. With `emit_tvmscript_printable`, functions have
    no attributes afterwards."""
    return ConvertPoolAllocationsToOffsets(pool_allocations, emit_tvmscript_printable)


def main_function(mod: IRModule) -> PrimFunc:
    """Return the function `__tvm_main__` of a module. Raises `CompileError` if the module has no such function."""
    found = dict(mod.items()).get(MAIN)
    if not isinstance(found, PrimFunc):
        raise CompileError(
            f"memory is planned for a module with the main function '{MAIN}'; this one has "
            f"{', '.join(str(n) for n in mod) or 'no function'}", code="TW0611")
    return found


def _allocated(places: Mapping[Allocate, PoolAllocation]) -> list[AllocatedPoolInfo]:
    """Return the pools that are used, by name, with the bytes used; a pool of constants lists them."""
    used: dict[str, list[tuple[Allocate, PoolAllocation]]] = {}
    for s, place in places.items():
        used.setdefault(place.pool_info.pool_name, []).append((s, place))
    return [AllocatedPoolInfo(_with_constants(here), max(map(_end, here))) for _, here in sorted(used.items())]


def _end(at: tuple[Allocate, PoolAllocation]) -> int:
    return int(at[1].byte_offset.value) + (bytes_of(at[0].buffer) or 0)


def _with_constants(here: list[tuple[Allocate, PoolAllocation]]) -> PoolInfo:
    pool: PoolInfo = here[0][1].pool_info
    found = [ConstantInfo(s.buffer.name, int(place.byte_offset.value), s.elements()) for s, place in here
             if isinstance(s, AllocateConst)]
    return ConstantPoolInfo(pool.pool_name, pool.targets, found, pool.pool_info_properties) if found else pool


def _insertion(func: PrimFunc) -> int:
    """Return the position of new parameters: last, but before an address of no buffer."""
    params = func.params
    return len(params) - bool(params and isinstance(params[-1], Var) and params[-1].dtype is _HANDLE)


class _Conversion:
    """One conversion of a module."""

    def __init__(
        self, functions: Functions, places: Mapping[Allocate, PoolAllocation], pools: list[AllocatedPoolInfo]
    ) -> None:
        self.functions, self.places, self.pools = functions, places, pools
        self.memory: dict[str, Buffer] = {}
        self.number = 0
        self.known: dict[PrimFunc, list[PrimFunc]] = {}

    def reached(self, main: PrimFunc) -> list[PrimFunc]:
        """Return the main function and all that it calls."""
        if main not in self.known:
            found = [main]
            for f in found:
                for s in walk_stmt(f.body):
                    for e in (e for top in expressions(s) for e in walk(top)):
                        callee = (self.functions.called(e) or (None,))[0]
                        if callee is not None and callee not in found:
                            found.append(callee)
            self.known[main] = found
        return self.known[main]

    def function(self, func: PrimFunc) -> PrimFunc:
        self.memory = {}
        for p in self.pools:
            name = p.pool_info.pool_name
            self.memory[name] = Buffer(f"{name}_{self.number}_buffer_var", (p.allocated_size,), "uint8")
            self.number += 1
        first = _insertion(func)
        params = (*func.params[:first], *self.memory.values(), *func.params[first:])
        memo: dict[PrimExpr, PrimExpr] = {}
        body = map_expressions(self.stmt(func.body), lambda e: rewrite(e, self.call, memo))
        return replace(func, params=params, body=body)

    def call(self, e: PrimExpr) -> PrimExpr | None:
        """Return a call of a function of the module with the pools as arguments; None for other expressions."""
        callee = (self.functions.called(e) or (None,))[0]
        if callee is None or not isinstance(e, Call):
            return None
        first = _insertion(callee)
        return Call(e.dtype, e.op, (*e.args[:first], *map(address, self.memory.values()), *e.args[first:]))

    def stmt(self, s: Stmt) -> Stmt:
        inner = map_bodies(s, self.stmt) or s
        place = self.places.get(s) if isinstance(s, Allocate) else None
        if place is None or not isinstance(inner, Allocate):
            return inner
        pool = self.memory[place.pool_info.pool_name]
        start = Call(_HANDLE, address_of, (Load(pool, (const(int(place.byte_offset.value), "int64"),)),))
        return placed(inner.buffer, start, inner.body)


def placed(buffer: Buffer, start: PrimExpr, body: Stmt) -> Stmt:
    """Return `body` with the memory of a buffer at the address `start`."""
    var = Var(f"{buffer.name}_let", _HANDLE)
    return Let(var, start, at_address(body, buffer, var, "global"))


@dataclass(frozen=True)
class CreateAllocatesForIO(ModulePass):
    """Makes inputs and outputs memory that the main function allocates, with the annotation `input_tensor` or
    `output_tensor`: the name of the argument. An output is a buffer that the program writes, and does not read.

    An input is live from the beginning, and an output to the end.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        main = main_function(mod)
        names = main.attrs.get(ARGUMENTS) or [b.name for b in main.params]
        named = {b: str(n) for b, n in zip(main.params, names, strict=True)}
        accesses = _Accesses(Functions(mod))
        accesses.stmt(main.body, {b: b for b in main.buffers})
        body = main.body
        for b in reversed(main.buffers):
            kind = OUTPUT if b in accesses.written and b not in accesses.read else INPUT
            body = Allocate(b, body, {kind: named[b]})
        new = mod.copy()
        attrs = {k: v for k, v in main.attrs.items() if k != ARGUMENTS}
        new[MAIN] = replace(main, params=main.scalars, body=body, attrs=attrs)
        return new


class _Accesses:
    """The parameters of a main function that its program reads and writes."""

    def __init__(self, functions: Functions) -> None:
        self.functions = functions
        self.read: set[Memory] = set()
        self.written: set[Memory] = set()

    def stmt(self, body: Stmt, known: Mapping[Memory, Memory]) -> None:
        for s in walk_stmt(body):
            if isinstance(s, Store) and root(s.buffer) in known:
                self.written.add(known[root(s.buffer)])
            for e in (e for top in expressions(s) for e in walk(top)):
                if name_called(e) is not None and isinstance(e, Call):
                    self.call(e, known)
                elif isinstance(e, Load) and root(e.buffer) in known and not _only_address(e, s):
                    self.read.add(known[root(e.buffer)])

    def call(self, e: Call, known: Mapping[Memory, Memory]) -> None:
        func, args = self.functions.called(e) or (None, ())
        given = [passed(a) for a in args]
        if func is None:
            self.read |= {known[m] for m in given if m is not None and m in known}
            return
        self.stmt(func.body, {p: known[m] for p, m in zip(func.params, given, strict=False)
                              if m is not None and m in known})


def _only_address(load: Load, s: Stmt) -> bool:
    """Return whether a statement uses an element only for its address."""
    calls = [e for top in expressions(s) for e in walk(top)]
    return any(isinstance(e, Call) and e.op is address_of and e.args[0] is load for e in calls)


@dataclass(frozen=True)
class UnifiedStaticMemoryPlanner(ModulePass):
    """Places all memory of a program in pools: the passes of this file, one after the other.

    The pools are the attributes `workspace_memory_pools` and `constant_memory_pools` of the module, by default one of
    each. The option `tir.usmp.algorithm` names the algorithm, `tir.usmp.custom_algorithm` one that the program
    registered, and `tir.usmp.use_workspace_io` adds inputs and outputs. Raises `OptionError` for an unknown algorithm.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        if context.get("tir.usmp.use_workspace_io"):
            mod = CreateAllocatesForIO().transform_module(mod, context)
        mod = with_pools(mod)
        found = extract_buffer_info(main_function(mod), mod)
        places = _algorithm(context)(list(found.buffer_info_stmts), found.memory_pressure)
        assigned = assign_stmt_pool_allocations(found.buffer_info_stmts, places)
        return ConvertPoolAllocationsToOffsets(assigned).transform_module(mod, context)


def with_pools(mod: IRModule) -> IRModule:
    """Return a module whose allocations have pools to choose from; those that have some keep them."""
    def chosen(key: str, kind: type[PoolInfo], func: PrimFunc) -> list[PoolInfo]:
        given = mod.attrs.get(key)
        target = func.attrs.get("target")
        default = kind("global_workspace" if key.startswith("workspace") else "global_const_workspace", [target])
        return [default] if given is None else list(given.pools)

    def visit(s: Stmt, func: PrimFunc) -> Stmt:
        inner = map_bodies(s, lambda b: visit(b, func)) or s
        if not isinstance(inner, Allocate) or inner.annotations.get(CANDIDATE_MEMORY_POOL_ATTR):
            return inner
        pools = (
            chosen("constant_memory_pools", ConstantPoolInfo, func) if isinstance(inner, AllocateConst)
            else chosen("workspace_memory_pools", WorkspacePoolInfo, func))
        return replace(inner, annotations={**inner.annotations, CANDIDATE_MEMORY_POOL_ATTR: pools})

    return mod.map_functions(lambda f: f.with_body(visit(f.body, f)), PrimFunc)


def _algorithm(context: PassContext) -> Any:
    custom = context.get("tir.usmp.custom_algorithm")
    name = custom or context.get("tir.usmp.algorithm") or "greedy_by_size"
    found = get_global_func(f"tir.usmp.algo.{name}", allow_missing=True)
    if found is None:
        kind = "custom " if custom else ""
        raise OptionError(
            f"The selected {kind}USMP algorithm : {name} is not defined; register a function "
            f"'tir.usmp.algo.{name}'", code="TW0213")
    return found


register_func("tir.usmp.transform.CreateAllocatesForIO", CreateAllocatesForIO)
register_func("tir.usmp.transform.ConvertPoolAllocationsToOffsets", convert_pool_allocations_to_offsets)
register_func("tir.transform.UnifiedStaticMemoryPlanner", UnifiedStaticMemoryPlanner)

__all__ = ["convert_pool_allocations_to_offsets"]
