"""Reduce intermediate values to the part that is used where they live.

    with block(""): B = alloc((16, 16))                        with block(""): B = alloc((1, 16))
        for j: B[i, j] = A[i, j] + 1.0          ->                 for j: B[0, j] = A[i, j] + 1.0
        for j: C[i, j] = B[i, j] * 2.0                             for j: C[i, j] = B[0, j] * 2.0

Conditions around an access limit it. Memory that threads share keeps the parts of all of them. A value whose address is
passed on stays. Values of a different shape become new buffers of the same name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tilewright.scalar.arith.ranges import Ranges
from tilewright.scalar.arith.simplify import simplify
from tilewright.scalar.arith.solve import assume
from tilewright.scalar.expr import And, Buffer, Load, Or, PrimExpr, Select, logical_not, sub
from tilewright.scalar.walk import substitute
from tilewright.tir.region import Box, Span, span_of, union_of
from tilewright.tir.stmt import (
    THREAD,
    Allocate,
    Block,
    For,
    IfThenElse,
    Let,
    PrimFunc,
    Stmt,
    Store,
    bodies,
    expressions,
    handed_out,
    map_bodies,
    redirect,
    walk_stmt,
)
from tilewright.tir.transform.buffer_homes import INTERMEDIATES, home_of, intermediates_of


def compact_buffers(func: PrimFunc) -> PrimFunc:
    """Reduce the intermediate values and the allocations of `func`."""
    body, inner = func.body, list[Buffer]()
    for buffer in intermediates_of(func):
        home = home_of(body, buffer)
        block = None if home is None else home.block
        around = () if home is None or block is None else home.path[: (*home.path, home.last).index(block)]
        place = body if block is None else block
        loops = [s for s in around if isinstance(s, For)]
        box = None if home is None else _Regions(buffer, loops).box(place, body)
        small = buffer if box is None else _small(buffer, box)
        inner.append(small)
        if box is not None and small is not buffer:
            body = _moved(body, buffer, small, box)
    body = _allocations(body, (), body)
    attrs = {**func.attrs, INTERMEDIATES: tuple(inner)} if INTERMEDIATES in func.attrs else func.attrs
    return replace(func, body=body, attrs=attrs)


def _allocations(s: Stmt, loops: Sequence[For], whole: Stmt) -> Stmt:
    inner = map_bodies(s, lambda b: _allocations(b, (*loops, s) if isinstance(s, For) else loops, whole)) or s
    if not isinstance(inner, Allocate):
        return inner
    box = _Regions(inner.buffer, loops).box(inner.body, inner.body)
    small = inner.buffer if box is None else _small(inner.buffer, box)
    if box is None or small is inner.buffer:
        return inner
    return replace(inner, buffer=small, body=_moved(inner.body, inner.buffer, small, box))


def _small(buffer: Buffer, box: Box) -> Buffer:
    sizes = [size for _, size in box]
    if all(a is b or (isinstance(a, int) and a == b) for a, b in zip(sizes, buffer.shape, strict=True)):
        return buffer
    return Buffer(buffer.name, sizes, buffer.dtype, buffer.scope)


def _moved(s: Stmt, old: Buffer, new: Buffer, box: Box) -> Stmt:
    def at(indices: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        return tuple(simplify(sub(i, first), Ranges()) for i, (first, _) in zip(indices, box, strict=True))

    return redirect(s, old, new, at)


def _shared_by(buffer: Buffer, loop: For) -> bool:
    """Return whether the threads of a loop share the memory of a buffer: `global` memory all, `shared` memory those of
    a block, and `warp` memory those along `threadIdx.x`."""
    kind = str(loop.annotations.get(THREAD, ""))
    scope = buffer.scope.split(".")[0]
    if not kind:
        return False
    if scope == "warp":
        return kind == "threadIdx.x"
    return scope == "global" or (scope == "shared" and not kind.startswith("blockIdx"))


@dataclass(frozen=True, slots=True)
class _Regions:
    """Finds the part of a buffer that is used inside loops `outer`."""

    buffer: Buffer
    outer: Sequence[For]

    def box(self, place: Stmt, body: Stmt) -> Box | None:
        """Return the smallest box that `place` uses; None if it is not known or the address is passed on."""
        if any(self.buffer in handed_out(e) for s in walk_stmt(body) for e in expressions(s)):
            return None
        fixed, ranges = Ranges(), Ranges()
        for f in self.outer:
            ranges = ranges.bind_loop(f.var, f.min, f.extent)
            if not _shared_by(self.buffer, f):
                fixed = fixed.bind_loop(f.var, f.min, f.extent)
        found: list[list[Span | None]] = []
        for indices, within in self.accesses(place, ranges, {}):
            if any(i.dtype.lanes > 1 for i in indices):
                return None
            found.append([span_of(i, fixed, within) for i in indices])
        if not found:
            return None
        return [union_of([spans[d] for spans in found], size) for d, size in enumerate(self.buffer.shape)]

    def accesses(
        self, s: Stmt, ranges: Ranges, points: dict[PrimExpr, PrimExpr]
    ) -> Iterator[tuple[Sequence[PrimExpr], Ranges]]:
        for top in expressions(s):
            yield from self.loads(substitute(top, points), ranges)
        if isinstance(s, Store) and s.buffer is self.buffer:
            yield [substitute(i, points) for i in s.indices], ranges
        match s:
            case For():
                ranges = ranges.bind_loop(s.var, s.min, s.extent)
            case Block():
                points = {**points, **{i.var: substitute(b, points) for i, b in zip(s.iters, s.bindings, strict=True)}}
                ranges = assume(substitute(s.predicate, points), ranges)
            case Let():
                points = {**points, s.var: substitute(s.value, points)}
            case IfThenElse():
                condition = substitute(s.condition, points)
                yield from self.accesses(s.then_case, assume(condition, ranges), points)
                if s.else_case is not None:
                    yield from self.accesses(s.else_case, assume(logical_not(condition), ranges), points)
                return
            case _:
                pass
        for b in bodies(s):
            yield from self.accesses(b, ranges, points)

    def loads(self, e: PrimExpr, ranges: Ranges) -> Iterator[tuple[Sequence[PrimExpr], Ranges]]:
        if isinstance(e, Load) and e.buffer is self.buffer:
            yield e.indices, ranges
        if isinstance(e, Select):
            yield from self.loads(e.condition, ranges)
            yield from self.loads(e.true_value, assume(e.condition, ranges))
            yield from self.loads(e.false_value, assume(logical_not(e.condition), ranges))
        elif isinstance(e, (And, Or)):
            yield from self.loads(e.a, ranges)
            yield from self.loads(e.b, assume(e.a if isinstance(e, And) else logical_not(e.a), ranges))
        else:
            for o in e.operands():
                yield from self.loads(o, ranges)


__all__ = ["compact_buffers"]
