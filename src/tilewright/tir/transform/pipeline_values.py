"""Which values a software pipeline needs several copies of, and whether the order of its statements keeps their values.

The statement of stage `s` computes trip `t` at time `t + s`. Within one time, statements run in the given order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tilewright.base.errors import PipelineError
from tilewright.scalar.arith import Ranges, prove, simplify
from tilewright.scalar.expr import LE, Buffer, PrimExpr, add, as_expr, compare
from tilewright.scalar.walk import substitute
from tilewright.tir.region import region_of
from tilewright.tir.stmt import Block, For, PrimFunc, expressions, handed_out, loaded_buffers, stored_buffers, walk_stmt

DOUBLE: Final = "double_buffer_scope"
"""Annotation of a block: the number of its result that has two copies at least."""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A statement of a pipeline, with its stage, and its place in the new order."""

    block: Block
    stage: int
    order: int

    def reads(self) -> list[Buffer]:
        handed = [b for s in walk_stmt(self.block) for e in expressions(s) for b in handed_out(e)]
        return [*loaded_buffers(self.block), *handed]

    def writes(self) -> list[Buffer]:
        return stored_buffers(self.block)


def versions(func: PrimFunc, loop: For, parts: Sequence[Part], own: Sequence[Buffer]) -> dict[Buffer, int]:
    """Return the number of copies of each value that only the loop uses. `parts` are in the order of the loop.

    Raises `PipelineError` for a value that is read in an earlier stage than it is written.
    """
    found: dict[Buffer, int] = {}
    for b in own:
        writers = [p for p in parts if b in p.writes()]
        readers = [p for p in parts if b in p.reads()]
        if not writers or not readers:
            continue
        first, last = min(p.stage for p in writers), max(p.stage for p in readers)
        if last < first:
            raise PipelineError(
                f"loop '{loop.var.name}' cannot be a software pipeline: '{b.name}' is written in stage {first}, but "
                f"read in stage {last}; read it in a later stage", loop.origin or func.origin)
        number = last - first + 1
        if number == 2 and not any(
            w.stage < r.stage and w.order < r.order and _meet(w, r, b, loop, 1) for w in writers for r in readers
        ):
            number = 1  # the value of the last trip is read before that of the next one is written
        found[b] = max(number, 2) if any(_is_doubled(p, b) for p in writers) else number
    return found


def _is_doubled(part: Part, buffer: Buffer) -> bool:
    for s in walk_stmt(part.block):
        at = s.annotations.get(DOUBLE) if isinstance(s, Block) else None
        if at is not None and stored_buffers(s)[int(at)] is buffer:
            return True
    return False


def check_order(func: PrimFunc, loop: For, parts: Sequence[Part], own: Sequence[Buffer]) -> None:
    """Raise `PipelineError` if a statement would run before one whose values it needs, or whose values it overwrites.
    `parts` are in the order of the loop."""
    for k, a in enumerate(parts):
        for b in parts[k + 1 :]:
            for x in dict.fromkeys([*a.reads(), *a.writes()]):
                if x not in [*b.reads(), *b.writes()] or not (x in a.writes() or x in b.writes()):
                    continue
                late = a.stage > b.stage or (a.stage == b.stage and a.order > b.order)
                if (late and _meet(b, a, x, loop, 0)) or (x not in own and _overtakes(a, b, x, loop)):
                    raise _wrong(func, loop, a, b, x)


def _overtakes(a: Part, b: Part, x: Buffer, loop: For) -> bool:
    """Return whether `a` uses a value in one trip before `b`, which follows it in the loop, uses it in an earlier
    trip."""
    ahead = b.stage - a.stage
    return any(
        _meet(a, b, x, loop, trips) for trips in range(1, ahead + 1) if trips < ahead or a.order < b.order)


def _wrong(func: PrimFunc, loop: For, a: Part, b: Part, x: Buffer) -> PipelineError:
    places = [f"stage {p.stage}, place {p.order}" for p in (a, b)]
    return PipelineError(
        f"loop '{loop.var.name}' cannot be a software pipeline: '{x.name}' is used first in {places[0]} and then in "
        f"{places[1]}, which changes the order of its values; give the second a later stage or place, or the same "
        "stage", loop.origin or func.origin)


def _meet(a: Part, b: Part, buffer: Buffer, loop: For, trips: int) -> bool:
    """Return whether `a` may use an element, `trips` trips later, that `b` uses; at least one of them writes it."""
    one, other = (region_of(p.block, buffer, Ranges(), stores=True) for p in (a, b))
    if one is None or other is None:
        return False
    later = {loop.var: add(loop.var, trips)}
    ranges = Ranges()
    for (low, size), (start, number) in zip(one, other, strict=True):
        low = substitute(low, later) if trips else low
        if _before(low, size, start, ranges) or _before(start, number, low, ranges):
            return False
    return True


def _before(low: PrimExpr, size: int | PrimExpr, start: PrimExpr, ranges: Ranges) -> bool:
    return prove(simplify(compare(LE, add(low, as_expr(size)), start), ranges), ranges) is True


__all__ = ["Part", "check_order", "versions"]
