"""Remove assertions.

    assert n > 0, "n is positive"; A[0] = 1.0    ->    A[0] = 1.0
"""

from __future__ import annotations

from tilewright.tir.stmt import AssertStmt, PrimFunc, Stmt, map_bodies


def skip_assertions(func: PrimFunc) -> PrimFunc:
    """Remove the assertions of a function, with their conditions."""
    return func.with_body(_stmt(func.body))


def _stmt(s: Stmt) -> Stmt:
    inner = map_bodies(s, _stmt) or s
    return inner.body if isinstance(inner, AssertStmt) else inner
