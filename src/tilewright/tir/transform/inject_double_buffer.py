"""Double-buffer values marked `double_buffer`: one half is filled for the next trip while the other is read.

    for i in range(8): { for x in range(4): B[x] = A[i, x];  for x in range(4): C[i, x] = B[x] }        B marked
      ->
    for x in range(4): B[0, x] = A[0, x]
    for i in range(8): {
        if i + 1 < 8: for x in range(4): B[(i + 1) % 2, x] = A[i + 1, x]
        for x in range(4): C[i, x] = B[i % 2, x]
    }

The caches of a CPU do this by themselves, so the pass is not part of the default pipeline.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.scalar.arith import Ranges
from tilewright.scalar.expr import LT, Buffer, Load, PrimExpr, add, all_of, compare, floormod, sub
from tilewright.scalar.walk import walk
from tilewright.tir.block_rewrites import free_name, reads, swap
from tilewright.tir.block_tree import without_note
from tilewright.tir.region import region_of
from tilewright.tir.stmt import (
    ALIGNED,
    ROLLING,
    SERIAL,
    Block,
    For,
    PrimFunc,
    Seq,
    Stmt,
    expressions,
    handed_out,
    path_to,
    redirect,
    seq,
    stored_buffers,
    substitute_stmt,
    walk_stmt,
)
from tilewright.tir.transform.convert_ssa import convert_ssa

MARK = "double_buffer"


def inject_double_buffer(func: PrimFunc) -> PrimFunc:
    """Double-buffer the marked values of a schedulable program. A value stays unchanged if it is not computed inside a
    loop of its reader, or depends on values of the same trip."""
    for block in [s for s in walk_stmt(func.body) if isinstance(s, Block) and s.annotations.get(MARK)]:
        func = _doubled(func, block)
    return func


def _doubled(func: PrimFunc, block: Block) -> PrimFunc:
    path = path_to(func.body, block)
    target = next(
        (
            s for s in reversed(path)
            if isinstance(s, For) and any(isinstance(x, Block) and x is not block for x in walk_stmt(s))),
        None)
    if target is None or target.kind != SERIAL or target.annotations.get(ROLLING) or not isinstance(target.body, Seq):
        return func
    nest = path[path.index(target) + 2] if path.index(target) + 2 < len(path) else block
    buffer = _own_value(func, block, nest, target)
    ranges = Ranges()
    for f in path[: path.index(target) + 1]:
        ranges = ranges.bind_loop(f.var, f.min, f.extent) if isinstance(f, For) else ranges
    box = None if buffer is None else region_of(target.body, buffer, ranges, stores=True)
    if buffer is None or box is None:
        return func
    twice = Buffer(buffer.name, [2, *(size for _, size in box)], buffer.dtype, buffer.scope)
    half = floormod(sub(target.var, target.min), 2)

    def at(indices: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        return (half, *(sub(i, first) for i, (first, _) in zip(indices, box, strict=True)))

    notes = without_note(block, MARK)
    if ALIGNED in notes:
        notes[ALIGNED] = tuple((result, dim + 1, factor, offset) for result, dim, factor, offset in notes[ALIGNED])
    filled = redirect(swap(nest, block, replace(block, annotations=notes)), buffer, twice, at)
    following = add(target.var, 1)
    ahead = _only_where(
        substitute_stmt(filled, {target.var: following}), compare(LT, following, add(target.min, target.extent)))
    first = _named(substitute_stmt(filled, {target.var: target.min}), free_name(func, f"{block.name}_first"))
    loop = replace(target, body=redirect(swap(target.body, nest, ahead), buffer, twice, at))
    inner_values = tuple(twice if b is buffer else b for b in func.attrs["intermediates"])
    return convert_ssa(
        replace(
            func, body=swap(func.body, target, seq(first, loop)), attrs={**func.attrs, "intermediates": inner_values}))


def _own_value(func: PrimFunc, block: Block, nest: Stmt, target: For) -> Buffer | None:
    """Return the value of `block` if each trip of `target` recomputes it from earlier values, and it is used only in
    `target`."""
    results = stored_buffers(block)
    if (
        len(results) != 1 or results[0] in func.params
        or any(isinstance(s, Block) and s is not block for s in walk_stmt(nest))
    ):
        return None
    (buffer,) = results
    used = (
        {e.buffer for s in walk_stmt(nest) for top in expressions(s) for e in walk(top) if isinstance(e, Load)}
        - {buffer}
    )
    made = {b for s in walk_stmt(target) if isinstance(s, Block) for b in stored_buffers(s)}
    others = [
        s for s in walk_stmt(func.body) if isinstance(s, Block) and s is not block and buffer in stored_buffers(s)]
    handed = any(buffer in handed_out(e) for s in walk_stmt(target) for e in expressions(s))
    return None if used & made or others or handed or reads(func.body, buffer, target) else buffer


def _only_where(s: Stmt, condition: PrimExpr) -> Stmt:
    block = next(x for x in walk_stmt(s) if isinstance(x, Block))
    return swap(s, block, replace(block, predicate=all_of(block.predicate, condition)))


def _named(s: Stmt, name: str) -> Stmt:
    block = next(x for x in walk_stmt(s) if isinstance(x, Block))
    return swap(s, block, replace(block, name=name))
