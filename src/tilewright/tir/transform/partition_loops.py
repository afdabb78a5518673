"""Split loops where the conditions inside change.

    for o in T.serial(8):                              for o in T.serial(0, 1): …
        for m in T.unrolled(7):                ->      for o in T.serial(1, 8): …
            if 1 <= o * 7 + m: …

A condition is considered if it is linear in the loop variable and otherwise depends only on variables of inner loops.
For each value of unrolled variables, and for all values of the others (lanes, serial loops) together, it is true, false
or undecided. The loop is split where this changes. A minimum or maximum in a condition, from a split with overlap, is
treated as its two operands and their crossing. The conditions stay in the segments: simplification with the segment's
range removes those that are decided. A parallel loop stays one loop, with the segments as branches. If it is a fusion
of two loops, it is split by the inner one:

    for p in T.parallel(4 * 523):                      for p in T.parallel(4 * 523):
        if p % 523 * 6 + m < 3137: …          ->           with T.let(i, p % 523): if i < 522: … else: …

Segments share their body, so a split is free until the segments are specialized.

In a function with dynamic sizes as arguments, a serial loop is also split at the two symbolic points where padding
begins and ends. In each segment, the conditions are constants:

    for x in T.serial(w + 2):                          for x in T.serial(0, 1): P[x] = 0
        P[x] = T.Select(1 <= x and x < w + 1,  ->      for x in T.serial(1, w + 1): P[x] = A[x - 1]
                        A[x - 1], 0)                   for x in T.serial(w + 1, w + 2): P[x] = 0    (ends clamped)

So is a loop over vectors, `if o * 16 + lane < w`, with few stores: into whole vectors, and the last one. A condition
that holds for few iterations, such as that of a reflected edge, is false in the long segment.

A loop over tiles whose last tile starts earlier, `min(x * 7, w - 7)`, is split into the first tile, the middle ones,
and the last.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise, product
from typing import Final

from tilewright.base.types import BOOL, DataType
from tilewright.scalar.arith.bounds import bounds_of_form
from tilewright.scalar.arith.linear import LinearForm, expression, linear
from tilewright.scalar.arith.ranges import Ranges
from tilewright.scalar.arith.simplify import difference, is_index, simplify
from tilewright.scalar.expr import (
    EQ,
    GE,
    LT,
    NE,
    Comparison,
    FloorMod,
    IntImm,
    Load,
    Max,
    Min,
    PrimExpr,
    Select,
    Var,
    add,
    const,
    floordiv,
    maximum,
    minimum,
    sub,
)
from tilewright.scalar.walk import free_vars, substitute, walk
from tilewright.tir.stmt import (
    NUMBERS,
    PARALLEL,
    SERIAL,
    UNROLLED,
    For,
    IfThenElse,
    Let,
    PrimFunc,
    Stmt,
    Store,
    bodies,
    expressions,
    map_bodies,
    seq,
    substitute_stmt,
    walk_stmt,
)
from tilewright.tir.transform.loop_facts import inside, runs_once, trips

MOST_SEGMENTS: Final = 8
MOST_BRANCHES: Final = 4
"""Largest number of segments of a parallel loop."""
MOST_STORES: Final = 2048
"""Largest number of stores in all segments of a loop together, after unrolling."""
MOST_COMBINATIONS: Final = 512
_LARGE: Final = 1009
"""A large size, in general position, for which the iterations of a loop are counted."""
FEW_STORES: Final = 4
"""Largest number of stores in a loop over vectors of a row of symbolic length that is split."""
WHOLE: Final = "whole"
"""Annotation of a loop that must not be split."""


def partition_loops(func: PrimFunc, *, is_open: bool = False) -> PrimFunc:
    """Split the serial loops of `func` where conditions change, and turn the bodies of its parallel loops into branches
    there. With `is_open`, and in functions that take numbers, loops are also split at symbolic values."""
    return func.with_body(_stmt(func.body, Ranges(), is_open or bool(func.attrs.get(NUMBERS))))


def _stmt(s: Stmt, ranges: Ranges, is_open: bool) -> Stmt:
    if not isinstance(s, For):
        return map_bodies(s, lambda x: _stmt(x, ranges, is_open)) or s
    loop = replace(s, body=_stmt(s.body, inside(s, ranges), is_open))
    if loop.kind not in (SERIAL, PARALLEL) or runs_once(loop):
        return loop
    done = _cut(loop, ranges)
    if not is_open or done is not loop or loop.kind != SERIAL:
        return done
    done = _cut_overlap(loop, ranges)
    return _cut_open(loop, ranges) if done is loop else done


def _cut_overlap(loop: For, ranges: Ranges) -> Stmt:
    """Split a loop over tiles whose last tile starts earlier, `min(o * 7, w - 7)`: the first, the middle ones, and the
    last."""
    if not _is_zero(loop.min) or 3 * _stores(loop.body) > MOST_STORES:
        return loop
    var = loop.var
    starts = {a for c in _all_conditions(loop.body) for a in walk(c) if isinstance(a, Min) and var in free_vars(a)}
    if len(starts) != 1:
        return loop
    (start,) = starts
    place, last = (linear(x) for x in (start.a, start.b))
    size = place.coefs.get(var)
    if size is None or size < 1 or len(place.coefs) != 1 or place.const or var in free_vars(start.b):
        return loop
    inner = {x.var for x in walk_stmt(loop.body) if isinstance(x, (For, Let))}
    tiles = floordiv(add(start.b, 2 * size - 1), size)
    if inner & set(free_vars(start.b)) or not _is_zero(simplify(sub(tiles, loop.extent), ranges)):
        return loop
    index, more = var.dtype, sub(loop.extent, 1)
    first = replace(loop, extent=const(1, index), body=substitute_stmt(loop.body, {start: const(0, index)}))
    between = replace(loop, min=const(1, index), extent=sub(more, 1), body=substitute_stmt(loop.body, {start: start.a}))
    end = replace(
        loop, min=more, extent=minimum(more, const(1, index)),
        body=substitute_stmt(loop.body, {start: expression(last, index)}))
    return seq(first, between, end)


def _is_zero(e: PrimExpr) -> bool:
    return isinstance(e, IntImm) and e.value == 0


def _cut_open(loop: For, ranges: Ranges) -> Stmt:
    """Split a loop into up to three segments: before, within, and after the values for which its conditions have the
    same value as for most iterations."""
    if loop.annotations.get(WHOLE) or 3 * _stores(loop.body) > MOST_STORES // 2:
        return loop
    turns = _turns(loop, inside(loop, ranges))
    begin, over = ({t.value for t in turns if t.begins is begins} for begins in (True, False))
    if not turns:
        return loop
    end = add(loop.min, loop.extent)
    first = minimum(maximum(reduce(maximum, begin), loop.min), end) if begin else loop.min
    last = minimum(maximum(reduce(minimum, over), first), end) if over else end
    exact = len(begin) < 2 and len(over) < 2 and not any(t.inner for t in turns)
    before: dict[PrimExpr, PrimExpr] = {t.condition: const(not t.holds, BOOL) for t in turns if t.begins and exact}
    behind: dict[PrimExpr, PrimExpr] = {t.condition: const(not t.holds, BOOL) for t in turns if not t.begins and exact}
    between: dict[PrimExpr, PrimExpr] = {t.condition: const(t.holds, BOOL) for t in turns}
    parts = ((loop.min, first, before), (first, last, between), (last, end, behind))
    return seq(
        *(
            replace(loop, min=low, extent=sub(high, low), body=substitute_stmt(loop.body, known))
            for low, high, known in parts if low is not high))


@dataclass(frozen=True, slots=True)
class _Turn:
    """The symbolic value of a loop variable from which on (`begins`), or below which, a condition has the value `holds`
    for all values of the inner loops. `inner`: the condition depends on inner loops."""

    condition: Comparison
    value: PrimExpr
    begins: bool
    inner: bool
    holds: bool = True


def _turns(loop: For, ranges: Ranges) -> list[_Turn]:
    """Return the turns of conditions in which the loop variable has the coefficient 1 or -1, or any if the body has few
    stores, such as loops over vectors. Otherwise they may depend on outer loops, and on inner loops with known bounds.
    """
    found, few = [], _stores(loop.body) <= FEW_STORES
    inner = {x.var for x in walk_stmt(loop.body) if isinstance(x, (For, Let))}
    for x in walk_stmt(loop.body):
        span = trips(x) if isinstance(x, For) else None
        if isinstance(x, For) and span:
            ranges = ranges.bind(x.var, span.start, span.stop - 1)
    for c in dict.fromkeys(_all_conditions(loop.body)):
        kind, d = difference(c, ranges)
        k, rest = d.without(loop.var)
        if k == 0 or (abs(k) > 1 and not few) or kind not in (LT, GE) or any(
            loop.var in free_vars(a) for a in rest.coefs
        ) or _reads(rest):
            continue
        within = LinearForm({a: n for a, n in rest.coefs.items() if inner & set(free_vars(a))})
        around = LinearForm({a: n for a, n in rest.coefs.items() if a not in within.coefs}, rest.const)
        least, most = bounds_of_form(within, ranges)
        if least is None or most is None:
            continue
        for holds in (True, False):
            begins = ((kind is GE) == (k > 0)) is holds
            extreme = least if (kind is GE) is holds else most
            value = _turning_value(k, around.plus(LinearForm({}, extreme)), loop.var.dtype, ranges)
            if holds and _is_rare(loop, value, begins):
                continue  # the condition is false for most iterations
            found.append(_Turn(c, value, begins, bool(within.coefs), holds))
            break
    return found


def _turning_value(k: int, rest: LinearForm, index: DataType, ranges: Ranges) -> PrimExpr:
    """Return the symbolic value of v at which the sign of `k*v + rest` changes: the least v with a sum of at least 0 if
    k > 0, or below 0 if k < 0."""
    if k > 0:
        numerator = rest.times(-1).plus(LinearForm({}, k - 1))
    else:
        numerator = rest.plus(LinearForm({}, -k))
    return simplify(floordiv(expression(numerator, index), const(abs(k), index)), ranges)


def _is_rare(loop: For, value: PrimExpr, begins: bool) -> bool:
    """Return whether a condition that holds from `value` on (`begins`), or below it, holds for few iterations of a loop
    of symbolic extent if its sizes are large."""
    sizes = {*free_vars(loop.extent), *free_vars(loop.min)}
    if isinstance(loop.extent, IntImm) or not sizes.issuperset(free_vars(value)):
        return False
    held = sub(add(loop.min, loop.extent), value) if begins else sub(value, loop.min)
    large = {v: const(_LARGE, v.dtype) for v in sizes}
    few, all_ = (simplify(substitute(e, large), Ranges()) for e in (held, loop.extent))
    return isinstance(few, IntImm) and isinstance(all_, IntImm) and 4 * few.value < all_.value


def _reads(form: LinearForm) -> bool:
    return any(isinstance(e, Load) for a in form.coefs for e in walk(a))


def _cut(loop: For, ranges: Ranges) -> Stmt:
    span = trips(loop)
    if span is None or len(span) < 2 or loop.annotations.get(WHOLE):
        return loop
    cuts = _cuts(
        loop.var, span, loop.body, inside(loop, ranges), MOST_SEGMENTS if loop.kind == SERIAL else MOST_BRANCHES)
    if loop.kind == PARALLEL:
        return replace(loop, body=_branches(loop.var, cuts, loop.body)) if cuts else _cut_fused(loop, ranges)
    index = loop.var.dtype
    segments = pairwise([span.start, *cuts, span.stop])
    return seq(*(replace(loop, min=const(a, index), extent=const(b - a, index)) for a, b in segments))


def _cuts(var: Var, span: range, body: Stmt, ranges: Ranges, most: int) -> list[int]:
    """Return the values of `var` at which the conditions of `body` change; empty if there are too many."""
    search = _Search(var, set())
    search.visit(body, ranges, {}, frozenset())
    cuts = sorted(c for c in search.cuts if span.start < c < span.stop)
    room = min(most, MOST_STORES // max(1, _stores(body)))
    if len(cuts) >= room:
        low, high = max(pairwise([span.start, *cuts, span.stop]), key=lambda segment: segment[1] - segment[0])
        cuts = [c for c in (low, high) if span.start < c < span.stop]
    return cuts if len(cuts) < room else []


def _branches(var: Var, cuts: list[int], whole: Stmt) -> Stmt:
    body = whole
    for c in reversed(cuts):
        body = IfThenElse(LT(var, const(c, var.dtype)), whole, body)
    return body


def _cut_fused(loop: For, ranges: Ranges) -> Stmt:
    """Split a parallel loop fused of two whose conditions depend on the inner one: `var % n`."""
    around = inside(loop, ranges)
    atoms = [a for c in _all_conditions(loop.body) for a in difference(c, around)[1].coefs]
    inner = {(a, a.b.value) for a in atoms if isinstance(a, FloorMod) and a.a is loop.var and isinstance(a.b, IntImm)}
    if len(inner) != 1:
        return loop
    ((part, span),) = inner
    var = Var(f"{loop.var.name}_inner", loop.var.dtype)
    body = substitute_stmt(loop.body, {part: var})
    cuts = _cuts(var, range(span), body, around.bind(var, 0, span - 1), MOST_BRANCHES)
    return replace(loop, body=Let(var, part, _branches(var, cuts, body))) if cuts else loop


def _all_conditions(s: Stmt) -> list[Comparison]:
    return [c for x in walk_stmt(s) for e in expressions(x) for c in _conditions(x, e)]


def _stores(s: Stmt) -> int:
    """Return the number of stores in `s` after unrolling."""
    inner = sum(_stores(x) for x in bodies(s)) + isinstance(s, Store)
    span = trips(s) if isinstance(s, For) and s.kind == UNROLLED else None
    return inner if span is None else inner * len(span)


@dataclass
class _Search:
    """Collects the values of `var` at which a condition inside changes."""

    var: Var
    cuts: set[int]

    def visit(self, s: Stmt, ranges: Ranges, unrolled: dict[PrimExpr, range], inner: frozenset[Var]) -> None:
        """Visit a statement. `unrolled`: inner variables considered value by value; `inner`: all variables of inner
        loops."""
        for e in expressions(s):
            for c in _conditions(s, e):
                self.visit_condition(c, ranges, unrolled, inner)
        if isinstance(s, For):
            span = trips(s)
            if span is not None and s.kind == UNROLLED:
                unrolled = {**unrolled, s.var: span}
            self.visit(s.body, inside(s, ranges), unrolled, inner | {s.var})
            return
        for x in bodies(s):
            self.visit(x, ranges, unrolled, inner)

    def visit_condition(
        self, c: Comparison, ranges: Ranges, unrolled: dict[PrimExpr, range], inner: frozenset[Var]
    ) -> None:
        kind, d = difference(c, ranges)
        k, rest = d.without(self.var)
        turning = [
            a for a in rest.coefs
            if isinstance(a, (Min, Max)) and self.var in free_vars(a) and not any(isinstance(x, Load) for x in walk(a))]
        if turning:
            self.visit_choice(c, turning[0], ranges, unrolled, inner)
            return
        if k == 0 or any(v not in inner for a in rest.coefs for v in free_vars(a)):
            return
        each = {a: unrolled[a] for a in rest.coefs if a in unrolled}
        least, most = bounds_of_form(
            LinearForm({a: n for a, n in rest.coefs.items() if a not in each}, rest.const), ranges)
        size = 1
        for r in each.values():
            size *= len(r)
        if least is None or most is None or size > MOST_COMBINATIONS:
            return
        factors = [rest.coefs[a] for a in each]
        for values in {sum(f * x for f, x in zip(factors, xs, strict=True)) for xs in product(*each.values())}:
            for total in (least + values, most + values):
                self.cuts.add(_turn(k, total))
                if kind is EQ or kind is NE:
                    self.cuts.add(_turn(k, total - 1))

    def visit_choice(
        self, c: Comparison, e: Min | Max, ranges: Ranges, unrolled: dict[PrimExpr, range], inner: frozenset[Var]
    ) -> None:
        """Visit a condition on the minimum or maximum of two values: it changes where the choice changes, or where it
        does for either value."""
        self.visit_condition(LT(e.a, e.b), ranges, unrolled, inner)
        for chosen in (e.a, e.b):
            one = substitute(c, {e: chosen})
            if isinstance(one, Comparison):
                self.visit_condition(one, ranges, unrolled, inner)


def _turn(k: int, rest: int) -> int:
    """Return the value of v at which `k*v + rest < 0` changes."""
    return -(rest // k) if k > 0 else rest // -k + 1


def _conditions(s: Stmt, e: PrimExpr) -> list[Comparison]:
    """Return the comparisons in `e` that control execution: in an `if`, a mask or a select."""
    if (isinstance(s, IfThenElse) and e is s.condition) or (isinstance(s, Store) and e is s.mask):
        tops = [e]
    else:
        tops = [x.condition for x in walk(e) if isinstance(x, Select)]
    found = [x for top in tops for x in walk(top) if isinstance(x, Comparison)]
    return [x for x in found if is_index(x.a.dtype) and not isinstance(x.a, IntImm)]
