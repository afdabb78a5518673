"""Insert the prefetches requested by `Schedule.prefetch_next`.

    for p [prefetch_next B]: for m: for k [prefetch_share B]: C[m, p] += A[m, k] * B[p, k, 0:16]
      ->
    for p: for m: for k: prefetch(B[p + 1, …]); C[m, p] += A[m, k] * B[p, k, 0:16]

    for m [prefetch_reads (A,)]: { …; for i: C[m, i] = acc[i] + A[m, i] }
      ->
    for m: { for i: prefetch(A[m, i]); …; for i: C[m, i] = acc[i] + A[m, i] }

The cache lines of the part of B that the next trip of p reads are distributed evenly over the trips of m and k. The
last trip of p prefetches memory after the parameter: a prefetch reads nothing and cannot fail.
"""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import replace
from typing import Final

from tilewright.base.errors import ScheduleError
from tilewright.base.types import INT64
from tilewright.scalar.arith import Ranges, simplify
from tilewright.scalar.expr import Buffer, IntImm, Load, PrimExpr, Var, add, all_of, const, if_then_else, mul
from tilewright.scalar.intrinsics import prefetch
from tilewright.scalar.walk import substitute, walk
from tilewright.tir.region import Box, region_of
from tilewright.tir.stmt import (
    VECTORIZED,
    Allocate,
    Evaluate,
    For,
    IfThenElse,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    map_bodies,
    seq,
)

NEXT: Final = "prefetch_next"
SHARE: Final = "prefetch_share"
READS: Final = "prefetch_reads"
_LINE: Final = 64
_OPEN_TRIPS: Final = 4
"""Number of first iterations among which prefetches are distributed if the trip count is symbolic; later iterations
ask for the first line again, which costs nothing: repeated shares would evict others, and took up to three times as
long as the product itself on Cascade Lake."""


def place_prefetches(func: PrimFunc) -> PrimFunc:
    """Insert the requested prefetches, and remove the annotations. Needs lowered blocks and unflattened buffers."""
    buffers = {b.name: b for b in func.buffers}

    def visit(s: Stmt, ranges: Ranges) -> Stmt:
        if isinstance(s, For):
            ranges = ranges.bind_loop(s.var, s.min, s.extent)
            if NEXT in s.annotations:
                s = _ahead(s, buffers[s.annotations[NEXT]], ranges)
            if READS in s.annotations:
                s = _at_the_start(s, {buffers[name] for name in s.annotations[READS]})
        return map_bodies(s, lambda b: visit(b, ranges)) or s

    return func.with_body(visit(func.body, Ranges()))


def _ahead(outer: For, buffer: Buffer, ranges: Ranges) -> For:
    """Insert the prefetches of `buffer` into `outer`."""
    part = region_of(outer.body, buffer, ranges)
    sizes = [size for _, size in part or () if isinstance(size, int)]
    if part is None or len(sizes) < len(part) or not _is_one_run(part, buffer):
        raise ScheduleError(
            f"the part of '{buffer.name}' that an iteration of loop '{outer.var.name}' reads is not contiguous in "
            "memory, so it cannot be prefetched")
    elements = math.prod(sizes)
    following: dict[PrimExpr, PrimExpr] = {outer.var: add(outer.var, 1)}
    *first, last = [substitute(start, following) for start, _ in part]

    def place(s: Stmt, position: PrimExpr, trips: int, early: tuple[PrimExpr, ...]) -> Stmt:
        if not isinstance(s, For):
            return map_bodies(s, lambda b: place(b, position, trips, early)) or s
        extent = s.extent.value if isinstance(s.extent, IntImm) else _OPEN_TRIPS
        if not isinstance(s.extent, IntImm):
            early = (*early, s.var < _OPEN_TRIPS)
        position, trips = simplify(add(mul(position, extent), s.var), ranges), trips * extent
        if s.annotations.get(SHARE) != buffer.name:
            return replace(s, body=place(s.body, position, trips, early))
        line = _LINE * 8 // buffer.dtype.bits
        count = -(-elements // (line * trips))
        asked = if_then_else(all_of(*early), position, 0) if early else position
        asks = [
            Evaluate(prefetch(Load(buffer, (*first, add(last, add(mul(asked, count * line), j * line))))))
            for j in range(count)]
        return replace(s, body=seq(*asks, s.body), annotations={k: v for k, v in s.annotations.items() if k != SHARE})

    body = place(outer.body, const(0, INT64), 1, ())
    return replace(outer, body=body, annotations={k: v for k, v in outer.annotations.items() if k != NEXT})


def _is_one_run(part: Box, buffer: Buffer) -> bool:
    """Return whether all dimensions after the first with several elements are complete, so that the part is contiguous.
    """
    sizes = [size for _, size in part]
    at = next((d for d, size in enumerate(sizes) if size > 1), len(sizes) - 1)
    return all(size == whole for size, whole in zip(sizes[at + 1 :], buffer.shape[at + 1 :], strict=True))


def _at_the_start(loop: For, wanted: Set[Buffer]) -> For:
    """Prefetch what the stores inside `loop` read of some buffers at its start: one line for each vector. The steps of
    sums are left out."""

    def asks(s: Stmt) -> Stmt | None:
        match s:
            case Store():
                first: dict[PrimExpr, PrimExpr] = {v: const(0, INT64) for v in lanes}
                loads = [e for e in walk(s.value) if isinstance(e, Load)]
                reads = dict.fromkeys(substitute(e, first) for e in loads if e.buffer in wanted)
                is_sum = any(e.buffer is s.buffer for e in loads)
                return seq(*(Evaluate(prefetch(e)) for e in reads)) if reads and not is_sum else None
            case For(kind=kind) if kind == VECTORIZED:
                lanes.add(s.var)
                return asks(s.body)
            case For() | IfThenElse():
                body = asks(s.body if isinstance(s, For) else s.then_case)
                return body if body is None or isinstance(s, IfThenElse) else replace(s, body=body)
            case Allocate():
                return asks(s.body)
            case Seq():
                parts = [p for p in map(asks, s.stmts) if p is not None]
                return seq(*parts) if parts else None
        return None

    lanes: set[Var] = set()
    start = asks(loop.body)
    return replace(
        loop, body=seq(start, loop.body), annotations={k: v for k, v in loop.annotations.items() if k != READS})
