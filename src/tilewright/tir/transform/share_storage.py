"""Let intermediate values that are never live at the same time share memory.

    a = T.allocate((8,)); b = T.allocate((8,))          a = T.allocate((8,))
    A -> a;  a -> B;  B -> b;  b -> C             ->    A -> a;  a -> B;  B -> a;  a -> C

Needs flat buffers. Values of one type and scope share memory if the last use of one precedes the first use of the other
in the same sequence. Registers (`local`) do not, since code generation allocates them.
"""

from __future__ import annotations

from tilewright.scalar.expr import Buffer, Load
from tilewright.scalar.walk import walk
from tilewright.tir.stmt import Allocate, PrimFunc, Seq, Stmt, Store, expressions, map_bodies, redirect, walk_stmt


def share_storage(func: PrimFunc) -> PrimFunc:
    """Merge allocations of `func` with disjoint live ranges."""
    return func.with_body(_stmt(func.body))


def _stmt(s: Stmt) -> Stmt:
    s = map_bodies(s, _stmt) or s
    owned: list[Buffer] = []
    body = s
    while isinstance(body, Allocate):
        owned.append(body.buffer)
        body = body.body
    if len(owned) < 2 or not isinstance(body, Seq):
        return s
    spans = {b: _span(body, b) for b in owned}
    hosts: list[tuple[Buffer, int]] = []
    moved: dict[Buffer, Buffer] = {}
    for b in sorted(owned, key=lambda b: spans[b][0]):
        first, last = spans[b]
        host = next((k for k, (h, end) in enumerate(hosts) if end < first and _alike(h, b)), None)
        if host is None:
            hosts.append((b, last))
        else:
            moved[b] = hosts[host][0]
            hosts[host] = (hosts[host][0], last)
    size = {
        h: max([h.shape[0], *(b.shape[0] for b, to in moved.items() if to is h)]) for h, _ in hosts
        if h in moved.values()}
    grown = {h: h if n == h.shape[0] else Buffer(h.name, (n,), h.dtype, h.scope) for h, n in size.items()}
    for old, new in [*((b, grown[h]) for b, h in moved.items()), *((h, g) for h, g in grown.items() if h is not g)]:
        body = redirect(body, old, new)
    for b in reversed([b for b in owned if b not in moved]):
        body = Allocate(grown.get(b, b), body)
    return body if moved else s


def _alike(a: Buffer, b: Buffer) -> bool:
    sized = all(len(x.shape) == 1 and isinstance(x.shape[0], int) for x in (a, b))
    return sized and a.dtype is b.dtype and a.scope == b.scope == "global"


def _span(body: Seq, buffer: Buffer) -> tuple[int, int]:
    """Return the first and the last statement that uses a buffer; the position after the end if there is none."""
    using = [k for k, s in enumerate(body.stmts) if _uses(s, buffer)]
    return (using[0], using[-1]) if using else (len(body.stmts), len(body.stmts))


def _uses(s: Stmt, buffer: Buffer) -> bool:
    return any(
        (isinstance(x, Store) and x.buffer is buffer)
        or any(isinstance(e, Load) and e.buffer is buffer for top in expressions(x) for e in walk(top))
        for x in walk_stmt(s))
