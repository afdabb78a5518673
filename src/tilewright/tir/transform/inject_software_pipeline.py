"""Overlap the trips of a loop: each statement of its body runs in a stage, which is a number of trips behind the first.

    for i in range(16, software_pipeline_stage=[0, 1], software_pipeline_order=[0, 1]):
        with block(""): { with block(""): B[0] = A[i] * 2;  with block(""): C[i] = B[0] + 1 }
      ->
    with block(""):
        with block(""): B[0, 0] = A[0] * 2
        with block(""): for i in range(15):
            with block(""): B[(i + 1) % 2, 0] = A[i + 1] * 2
            with block(""): C[i] = B[i % 2, 0] + 1
        with block(""): C[15] = B[1, 0] + 1

The stages and the places in the new order are lists with one entry for each statement. A value that only the loop uses
gets a copy for each trip that is in flight at once. Statements of the stages in `software_pipeline_async_stages` may
complete later; attributes mark them, and how many of their groups may be unfinished where a value is needed
(`pipeline_queues.py`). The statements of a nested pipeline are statements of the outer one. New indices are not folded;
`Simplify` does this.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tilewright.base.errors import PipelineError
from tilewright.base.types import BOOL
from tilewright.scalar.arith import Ranges, prove
from tilewright.scalar.expr import (
    EQ,
    LE,
    LT,
    Buffer,
    Call,
    FloorMod,
    Load,
    PrimExpr,
    Var,
    add,
    all_of,
    compare,
    const,
    number_of,
    sub,
)
from tilewright.scalar.intrinsics import address_of, stride_of
from tilewright.scalar.walk import rewrite
from tilewright.tir.block_rewrites import swap
from tilewright.tir.stmt import (
    ALIGNED,
    SERIAL,
    THREAD,
    UNROLLED,
    Block,
    Evaluate,
    For,
    PrimFunc,
    Seq,
    Stmt,
    map_bodies,
    map_expressions,
    redirect,
    replaced,
    seq,
    stored_buffers,
    substitute_stmt,
    walk_stmt,
)
from tilewright.tir.transform.buffer_homes import INTERMEDIATES, intermediates_of, uses
from tilewright.tir.transform.lower_blocks import guarded
from tilewright.tir.transform.pipeline_queues import Phase, Queues, plus
from tilewright.tir.transform.pipeline_values import Part, check_order, versions

STAGES: Final = "software_pipeline_stage"
ORDER: Final = "software_pipeline_order"
ASYNC: Final = "software_pipeline_async_stages"
_NOTES: Final = (STAGES, ORDER, ASYNC)


def inject_software_pipeline(func: PrimFunc) -> PrimFunc:
    """Overlap the trips of the annotated loops, innermost first. Needs a schedulable program whose blocks around the
    loops' statements have no axes.

    Raises `PipelineError` for annotations that do not fit the body, for an order in which a statement would read or
    overwrite a value at the wrong time, and for a loop with fewer trips than stages.
    """
    while (loop := _innermost(func.body)) is not None:
        func = _overlapped(func, loop)
    return func


def _innermost(s: Stmt) -> For | None:
    """Return the last annotated loop in reading order, which contains no other."""
    found = [x for x in walk_stmt(s) if isinstance(x, For) and not x.annotations.keys().isdisjoint(_NOTES)]
    return found[-1] if found else None


@dataclass(frozen=True, slots=True)
class _Pipeline:
    """An annotated loop."""

    loop: For
    parts: tuple[Part, ...]
    """The statements in their new order."""
    copies: dict[Buffer, tuple[Buffer, int]]
    """Values with several copies: the new buffer, and the number of copies."""
    queues: Queues

    @property
    def depth(self) -> int:
        """The greatest stage."""
        return max(p.stage for p in self.parts)

    def phase(self, start: PrimExpr, count: PrimExpr, *, is_last: bool = False, kind: str = UNROLLED) -> Stmt:
        """Return the trips from `start` on, counted from the first one of stage 0."""
        dtype, notes = self.loop.var.dtype, self.loop.annotations
        if number_of(count) == 0:
            return _block(Evaluate(const(0, dtype)))
        trip: PrimExpr = const(0, dtype) if number_of(count) == 1 else Var(self.loop.var.name, dtype)
        phase = Phase(trip, start, count, is_last)
        found = [(p, made) for p in self.parts if (made := self.one(p, phase)) is not None]
        body = self.queues.marked(phase, found)
        if not isinstance(trip, Var):
            return body[0] if len(body) == 1 else _block(seq(*body))
        kept = {} if kind == UNROLLED else {key: value for key, value in notes.items() if key not in _NOTES}
        return _block(For(trip, const(0, dtype), count, kind, seq(*body), kept, self.loop.origin))

    def one(self, part: Part, phase: Phase) -> Block | None:
        """Return a statement in a phase; None if its stage has no trip there."""
        loop, back = self.loop, const(-part.stage, self.loop.var.dtype)
        condition = _condition(part.stage, phase, loop)
        if condition is None:
            return None
        at = plus(plus(phase.trip, back), add(loop.min, phase.start))
        made = _as_block(substitute_stmt(part.block, {loop.var: at}))
        since = at if number_of(loop.min) == 0 else sub(at, loop.min)
        for old, (new, number) in self.copies.items():
            made = _in_copy(made, old, new, FloorMod(since, const(number, since.dtype)))
        if part.stage in self.queues.stages:  # each trip has its groups, whatever they do
            return replace(made, predicate=condition, body=guarded(made.predicate, made.body))
        return replace(made, predicate=all_of(condition, made.predicate))


def _condition(stage: int, phase: Phase, loop: For) -> PrimExpr | None:
    """Return the condition that a stage has a trip at a point of a phase; None if it never has."""
    ranges, trip = Ranges(), phase.trip
    if isinstance(trip, Var):
        ranges = ranges.bind_loop(trip, const(0, trip.dtype), phase.count)
    at = phase.point(loop, stage)
    begun, running = compare(LE, loop.min, at), compare(LT, at, add(loop.min, loop.extent))
    proved = prove(begun, ranges)
    if proved is False or prove(running, ranges) is False:
        return None
    if proved is True:
        return running
    first = sub(const(stage, trip.dtype), phase.start)
    is_last = number_of(first) is not None and number_of(add(first, 1)) == number_of(phase.count)
    return all_of(compare(EQ, trip, first) if is_last else compare(LE, first, trip), running)


def _as_block(s: Stmt) -> Block:
    assert isinstance(s, Block)
    return s


def _in_copy(s: Block, old: Buffer, new: Buffer, copy: PrimExpr) -> Block:
    """Let a statement use a copy of a value: in addresses that it passes on, strides, and their alignment, too."""
    def whole(e: PrimExpr) -> PrimExpr | None:
        place = e.args[0] if isinstance(e, Call) and e.op in (address_of, stride_of) else None
        if not isinstance(e, Call) or not isinstance(place, Load) or place.buffer is not new or len(e.args) == 1:
            return None
        if e.op is stride_of:
            return Call(e.dtype, e.op, (place, add(e.args[1], 1)))
        return Call(e.dtype, e.op, (place, e.args[1], const(1, "int64"), *e.args[2:]))

    moved = redirect(s, old, new, lambda indices: (copy, *indices))
    memo: dict[PrimExpr, PrimExpr] = {}
    return _as_block(_aligned(map_expressions(moved, lambda e: rewrite(e, whole, memo)), new))


def _aligned(s: Stmt, new: Buffer) -> Stmt:
    """Return a statement whose required strides of `new` count its first dimension."""
    inner = map_bodies(s, lambda b: _aligned(b, new)) or s
    if not isinstance(inner, Block) or ALIGNED not in inner.annotations:
        return inner
    results = stored_buffers(inner)
    strides = tuple(
        (n, dim + (results[n] is new), factor, offset) for n, dim, factor, offset in inner.annotations[ALIGNED])
    return replace(inner, annotations={**inner.annotations, ALIGNED: strides})


def _block(body: Stmt) -> Block:
    return Block("", (), (), const(1, BOOL), None, body)


def _overlapped(func: PrimFunc, loop: For) -> PrimFunc:
    blocks = _statements(func, loop)
    stages, order = _numbers(func, loop, STAGES, len(blocks)), _numbers(func, loop, ORDER, len(blocks))
    if len(set(order)) != len(order):
        raise _fault(func, loop, f"{ORDER} {order} has one place for several statements; give each its own")
    parts = [Part(b, s, o) for b, s, o in zip(blocks, stages, order, strict=True)]
    least = const(max(stages), loop.var.dtype)
    if prove(compare(LE, least, loop.extent), Ranges()) is not True:
        raise _fault(
            func, loop,
            f"it has {loop.extent} trips, but a pipeline whose last stage is {least} needs as many at least")
    outside = swap(func.body, loop, Seq(()))
    own = [b for b in intermediates_of(func) if uses(loop.body, b) and not uses(outside, b)]
    numbers = versions(func, loop, parts, own)
    check_order(func, loop, parts, own)
    copies = {
        b: (Buffer(b.name, (n, *b.shape), b.dtype, b.scope), n) for b, n in numbers.items() if n > 1}
    waiting = _numbers(func, loop, ASYNC, None) if ASYNC in loop.annotations else []
    sorted_parts = tuple(sorted(parts, key=lambda p: p.order))
    pipeline = _Pipeline(loop, sorted_parts, copies, Queues(loop, sorted_parts, frozenset(waiting)))
    new = [copies[b][0] if b in copies else b for b in intermediates_of(func)]
    return replace(
        replaced(func, loop, _phases(pipeline)), attrs={**func.attrs, INTERMEDIATES: tuple(new)})


def _phases(p: _Pipeline) -> Stmt:
    """Return the trips before all stages run, those in which all run, and those after the last trip of stage 0."""
    zero = const(0, p.loop.var.dtype)
    depth, extent = const(p.depth, zero.dtype), p.loop.extent
    middle = p.phase(depth, sub(extent, depth), kind=p.loop.kind)
    return _block(seq(p.phase(zero, depth), middle, p.phase(extent, depth, is_last=True)) if p.depth else seq(middle))


def _statements(func: PrimFunc, loop: For) -> list[Block]:
    """Return the statements of a loop as blocks; those of a block without axes inside are statements, too."""
    if loop.kind != SERIAL or THREAD in loop.annotations:
        raise _fault(func, loop, "its trips run at once; a pipeline needs a serial loop")
    body = loop.body.body if _is_group(loop.body) and isinstance(loop.body, Block) else loop.body
    if not isinstance(body, Seq):
        raise _fault(
            func, loop, "its body is one statement, or a block with axes or a condition; a pipeline needs several "
            "statements in a block without axes")
    found: list[Stmt] = []
    for s in body.stmts:
        inner = s.body if isinstance(s, Block) and _is_group(s) else None
        found += inner.stmts if isinstance(inner, Seq) else [s]
    return [s if isinstance(s, Block) and not s.iters else _block(s) for s in found]


def _is_group(s: Stmt) -> bool:
    """Return whether a statement is a block without axes, condition and initial values."""
    return isinstance(s, Block) and not s.iters and s.init is None and number_of(s.predicate) == 1


def _numbers(func: PrimFunc, loop: For, key: str, count: int | None) -> list[int]:
    """Return the numbers of an annotation, one for each of `count` statements."""
    given = loop.annotations.get(key)
    found = [number_of(v) if isinstance(v, PrimExpr) else v for v in given] if isinstance(given, (list, tuple)) else []
    if given is None or any(type(n) is not int or n < 0 for n in found) or count not in (None, len(found)):
        wanted = "numbers" if count is None else f"{count} numbers, one for each of its statements"
        raise _fault(func, loop, f"{key} is {given!r}, but must be a list of {wanted}")
    return [int(n) for n in found if n is not None]


def _fault(func: PrimFunc, loop: For, why: str) -> PipelineError:
    return PipelineError(
        f"loop '{loop.var.name}' cannot be a software pipeline: {why}", loop.origin or func.origin)


__all__ = ["ASYNC", "ORDER", "STAGES", "inject_software_pipeline"]
