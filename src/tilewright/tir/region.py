"""Computes the part of a buffer that a statement accesses: a box, given by a first index and a size along each
dimension.

It is used to move computations into the loops of their readers, and to shrink buffers to the part that one trip needs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from tilewright.base.types import INT64
from tilewright.scalar.arith import Ranges, bounds, linear, prove, simplify
from tilewright.scalar.expr import (
    LT,
    Buffer,
    Call,
    IntImm,
    Load,
    PrimExpr,
    Value,
    Var,
    add,
    all_of,
    as_expr,
    compare,
    const,
    sub,
)
from tilewright.scalar.intrinsics import address_of
from tilewright.scalar.walk import substitute, walk
from tilewright.tir.accesses import Uses
from tilewright.tir.stmt import SERIAL, Block, For, Let, Stmt, Store, bodies, expressions

Size: TypeAlias = int | PrimExpr
Span: TypeAlias = tuple[PrimExpr, int, int]
"""A base over outer variables, and the least and greatest distance from it."""
Box: TypeAlias = list[tuple[PrimExpr, Size]]
Region: TypeAlias = Sequence[tuple[PrimExpr, Size] | None]


def region_of(
    s: Stmt, buffer: Buffer, outer: Ranges, *, stores: bool = False, uses: Uses | None = None,
    across: Collection[Var] = ()
) -> Box | None:
    """Return the smallest box of `buffer` that `s` reads (or, with `stores`, reads and writes), in terms of the
    variables of `outer`. The box contains what is accessed for all values of the variables `across`.

    None if `s` does not access the buffer. A dimension accessed at an unknown position is included completely.
    `uses` tells which statements use a buffer; others are not searched.
    """
    parts: list[list[Span | None]] = []
    fixed = outer.without(across) if across else outer
    for indices, ranges in _accesses(s, buffer, outer, {}, stores, uses):
        parts.append([span_of(i, fixed, ranges) for i in indices])
    if not parts:
        return None
    return [union_of([p[d] for p in parts], extent) for d, extent in enumerate(buffer.shape)]


def _accesses(
    s: Stmt, buffer: Buffer, ranges: Ranges, points: dict[PrimExpr, PrimExpr], stores: bool, uses: Uses | None
) -> Iterator[tuple[Sequence[PrimExpr], Ranges]]:
    """Yield the indices of `buffer` in `s`, with block axes replaced by their bindings, and the ranges of the enclosing
    loops."""
    if uses is not None and not uses(s, buffer):
        return
    for top in expressions(s):
        for e in walk(top):
            if isinstance(e, Load) and e.buffer is buffer:
                yield [substitute(i, points) for i in e.indices], ranges
            elif (
                isinstance(e, Call) and e.op is address_of and isinstance(first := e.args[0], Load)
                and first.buffer is buffer
            ):
                yield (
                    [substitute(sub(add(i, n), 1), points) for i, n in zip(first.indices, e.args[2:], strict=True)],
                    ranges
                )
    if isinstance(s, Store) and stores and s.buffer is buffer:
        yield [substitute(i, points) for i in s.indices], ranges
    if isinstance(s, For):
        ranges = ranges.bind_loop(s.var, s.min, s.extent)
    elif isinstance(s, Block):
        bound = (substitute(b, points) for b in s.bindings)
        points = {**points, **dict(zip((i.var for i in s.iters), bound, strict=True))}
    elif isinstance(s, Let):
        points = dict(points)
    for b in bodies(s):
        yield from _accesses(b, buffer, ranges, points, stores, uses)


def span_of(index: PrimExpr, outer: Ranges, ranges: Ranges) -> Span | None:
    """Return `index` as `base + [low, high]`: the base over the outer variables, the interval over the inner loops."""
    form = linear(simplify(index, ranges))
    base: PrimExpr = const(0, INT64)
    low = high = 0
    for atom, coef in form.coefs.items():
        if all(v in outer or v not in ranges for v in walk(atom) if isinstance(v, Var)):
            base = add(base, atom * coef)
            continue
        lo, hi = bounds(atom, ranges)
        if lo is None or hi is None:
            return None
        low += min(lo * coef, hi * coef)
        high += max(lo * coef, hi * coef)
    return base, low + form.const, high + form.const


def union_of(spans: Sequence[Span | None], extent: Size) -> tuple[PrimExpr, Size]:
    """Return one span that contains all; the whole dimension if one is unknown, or their bases differ."""
    known = [s for s in spans if s is not None]
    whole = const(0, INT64), extent
    if len(known) != len(spans):
        return whole
    base = known[0][0]
    if any(b is not base for b, _, _ in known):
        return whole
    low, high = min(s[1] for s in known), max(s[2] for s in known)
    if isinstance(base, IntImm):
        low = max(low + base.value, 0)
        high = high + base.value if isinstance(extent, PrimExpr) else min(high + base.value, extent - 1)
        return const(low, INT64), high - low + 1
    if isinstance(extent, int) and high - low + 1 >= extent:
        return whole
    return simplify(add(base, low), Ranges()), high - low + 1


def regenerate(node: Block, region: Region, outer: Ranges, unit_loops: bool) -> tuple[Stmt, list[Var]]:
    """Build loops over a part of a block's domain: `region` gives the first point and the size along each axis, and
    None for all points."""
    bindings: list[PrimExpr] = []
    loops: list[tuple[Var, PrimExpr]] = []
    predicate: Value = True
    ranges = outer
    for it, part in zip(node.iters, region, strict=True):
        v = Var(it.var.name)
        if part is None:
            bindings.append(v)
            loops.append((v, it.extent))
            continue
        first, size = part
        single = isinstance(size, int) and size == 1
        if not single or unit_loops:
            loops.append((v, as_expr(size)))
            ranges = ranges.bind(v, 0, size - 1 if isinstance(size, int) else None)
        point = first if single and not unit_loops else add(first, v)
        bindings.append(point)
        whole = size is it.extent and isinstance(first, IntImm) and first.value == 0
        reached = first if single else point
        for inside in () if whole else (reached >= 0, compare(LT, reached, it.extent)):
            if prove(inside, ranges) is not True:
                predicate = all_of(predicate, inside)
    nest: Stmt = replace(node, bindings=tuple(bindings), predicate=as_expr(predicate))
    for v, size_expr in reversed(loops):
        nest = For(v, const(0, INT64), size_expr, SERIAL, nest, origin=node.origin)
    return nest, [v for v, _ in loops]
