"""Give every buffer one dimension, row-major.

    A: T.Buffer((4, 8, 3))                     A: T.Buffer((96,))
    A[f // 8, f % 8, c]                ->      A[f * 3 + c]

Parameters become flat buffers of the same names. The result is simplified.
"""

from __future__ import annotations

from tilewright.expr import Buffer, IntImm, Load, PrimExpr, add, as_expr, mul, sub
from tilewright.expr_walk import rewrite
from tilewright.tir.stmt import Allocate, PrimFunc, Stmt, Store, map_bodies, map_expressions, walk_stmt
from tilewright.tir.transform.simplify import simplify


def flatten_buffers(func: PrimFunc) -> PrimFunc:
    """`func` over flat buffers."""
    owned = [s.buffer for s in walk_stmt(func.body) if isinstance(s, Allocate)]
    flat = {b: _flat(b) for b in (*func.params, *owned)}
    memo: dict[PrimExpr, PrimExpr] = {}

    def rule(e: PrimExpr) -> PrimExpr | None:
        return Load(flat.get(e.buffer, e.buffer), (_place(e.buffer, e.indices),)) if isinstance(e, Load) else None

    def move(s: Stmt) -> Stmt:
        if isinstance(s, Store):
            return Store(flat.get(s.buffer, s.buffer), s.value, (_place(s.buffer, s.indices),), s.mask)
        inner = map_bodies(s, move) or s
        return Allocate(flat[inner.buffer], inner.body) if isinstance(inner, Allocate) else inner

    body = move(map_expressions(func.body, lambda e: rewrite(e, rule, memo)))
    return simplify(PrimFunc(func.name, tuple(flat[b] for b in func.params), body, func.attrs, func.origin))


def _flat(buffer: Buffer) -> Buffer:
    if buffer.strides:
        last = [sub(as_expr(d), 1) for d in buffer.shape]
        return Buffer(buffer.name, (add(_place(buffer, tuple(last)), 1),), buffer.dtype, buffer.scope)
    if len(buffer.shape) == 1:
        return buffer
    size: PrimExpr = IntImm("int64", 1)
    for d in buffer.shape:
        size = mul(size, as_expr(d))
    return Buffer(buffer.name, (size,), buffer.dtype, buffer.scope)


def _place(buffer: Buffer, indices: tuple[PrimExpr, ...]) -> PrimExpr:
    """The position of an element: row-major, or by the strides of the buffer; vectors in any dimension."""
    place: PrimExpr = IntImm("int64", 0)
    if buffer.strides:
        for i, s in zip(indices, buffer.strides, strict=True):
            place = add(place, mul(i, s))
        return place
    for i, d in zip(indices, buffer.shape, strict=True):
        place = add(mul(place, d), i)
    return place
