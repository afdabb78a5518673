"""Give all loops over one kind of thread in a kernel the same variable.

    for b in T.thread_binding(8, "blockIdx.x"):           for blockIdx_x in T.thread_binding(8, "blockIdx.x"):
        for i in T.thread_binding(4, "threadIdx.x"):          for threadIdx_x in T.thread_binding(4, "threadIdx.x"):
            A[b * 4 + i] = 0.0                    ->              A[blockIdx_x * 4 + threadIdx_x] = 0.0
        for j in T.thread_binding(4, "threadIdx.x"):              B[blockIdx_x * 4 + threadIdx_x] = 1.0
            B[b * 4 + j] = 1.0

A kernel is an outermost loop over threads. Its loops over threads move to its outside, in the order of the first loop
of each kind. A loop with other annotations leaves a loop of one trip with these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilewright.base.errors import CompileError, ThreadError
from tilewright.scalar.arith import Ranges, simplify
from tilewright.scalar.expr import PrimExpr, Var, as_expr, cast, sub
from tilewright.scalar.walk import free_vars
from tilewright.tir.stmt import (
    SERIAL,
    THREAD,
    For,
    PrimFunc,
    Stmt,
    bodies,
    map_bodies,
    nest,
    substitute_stmt,
    walk_stmt,
)


def check_threads(func: PrimFunc) -> None:
    """Raise `ThreadError` if loops over one kind of thread, one inside the other, have different numbers of trips."""
    _checked(func.body, {}, func)


def _checked(s: Stmt, around: Mapping[str, For], func: PrimFunc) -> None:
    if isinstance(s, For) and THREAD in s.annotations:
        kind = s.annotations[THREAD]
        _check_same(around.get(kind, s), s, func)
        around = {**around, kind: s}
    for b in bodies(s):
        _checked(b, around, func)


def _check_same(one: For, other: For, func: PrimFunc) -> None:
    if not _same(one.extent, other.extent):
        raise ThreadError(
            f"in '{func.name}', one kernel has loops over {one.extent} and over {other.extent} threads "
            f"'{one.annotations[THREAD]}'; give them the same number of trips", func.origin, code="TW0611")


def unify_threads(func: PrimFunc) -> PrimFunc:
    """Merge the loops over each kind of thread in every kernel of `func`.

    Raises `ThreadError` if two of them have different numbers of trips, and `CompileError` if the number depends on a
    variable of the kernel.
    """
    return func.with_body(_stmt(func.body, func))


def _stmt(s: Stmt, func: PrimFunc) -> Stmt:
    if not (isinstance(s, For) and THREAD in s.annotations):
        return map_bodies(s, lambda b: _stmt(b, func)) or s
    loops: dict[str, For] = {}
    body = _within(s, loops, func)
    inner = {x.var for x in walk_stmt(s) if isinstance(x, For)}
    for f in loops.values():
        if not inner.isdisjoint(free_vars(f.extent)):
            raise CompileError(
                f"in '{func.name}', the number of threads '{f.annotations[THREAD]}', {f.extent}, depends on a loop of "
                "the kernel; use a number that is known outside", func.origin, code="TW0611")
    return nest([*loops.values()], body)


def _within(s: Stmt, loops: dict[str, For], func: PrimFunc) -> Stmt:
    """Return a statement of a kernel without loops over threads, and enter these in `loops`."""
    if not (isinstance(s, For) and THREAD in s.annotations):
        return map_bodies(s, lambda b: _within(b, loops, func)) or s
    kind = s.annotations[THREAD]
    one = loops.get(kind)
    if one is None:
        own = Var(kind.replace(".", "_"), s.var.dtype)
        one = loops[kind] = replace(s, var=own, annotations={THREAD: kind})
    _check_same(one, s, func)
    thread: PrimExpr = cast(s.var.dtype, one.var)
    body = _within(substitute_stmt(s.body, {s.var: thread}), loops, func)
    notes = {key: value for key, value in s.annotations.items() if key != THREAD}
    if not notes:
        return body
    index = s.var.dtype
    return For(Var(s.var.name, index), as_expr(0, index), as_expr(1, index), SERIAL, body, notes, s.origin)


def _same(a: PrimExpr, b: PrimExpr) -> bool:
    difference = simplify(sub(a, b), Ranges())
    return difference is as_expr(0, difference.dtype)
