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

from tilewright.base.errors import ScheduleError
from tilewright.scalar.arith import Ranges, prove, simplify
from tilewright.scalar.expr import EQ, GE, LT, Buffer, IntImm, PrimExpr, add, all_of, any_of, compare, floormod, sub
from tilewright.scalar.walk import free_vars, substitute
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
    target, box, dim, step = _rolling_loop(func, block, buffer, around)
    ranges = _ranges_of(around[: around.index(target) + 1])
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


def _rolling_loop(func: PrimFunc, block: Block, buffer: Buffer, around: Sequence[Stmt]) -> tuple[For, Box, int, int]:
    """Return the loop that keeps values for its next trip, the part that a trip reads, the dimension along which this
    part moves with each trip, and the distance.

    It is the innermost loop around the readers whose parts overlap, as long as the loops inside move along other
    dimensions.
    """
    inner = _reading_loop(func, block, around)
    loops = [f for f in around[: around.index(inner) + 1] if isinstance(f, For)]
    part = _part_read(func, block, buffer, around, inner)
    for target in reversed(loops):
        if target.kind != SERIAL or part is None:
            break
        box = _part_read(func, block, buffer, around, target)
        found = None if box is None else _moving(target, box, _ranges_of(loops[: loops.index(target) + 1]))
        if box is not None and found is not None and _is_same_along(found[0], part, box, target):
            return target, box, *found
    if part is None:
        raise fault(
            f"'{buffer.name}' is not read in loop '{inner.var.name}', or a function takes its address, so it cannot "
            "be a rolling buffer there",
            inner, func)
    raise _no_overlap(func, inner, buffer, part)


def _is_same_along(dim: int, part: Box, box: Box, target: For) -> bool:
    """Return whether each trip of the loops inside `target` reads a `part` that is as large as the whole `box` along
    a dimension, and in every trip of `target` at the same place along the others."""
    same = part[dim][0] is box[dim][0] and part[dim][1] == box[dim][1]
    return same and all(target.var not in free_vars(first) for k, (first, _) in enumerate(part) if k != dim)


def _part_read(
    func: PrimFunc, block: Block, buffer: Buffer, around: Sequence[Stmt], loop: For
) -> Box | None:
    """Return the part of a value that a trip of `loop` reads outside of its block; None if its address is passed on."""
    if any(buffer in handed_out(e) for s in walk_stmt(loop) for e in expressions(s)):
        return None
    return region_of(swap(loop.body, block, Seq(())), buffer, _ranges_of(around[: around.index(loop) + 1]))


def _ranges_of(around: Sequence[Stmt]) -> Ranges:
    ranges = Ranges()
    for s in around:
        ranges = ranges.bind_loop(s.var, s.min, s.extent) if isinstance(s, For) else ranges
    return ranges


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
    """Return the dimension along which the accessed part moves with each trip, and the distance. Raises `ScheduleError`
    unless parts of successive trips overlap along one dimension."""
    found = _moving(target, box, ranges)
    if found is None:
        raise _no_overlap(func, target, buffer, box)
    return found


def _moving(target: For, box: Box, ranges: Ranges) -> tuple[int, int] | None:
    moves: dict[int, int] = {}
    for k, (first, _) in enumerate(box):
        step = simplify(sub(substitute(first, {target.var: add(target.var, 1)}), first), ranges)
        if not isinstance(step, IntImm) or step.value:
            moves[k] = step.value if isinstance(step, IntImm) else 0
    found = next(iter(moves.items()), (0, 0))
    size = box[found[0]][1]
    return found if len(moves) == 1 and isinstance(size, int) and 0 < found[1] < size else None


def _no_overlap(func: PrimFunc, target: For, buffer: Buffer, box: Box) -> ScheduleError:
    part = ", ".join(f"{first}: {n}" for first, n in box)
    return fault(
        f"the part [{part}] of '{buffer.name}' read in an iteration of loop '{target.var.name}' "
        "does not overlap that of the next iteration along one dimension, so no data can be kept", target, func)
