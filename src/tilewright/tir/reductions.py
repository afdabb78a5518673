"""Reads how a block reduces: its results, their first values, the terms that each step adds, and the combiner.

    with T.init(): C[v] = 0.0
    C[v] = C[v] + A[v, r]           ->     results (C,), first (0.0,), terms (A[v, r],), reducer x + y
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tilewright.scalar import expr as E
from tilewright.scalar.expr import Binary, Buffer, Call, Load, PrimExpr, Select, Var, const, number_of
from tilewright.scalar.intrinsics import ACCUMULATING, fma
from tilewright.scalar.walk import free_vars, substitute, walk
from tilewright.te.tensor import MAX, MIN, PROD, SUM, Combiner
from tilewright.tir.stmt import Block, Let, Reducer, Seq, Stmt, Store

COMBINERS: Final[dict[type[PrimExpr], Combiner]] = {E.Add: SUM, E.Mul: PROD, E.Max: MAX, E.Min: MIN}
Indices = tuple[PrimExpr, ...]


@dataclass(frozen=True, slots=True)
class Reduction:
    """A reduction of one or several values at once. All fields have one entry for each result."""

    results: tuple[Buffer, ...]
    places: tuple[Indices, ...]
    """The element of each result."""
    first: tuple[PrimExpr, ...]
    """The values before the first step. Reducing them several times does not change the result."""
    terms: tuple[PrimExpr, ...]
    """The values that a step combines with the results."""
    reducer: Reducer


def reduction_of(block: Block) -> Reduction | None:
    """Return how a block reduces; None if it has no initial values, or its step has another form.

    Known are sums, products, maxima and minima, several of them at once, and the choice of the tuple with the least or
    greatest value, such as the position of a maximum. A sum begins with 0, and a product with 1.
    """
    begun = None if block.init is None else _stores(block.init)
    stored = _stores(block.body)
    if begun is None or stored is None:
        return None
    first = {s.buffer: s for s in begun}
    if len(first) != len(begun) or first.keys() != {s.buffer for s in stored} or len(stored) != len(begun):
        return None
    if any(differ(s.indices, first[s.buffer].indices) for s in stored):
        return None
    old = tuple(Load(s.buffer, s.indices) for s in stored)
    found = _combined(tuple(s.value for s in stored), old)
    values = tuple(first[s.buffer].value for s in stored)
    if found is None or not _is_neutral(values, found[0]):
        return None
    terms, params, body = found[1:]
    reducer = Reducer("comm_reducer", params, body, values)
    return Reduction(tuple(s.buffer for s in stored), tuple(s.indices for s in stored), values, terms, reducer)


def _stores(s: Stmt) -> list[Store] | None:
    """Return the stores of a statement that only stores, with the values of its names in place of these. Those of
    names are in the order of the names. None if a store changes what a later one reads."""
    values: dict[Var, PrimExpr] = {}
    while isinstance(s, Let):
        values[s.var] = substitute(s.value, values)
        s = s.body
    parts = s.stmts if isinstance(s, Seq) else (s,)
    stores = [x for x in parts if isinstance(x, Store) and x.mask is None]
    if len(stores) != len(parts) or not stores:
        return None
    changed: set[Buffer] = set()
    for x in stores:
        if any(isinstance(e, Load) and e.buffer in changed for e in walk(x.value)):
            return None
        changed.add(x.buffer)
    order: dict[PrimExpr, int] = {v: k for k, v in enumerate(values)}
    stores.sort(key=lambda x: order.get(x.value, len(order)))
    return [Store(x.buffer, substitute(x.value, values), x.indices) for x in stores]


def differ(a: Sequence[PrimExpr], b: Sequence[PrimExpr]) -> bool:
    """Return whether two places are not the same expressions."""
    return len(a) != len(b) or any(x is not y for x, y in zip(a, b, strict=True))


_Combined = tuple[Combiner | None, tuple[PrimExpr, ...], tuple[Var, ...], tuple[PrimExpr, ...]]
"""The elementwise combiner, if it is one, the terms, and the parameters and the body of the reducer."""


def _combined(values: tuple[PrimExpr, ...], old: tuple[PrimExpr, ...]) -> _Combined | None:
    several = len(old) > 1
    x = tuple(Var(f"x{k}" if several else "x", e.dtype) for k, e in enumerate(old))
    y = tuple(Var(f"y{k}" if several else "y", e.dtype) for k, e in enumerate(old))
    found = _elementwise(values, old, x, y) or _choice(values, old, x, y)
    if found is None:
        return None
    results = {e.buffer for e in old if isinstance(e, Load)}
    if any(isinstance(e, Load) and e.buffer in results for term in found[1] for e in walk(term)):
        return None
    return found


def _elementwise(
    values: tuple[PrimExpr, ...], old: tuple[PrimExpr, ...], x: tuple[Var, ...], y: tuple[Var, ...]
) -> _Combined | None:
    """Read results that are combined by one of `COMBINERS`, each on its own."""
    parts = [term_of(v, o) for v, o in zip(values, old, strict=True)]
    known = [p for p in parts if p is not None]
    if len(known) != len(parts) or any(c is not known[0][0] for c, _ in known):
        return None
    combiner = known[0][0]
    body = tuple(combiner.combine((a,), (b,))[0] for a, b in zip(x, y, strict=True))
    return combiner, tuple(t for _, t in known), (*x, *y), body


def term_of(value: PrimExpr, old: PrimExpr) -> tuple[Combiner, PrimExpr] | None:
    """Return the combiner by which `value` updates `old`, and the term that is combined with `old`, or None."""
    if isinstance(value, Call):
        if value.op not in ACCUMULATING or value.args[2] is not old:
            return None
        a, b, _ = value.args
        return SUM, E.mul(a, b) if value.op is fma else Call(value.dtype, value.op, (a, b, const(0, value.dtype)))
    combiner = COMBINERS.get(type(value))
    if combiner is None or not isinstance(value, Binary) or (value.a is old) == (value.b is old):
        return None
    return combiner, value.b if value.a is old else value.a


def _choice(
    values: tuple[PrimExpr, ...], old: tuple[PrimExpr, ...], x: tuple[Var, ...], y: tuple[Var, ...]
) -> _Combined | None:
    """Read results that all stay, or all become the terms, by one comparison of the old values and the terms."""
    chosen = [v for v in values if isinstance(v, Select)]
    if len(chosen) != len(values) or any(v.condition is not chosen[0].condition for v in chosen):
        return None
    stay = [v.true_value is o for v, o in zip(chosen, old, strict=True)]
    go = [v.false_value is o for v, o in zip(chosen, old, strict=True)]
    if not (all(stay) or all(go)):
        return None
    terms = tuple(v.false_value if all(stay) else v.true_value for v in chosen)
    params: dict[PrimExpr, PrimExpr] = {**dict(zip(terms, y, strict=True)), **dict(zip(old, x, strict=True))}
    condition = substitute(chosen[0].condition, params)
    if not _is_order(condition, dict(zip(x, y, strict=True))):
        return None
    branches = zip(x, y, strict=True) if all(stay) else zip(y, x, strict=True)
    body = tuple(E.Select(condition, a, b) for a, b in branches)
    return None, terms, (*x, *y), body


def _is_order(e: PrimExpr, partner: Mapping[Var, Var]) -> bool:
    """Return whether a condition is `x < y` or another order of an old value and its term, or an order where further
    values decide between equal ones: `x0 < y0 or (x0 == y0 and x1 < y1)`."""
    if isinstance(e, E.Or) and isinstance(e.b, E.And) and isinstance(e.b.a, E.EQ):
        return isinstance(e.a, (E.LT, E.GT)) and _compares(e.a, partner) and (
            set(free_vars(e.a)) == set(free_vars(e.b.a)) and _compares(e.b.a, partner) and _is_order(e.b.b, partner))
    return isinstance(e, (E.LT, E.LE, E.GT, E.GE)) and _compares(e, partner)


def _compares(e: Binary, partner: Mapping[Var, Var]) -> bool:
    return any(isinstance(a, Var) and partner.get(a) is b for a, b in ((e.a, e.b), (e.b, e.a)))


def _is_neutral(values: Sequence[PrimExpr], combiner: Combiner | None) -> bool:
    """Return whether the first values are numbers that do not change the result if they are combined with it again."""
    if any(number_of(v) is None for v in values):
        return False
    if combiner not in (SUM, PROD):
        return True
    return all(v is combiner.identity((v.dtype,))[0] for v in values)


__all__ = ["COMBINERS", "Reduction", "differ", "reduction_of", "term_of"]
