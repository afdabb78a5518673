"""Simplify the indices that views give, once the loops around them are known.

    F = T.Buffer((256,), data=A.data)
    for i, j in T.grid(16, 16):
        F[i * 16 + j] = 0.0        # A[(i * 16 + j) // 16, (i * 16 + j) % 16]    ->    A[i, j]

Indices of the program's own text stay as they are written.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tilewright.scalar.arith import Ranges, simplify
from tilewright.scalar.expr import IntImm, Load, PrimExpr
from tilewright.tir.stmt import Block, For, Stmt, Store, map_bodies, map_expressions


def in_loops(body: Stmt, of_views: Collection[PrimExpr]) -> Stmt:
    """Return a body whose indices `of_views` are simplified under the ranges of the loops and block axes around."""
    return _stmt(body, frozenset(of_views), Ranges()) if of_views else body


def _stmt(s: Stmt, found: Collection[PrimExpr], ranges: Ranges) -> Stmt:
    inside = _within(s, ranges)
    inner = map_bodies(s, lambda b: _stmt(b, found, inside)) or s
    if isinstance(inner, Block) and inner.init is not None:
        inner = replace(inner, init=_stmt(inner.init, found, inside))
    if isinstance(inner, Store):
        inner = replace(inner, indices=_indices(inner.indices, found, ranges))
    return map_expressions(inner, lambda e: _loads(e, found, ranges), lambda x: x is inner)


def _within(s: Stmt, ranges: Ranges) -> Ranges:
    if isinstance(s, For):
        return ranges.bind_loop(s.var, s.min, s.extent)
    for v in s.iters if isinstance(s, Block) else ():
        ranges = ranges.bind_loop(v.var, IntImm(v.var.dtype, 0), v.extent)
    return ranges


def _indices(indices: tuple[PrimExpr, ...], found: Collection[PrimExpr], ranges: Ranges) -> tuple[PrimExpr, ...]:
    inner = (_loads(i, found, ranges) for i in indices)
    return tuple(simplify(new, ranges) if i in found else new for i, new in zip(indices, inner, strict=True))


def _loads(e: PrimExpr, found: Collection[PrimExpr], ranges: Ranges) -> PrimExpr:
    """Return `e` with simplified indices of its loads."""
    operands = _indices(e.operands(), found, ranges) if isinstance(e, Load) else tuple(
        _loads(o, found, ranges) for o in e.operands())
    same = all(a is b for a, b in zip(operands, e.operands(), strict=True))
    return e if same else e.with_operands(operands)


__all__ = ["in_loops"]
