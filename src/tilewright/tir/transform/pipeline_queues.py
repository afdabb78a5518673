"""Marks statements of software pipelines that may complete later, and how many may be unfinished where one is needed.

    with block(""):                                  with block(""): attr(0, "async_commit_queue_scope", 0):
        B[i % 2] = A[i]                  ->              attr(0, "async_scope", 1): B[i % 2] = A[i]
    with block(""):                                  with block(""): attr(0, "async_wait_queue_scope", 0):
        C[i - 1] = B[(i - 1) % 2]                        attr(0, "async_wait_inflight_count", 1): C[i - 1] = …

Each asynchronous stage has a queue, whose number is the stage. Statements of a stage without others in between complete
as one group. Every trip has the same groups in all phases, so their number tells how many are younger than one that is
needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from tilewright.scalar.expr import (
    LT,
    Add,
    IntImm,
    PrimExpr,
    Var,
    add,
    compare,
    const,
    if_then_else,
    mul,
    number_of,
    sub,
)
from tilewright.tir.stmt import AttrStmt, Block, For, Stmt, seq
from tilewright.tir.transform.pipeline_values import Part

COMMIT: Final = "async_commit_queue_scope"
SCOPE: Final = "async_scope"
WAIT: Final = "async_wait_queue_scope"
UNFINISHED: Final = "async_wait_inflight_count"


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a pipeline: before, while and after all stages run."""

    trip: PrimExpr
    """The variable of its loop, or 0 if it has one trip."""
    start: PrimExpr
    """The distance of its first trip from that of stage 0."""
    count: PrimExpr
    is_last: bool

    def point(self, loop: For, stage: int) -> PrimExpr:
        """Return the trip of the pipeline's loop that a stage runs, with the sum as written in conditions."""
        return plus(plus(self.trip, add(loop.min, self.start)), const(-stage, self.trip.dtype))


def plus(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """Return the sum, which is folded only if `a` is a number, or `b` is 0."""
    return add(a, b) if isinstance(a, IntImm) or number_of(b) == 0 else Add(a, b)


@dataclass(frozen=True, slots=True)
class Queues:
    """The asynchronous stages of a pipeline."""

    loop: For
    parts: Sequence[Part]
    """All statements, in their new order."""
    stages: frozenset[int]

    def needs(self, part: Part) -> dict[int, Part]:
        """Return the last statement of each queue whose values a statement reads in the same trip."""
        read = part.reads()
        return {
            p.stage: p for p in self.parts
            if p.stage in self.stages and (p.stage < part.stage or (p.stage == part.stage and p.order < part.order))
            and any(b in read for b in p.writes())}

    def groups(self, stage: int) -> dict[Part, int]:
        """Return the number of the group of each statement of a stage. One that needs another is in a later group."""
        found: dict[Part, int] = {}
        before: Part | None = None
        number = -1
        for p in self.parts:
            if p.stage == stage:
                is_new = before is None or before.stage != stage or stage in self.needs(p)
                number += is_new
                found[p] = number
            before = p
        return found

    def marked(self, phase: Phase, statements: Sequence[tuple[Part, Block]]) -> list[Block]:
        """Return the statements of one trip with their attributes; those of one group become one block."""
        made: list[tuple[tuple[int, int] | None, Block, list[Stmt]]] = []
        done: dict[int, tuple[int, int]] = {}
        for part, block in statements:
            is_later = part.stage in self.stages
            body = _attribute(SCOPE, 1, block.body) if is_later else block.body
            for stage, count in reversed(self.waits(part, phase, done)):
                body = _attribute(WAIT, stage, _attribute(UNFINISHED, count, body))
            key = (part.stage, self.groups(part.stage)[part]) if is_later else None
            if made and key is not None and key == made[-1][0]:
                made[-1][2].append(body)
            else:
                made.append((key, block, [body]))
        return [
            replace(b, body=seq(*bodies) if key is None else _attribute(COMMIT, key[0], seq(*bodies)))
            for key, b, bodies in made]

    def waits(self, part: Part, phase: Phase, done: dict[int, tuple[int, int]]) -> list[tuple[int, PrimExpr]]:
        """Return the queues that a statement waits for, with the number of groups that may be unfinished. `done` are
        the stage and the group of the last waits of the trip, which later ones of the same stage need not repeat."""
        found = []
        for stage, p in sorted(self.needs(part).items()):
            group = self.groups(stage)[p]
            known = done.get(stage)
            if known is not None and known[0] == part.stage and group <= known[1]:
                continue
            if number_of(part.block.predicate) == 1:
                done[stage] = part.stage, group
            found.append((stage, self.unfinished(part, p, phase)))
        return found

    def unfinished(self, part: Part, needed: Part, phase: Phase) -> PrimExpr:
        """Return how many groups may be younger than that of `needed`, where `part` waits for it."""
        groups, dtype = self.groups(needed.stage), self.loop.var.dtype
        number = max(groups.values()) + 1
        behind = number - 1 - groups[needed]
        before = len({n for x, n in groups.items() if x.order < part.order} - {groups.get(part)})
        running = const((part.stage - needed.stage - 1) * number + before + behind, dtype)
        if not phase.is_last:
            return running
        rest = add(mul(sub(const(part.stage - 1, dtype), phase.trip), number), behind)
        end = int(number_of(phase.count) or 0)
        if not isinstance(phase.trip, Var) or needed.stage in (0, part.stage, end):
            return running if needed.stage else rest
        more = compare(LT, phase.point(self.loop, needed.stage), add(self.loop.min, self.loop.extent))
        if needed.stage == min(end, part.stage) - 1:  # only the last trip is left
            rest = const((part.stage - 1 - needed.stage) * number + behind, dtype)
        return if_then_else(more, running, rest)


def _attribute(key: str, value: int | PrimExpr, body: Stmt) -> AttrStmt:
    number = value if isinstance(value, PrimExpr) else const(value, "int64")
    return AttrStmt(const(0, "int64"), key, number, body)
