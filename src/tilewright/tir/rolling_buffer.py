"""Keeps the part of a value that the next trip of its reader's loop needs in a ring buffer.

    for i in range(8):                                     for i in range(8):                      rolling: B
        for x in range(3): B[i + x] = A[i + x] * 2
            ->  for x in range(3): if i == 0 or x == 2: B[(i + x) % 3] = A[i + x] * 2
        C[i] = B[i] + B[i + 1] + B[i + 2]                      C[i] = B[i % 3] + B[(i + 1) % 3] + B[(i + 2) % 3]

The annotation `ROLLING` on the loop names the ring buffers: their memory is allocated around it, and its trips keep
their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.scalar.arith import Ranges, prove, simplify
from tilewright.scalar.expr import EQ, GE, LT, Buffer, IntImm, PrimExpr, add, all_of, any_of, compare, floormod, sub
from tilewright.scalar.walk import substitute
from tilewright.tir.block_rewrites import swap
from tilewright.tir.legality import fault
from tilewright.tir.region import Box, region_of
from tilewright.tir.stmt import (
    ROLLING,
    SERIAL,
    Block,
    For,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    expressions,
    handed_out,
    redirect,
    stored_buffers,
    walk_stmt,
)


def rolling_buffer(func: PrimFunc, block: Block, around: Sequence[Stmt]) -> PrimFunc:
    """Let `block` compute only what the previous trip of its reader's loop did not; `around` are the statements around
    it.

    Raises `ScheduleError`.
    """
    results = stored_buffers(block)
    axes = [i.var for i in block.iters if i.kind != "reduce"]
    if (
        len(results) != 1 or results[0] in func.params
        or any(s.indices != tuple(axes) for s in walk_stmt(block.body) if isinstance(s, Store))
    ):
        raise fault(
            f"block '{block.name}' has several results, computes a parameter, or does not store at its own axes, so "
            "it cannot use a rolling buffer",
            block, func)
    (buffer,) = results
    target = _reading_loop(func, block, around)
    loops = [f for f in around[: around.index(target) + 1] if isinstance(f, For)]
    ranges = Ranges()
    for f in loops:
        ranges = ranges.bind_loop(f.var, f.min, f.extent)
    box = region_of(swap(target.body, block, Seq(())), buffer, ranges)
    if box is None or any(buffer in handed_out(e) for s in walk_stmt(target) for e in expressions(s)):
        raise fault(
            f"'{buffer.name}' is not read in loop '{target.var.name}', or a function takes its address, so it cannot "
            "be a rolling buffer there",
            target, func)
    dim, step = moving_dimension(func, target, buffer, box, ranges)
    first, size = box[dim]
    assert isinstance(size, int)
    inner = ranges
    for s in around[around.index(target) + 1 :]:
        inner = inner.bind_loop(s.var, s.min, s.extent) if isinstance(s, For) else inner
    points: dict[PrimExpr, PrimExpr] = dict(zip((i.var for i in block.iters), block.bindings, strict=True))
    window = [compare(GE, axes[dim], first), compare(LT, axes[dim], add(first, size))]
    needed = [c for c in window if prove(simplify(substitute(c, points), inner), inner) is not True]
    new = any_of(compare(EQ, target.var, target.min), compare(GE, axes[dim], simplify(add(first, size - step), ranges)))
    rolled = replace(block, predicate=all_of(block.predicate, *needed, new))
    shape = [size if k == dim else d for k, d in enumerate(buffer.shape)]
    ring = Buffer(buffer.name, shape, buffer.dtype, buffer.scope)
    noted = replace(
        target, body=swap(target.body, block, rolled),
        annotations={**target.annotations, ROLLING: (*target.annotations.get(ROLLING, ()), buffer.name)})

    def turned(indices: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        return tuple(floormod(i, size) if k == dim else i for k, i in enumerate(indices))

    body = redirect(swap(func.body, target, noted), buffer, ring, turned)
    inner_values = tuple(ring if b is buffer else b for b in func.attrs["intermediates"])
    return replace(func, body=body, attrs={**func.attrs, "intermediates": inner_values})


def _reading_loop(func: PrimFunc, block: Block, around: Sequence[Stmt]) -> For:
    """Return the innermost loop around `block` that contains another block."""
    for s in reversed(around):
        if isinstance(s, For) and any(isinstance(x, Block) and x is not block for x in walk_stmt(s)):
            if s.kind != SERIAL:
                raise fault(
                    f"loop '{s.var.name}' is {s.kind}, but a rolling buffer passes data from one iteration "
                    "to the next, which needs a serial loop", s, func)
            return s
    raise fault(
        f"block '{block.name}' has its own loop nest; call compute_at with a loop of its reader before "
        "rolling_buffer", block, func)


def moving_dimension(func: PrimFunc, target: For, buffer: Buffer, box: Box, ranges: Ranges) -> tuple[int, int]:
    """Return the dimension along which the accessed part moves with each trip, and the distance."""
    moves: dict[int, int] = {}
    for k, (first, _) in enumerate(box):
        step = simplify(sub(substitute(first, {target.var: add(target.var, 1)}), first), ranges)
        if not isinstance(step, IntImm) or step.value:
            moves[k] = step.value if isinstance(step, IntImm) else 0
    found = next(iter(moves.items()), (0, 0))
    size = box[found[0]][1]
    if len(moves) != 1 or not isinstance(size, int) or not 0 < found[1] < size:
        part = ", ".join(f"{first}: {n}" for first, n in box)
        raise fault(
            f"the part [{part}] of '{buffer.name}' read in an iteration of loop '{target.var.name}' "
            "does not overlap that of the next iteration along one dimension, so no data can be kept", target, func)
    return found
