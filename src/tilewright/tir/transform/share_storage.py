"""Let intermediate values that are never live at the same time share memory.

    a = T.allocate((8,)); b = T.allocate((8,))          a = T.allocate((8,))
    A -> a;  a -> B;  B -> b;  b -> C             ->    A -> a;  a -> B;  B -> a;  a -> C

Needs flat buffers. Allocations move to the beginning of the function, or of the body of the parallel loop or the loop
over threads around them. A value is live from its first to its last use; in a loop inside its allocation, during the
whole loop. It may also take the memory of a value that is read for the last time where it is stored, element by
element. Registers (`local`) are not shared, since code generation allocates them, and neither are small values. The
values in one special memory then share one allocation (`tagged_memory.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from tilewright.base.types import DataType
from tilewright.scalar.arith import Ranges, simplify
from tilewright.scalar.expr import Buffer, Load, PrimExpr, add, as_expr, const, mul, number_of, sub
from tilewright.scalar.walk import has_effect, walk
from tilewright.tir.stmt import (
    Allocate,
    For,
    PrimFunc,
    Stmt,
    Store,
    map_bodies,
    redirect,
)
from tilewright.tir.transform.live_ranges import Uses, Value, span_of_uses
from tilewright.tir.transform.tagged_memory import at_offset, merged

SMALL: Final = 4
"""Bytes of a value that keeps its own memory."""
FACTOR: Final = 16
"""Largest ratio of the sizes of two values that share memory."""


def share_storage(func: PrimFunc) -> PrimFunc:
    """Merge allocations of `func` with disjoint live ranges."""
    func = func.with_body(_unique(func.body, set()))
    uses = Uses()
    uses.visit(func.body, (), func)
    moved: dict[Buffer, Buffer] = {}
    kept: dict[int, list[Buffer]] = {}
    parts: dict[Buffer, tuple[Buffer, int]] = {}
    for place in {id(v.place): None for v in uses.values.values()}:
        own = [v for v in uses.values.values() if id(v.place) == place]
        kept[place], inside = merged(_assign(own, moved, uses.spans))
        parts |= inside
    body = _placed(func.body, kept, moved, func)
    for old, new in moved.items():
        if old is not new:
            body = redirect(body, old, new)
    for old, (new, offset) in parts.items():
        body = at_offset(body, old, new, offset)
    return func.with_body(body)


def _unique(s: Stmt, seen: set[Buffer]) -> Stmt:
    """Return a statement in which copies of an allocation have buffers of their own."""
    if isinstance(s, Allocate):
        old = s.buffer
        if old in seen:
            new = Buffer(old.name, old.shape, old.dtype, old.scope)
            s = replace(s, buffer=new, body=redirect(s.body, old, new))
        seen.add(s.buffer)
    return map_bodies(s, lambda b: _unique(b, seen)) or s


def _assign(
    values: Sequence[Value], moved: dict[Buffer, Buffer], loops: Mapping[int, tuple[int, int]]
) -> list[Buffer]:
    """Enter the buffer that each value gets in `moved`, and return the buffers to be allocated."""
    hosts: list[list[Value]] = []
    spans = {id(v): span_of_uses(v.uses, loops) for v in values}
    for v in sorted(values, key=lambda v: spans[id(v)][0]):
        if not v.movable:
            continue
        first = spans[id(v)][0]
        host = next((
            h for h in hosts if _alike(h[0].buffer, v.buffer)
            and all(spans[id(o)][1] < first or (o is h[-1] and _in_place(o, v)) for o in h)), None)
        if host is None:
            hosts.append([v])
        else:
            host.append(v)
    kept = []
    for h in hosts:
        largest = max(h, key=lambda v: _count(v.buffer) or 0).buffer
        one = h[0].buffer
        if largest.shape != one.shape:
            one = Buffer(one.name, largest.shape, one.dtype, one.scope)
        moved.update({v.buffer: one for v in h})
        kept.append(one)
    return kept


def _count(buffer: Buffer) -> int | None:
    size = number_of(as_expr(buffer.shape[0])) if len(buffer.shape) == 1 else None
    return size if isinstance(size, int) else None


def _bytes(dtype: DataType) -> int:
    return (dtype.bits * dtype.lanes + 7) // 8


def _alike(a: Buffer, b: Buffer) -> bool:
    if a.dtype is not b.dtype or a.scope != b.scope or a.scope == "local" or len(a.shape) != 1 or len(b.shape) != 1:
        return False
    m, n = _count(a), _count(b)
    if m is None or n is None:
        return m is n and number_of(simplify(sub(as_expr(a.shape[0]), as_expr(b.shape[0])), Ranges())) == 0
    large = min(m, n) * _bytes(a.dtype) > SMALL or m == n
    return large and max(m, n) <= FACTOR * min(m, n)


def _in_place(old: Value, new: Value) -> bool:
    """Return whether the last use of a value, and the first of another, are one statement that replaces each element
    after its only read."""
    use, start = old.uses[-1], new.uses[0]
    store = use.stmt
    if use.position != start.position or not isinstance(store, Store) or store.buffer is not new.buffer or store.mask:
        return False
    loops = use.loops
    if [*map(id, loops)] != [*map(id, start.loops)]:
        return False
    nest = {id(f) for f in loops[:1]}
    for v, only in ((old, use), (new, start)):
        if any(u is not only and nest & {id(f) for f in u.loops} for u in v.uses):
            return False
    loads = [e for e in walk(store.value) if isinstance(e, Load)]
    if any(e.buffer is new.buffer for e in loads) or has_effect(store.value):
        return False
    return all(e.indices == store.indices for e in loads if e.buffer is old.buffer) and _is_row_major(
        store.indices, loops)


def _is_row_major(indices: Sequence[PrimExpr], loops: Sequence[For]) -> bool:
    """Return whether an index counts the trips of loops, so that no two trips have the same one. Without loops, there
    is one trip."""
    if not loops:
        return True
    if len(indices) != 1 or indices[0].dtype.lanes > 1 or any(number_of(f.min) != 0 for f in loops):
        return False
    place, stride = const(0, "int64"), const(1, "int64")
    for f in reversed(loops):
        place, stride = add(place, mul(f.var, stride)), mul(stride, f.extent)
    return number_of(simplify(sub(indices[0], place), Ranges())) == 0


def _placed(
    s: Stmt, kept: Mapping[int, Sequence[Buffer]], moved: Mapping[Buffer, Buffer], func: PrimFunc
) -> Stmt:
    """Return the body of a function with its allocations at their places."""

    def visit(x: Stmt) -> Stmt:
        inner = map_bodies(x, visit) or x
        if isinstance(x, Allocate):
            return inner.body if x.buffer in moved else inner  # type: ignore[attr-defined]
        if isinstance(x, For) and id(x) in kept:
            return replace(inner, body=_around(inner.body, kept[id(x)]))  # type: ignore[type-var,attr-defined]
        return inner

    return _around(visit(s), kept.get(id(func), []))


def _around(s: Stmt, buffers: Sequence[Buffer]) -> Stmt:
    for b in reversed(buffers):
        s = Allocate(b, s)
    return s


__all__ = ["share_storage"]
