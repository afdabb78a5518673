"""Memory for inner values: allocated around the statements that use them, and no larger than one trip there needs.

    B[0:100]; for io: { for ii in range(8): B[io * 8 + ii] = …; for ii in range(8): C[io * 8 + ii] = B[io * 8 + ii] }
      ->
    for io: allocate B[0:8] { for ii: B[ii] = …; for ii: C[io * 8 + ii] = B[ii] }
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TypeAlias

from tilewright.arith import Ranges, simplify
from tilewright.errors import InternalError, ScheduleError
from tilewright.expr import Buffer, Load, PrimExpr, sub
from tilewright.expr_walk import rewrite, walk
from tilewright.tir.block_rewrites import redirect
from tilewright.tir.coverage import fills, lives_in_trips
from tilewright.tir.region import Box, region_of
from tilewright.tir.stmt import (
    PARALLEL,
    ROLLING,
    SERIAL,
    UNROLLED,
    Allocate,
    For,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    bodies,
    expressions,
    map_bodies,
    map_expressions,
    seq,
    walk_stmt,
)

Alignment: TypeAlias = tuple[int, int, int]
"""Elements along a dimension are `factor * k + offset` apart: dimension, factor, offset."""


def place_buffers(func: PrimFunc, buffers: Sequence[Buffer], apart: Mapping[Buffer, Sequence[Alignment]] | None = None) -> PrimFunc:
    """Allocate `buffers`, which `func` uses freely so far, each at the innermost place that holds all of its uses.

    `apart` says of some how far apart in memory their elements are to be; they get unused elements in between.
    """
    body = func.body
    for buffer in buffers:
        if _uses(body, buffer):
            body = _place(body, buffer, Ranges(), _never_kept(body, buffer))
    if apart:
        names = {b.name: alignments for b, alignments in apart.items()}
        body = _spread(body, names)
    return func.with_body(body)


def _uses(s: Stmt, buffer: Buffer) -> bool:
    for x in walk_stmt(s):
        if isinstance(x, Store) and x.buffer is buffer:
            return True
        if any(isinstance(e, Load) and e.buffer is buffer for top in expressions(x) for e in walk(top)):
            return True
    return False


def _never_kept(s: Stmt, buffer: Buffer) -> bool:
    """Whether the lowest statement that holds every use of `buffer` writes what it reads of it, so that no trip around needs another's."""
    ranges, looped = Ranges(), False
    while True:
        users = [b for b in bodies(s) if _uses(b, buffer)]
        if len(users) != 1 or not isinstance(s, (For, Seq, Allocate)):
            return not looped or fills(s, buffer, ranges)
        if isinstance(s, For):
            ranges, looped = ranges.bind_loop(s.var, s.min, s.extent), True
        s = users[0]


def _place(s: Stmt, buffer: Buffer, ranges: Ranges, anywhere: bool) -> Stmt:
    """`s` with `buffer` allocated inside, at the lowest statement of it that holds every use.

    Unless `anywhere`, a loop whose trips read what earlier ones wrote stays inside of the allocation.
    """
    users = [b for b in bodies(s) if _uses(b, buffer)]
    if (
        isinstance(s, For) and (s.kind in (SERIAL, PARALLEL) or _threads_in(s, buffer)) and buffer.name not in s.annotations.get(ROLLING, ())
        and (anywhere or lives_in_trips(s, buffer, ranges))
    ):
        return replace(s, body=_place(s.body, buffer, ranges.bind_loop(s.var, s.min, s.extent), anywhere))
    if isinstance(s, Seq):
        first, last = (next(k for k in order if _uses(s.stmts[k], buffer)) for order in (range(len(s.stmts)), range(len(s.stmts) - 1, -1, -1)))
        if first == last:
            return seq(*s.stmts[:first], _place(s.stmts[first], buffer, ranges, anywhere), *s.stmts[first + 1 :])
        return seq(*s.stmts[:first], _shrink(seq(*s.stmts[first : last + 1]), buffer, ranges), *s.stmts[last + 1 :])
    if len(users) == 1 and isinstance(s, Allocate):
        return map_bodies(s, lambda b: _place(b, buffer, ranges, anywhere) if b is users[0] else b) or s
    return _shrink(s, buffer, ranges)


def _threads_in(s: For, buffer: Buffer) -> bool:
    """Whether a parallel loop inside of one that is written out uses `buffer`: its threads have memory of their own."""
    return s.kind == UNROLLED and any(isinstance(x, For) and x.kind == PARALLEL and _uses(x, buffer) for x in walk_stmt(s.body))


def _shrink(s: Stmt, buffer: Buffer, ranges: Ranges) -> Stmt:
    """`s` inside an allocation of the part of `buffer` that it touches."""
    box = region_of(s, buffer, ranges, stores=True)
    if box is None:
        raise InternalError(f"buffer '{buffer.name}' is not used where it is allocated")
    if all(size is extent or (isinstance(size, int) and size == extent) for (_, size), extent in zip(box, buffer.shape, strict=True)):
        return Allocate(buffer, s)
    small = Buffer(buffer.name, [size for _, size in box], buffer.dtype, buffer.scope)
    memo: dict[PrimExpr, PrimExpr] = {}

    def shift(indices: Sequence[PrimExpr], box: Box) -> tuple[PrimExpr, ...]:
        return tuple(simplify(sub(i, first), ranges) for i, (first, _) in zip(indices, box, strict=True))

    def move_loads(e: PrimExpr) -> PrimExpr | None:
        return Load(small, shift(e.indices, box)) if isinstance(e, Load) and e.buffer is buffer else None

    def move_stores(x: Stmt) -> Stmt:
        if isinstance(x, Store) and x.buffer is buffer:
            return replace(x, buffer=small, indices=shift(x.indices, box))
        return map_bodies(x, move_stores) or x

    return Allocate(small, move_stores(map_expressions(s, lambda e: rewrite(e, move_loads, memo))))


def _spread(s: Stmt, apart: Mapping[str, Sequence[Alignment]]) -> Stmt:
    """`s` with the buffers of these names allocated with room between their rows."""
    inner = map_bodies(s, lambda b: _spread(b, apart)) or s
    if not isinstance(inner, Allocate) or inner.buffer.name not in apart:
        return inner
    old = inner.buffer
    new = Buffer(old.name, _padded(old, apart[old.name]), old.dtype, old.scope)
    return Allocate(new, redirect(inner.body, old, new))


def _padded(buffer: Buffer, alignments: Sequence[Alignment]) -> list[int]:
    if not all(isinstance(d, int) for d in buffer.shape):
        raise ScheduleError(f"storage_align of '{buffer.name}' needs sizes that are known, and it has {buffer.shape}")
    shape = list(buffer.shape)
    for dimension, factor, offset in alignments:
        rest = prod(shape[dimension + 2 :])
        fitting = [n for n in range(shape[dimension + 1], shape[dimension + 1] + factor) if n * rest % factor == offset]
        if not fitting:
            raise ScheduleError(f"storage_align of '{buffer.name}': rows of {rest} elements cannot be {offset} more than a multiple of {factor} apart")
        shape[dimension + 1] = fitting[0]
    return shape
