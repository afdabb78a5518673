"""Determines whether a statement writes everything that it reads of an intermediate value, so that the value can be
local to the statement.

    for x in range(3): B[i + x] = …;  C[i] = B[i] + B[i + 2]     iterations of an outer loop i are independent in B

A loop nest writes a box if each index is a sum of loops with the structure of a mixed radix number. Other writes are
assumed to leave holes, and a read outside of all boxes written before is assumed to need earlier values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.scalar.arith import Ranges, bounds, linear, prove, simplify
from tilewright.scalar.arith.bounds import bounds_of_form
from tilewright.scalar.arith.linear import LinearForm
from tilewright.scalar.arith.solve import conjuncts
from tilewright.scalar.expr import GE, GT, LE, LT, Buffer, Comparison, IntImm, PrimExpr, Var, as_expr, compare
from tilewright.scalar.walk import free_vars, walk
from tilewright.tir.accesses import Access, Uses, accesses
from tilewright.tir.dependence import across_trips
from tilewright.tir.region import Box
from tilewright.tir.stmt import For, Stmt


def fills(s: Stmt, buffer: Buffer, outer: Ranges, uses: Uses | None = None) -> bool:
    """Return whether each read of `buffer` in `s` gets a value that `s` wrote earlier, in the text or as the initial
    value of its sum. `uses` tells which statements use a buffer."""
    before: list[Access] = []
    held: set[tuple[object, ...]] = set()
    for a in accesses(s, buffer, uses):
        key = (a.indices, a.guards, a.block, tuple(f.var for f in a.loops))
        if a.writes:
            before.append(a)
        elif key in held:
            continue
        elif not _own_sum(a, before) and not _covered(a, before, outer):
            return False
        else:
            held.add(key)
    return True


def lives_in_trips(loop: For, buffer: Buffer, outer: Ranges, uses: Uses | None = None) -> bool:
    """Return whether no trip of `loop` reads values of `buffer` from earlier trips, so that each trip can have its own
    copy. Nothing outside of the loop uses `buffer`."""
    if fills(loop.body, buffer, outer.bind_loop(loop.var, loop.min, loop.extent), uses):
        return True
    found = accesses(loop, buffer, uses)
    written = frozenset((buffer,))
    return (
        not any(across_trips(loop.var, w, r, outer, written) for w in found if w.writes for r in found if not r.writes)
    )


def _own_sum(read: Access, before: Sequence[Access]) -> bool:
    """Return whether a step of a sum reads the element that its block has initialized."""
    block = read.block
    if block is None or block.init is None:
        return False
    reduce = [v for i, b in zip(block.iters, block.bindings, strict=True) if i.kind == "reduce" for v in free_vars(b)]
    return (
        any(w.block is block and w.indices == read.indices for w in before)
        and not any(v in reduce for i in read.indices for v in free_vars(i))
    )


def writes_whole(w: Access) -> bool:
    """Return whether a write, with all of its loops, stores to every element of its buffer."""
    spans = _written(w, Ranges(), {f.var for f in w.loops}, ())
    if spans is None:
        return False
    for span, extent in zip(spans, w.buffer.shape, strict=True):
        if span is None:
            continue
        end = linear(extent) if isinstance(extent, PrimExpr) else LinearForm({}, extent)
        last = end.plus(span.base, -1)  # base + high >= extent - 1
        if span.base.coefs or span.base.const > 0 or last.coefs or last.const > span.high + 1:
            return False
    return True


def reads_written(read: Access, writes: Sequence[Access], outer: Ranges) -> bool:
    """Return whether `writes` fill everything that `read` reads, for each value of the variables of `outer`: one of
    them does, or several that follow each other along one dimension."""
    conditions = [c for g in read.guards for c in conjuncts(g)]
    within = outer
    for f in read.loops:
        within = within if f.var in within else within.bind_loop(f.var, f.min, f.extent)
    if any(_holds(w, read, outer, {f.var for f in w.loops if f.var not in outer}) for w in writes):
        return True
    parts = [_written(w, outer, {f.var for f in w.loops if f.var not in outer}, conditions) for w in writes]
    known = [p for p in parts if p is not None and all(s is not None and not s.base.coefs for s in p)]
    needs = [_read(read, k, outer, within) for k in range(len(read.indices))]
    if any(n is None or n.base.coefs for n in needs):
        return False
    for k, need in enumerate(needs):
        assert need is not None
        end = need.base.const + need.low
        for low, high in sorted(_interval(p[k]) for p in known if _others_hold(p, needs, k)):
            end = max(end, high + 1) if low <= end else end
        if end > need.base.const + need.high:
            return True
    return False


def _interval(span: _Span | None) -> tuple[int, int]:
    assert span is not None
    return span.base.const + span.low, span.base.const + span.high


def _others_hold(part: Sequence[_Span | None], needs: Sequence[_Span | None], but: int) -> bool:
    """Return whether a box contains what is needed along all dimensions except one."""
    pairs = [(_interval(p), _interval(n)) for j, (p, n) in enumerate(zip(part, needs, strict=True)) if j != but]
    return all(p[0] <= n[0] and n[1] <= p[1] for p, n in pairs)


def writes_box(s: Stmt, buffer: Buffer, box: Box, outer: Ranges) -> bool:
    """Return whether a write in `s` stores to every element of a box of `buffer`, for each value of the variables of
    `outer`."""
    first, size = tuple(e for e, _ in box), tuple(as_expr(n) for _, n in box)
    needed = Access(buffer, first, False, (), (), None, s, size)
    return any(_holds(w, needed, outer, {f.var for f in w.loops}) for w in accesses(s, buffer) if w.writes)


@dataclass(slots=True)
class _Span:
    """Indices from `base + low` through `base + high` along one dimension; the base depends only on fixed variables."""

    base: LinearForm
    low: int
    high: int


def _covered(read: Access, before: Sequence[Access], outer: Ranges) -> bool:
    for w in reversed(before):
        fixed, inner = outer, {f.var for f in w.loops}
        for f, g in zip(w.loops, read.loops, strict=False):
            if f.var is not g.var:
                break
            fixed = fixed.bind_loop(f.var, f.min, f.extent)
            inner.discard(f.var)
        if _holds(w, read, fixed, inner):
            return True
    return False


def _holds(w: Access, read: Access, fixed: Ranges, inner: set[Var]) -> bool:
    """Return whether the box that `w` writes for given values of the variables of `fixed` contains everything that
    `read` reads."""
    within = fixed
    for f in read.loops:
        within = within if f.var in within else within.bind_loop(f.var, f.min, f.extent)
    spans = _written(w, fixed, inner, read.guards)
    if spans is None:
        return False
    for k, (span, extent) in enumerate(zip(spans, w.buffer.shape, strict=True)):
        if span is None:
            continue
        need = _read(read, k, fixed, within)
        low = span.base.plus(LinearForm({}, span.low))
        high = span.base.plus(LinearForm({}, span.high))
        starts = (
            _never_more(low, LinearForm({}), fixed)
            or (need is not None and _never_more(low, need.base.plus(LinearForm({}, need.low)), fixed))
        )
        end = linear(extent).plus(LinearForm({}, -1)) if isinstance(extent, PrimExpr) else LinearForm({}, extent - 1)
        ends = (
            _never_more(end, high, fixed)
            or (need is not None and _never_more(need.base.plus(LinearForm({}, need.high)), high, fixed))
        )
        if not starts or not ends:
            return False
    return True


def _never_more(a: LinearForm, b: LinearForm, ranges: Ranges) -> bool:
    """Return whether a <= b."""
    high = bounds_of_form(a.plus(b, -1), ranges)[1]
    return high is not None and high <= 0


def _read(read: Access, k: int, fixed: Ranges, within: Ranges) -> _Span | None:
    span = _span(read.indices[k], {f.var for f in read.loops if f.var not in fixed}, within)
    if span is not None and read.sizes:
        high = bounds(read.sizes[k], within)[1]
        return None if high is None else _Span(span.base, span.low, span.high + high - 1)
    return span


def _span(index: PrimExpr, inner: set[Var], ranges: Ranges) -> _Span | None:
    """Return the interval around an index; None if a part of it has no known bounds."""
    form = linear(simplify(index, ranges))
    base, low, high = LinearForm({}), 0, 0
    for atom, k in form.coefs.items():
        if not any(isinstance(x, Var) and x in inner for x in walk(atom)):
            base = base.plus(LinearForm({atom: 1}), k)
            continue
        lo, hi = bounds(atom, ranges)
        if lo is None or hi is None:
            return None
        low, high = low + min(lo * k, hi * k), high + max(lo * k, hi * k)
    return _Span(base, low + form.const, high + form.const)


def _written(w: Access, fixed: Ranges, inner: set[Var], allowed: Sequence[PrimExpr]) -> list[_Span | None] | None:
    """Return the interval that a write with its loops fills along each dimension (None: the whole dimension); None if
    it may leave holes."""
    ranges = fixed
    for f in w.loops:
        if f.var in inner and not (isinstance(f.extent, IntImm) or not any(v in inner for v in free_vars(f.extent))):
            return None
        ranges = ranges.bind_loop(f.var, f.min, f.extent)
    spans: list[_Span | None] = []
    taken: set[Var] = set()
    for k, index in enumerate(w.indices):
        moving = {v for v in free_vars(index) if v in inner and ranges.of(v) != (0, 0)}
        if moving & taken:
            return None
        taken |= moving
        whole = w.buffer.shape[k]
        if w.sizes:
            spans.append(
                None if (not moving and w.sizes[k] is whole) or (isinstance(whole, int) and w.sizes[k] == whole)
                else _Span(linear(index), 0, 0))
            continue
        if len(moving) == 1 and index in moving and _extent_is(w, next(iter(moving)), whole):
            spans.append(None)
            continue
        span = _dense(index, moving, ranges)
        if span is None:
            return None
        spans.append(span)
    known = {c for g in allowed for c in conjuncts(g)}
    for guard in w.guards:
        for c in conjuncts(guard):
            if c not in known and prove(c, ranges) is not True and not _cut(c, w, spans, inner, ranges):
                return None
    return spans


def _extent_is(w: Access, v: Var, size: object) -> bool:
    """Return whether the loop of `v` runs over a whole dimension of symbolic size."""
    f = next(f for f in w.loops if f.var is v)
    return f.extent is size and isinstance(f.min, IntImm) and f.min.value == 0


def _dense(index: PrimExpr, moving: set[Var], ranges: Ranges) -> _Span | None:
    """Return the interval that an index fills over its loops; None if it may leave holes."""
    form = linear(simplify(index, ranges))
    base, digits = LinearForm({}, form.const), []
    for atom, k in form.coefs.items():
        if isinstance(atom, Var) and atom in moving:
            lo, hi = ranges.of(atom)
            if lo is None or hi is None or k <= 0:
                return None
            base = base.plus(LinearForm({}, lo), k)
            digits.append((k, hi - lo + 1))
        elif any(isinstance(x, Var) and x in moving for x in walk(atom)):
            return None
        else:
            base = base.plus(LinearForm({atom: 1}), k)
    filled = 1
    for k, n in sorted(digits):
        if k > filled:
            return None
        filled += k * (n - 1)
    return _Span(base, 0, filled - 1)


def _cut(c: PrimExpr, w: Access, spans: list[_Span | None], inner: set[Var], ranges: Ranges) -> bool:
    """Return whether a condition excludes only the upper or lower end of some dimension, and shrink the span of that
    dimension."""
    if isinstance(c, (LE, GT)):
        c = compare(GE if isinstance(c, LE) else LT, c.b, c.a)
    if not isinstance(c, Comparison) or not isinstance(c, (LT, GE)):
        return False
    condition = linear(simplify(c.a - c.b, ranges))
    for k, index in enumerate(w.indices):
        form = linear(simplify(index, ranges))
        scale = 1 if isinstance(c, LT) else -1
        own = {a: n for a, n in form.coefs.items() if any(isinstance(x, Var) and x in inner for x in walk(a))}
        theirs = {a: n for a, n in condition.coefs.items() if any(isinstance(x, Var) and x in inner for x in walk(a))}
        span = spans[k]
        if not own or own != theirs:
            continue
        rest = condition.plus(form, -1)  # the condition is index + rest < 0, or >= 0
        if scale < 0:  # index >= -rest: nothing is excluded here
            low = bounds_of_form(rest, ranges)[0]
            if low is not None and low >= 0:
                return True
            continue
        extent = w.buffer.shape[k]
        size = LinearForm({}, extent) if isinstance(extent, int) else linear(extent)
        past = rest.plus(size)  # index < size - past
        if _never_more(past, LinearForm({}), ranges):
            return True
        if span is not None:
            high = rest.times(-1).plus(span.base, -1)  # index - base < high
            if not high.coefs and 1 <= high.const <= span.high:
                spans[k] = _Span(span.base, span.low, high.const - 1)
                return True
    return False
