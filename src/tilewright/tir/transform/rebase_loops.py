"""Let loops that a pass has made begin at zero.

    for i in T.serial(16, 32): C[i] = B[i - 16]    ->    for i in T.serial(16): C[i + 16] = B[i + 16 - 16]
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.scalar.expr import Add, IntImm, PrimExpr, Var
from tilewright.tir.stmt import For, PrimFunc, Stmt, map_bodies, substitute_stmt, walk_stmt


def rebase_loops(func: PrimFunc, before: PrimFunc) -> PrimFunc:
    """Shift the loops of `func` with a constant first value other than zero, unless `before` has the same loop."""
    kept = {(s.var, s.min) for s in walk_stmt(before.body) if isinstance(s, For)}
    return func.with_body(_stmt(func.body, kept))


def _stmt(s: Stmt, kept: set[tuple[Var, PrimExpr]]) -> Stmt:
    if isinstance(s, For) and isinstance(s.min, IntImm) and s.min.value and (s.var, s.min) not in kept:
        body = substitute_stmt(s.body, {s.var: Add(s.var, s.min)})
        s = replace(s, min=IntImm(s.var.dtype, 0), body=body)
    return map_bodies(s, lambda b: _stmt(b, kept)) or s


def without_annotation(s: Stmt, key: str) -> Stmt:
    """Return a statement whose loops do not have an annotation."""
    inner = map_bodies(s, lambda b: without_annotation(b, key)) or s
    if isinstance(inner, For) and key in inner.annotations:
        return replace(inner, annotations={k: v for k, v in inner.annotations.items() if k != key})
    return inner
