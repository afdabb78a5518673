"""Remove the blocks that only bring a constant argument into another layout, which the caller does before.

    with block("layout_rewrite"): B_[i1, i0 // 4, i0 % 4] = B[i0, i1]         B: (16, 4, 4)
    with block("matmul"): C[i, j] += A[i, k] * B_[j, k // 4, k % 4]     ->    with block("layout_rewrite"): evaluate(0)
                                                                              … A[i, k] * B[j, k // 4, k % 4]

The attribute `layout_free_buffers` of the function lists the positions of such arguments, and the annotation
`meta_schedule.layout_rewrite_preproc` marks the blocks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tilewright.scalar.expr import Buffer, Load, as_expr
from tilewright.tir.stmt import Block, Evaluate, PrimFunc, Stmt, Store, map_bodies, redirect, walk_stmt
from tilewright.tir.transform.buffer_homes import INTERMEDIATES, intermediates_of

FREE: Final = "layout_free_buffers"
MARK: Final = "meta_schedule.layout_rewrite_preproc"


def remove_layout_rewrites(func: PrimFunc) -> PrimFunc:
    """Give the arguments of marked blocks the layout of the values that these compute, and empty the blocks."""
    free = [func.params[int(k)] for k in func.attrs.get(FREE, ())]
    for block in [s for s in walk_stmt(func.body) if isinstance(s, Block) and s.annotations.get(MARK)]:
        store = block.body
        if isinstance(store, Store) and isinstance(store.value, Load) and store.value.buffer in free:
            func = _without(func, block, store.value.buffer, store.buffer)
    return func


def _without(func: PrimFunc, block: Block, old: Buffer, rewritten: Buffer) -> PrimFunc:
    new = Buffer(old.name, rewritten.shape, rewritten.dtype, old.scope)
    body = redirect(_emptied(func.body, block), rewritten, new)
    inner = tuple(b for b in intermediates_of(func) if b is not rewritten)
    return replace(
        func, params=tuple(new if b is old else b for b in func.params), body=body,
        attrs={**func.attrs, INTERMEDIATES: inner})


def _emptied(s: Stmt, block: Block) -> Stmt:
    if s is block:
        return replace(block, body=Evaluate(as_expr(0)))
    return map_bodies(s, lambda b: _emptied(b, block)) or s
