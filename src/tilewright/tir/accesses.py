"""Collects the memory accesses of a statement: buffer, indices, enclosing loops and conditions.

Axes of blocks and `Let` variables are replaced by their values, so that indices depend only on loops. The initial value
of a reduction counts as stored where lowering places it: at the first point of its reduction loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from tilewright.base.graphs import reachable
from tilewright.base.types import INT64
from tilewright.scalar.expr import EQ, Buffer, Call, Load, PrimExpr, compare, const, logical_not, number_of
from tilewright.scalar.intrinsics import address_of, prefetch
from tilewright.scalar.walk import substitute
from tilewright.tir.stmt import Block, Evaluate, For, IfThenElse, Let, Stmt, Store, bodies, expressions

Points = Mapping[PrimExpr, PrimExpr]


class Uses(Protocol):
    """Tells whether a statement, or one inside, uses a buffer."""

    def __call__(self, s: Stmt, buffer: Buffer) -> bool: ...


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """One read or write. If a function receives the address, `sizes` is the accessed box, which starts at `indices`;
    otherwise it is empty.

    `loops` are the enclosing loops in the statement, outermost first; the access is performed where `guards` hold.
    `block` is the outermost block around it in the statement.
    """

    buffer: Buffer
    indices: tuple[PrimExpr, ...]
    writes: bool
    loops: tuple[For, ...]
    guards: tuple[PrimExpr, ...]
    block: Block | None
    at: Stmt
    sizes: tuple[PrimExpr, ...] = ()

    def __str__(self) -> str:
        """Return the accessed element as text: `A[vi + 1]`."""
        return f"{self.buffer.name}[{', '.join(map(str, self.indices))}]"


def accesses(s: Stmt, buffer: Buffer | None = None, uses: Uses | None = None) -> list[Access]:
    """Return every access in `s` (to `buffer`, if given) in text order; a statement reads before it writes.

    `uses` tells which statements use a buffer; others are not searched.
    """
    within = None if uses is None or buffer is None else partial(uses, buffer=buffer)
    return [a for a in _visit(s, (), (), {}, None, within) if buffer is None or a.buffer is buffer]


def _visit(
    s: Stmt, loops: tuple[For, ...], guards: tuple[PrimExpr, ...], points: Points, block: Block | None,
    within: Callable[[Stmt], bool] | None,
) -> Iterator[Access]:
    if within is not None and not within(s):
        return

    def value(e: PrimExpr) -> PrimExpr:
        return substitute(e, points)

    for top in expressions(s):
        yield from _reads(value(top), loops, guards, block, s)
    match s:
        case For():
            loop = replace(s, min=value(s.min), extent=value(s.extent)) if points else s
            yield from _visit(s.body, (*loops, loop), guards, points, block, within)
        case Store():
            mask = () if s.mask is None or s.mask.dtype.lanes > 1 else (value(s.mask),)
            yield Access(s.buffer, tuple(value(i) for i in s.indices), True, loops, (*guards, *mask), block, s)
        case IfThenElse():
            condition = value(s.condition)
            yield from _visit(s.then_case, loops, (*guards, condition), points, block, within)
            if s.else_case is not None:
                yield from _visit(s.else_case, loops, (*guards, logical_not(condition)), points, block, within)
        case Let():
            named: dict[PrimExpr, PrimExpr] = {**points}
            named[s.var] = value(s.value)
            yield from _visit(s.body, loops, guards, named, block, within)
        case Block():
            bound: dict[PrimExpr, PrimExpr] = {**points}
            bound.update((i.var, value(b)) for i, b in zip(s.iters, s.bindings, strict=True))
            inside, own = (*guards, value(substitute(s.predicate, bound))), block or s
            if s.init is not None:
                first = tuple(compare(EQ, bound[i.var], 0) for i in s.iters if i.kind == "reduce")
                yield from _visit(s.init, loops, (*inside, *first), bound, own, within)
            yield from _visit(s.body, loops, inside, bound, own, within)
        case _:
            for b in bodies(s):
                yield from _visit(b, loops, guards, points, block, within)


def _reads(
    e: PrimExpr, loops: tuple[For, ...], guards: tuple[PrimExpr, ...], block: Block | None, at: Stmt
) -> Iterator[Access]:
    """Yield the loads in an expression, and the possible accesses of called functions to boxes whose address they
    receive."""
    if isinstance(at, Evaluate) and isinstance(at.value, Call) and at.value.op is prefetch:
        return

    def below(x: PrimExpr) -> tuple[PrimExpr, ...]:
        if isinstance(x, Call) and (first := _addressed(x)) is not None:
            return (*first.indices, *x.args[1:])
        return x.operands()

    for x in reachable([e], below):
        if isinstance(x, Call) and (first := _addressed(x)) is not None:
            yield from _box(first, x.args[1], x.args[2:], loops, guards, block, at)
        elif isinstance(x, Load):
            yield Access(x.buffer, x.indices, False, loops, guards, block, at)


def _addressed(x: Call) -> Load | None:
    """The element whose address a call takes."""
    return x.args[0] if x.op is address_of and isinstance(x.args[0], Load) else None


def _box(
    first: Load, access: PrimExpr, sizes: Sequence[PrimExpr], loops: tuple[For, ...], guards: tuple[PrimExpr, ...],
    block: Block | None, at: Stmt
) -> Iterator[Access]:
    how = number_of(access)
    indices, box = first.indices, tuple(sizes)
    if len(box) != len(indices):  # the extents are unknown
        indices = tuple(const(0, INT64) for _ in indices)
        box = tuple(d if isinstance(d, PrimExpr) else const(d, INT64) for d in first.buffer.shape)
    if how != 2:
        yield Access(first.buffer, indices, False, loops, guards, block, at, box)
    if how != 1:
        yield Access(first.buffer, indices, True, loops, guards, block, at, box)
