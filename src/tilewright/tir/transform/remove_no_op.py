"""Remove statements without effect.

    for i in T.serial(8):              ->      B[0] = 1.0
        A[i] = A[i]
    B[0] = 1.0
"""

from __future__ import annotations

from tilewright.scalar.expr import Call, Load
from tilewright.scalar.walk import walk
from tilewright.tir.stmt import Allocate, Evaluate, Let, PrimFunc, Seq, Stmt, Store, expressions, map_bodies, walk_stmt


def remove_no_op(func: PrimFunc) -> PrimFunc:
    """Remove stores of unchanged values, calls without effect, unused memory and bindings, and empty loops."""
    return func.with_body(_stmt(func.body) or Seq(()))


def _stmt(s: Stmt) -> Stmt | None:
    if isinstance(s, Store):
        same = isinstance(s.value, Load) and s.value.buffer is s.buffer and s.value.indices == s.indices
        return None if same else s
    if isinstance(s, Evaluate):
        return s if any(isinstance(e, Call) and e.op.effect for e in walk(s.value)) else None
    if isinstance(s, Seq) and not s.stmts:
        return None
    left = map_bodies(s, _stmt)
    if isinstance(left, Let):
        return (
            left if any(e is left.var for x in walk_stmt(left.body) for top in expressions(x) for e in walk(top))
            else left.body
        )
    if isinstance(left, Allocate):
        return left if _uses(left) else left.body
    return left


def _uses(s: Allocate) -> bool:
    return any(
        (isinstance(x, Store) and x.buffer is s.buffer)
        or any(isinstance(e, Load) and e.buffer is s.buffer for top in expressions(x) for e in walk(top))
        for x in walk_stmt(s.body))
