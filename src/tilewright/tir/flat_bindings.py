"""Bindings of block axes and extents of loops as sums of products, and conditions without constants in sums: the form
in which TVM's schedules have them.

    (i_0 * 8 + i_1) * 4 + i_2    ->  i_0 * 32 + i_1 * 4 + i_2
    fused // 128 // 128          ->  fused // 16384
    fused // 128 % 128           ->  fused % 16384 // 128
    fused // 4 * 32 + fused % 4 * 8    ->  fused * 8
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.scalar.arith.solve import conjuncts
from tilewright.scalar.expr import (
    GE,
    LE,
    LT,
    Add,
    FloorDiv,
    FloorMod,
    IntImm,
    Mul,
    PrimExpr,
    add,
    all_of,
    compare,
    const,
    floordiv,
    floormod,
    mul,
)
from tilewright.tir.stmt import Block, For, PrimFunc, Stmt, map_bodies


def with_flat_bindings(func: PrimFunc) -> PrimFunc:
    """Return the function with flat bindings and extents; the same object if they are flat."""
    body = _statement(func.body)
    return func if body is func.body else replace(func, body=body)


def _statement(s: Stmt) -> Stmt:
    made = map_bodies(s, _statement) or s
    if isinstance(made, Block):
        bindings = tuple(flat(b) for b in made.bindings)
        predicate = all_of(*map(_limit, conjuncts(made.predicate)))
        if predicate is not made.predicate or any(a is not b for a, b in zip(bindings, made.bindings, strict=True)):
            return replace(made, bindings=bindings, predicate=predicate)
    elif isinstance(made, For) and (extent := flat(made.extent)) is not made.extent:
        return replace(made, extent=extent)
    return made


def _limit(c: PrimExpr) -> PrimExpr:
    """Return a condition with the constant of a sum on the other side: `i + -16 >= 0  ->  16 <= i`."""
    if not isinstance(c, (GE, LT)) or not isinstance(c.b, IntImm) or not isinstance(c.a, Add):
        return c
    terms = _terms(c.a, 1)
    offset = sum(t.value * k for t, k in terms if isinstance(t, IntImm))
    rest = [mul(t, const(k, t.dtype)) if k != 1 else t for t, k in terms if not isinstance(t, IntImm)]
    if not offset or not rest:
        return c
    total = rest[0]
    for t in rest[1:]:
        total = add(total, t)
    limit = const(c.b.value - offset, c.b.dtype)
    return compare(LT, total, limit) if isinstance(c, LT) else compare(LE, limit, total)


def flat(e: PrimExpr) -> PrimExpr:
    """Return an expression with products distributed over sums, and quotients of quotients combined."""
    if isinstance(e, (Add, Mul)) and e.dtype.is_integer:
        terms = _terms(e, 1)
        if all(isinstance(t, IntImm) for t, _ in terms):
            return e
        found: PrimExpr | None = None
        for term, factor in _joined(terms):
            part = term if factor == 1 else mul(term, const(factor, term.dtype))
            found = part if found is None else add(found, part)
        return e if found is None else found
    if isinstance(e, (FloorDiv, FloorMod)) and isinstance(e.b, IntImm):
        inner = flat(e.a)
        if isinstance(inner, FloorDiv) and isinstance(inner.b, IntImm) and inner.b.value > 0 and e.b.value > 0:
            both = const(inner.b.value * e.b.value, e.b.dtype)
            is_quotient = isinstance(e, FloorDiv)
            return floordiv(inner.a, both) if is_quotient else floordiv(floormod(inner.a, both), inner.b)
        return e if inner is e.a else e.with_operands((inner, e.b))
    if children := e.operands():
        made = tuple(flat(c) for c in children)
        if any(a is not b for a, b in zip(made, children, strict=True)):
            return e.with_operands(made)
    return e


def _joined(terms: list[tuple[PrimExpr, int]]) -> list[tuple[PrimExpr, int]]:
    """Return the terms of a sum with quotients and remainders of one value put together."""
    for k, (high, factor) in enumerate(terms):
        if not isinstance(high, FloorDiv) or not isinstance(high.b, IntImm):
            continue
        for j, (low, scale) in enumerate(terms):
            same = isinstance(low, FloorMod) and low.b is high.b and low.a in (high.a, _whole(high.a, high.b.value))
            if same and scale * high.b.value == factor:
                others = [t for n, t in enumerate(terms) if n not in (k, j)]
                place = min(k, j)
                return _joined([*others[:place], (high.a, scale), *others[place:]])
    return terms


def _whole(e: PrimExpr, part: int) -> PrimExpr:
    """Return the value of a remainder that leaves the same remainder by `part`, or the expression itself."""
    known = isinstance(e, FloorMod) and isinstance(e.b, IntImm) and e.b.value % part == 0
    return e.a if isinstance(e, FloorMod) and known else e


def _terms(e: PrimExpr, factor: int) -> list[tuple[PrimExpr, int]]:
    """Return the terms of an integer sum in order, with constant factors."""
    if isinstance(e, Add):
        return _terms(e.a, factor) + _terms(e.b, factor)
    if isinstance(e, Mul) and isinstance(e.b, IntImm):
        return _terms(e.a, factor * e.b.value)
    if isinstance(e, Mul):
        return [(mul(flat(e.a), flat(e.b)), factor)]
    return [(flat(e), factor)]
