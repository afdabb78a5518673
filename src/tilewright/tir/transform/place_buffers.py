"""Memory for inner values: allocated around the statements that use them, and no larger than one trip there needs.

    B[0:100]; for io: { for ii in range(8): B[io * 8 + ii] = …; for ii in range(8): C[io * 8 + ii] = B[io * 8 + ii] }
      ->
    for io: allocate B[0:8] { for ii: B[ii] = …; for ii: C[io * 8 + ii] = B[ii] }
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tilewright.arith import Ranges, simplify
from tilewright.errors import InternalError
from tilewright.expr import Buffer, Load, PrimExpr, sub
from tilewright.expr_walk import rewrite, walk
from tilewright.tir.block_rewrites import redirect
from tilewright.tir.region import Box, region_of
from tilewright.tir.stmt import (
    PARALLEL,
    SERIAL,
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


def place_buffers(func: PrimFunc, buffers: Sequence[Buffer]) -> PrimFunc:
    """Allocate `buffers`, which `func` uses freely so far, each at the innermost place that holds all of its uses."""
    body = func.body
    for buffer in buffers:
        if _uses(body, buffer):
            body = _place(body, buffer, Ranges())
    apart = func.attrs.get("storage_align")
    return func.with_body(_aligned(body, apart) if apart else body)


def _aligned(s: Stmt, apart: Mapping[str, tuple[int, int]]) -> Stmt:
    """Rows of the buffers that a schedule aligned are made longer: `factor` elements and what is left over them."""
    s = map_bodies(s, lambda b: _aligned(b, apart)) or s
    if not isinstance(s, Allocate) or s.buffer.name not in apart or not isinstance(s.buffer.shape[-1], int):
        return s
    factor, offset = apart[s.buffer.name]
    row = s.buffer.shape[-1]
    new = Buffer(s.buffer.name, (*s.buffer.shape[:-1], row + (offset - row) % factor), s.buffer.dtype, s.buffer.scope)
    return Allocate(new, redirect(s.body, s.buffer, new))


def _uses(s: Stmt, buffer: Buffer) -> bool:
    for x in walk_stmt(s):
        if isinstance(x, Store) and x.buffer is buffer:
            return True
        if any(isinstance(e, Load) and e.buffer is buffer for top in expressions(x) for e in walk(top)):
            return True
    return False


def _place(s: Stmt, buffer: Buffer, ranges: Ranges) -> Stmt:
    """`s` with `buffer` allocated inside, at the lowest statement of it that holds every use."""
    users = [b for b in bodies(s) if _uses(b, buffer)]
    if isinstance(s, For) and s.kind in (SERIAL, PARALLEL):
        return replace(s, body=_place(s.body, buffer, ranges.bind_loop(s.var, s.min, s.extent)))
    if isinstance(s, Seq):
        first, last = (next(k for k in order if _uses(s.stmts[k], buffer)) for order in (range(len(s.stmts)), range(len(s.stmts) - 1, -1, -1)))
        if first == last:
            return seq(*s.stmts[:first], _place(s.stmts[first], buffer, ranges), *s.stmts[first + 1 :])
        return seq(*s.stmts[:first], _shrink(seq(*s.stmts[first : last + 1]), buffer, ranges), *s.stmts[last + 1 :])
    if len(users) == 1 and isinstance(s, Allocate):
        return map_bodies(s, lambda b: _place(b, buffer, ranges) if b is users[0] else b) or s
    return _shrink(s, buffer, ranges)


def _shrink(s: Stmt, buffer: Buffer, ranges: Ranges) -> Stmt:
    """`s` inside an allocation of the part of `buffer` that it touches."""
    box = region_of(s, buffer, ranges, stores=True)
    if box is None:
        raise InternalError(f"buffer '{buffer.name}' is not used where it is allocated")
    if all(size == extent for (_, size), extent in zip(box, buffer.shape, strict=True)):
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
