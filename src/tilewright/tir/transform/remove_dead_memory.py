"""Remove memory that is written but never read, and unused bindings.

    tmp = T.alloc_buffer((8,), "int32", scope="local")      ->      B[0] = A[0]
    tmp[0] = A[0] * 2
    B[0] = A[0]

LLVM does the same; C compilers would warn about dead memory.
"""

from __future__ import annotations

from tilewright.scalar.expr import Buffer, Call, Load, PrimExpr, Var
from tilewright.scalar.intrinsics import Extern
from tilewright.scalar.walk import walk
from tilewright.tir.stmt import Allocate, Evaluate, Let, PrimFunc, Seq, Stmt, Store, expressions, map_bodies, walk_stmt


def remove_dead_memory(func: PrimFunc) -> PrimFunc:
    """Remove allocations that nothing reads, the stores to them, and unused lets."""
    while True:
        loaded, named = _used(func)
        body = _stmt(func.body, loaded, named, set(func.buffers))
        if body is None or body is func.body:
            return func if body is not None else func.with_body(Seq(()))
        func = func.with_body(body)


def _used(func: PrimFunc) -> tuple[set[Buffer], set[Var]]:
    loaded: set[Buffer] = set()
    named: set[Var] = set()
    seen: set[PrimExpr] = set()
    for s in walk_stmt(func.body):
        sizes = [d for d in s.buffer.shape if isinstance(d, PrimExpr)] if isinstance(s, Allocate) else []
        for top in (*expressions(s), *sizes):
            if top in seen:
                continue
            seen.add(top)
            for e in walk(top):
                if isinstance(e, Load):
                    loaded.add(e.buffer)
                elif isinstance(e, Var):
                    named.add(e)
    return loaded, named


def _stmt(s: Stmt, loaded: set[Buffer], named: set[Var], given: set[Buffer]) -> Stmt | None:
    if isinstance(s, Store):
        return s if s.buffer in loaded or s.buffer in given or _calls(s.value) else None
    if isinstance(s, Evaluate):
        return s
    if isinstance(s, Seq) and not s.stmts:
        return None
    inner = map_bodies(s, lambda x: _stmt(x, loaded, named, given))
    if isinstance(inner, Let) and inner.var not in named and not _calls(inner.value):
        return inner.body
    if (
        isinstance(inner, Allocate) and inner.buffer not in loaded
        and not any(isinstance(x, Store) and x.buffer is inner.buffer for x in walk_stmt(inner.body))
    ):
        return inner.body
    return inner


def _calls(e: PrimExpr) -> bool:
    """Return whether a value contains a call of a C function, which may have side effects."""
    return any(isinstance(x, Call) and isinstance(x.op, Extern) for x in walk(e))
