"""Allocate intermediate values around the statements that use them, at the size that one trip there needs.

    B[0:100]; for io: { for ii in range(8): B[io * 8 + ii] = …; for ii in range(8): C[io * 8 + ii] = B[io * 8 + ii] }
      ->
    for io: allocate B[0:8] { for ii: B[ii] = …; for ii: C[io * 8 + ii] = B[ii] }
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import TypeAlias

from tilewright.base.errors import InternalError, ScheduleError
from tilewright.scalar.arith import Ranges, simplify
from tilewright.scalar.expr import Buffer, Load, PrimExpr, sub
from tilewright.scalar.walk import rewrite, walk
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
    redirect,
    seq,
    walk_stmt,
)

Alignment: TypeAlias = tuple[int, int, int]
"""The stride of a dimension is `factor * k + offset` elements: (dimension, factor, offset)."""


def place_buffers(
    func: PrimFunc, buffers: Sequence[Buffer], apart: Mapping[Buffer, Sequence[Alignment]] | None = None
) -> PrimFunc:
    """Allocate each of `buffers`, so far used freely in `func`, at the innermost place that contains all of its uses.

    `apart` gives the required strides of some buffers, which are padded accordingly.
    """
    body = func.body
    uses = _Uses(buffers)
    for buffer in buffers:
        if uses(body, buffer):
            body = _Placing(buffer, uses, _never_kept(body, buffer, uses)).place(body, Ranges())
    if apart:
        names = {b.name: alignments for b, alignments in apart.items()}
        body = _spread(body, names)
    return func.with_body(body)


class _Uses:
    """The buffers used by each statement, as a bit set. Each statement and expression is visited once."""

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        self.bits: dict[Buffer, int] = {b: 1 << k for k, b in enumerate(buffers)}
        self.loads: dict[PrimExpr, int] = {}
        self.known: dict[int, tuple[Stmt, int]] = {}

    def __call__(self, s: Stmt, buffer: Buffer) -> bool:
        return bool(self._of(s) & self.bits[buffer])

    def _of(self, s: Stmt) -> int:
        """Return the buffers used by a statement, cached by identity; the cache keeps the statement alive."""
        known = self.known.get(id(s))
        if known is not None:
            return known[1]
        found = self.bits.get(s.buffer, 0) if isinstance(s, Store) else 0
        for top in expressions(s):
            found |= self._loaded(top)
        for inner in bodies(s):
            found |= self._of(inner)
        self.known[id(s)] = s, found
        return found

    def _loaded(self, top: PrimExpr) -> int:
        found = self.loads.get(top)
        if found is None:
            found = 0
            for e in walk(top):
                if isinstance(e, Load):
                    found |= self.bits.get(e.buffer, 0)
            self.loads[top] = found
        return found


def _never_kept(s: Stmt, buffer: Buffer, uses: _Uses) -> bool:
    """Return whether the innermost statement that contains every use of `buffer` writes everything that it reads of it.
    Then no trip of an outer loop needs values of another."""
    ranges, looped = Ranges(), False
    while True:
        users = [b for b in bodies(s) if uses(b, buffer)]
        if len(users) != 1 or not isinstance(s, (For, Seq, Allocate)):
            return not looped or fills(s, buffer, ranges, uses)
        if isinstance(s, For):
            ranges, looped = ranges.bind_loop(s.var, s.min, s.extent), True
        s = users[0]


@dataclass(slots=True)
class _Placing:
    """Moves the allocation of `buffer` to the innermost statement that contains every use of it.

    Unless `anywhere`, a serial loop with iterations that read elements of earlier iterations stays inside the
    allocation. Iterations of a parallel loop have no order, so each has a buffer of its own.
    """

    buffer: Buffer
    uses: _Uses
    anywhere: bool

    def place(self, s: Stmt, ranges: Ranges) -> Stmt:
        """Return `s` with the buffer allocated inside."""
        if isinstance(s, For) and self._may_enter(s, ranges):
            return replace(s, body=self.place(s.body, ranges.bind_loop(s.var, s.min, s.extent)))
        if isinstance(s, Seq):
            users = [k for k, b in enumerate(s.stmts) if self.uses(b, self.buffer)]
            first, last = users[0], users[-1]
            if first == last:
                return seq(*s.stmts[:first], self.place(s.stmts[first], ranges), *s.stmts[last + 1 :])
            return seq(
                *s.stmts[:first], _shrink(seq(*s.stmts[first : last + 1]), self.buffer, ranges, self.uses),
                *s.stmts[last + 1 :])
        if isinstance(s, Allocate) and self.uses(s.body, self.buffer):
            return replace(s, body=self.place(s.body, ranges))
        return _shrink(s, self.buffer, ranges, self.uses)

    def _may_enter(self, s: For, ranges: Ranges) -> bool:
        """Return whether each trip of the loop can have a separate buffer."""
        return (
            (s.kind in (SERIAL, PARALLEL) or self._has_threads(s))
            and self.buffer.name not in s.annotations.get(ROLLING, ())
            and (s.kind == PARALLEL or self.anywhere or lives_in_trips(s, self.buffer, ranges, self.uses))
        )

    def _has_threads(self, s: For) -> bool:
        """Return whether a parallel loop inside an unrolled one uses the buffer: each of its threads needs separate
        memory."""
        return (
            s.kind == UNROLLED
            and any(isinstance(x, For) and x.kind == PARALLEL and self.uses(x, self.buffer) for x in walk_stmt(s.body))
        )


def _shrink(s: Stmt, buffer: Buffer, ranges: Ranges, uses: _Uses) -> Stmt:
    """Return `s` inside an allocation of the part of `buffer` that it accesses."""
    box = region_of(s, buffer, ranges, stores=True, uses=uses)
    if box is None:
        raise InternalError(f"buffer '{buffer.name}' is not used where it is allocated")
    if all(
        size is extent or (isinstance(size, int) and size == extent)
        for (_, size), extent in zip(box, buffer.shape, strict=True)
    ):
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
        return map_bodies(x, move_stores) or x if uses(x, buffer) else x

    moved = map_expressions(s, lambda e: rewrite(e, move_loads, memo), partial(uses, buffer=buffer))
    return Allocate(small, move_stores(moved))


def _spread(s: Stmt, apart: Mapping[str, Sequence[Alignment]]) -> Stmt:
    """Return `s` with the buffers of these names padded to the required strides."""
    inner = map_bodies(s, lambda b: _spread(b, apart)) or s
    if not isinstance(inner, Allocate) or inner.buffer.name not in apart:
        return inner
    old = inner.buffer
    new = Buffer(old.name, _padded(old, apart[old.name]), old.dtype, old.scope)
    return Allocate(new, redirect(inner.body, old, new))


def _padded(buffer: Buffer, alignments: Sequence[Alignment]) -> list[int]:
    if not all(isinstance(d, int) for d in buffer.shape):
        raise ScheduleError(f"storage_align of '{buffer.name}' needs constant sizes, but the shape is {buffer.shape}")
    shape = list(buffer.shape)
    for dimension, factor, offset in alignments:
        rest = prod(shape[dimension + 2 :])
        fitting = [n for n in range(shape[dimension + 1], shape[dimension + 1] + factor) if n * rest % factor == offset]
        if not fitting:
            raise ScheduleError(
                f"storage_align of '{buffer.name}': rows of {rest} elements cannot have a stride that is {offset} "
                f"more than a multiple of {factor}")
        shape[dimension + 1] = fitting[0]
    return shape
