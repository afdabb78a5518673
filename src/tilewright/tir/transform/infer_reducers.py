"""Annotate blocks that are sums, products, maxima or minima, or the index of one, with their reducer.

    with T.init(): C[v] = 0.0                     T.reducer("sum", lambda x, y: (x + y,), (0.0,))
    C[v] = C[v] + A[v, r]                   ->    with T.init(): …

    with T.init(): I[v] = -1; M[v] = min_value    T.reducer("argmax", lambda x, x1, y, y1: (…), (-1, min_value))
    i = M[v] >= A[v, r] ? I[v] : r          ->    with T.init(): …
    m = M[v] >= A[v, r] ? M[v] : A[v, r]
    I[v] = i; M[v] = m

Where several elements are the maximum, a step that changes the order of a reduction may find the index of another one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tilewright.base.types import DataType
from tilewright.scalar import expr as E
from tilewright.scalar.expr import Buffer, Load, PrimExpr, Var
from tilewright.scalar.walk import walk
from tilewright.tir.reductions import differ, term_of
from tilewright.tir.stmt import Block, Let, PrimFunc, Reducer, Seq, Stmt, Store, map_bodies

_INDEX_OF: Final = (("argmax", E.GE), ("argmax", E.GT), ("argmin", E.LE), ("argmin", E.LT))
"""Reductions to an index and its value, and the comparisons by which the old ones are kept."""


@dataclass(frozen=True, slots=True)
class _Step:
    """A step of a reduction: new values, and the elements that hold the old ones."""

    values: tuple[PrimExpr, ...]
    places: tuple[Load, ...]


def infer_reducers(func: PrimFunc) -> PrimFunc:
    """Find the reducers of blocks. Needs a schedulable program. A block with an initial value other than the identity
    stays unchanged."""
    return func.with_body(_visit(func.body))


def _visit(s: Stmt) -> Stmt:
    if isinstance(s, Block):
        reducer = None if "combiner" in s.annotations else _reducer(s)
        return s if reducer is None else replace(s, annotations={**s.annotations, "combiner": reducer})
    return map_bodies(s, _visit) or s


def _reducer(block: Block) -> Reducer | None:
    step, first = _step(block.body), _stores(block.init)
    if step is None or first is None or {s.buffer for s in first} != {p.buffer for p in step.places}:
        return None
    places = [*(s.indices for s in first), *(p.indices for p in step.places)]
    if len(first) != len(step.places) or any(differ(at, places[0]) for at in places):
        return None
    starts = {s.buffer: s.value for s in first}
    init = tuple(starts[p.buffer] for p in step.places)
    return _of_one(step, init) if len(init) == 1 else _index_of(step, init) if len(init) == 2 else None


def _stores(s: Stmt | None) -> list[Store] | None:
    """Return stores in order; None for other statements."""
    parts = list(s.stmts) if isinstance(s, Seq) else [s]
    found = [x for x in parts if isinstance(x, Store)]
    return found if len(found) == len(parts) else None


def _step(s: Stmt) -> _Step | None:
    """Return the step `C[v] = f(…)`, or `a = f(…); b = g(…); C[v] = a; D[v] = b`, in which each name is stored once."""
    lets: dict[PrimExpr, PrimExpr] = {}
    while isinstance(s, Let):
        lets[s.var] = s.value
        s = s.body
    stores = _stores(s)
    if not stores:
        return None
    if not lets:
        return _Step((stores[0].value,), (_place(stores[0]),)) if len(stores) == 1 else None
    places = {x.value: _place(x) for x in stores}
    if places.keys() != lets.keys() or len({x.buffer for x in stores}) != len(stores) or len(places) != len(stores):
        return None
    return _Step(tuple(lets.values()), tuple(places[v] for v in lets))


def _place(s: Store) -> Load:
    return Load(s.buffer, s.indices)


def _of_one(step: _Step, init: tuple[PrimExpr, ...]) -> Reducer | None:
    (value,), (old,) = step.values, step.places
    dtype = old.buffer.dtype
    found = term_of(value, old)
    if found is None:
        return None
    combiner, _ = found
    neutral = combiner.identity((dtype,))
    if init[0] is not neutral[0]:
        return None
    x, y = Var("x", dtype), Var("y", dtype)
    return Reducer(combiner.name, (x, y), combiner.combine((x,), (y,)), neutral)


def _index_of(step: _Step, init: tuple[PrimExpr, ...]) -> Reducer | None:
    """Return the reducer of the index of the largest or smallest value, and this value."""
    one, other = (p.buffer for p in step.places)
    if one.shape != other.shape:
        return None
    x, x1, y, y1 = params = _parameters(one, other)
    for name, relation in _INDEX_OF:
        keeps = E.compare(relation, x1, y1)
        body = E.if_then_else(keeps, x, y), E.if_then_else(keeps, x1, y1)
        found: dict[PrimExpr, PrimExpr] = {x: step.places[0], x1: step.places[1]}
        if all(_matches(p, e, found) for p, e in zip(body, step.values, strict=True)):
            own = any(isinstance(e, Load) and e in step.places for v in (y, y1) for e in walk(found[v]))
            least = E.min_value(other.dtype) if name == "argmax" else E.max_value(other.dtype)
            neutral = E.const(-1, one.dtype), least
            same = all(a is b for a, b in zip(init, neutral, strict=True))
            return Reducer(name, params, body, neutral) if same and not own else None
    return None


def _parameters(one: Buffer, other: Buffer) -> tuple[Var, ...]:
    kinds: tuple[DataType, ...] = one.dtype, other.dtype
    return tuple(Var(f"{letter}{k or ''}", kind) for letter in "xy" for k, kind in enumerate(kinds))


def _matches(pattern: PrimExpr, e: PrimExpr, found: dict[PrimExpr, PrimExpr]) -> bool:
    """Return whether an expression is a pattern whose variables are replaced by expressions, which `found` gets."""
    if isinstance(pattern, Var):
        return pattern.dtype is e.dtype and found.setdefault(pattern, e) is e
    mine, theirs = pattern.operands(), e.operands()
    return type(pattern) is type(e) and bool(mine) and len(mine) == len(theirs) and all(
        _matches(p, x, found) for p, x in zip(mine, theirs, strict=True))
