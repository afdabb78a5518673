"""Copies of the tile of a value that one trip of a loop uses: `read_at` and `write_at` of `tir.Schedule`.

    for io: for ii in range(4): C[io * 4 + ii] = A[io * 4 + ii] + 1
      ->  for io:
              with block("A_shared", v0 = io): for ax0 in range(4): A_shared[v0 * 4 + ax0] = A[v0 * 4 + ax0]
              for ii in range(4): C[io * 4 + ii] = A_shared[io * 4 + ii] + 1

A copy is one block with plain loops, marked `AUTO_COPY`; its axes are the loops that determine the tile. Threads that
share the memory of the copy have one tile together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tilewright.base.types import BOOL
from tilewright.scalar.arith import Ranges, prove
from tilewright.scalar.expr import LE, Buffer, IntImm, Load, PrimExpr, Var, add, as_expr, compare, const
from tilewright.scalar.walk import free_vars, substitute
from tilewright.tir.block_rewrites import check_scope, free_name, reads
from tilewright.tir.block_tree import child_blocks, inserted
from tilewright.tir.coverage import writes_box
from tilewright.tir.legality import check_complete, fault, only_maker
from tilewright.tir.loop_schedule import Schedule
from tilewright.tir.region import Box, region_of
from tilewright.tir.stmt import (
    SERIAL,
    Block,
    For,
    IterVar,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    loaded_buffers,
    redirect,
    seq,
    stored_buffers,
)
from tilewright.tir.threads import is_shared_by

AUTO_COPY: Final = "auto_copy"
"""Annotation of a block that copies a tile: the threads around it can share its work."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A loop around a block, with the loops around it. The threads `shared` share a copy, and `ranges` has the other
    loops; `whole` contains all trips that use one tile."""

    target: For
    loops: tuple[For, ...]
    shared: tuple[Var, ...]
    ranges: Ranges
    whole: Stmt

    @property
    def stmts(self) -> tuple[Stmt, ...]:
        """The statements in the loop."""
        return self.target.body.stmts if isinstance(self.target.body, Seq) else (self.target.body,)


def read_at(func: PrimFunc, loop: Var, block: str, source: Buffer, scope: str) -> tuple[PrimFunc, str]:
    """Let the statements in a loop around a block read a copy of the tile of `source` that a trip reads. Return the
    name of the copying block."""
    check_scope(scope)
    copy = _copy(func, source, scope)
    place = _place(func, block, loop, copy)
    first = next((k for k, s in enumerate(place.stmts) if reads(s, source)), len(place.stmts))
    later = place.whole if place.shared else seq(*place.stmts[first:])
    writer = next((b for b in child_blocks(later) if source in stored_buffers(b)), None)
    if writer is not None:
        raise fault(
            f"block '{writer.name}' changes '{source.name}' after the place of its copy in loop '{loop.name}'", writer,
            func)
    tile = _tile(func, place, seq(*place.stmts[first:]), source)
    made = [redirect(s, source, copy) for s in place.stmts[first:]]
    body = seq(*place.stmts[:first], _copying(copy.name, source, copy, tile, place), *made)
    return _changed(func, place, body, copy), copy.name


def write_at(func: PrimFunc, loop: Var, block: str, home: Buffer, scope: str) -> tuple[PrimFunc, str]:
    """Let a block compute into a copy of its result `home`, whose tile is copied back in each trip of a loop around the
    block. Return the name of the copying block."""
    check_scope(scope)
    copy = _copy(func, home, scope)
    place = _place(func, block, loop, copy)
    at, own = next((k, s) for k, s in enumerate(place.stmts) for b in child_blocks(s) if b.name == block)
    node = next(b for b in child_blocks(own) if b.name == block)
    only_maker(func, node)
    check_complete(func, node)
    users = [b for s in place.stmts[: at + 1] for b in child_blocks(s) if b is not node and home in loaded_buffers(b)]
    if users:
        raise fault(f"block '{users[0].name}' reads '{home.name}' before it is copied back", users[0], func)
    tile = _tile(func, place, own, home)
    box: Box = [(start, size) for start, size in tile]
    if not writes_box(place.whole if place.shared else own, home, box, place.ranges):
        raise fault(
            f"block '{block}' may write only a part of the elements of '{home.name}' that would be copied back in loop "
            f"'{loop.name}'", node, func)
    stmts = Seq((*place.stmts[:at], redirect(own, home, copy), *place.stmts[at + 1 :]))
    body = inserted(stmts, at + 1, _copying(copy.name, copy, home, tile, place))
    return _changed(func, place, body, copy), copy.name


def _copy(func: PrimFunc, buffer: Buffer, scope: str) -> Buffer:
    return Buffer(free_name(func, f"{buffer.name}_{scope}"), buffer.shape, buffer.dtype, scope)


def _place(func: PrimFunc, block: str, loop: Var, copy: Buffer) -> _Place:
    s = Schedule(func)
    node, target = s.block(block), s.loop(loop)
    around = s.around(node)
    if target not in around:
        raise fault(f"loop '{loop.name}' is not around block '{block}'", target, func)
    loops = tuple(f for f in around[: around.index(target) + 1] if isinstance(f, For))
    shared = tuple(f for f in loops if is_shared_by(copy, f))
    ranges = Ranges()
    for f in loops:
        ranges = ranges if f in shared else ranges.bind_loop(f.var, f.min, f.extent)
    return _Place(target, loops, tuple(f.var for f in shared), ranges, shared[0] if shared else target.body)


def _tile(func: PrimFunc, place: _Place, users: Stmt, buffer: Buffer) -> list[tuple[PrimExpr, int]]:
    """Return the first index and the number of elements of the tile along each dimension. Raises `ScheduleError` unless
    the numbers are constant, and the tile is inside of the buffer."""
    ranges = place.ranges
    for f in place.loops:
        ranges = ranges.bind_loop(f.var, f.min, f.extent) if f.var in place.shared else ranges
    box = region_of(users, buffer, ranges, stores=True, across=place.shared)
    name, at = place.target.var.name, place.target
    assert box is not None
    tile: list[tuple[PrimExpr, int]] = []
    for (first, size), whole in zip(box, buffer.shape, strict=True):
        if not isinstance(size, int):
            raise fault(
                f"a trip of loop '{name}' uses {size} elements of '{buffer.name}', but a constant number is needed", at,
                func)
        inside = prove(first >= 0, place.ranges) is True and prove(
            compare(LE, add(first, size), as_expr(whole)), place.ranges) is True
        if not inside:
            raise fault(
                f"the tile of '{buffer.name}' in a trip of loop '{name}', {size} elements from {first}, may exceed "
                f"the dimension of {whole}", at, func)
        tile.append((first, size))
    return tile


def _copying(
    name: str, source: Buffer, target: Buffer, tile: Sequence[tuple[PrimExpr, int]], place: _Place
) -> Block:
    """Return the block that copies a tile of `source` to `target`."""
    used = dict.fromkeys(v for first, _ in tile for v in free_vars(first))
    outer = [f for v in used for f in place.loops if f.var is v]
    axes = [IterVar(Var(f"v{k}", f.var.dtype), f.extent) for k, f in enumerate(outer)]
    points: dict[PrimExpr, PrimExpr] = {f.var: add(a.var, f.min) for f, a in zip(outer, axes, strict=True)}
    loops = [Var(f"ax{k}", first.dtype) for k, (first, _) in enumerate(tile)]
    at = tuple(add(substitute(first, points), v) for (first, _), v in zip(tile, loops, strict=True))
    body: Stmt = Store(target, Load(source, at), at)
    for v, (_, size) in zip(reversed(loops), reversed(tile), strict=True):
        body = For(v, const(0, v.dtype), const(size, v.dtype), SERIAL, body)
    bindings = tuple(f.var - f.min for f in outer)
    return Block(name, tuple(axes), bindings, IntImm(BOOL, 1), None, body, {AUTO_COPY: 1})


def _changed(func: PrimFunc, place: _Place, body: Stmt, copy: Buffer) -> PrimFunc:
    """Return the function with another body of the loop, and the copy as an intermediate value."""
    s = Schedule(func)
    target = s.loop(place.target.var)
    s._replace(target, For(
        target.var, target.min, target.extent, target.kind, body, target.annotations, target.origin))
    s._set(s.func.body, drop=copy, new=copy)
    return s.func
