"""Keep the part of a value that the next trip of a loop needs in a ring buffer, where the attribute
`rolling_buffer_scope` of a buffer asks for it.

    for i in range(8):                                      B = T.allocate([3])
        B = T.allocate([10])                                for i in range(8):
        T.attr(B, "rolling_buffer_scope", True)                 for x in range(3):
        for x in range(3): B[i + x] = A[i + x] * 2      ->          if i < 1 or x >= 2: B[(i + x) % 3] = A[i + x] * 2
        C[i] = B[i] + B[i + 2]                                  C[i] = B[i % 3] + B[(i + 2) % 3]

The memory moves out of the loop around it, and keeps only the dimension along which this loop moves shorter. Schedules
do the same with blocks (`tir/rolling_buffer.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tilewright.scalar.arith import Ranges, simplify
from tilewright.scalar.expr import GE, LT, Buffer, PrimExpr, add, any_of, compare, floormod, sub
from tilewright.tir.legality import fault
from tilewright.tir.region import region_of
from tilewright.tir.rolling_buffer import moving_dimension
from tilewright.tir.stmt import (
    SERIAL,
    THREAD,
    Allocate,
    AttrStmt,
    For,
    IfThenElse,
    PrimFunc,
    Stmt,
    Store,
    expressions,
    handed_out,
    map_bodies,
    path_to,
    redirect,
    replaced,
    walk_stmt,
)

MARK: Final = "rolling_buffer_scope"


def inject_rolling_buffer(func: PrimFunc) -> PrimFunc:
    """Make ring buffers of the marked allocations.

    Raises `ScheduleError` if a buffer is not allocated in a loop, or no trip needs values of the trip before.
    """
    while True:
        marked = next((s for s in walk_stmt(func.body) if isinstance(s, AttrStmt) and s.attr_key == MARK), None)
        if marked is None:
            return func
        func = _rolled(func, marked)


def _rolled(func: PrimFunc, marked: AttrStmt) -> PrimFunc:
    path = path_to(func.body, marked)
    place, loop = _place(func, marked, path)
    buffer = place.buffer
    ranges = Ranges()
    for s in path[: path.index(loop) + 1]:
        ranges = ranges.bind_loop(s.var, s.min, s.extent) if isinstance(s, For) else ranges
    box = region_of(marked.body, buffer, ranges, stores=True)
    if box is None or any(buffer in handed_out(e) for s in walk_stmt(marked) for e in expressions(s)):
        raise fault(
            f"'{buffer.name}' is not used in loop '{loop.var.name}', or a function takes its address, so it cannot be "
            "a rolling buffer there",
            loop, func)
    dim, step = moving_dimension(func, loop, buffer, box, ranges)
    first, size = box[dim]
    assert isinstance(size, int)
    started = compare(LT, loop.var, add(loop.min, 1))

    def new_only(s: Stmt) -> Stmt:
        if isinstance(s, Store) and s.buffer is buffer:
            ahead = simplify(sub(s.indices[dim], first), ranges)
            return IfThenElse(any_of(started, compare(GE, ahead, sub(size, step))), s)
        return map_bodies(s, new_only) or s

    ring = Buffer(
        buffer.name, [size if k == dim else d for k, d in enumerate(buffer.shape)], buffer.dtype, buffer.scope)

    def turned(indices: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        return tuple(floormod(i, size) if k == dim else i for k, i in enumerate(indices))

    inside = redirect(_without(place.body, marked, new_only(marked.body)), buffer, ring, turned)
    around = replace(loop, body=_without(loop.body, place, inside))
    return replaced(func, loop, replace(place, buffer=ring, body=around))


def _place(func: PrimFunc, marked: AttrStmt, path: Sequence[Stmt]) -> tuple[Allocate, For]:
    """Return the allocation of a marked buffer, and the loop around it."""
    place = next((s for s in path if isinstance(s, Allocate) and s.buffer is marked.node), None)
    loops = [] if place is None else [s for s in path[: path.index(place)] if isinstance(s, For)]
    if place is None or not loops:
        name = marked.node.name if isinstance(marked.node, Buffer) else marked.node
        raise fault(f"'{name}' is not allocated in a loop, so no trip of it can keep a part for the next one",
                    marked, func)
    loop = loops[-1]
    if loop.kind != SERIAL or THREAD in loop.annotations:
        raise fault(f"the trips of loop '{loop.var.name}' have no order, but a rolling buffer passes data from one to "
                    "the next, which needs a serial loop", loop, func)
    return place, loop


def _without(s: Stmt, old: Stmt, new: Stmt) -> Stmt:
    return new if s is old else map_bodies(s, lambda b: _without(b, old, new)) or s


__all__ = ["inject_rolling_buffer"]
