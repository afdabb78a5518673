"""Execute virtual threads in turn: each statement that depends on the thread is repeated for all threads.

    for v in T.thread_binding(2, "vthread"):            B = T.allocate([8])
        B = T.allocate([4])                             for i in range(4):
        for i in range(4):                                  B[i] = A[i * 2]
            B[i] = A[i * 2 + v]             ->              B[i + 4] = A[i * 2 + 1]
        for i in range(4):                              for i in range(4):
            C[i * 2 + v] = B[i]                             C[i * 2] = B[i]
                                                            C[i * 2 + 1] = B[i + 4]

The threads go through the loops inside together, so their statements are next to each other: loads that they share, and
chains of operations that do not depend on each other, overlap. A statement with loops whose bounds depend on the
thread is repeated as a whole. Memory that is allocated inside has a part for each thread, if what is stored there
depends on the thread; memory of threads of the kind `cthread` always has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from tilewright.scalar.arith import Ranges, simplify
from tilewright.scalar.expr import (
    Buffer,
    IntImm,
    Load,
    PrimExpr,
    Var,
    add,
    as_expr,
    const,
    mul,
    sub,
)
from tilewright.scalar.walk import rewrite, walk
from tilewright.tir.stmt import (
    SERIAL,
    THREAD,
    Allocate,
    AllocateConst,
    Block,
    Evaluate,
    For,
    IfThenElse,
    Let,
    PrimFunc,
    Stmt,
    Store,
    While,
    bodies,
    expressions,
    handed_out,
    map_bodies,
    map_expressions,
    redirect,
    seq,
    substitute_stmt,
    walk_stmt,
)
from tilewright.tir.threads import is_virtual
from tilewright.tir.transform.convert_ssa import convert_ssa
from tilewright.tir.transform.lower_blocks import lower_blocks

MOST_COPIES: Final = 15
"""Largest number of threads for which a statement without loops is repeated as text."""


def inject_virtual_threads(func: PrimFunc) -> PrimFunc:
    """Replace the loops over virtual threads, `vthread` and `cthread`. Blocks are lowered first."""
    if not any(is_virtual(s) for s in walk_stmt(func.body)):
        return func
    if any(isinstance(s, Block) for s in walk_stmt(func.body)):
        func = lower_blocks(func)
    return convert_ssa(func.with_body(_stmt(func.body)))


def _stmt(s: Stmt) -> Stmt:
    """Return `s` without virtual threads; the innermost loops are replaced first."""
    inner = map_bodies(s, _stmt) or s
    return _interleaved(inner) if isinstance(inner, For) and is_virtual(inner) else inner


def _interleaved(loop: For) -> Stmt:
    touched = _touched(loop)
    own = [s.buffer for s in walk_stmt(loop.body) if isinstance(s, Allocate) and s.buffer in touched]
    parts = {b: _part_for_each(b, loop) for b in own}
    body = loop.body
    for old, (new, at) in parts.items():
        body = redirect(body, old, new, at)
    touched |= {new for new, _ in parts.values()}
    body = _resized(_repeated(body, loop, touched), {old: new for old, (new, _) in parts.items()})
    return _simplified(body, {new for new, _ in parts.values()})


# What depends on the thread.
def _touched(loop: For) -> set[Var | Buffer]:
    """Return the variables and the buffers inside `loop` whose values depend on the thread."""
    touched: set[Var | Buffer] = {loop.var}
    if str(loop.annotations[THREAD]).startswith("cthread"):
        touched.update(
            s.buffer for s in walk_stmt(loop.body) if isinstance(s, Allocate) and not isinstance(s, AllocateConst))
    known = 0
    while known < len(touched):
        known = len(touched)
        touched.update(_depending(loop.body, touched, under=False))
    return touched


def _depending(s: Stmt, touched: set[Var | Buffer], *, under: bool) -> Iterator[Var | Buffer]:
    """Yield what `s` binds or stores to, if its values depend on `touched` or it is `under` a condition that does."""
    found = under or any(_depends(e, touched) for e in expressions(s))
    if found:
        match s:
            case For() | Let():
                yield s.var
            case Store():
                yield s.buffer
            case Evaluate():
                yield from handed_out(s.value, writes=True)
            case _:
                pass
    inside = found and isinstance(s, (For, IfThenElse, While))
    for b in bodies(s):
        yield from _depending(b, touched, under=under or inside)


def _depends(e: PrimExpr, touched: set[Var | Buffer]) -> bool:
    return any(x in touched if isinstance(x, Var) else isinstance(x, Load) and x.buffer in touched for x in walk(e))


# Memory of each thread.
def _part_for_each(
    buffer: Buffer, loop: For
) -> tuple[Buffer, Callable[[tuple[PrimExpr, ...]], tuple[PrimExpr, ...]]]:
    """Return a buffer with a part for each thread, and the map of indices to those of the current thread."""
    thread = sub(loop.var, loop.min)
    if len(buffer.shape) == 1 and not buffer.strides:
        size = as_expr(buffer.shape[0])
        return (
            Buffer(buffer.name, (mul(size, loop.extent),), buffer.dtype, buffer.scope),
            lambda at: (add(at[0], mul(thread, size)),))
    strides = ()
    if buffer.strides:
        span: PrimExpr = const(1, "int64")
        for d, stride in zip(buffer.shape, buffer.strides, strict=True):
            span = add(span, mul(sub(as_expr(d), 1), stride))
        strides = (span, *buffer.strides)
    return (
        Buffer(buffer.name, (loop.extent, *buffer.shape), buffer.dtype, buffer.scope, strides),
        lambda at: (thread, *at))


def _resized(s: Stmt, new: dict[Buffer, Buffer]) -> Stmt:
    inner = map_bodies(s, lambda b: _resized(b, new)) or s
    return replace(inner, buffer=new[inner.buffer]) if isinstance(inner, Allocate) and inner.buffer in new else inner


def _simplified(s: Stmt, buffers: set[Buffer]) -> Stmt:
    """Simplify the indices of accesses to `buffers`, so that vectors of consecutive elements are seen as such."""
    ranges = Ranges()

    def load(e: PrimExpr) -> PrimExpr | None:
        return Load(e.buffer, tuple(simplify(i, ranges) for i in e.indices)) if (
            isinstance(e, Load) and e.buffer in buffers) else None

    def store(x: Stmt) -> Stmt:
        if isinstance(x, Store):
            return replace(x, indices=tuple(simplify(i, ranges) for i in x.indices)) if x.buffer in buffers else x
        return map_bodies(x, store) or x

    memo: dict[PrimExpr, PrimExpr] = {}
    return store(map_expressions(s, lambda e: rewrite(e, load, memo)))


# Statements.
def _repeated(s: Stmt, loop: For, touched: set[Var | Buffer]) -> Stmt:
    """Repeat for all threads of `loop` what depends on the thread in `s`."""
    if any(_depends(e, touched) for e in expressions(s)):
        return _for_all(s, loop)
    return map_bodies(s, lambda b: _repeated(b, loop, touched)) or s


def _for_all(s: Stmt, loop: For) -> Stmt:
    simple = not any(isinstance(x, (For, While, Allocate)) for x in walk_stmt(s))
    if simple and isinstance(loop.min, IntImm) and isinstance(loop.extent, IntImm) and loop.extent.value <= MOST_COPIES:
        first = loop.min.value
        return seq(*(
            substitute_stmt(s, {loop.var: const(first + k, loop.var.dtype)}) for k in range(loop.extent.value)))
    var = Var(f"{loop.var.name}_s", loop.var.dtype)
    return For(var, loop.min, loop.extent, SERIAL, substitute_stmt(s, {loop.var: var}))
