"""Compute each context of a device once.

    for i in T.serial(n):
        T.call_extern("int32", "f", T.tvm_thread_context(T.call_extern("handle", "context", kind, 0)), A)
      ->
    ctx_cache_ = T.call_extern("handle", "context", kind, 0)
    for i in T.serial(n):
        T.call_extern("int32", "f", ctx_cache_, A)
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.scalar.expr import Call, PrimExpr, Var
from tilewright.scalar.intrinsics import Opaque
from tilewright.scalar.walk import free_vars, rewrite, walk
from tilewright.tir.stmt import (
    PARALLEL,
    THREAD,
    Block,
    For,
    Let,
    PrimFunc,
    Stmt,
    bodies,
    expressions,
    map_bodies,
    map_expressions,
    walk_stmt,
)
from tilewright.tir.transform.function_attributes import TARGET


def combine_context_calls(func: PrimFunc) -> PrimFunc:
    """Bind the arguments of `tvm_thread_context` at the beginning of the function of a host, and of each loop whose
    iterations are threads or that binds a variable in them; other functions stay."""
    target = func.attrs.get(TARGET)
    if target is None or "cpu" not in target.keys:
        return func
    return func.with_body(_bound(func.body))


def _bound(s: Stmt) -> Stmt:
    """Return statements after the contexts that they need, where nothing inside binds the variables of these."""
    inside = {v for x in _of_one_thread(s) for v in _binds(x)}
    found: dict[PrimExpr, Var] = {}
    for x in _of_one_thread(s):
        for e in (e for top in expressions(x) for e in walk(top) if _is_context(e)):
            if isinstance(e, Call) and not any(v in inside for v in free_vars(e.args[0])):
                found.setdefault(e.args[0], Var("ctx_cache_", e.args[0].dtype))

    def cached(e: PrimExpr) -> PrimExpr | None:
        return found.get(e.args[0]) if isinstance(e, Call) and _is_context(e) else None

    memo: dict[PrimExpr, PrimExpr] = {}
    if found:
        s = map_expressions(s, lambda e: rewrite(e, cached, memo), lambda x: not _is_parallel(x))
    s = _inner(s)
    for value, var in reversed(found.items()):
        s = Let(var, value, s)
    return s


def _inner(s: Stmt) -> Stmt:
    """Bind the contexts that are left in the bodies of loops and of variables."""
    if isinstance(s, (For, Let, Block)):
        has_more = any(_is_context(e) for x in walk_stmt(s.body) for top in expressions(x) for e in walk(top))
        return replace(s, body=_bound(s.body)) if has_more else s
    return map_bodies(s, _inner) or s


def _of_one_thread(s: Stmt) -> list[Stmt]:
    """Return a statement and those inside, except bodies of loops whose iterations are threads."""
    found, stack = list[Stmt](), [s]
    while stack:
        x = stack.pop()
        found.append(x)
        if not _is_parallel(x):
            stack += reversed(bodies(x))
    return found


def _is_parallel(s: Stmt) -> bool:
    return isinstance(s, For) and (s.kind == PARALLEL or THREAD in s.annotations)


def _binds(s: Stmt) -> list[Var]:
    return [i.var for i in s.iters] if isinstance(s, Block) else [s.var] if isinstance(s, (For, Let)) else []


def _is_context(e: PrimExpr) -> bool:
    return isinstance(e, Call) and isinstance(e.op, Opaque) and e.op.spelling == "tvm_thread_context"
