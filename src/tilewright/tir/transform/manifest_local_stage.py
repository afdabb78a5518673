"""Copy into shared memory by way of registers, where a block asks for it: all loads come before all stores.

    for i in T.serial(64):                            for i in T.serial(64):
        with T.block("A_shared"):                         with T.block(""): A_shared_local[i] = A[i * 2 + tx]
            A_shared[i * 2 + tx] = A[i * 2 + tx]  ->  for i in T.serial(64):
                                                          with T.block("A_shared"):
                                                              A_shared[i * 2 + tx] = A_shared_local[i]

The annotation `tir.manifest_shared_memory_local_stage` of a block asks for it. A GPU then has many loads of global
memory under way at a time. The registers have a dimension for each of the loops that are directly around the block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tilewright.scalar.expr import Buffer, Load, PrimExpr, Var, sub
from tilewright.tir.block_tree import without_note
from tilewright.tir.legality import fault
from tilewright.tir.stmt import (
    THREAD,
    Block,
    For,
    IterVar,
    PrimFunc,
    Stmt,
    Store,
    nest,
    path_to,
    replaced,
    seq,
    walk_stmt,
)
from tilewright.tir.transform.convert_ssa import convert_ssa

MARK: Final = "tir.manifest_shared_memory_local_stage"


def manifest_local_stage(func: PrimFunc) -> PrimFunc:
    """Add a stage in registers before each marked block. Raises `ScheduleError` for one that is not a single store."""
    marked = [s for s in walk_stmt(func.body) if isinstance(s, Block) and s.annotations.get(MARK)]
    for block in marked:
        func = _staged(func, block)
    return convert_ssa(func) if marked else func


def _staged(func: PrimFunc, block: Block) -> PrimFunc:
    store = block.body
    if not isinstance(store, Store) or block.init is not None:
        raise fault(f"block '{block.name}' is not a single store, so its value cannot be kept in registers first",
                    block, func)
    loops = _directly_around(path_to(func.body, block))
    registers = Buffer(
        f"{store.buffer.name}_local", [f.extent for f in loops], store.value.dtype.element, "local")
    plain, at = _with_loops_as_axes(replace(block, annotations=without_note(block, MARK)), loops)
    loads = nest(loops, replace(plain, name="", body=Store(registers, store.value, at)))
    stores = nest(loops, replace(plain, body=replace(store, value=Load(registers, at))))
    attrs = {**func.attrs, "intermediates": (*func.attrs.get("intermediates", ()), registers)}
    return replace(replaced(func, loops[0] if loops else block, seq(loads, stores)), attrs=attrs)


def _directly_around(path: Sequence[Stmt]) -> list[For]:
    """Return the loops that have nothing but the block inside, outermost first; threads are not among them."""
    loops: list[For] = []
    for s in reversed(path):
        if not isinstance(s, For) or THREAD in s.annotations:
            break
        loops.insert(0, s)
    return loops


def _with_loops_as_axes(block: Block, loops: Sequence[For]) -> tuple[Block, tuple[PrimExpr, ...]]:
    """Return a block, and the position of a trip of `loops` inside. A block with axes gets one for each of them."""
    trips = [sub(f.var, f.min) for f in loops]
    if not block.iters:
        return block, tuple(trips)
    axes = [IterVar(Var(f"v{f.var.name}", f.var.dtype), f.extent) for f in loops]
    return replace(block, iters=(*block.iters, *axes), bindings=(*block.bindings, *trips)), tuple(a.var for a in axes)


__all__ = ["manifest_local_stage"]
