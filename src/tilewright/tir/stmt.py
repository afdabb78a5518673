"""Walks and rewrites of loop programs. The nodes are in `stmt_nodes.py`.

A walk goes through the statements in reading order; `map_bodies` and `map_expressions` are one level and all levels of
a rewrite, and keep a statement that does not change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tilewright.base.errors import CompileError
from tilewright.scalar.expr import Buffer, Call, Load, PrimExpr, Var, number_of
from tilewright.scalar.intrinsics import address_of
from tilewright.scalar.walk import rewrite, substitute, walk
from tilewright.tir.stmt_nodes import (
    ALIGNED,
    CALLBACKS,
    IMPORTS,
    INNER,
    LEGACY,
    NUMBERS,
    OWN_READS,
    PARALLEL,
    RESULT,
    ROLLING,
    ROOT_ATTRS,
    ROOT_BLOCK,
    SCALAR_LOOPS,
    SCOPE,
    SERIAL,
    STORED,
    TAKEN,
    THREAD,
    UNROLLED,
    VECTORIZED,
    VERSIONED,
    Allocate,
    AllocateConst,
    AssertStmt,
    AttrStmt,
    Block,
    BlockRealize,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    IterVar,
    Let,
    PrimFunc,
    ProducerRealize,
    Reducer,
    RootBlock,
    Seq,
    Stmt,
    Store,
    While,
    root_block,
)

__all__ = [
    "ALIGNED",
    "CALLBACKS",
    "IMPORTS",
    "INNER",
    "LEGACY",
    "NUMBERS",
    "OWN_READS",
    "PARALLEL",
    "RESULT",
    "ROLLING",
    "ROOT_ATTRS",
    "ROOT_BLOCK",
    "SCALAR_LOOPS",
    "SCOPE",
    "SERIAL",
    "STORED",
    "TAKEN",
    "THREAD",
    "UNROLLED",
    "VECTORIZED",
    "VERSIONED",
    "Allocate",
    "AllocateConst",
    "AssertStmt",
    "AttrStmt",
    "Block",
    "BlockRealize",
    "BufferStore",
    "Evaluate",
    "For",
    "ForKind",
    "IfThenElse",
    "IterVar",
    "Let",
    "LetStmt",
    "PrimFunc",
    "ProducerRealize",
    "Reducer",
    "RootBlock",
    "Seq",
    "SeqStmt",
    "Stmt",
    "Store",
    "While",
    "block_names",
    "bodies",
    "expressions",
    "handed_out",
    "loaded_buffers",
    "map_bodies",
    "map_expressions",
    "nest",
    "path_to",
    "redirect",
    "replaced",
    "root_block",
    "seq",
    "stored_buffers",
    "substitute_stmt",
    "walk_stmt",
    "without_code",
]


BufferStore, LetStmt, SeqStmt = Store, Let, Seq
"""TVM's names."""


def seq(*stmts: Stmt | None) -> Stmt:
    """Return the statements in order with nested sequences flattened; a single statement is returned unchanged."""
    flat: list[Stmt] = []
    for s in stmts:
        if isinstance(s, Seq):
            flat.extend(s.stmts)
        elif s is not None:
            flat.append(s)
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def bodies(s: Stmt) -> tuple[Stmt, ...]:
    """Return the statements directly inside `s`."""
    kind = type(s)
    if kind is Store or kind is Evaluate:
        return ()
    match s:
        case For() | Allocate() | Let() | AttrStmt() | While() | AssertStmt():
            return (s.body,)
        case Seq():
            return s.stmts
        case IfThenElse():
            return (s.then_case,) if s.else_case is None else (s.then_case, s.else_case)
        case Block():
            return (s.body,) if s.init is None else (s.init, s.body)
        case _:
            return ()


def walk_stmt(s: Stmt) -> Iterator[Stmt]:
    """Yield `s` and every statement inside, outermost first."""
    stack = [s]
    while stack:
        x = stack.pop()
        yield x
        inside = bodies(x)
        if inside:
            stack += inside[::-1]


def path_to(body: Stmt, target: Stmt) -> list[Stmt]:
    """Return the statements of `body` around `target`, outermost first; empty if `target` is not in `body`."""
    path: list[Stmt] = []
    _find(target, body, path)
    return path


def _find(target: Stmt, s: Stmt, path: list[Stmt]) -> bool:
    """Append `s` and the statements inside that are around `target` to `path`; return whether `target` is in `s`."""
    if s is target:
        return True
    path.append(s)
    for b in bodies(s):
        if _find(target, b, path):
            return True
    path.pop()
    return False


def expressions(s: Stmt) -> tuple[PrimExpr, ...]:
    """Return the expressions of `s` itself, without those of the statements inside."""
    match s:
        case For():
            return (s.min, s.extent)
        case IfThenElse() | While() | AssertStmt():
            return (s.condition,)
        case Store():
            return (*s.indices, s.value) if s.mask is None else (*s.indices, s.value, s.mask)
        case Let() | Evaluate():
            return (s.value,)
        case AttrStmt():
            return (s.value,) if isinstance(s.value, PrimExpr) else ()
        case Block():
            return (*s.bindings, s.predicate)
        case _:
            return ()


def map_bodies(s: Stmt, f: Callable[[Stmt], Stmt | None]) -> Stmt | None:
    """Apply `f` to the statements directly inside `s`; return None if nothing is left."""
    match s:
        case For() | Allocate() | Let() | AttrStmt() | While() | AssertStmt():
            body = f(s.body)
            return None if body is None else s if body is s.body else _around(s, body)
        case Seq():
            stmts = [f(x) for x in s.stmts]
            if all(a is b for a, b in zip(stmts, s.stmts, strict=True)):
                return s
            kept = [x for x in stmts if x is not None]
            return seq(*kept) if kept else None
        case IfThenElse():
            then, other = f(s.then_case), None if s.else_case is None else f(s.else_case)
            if then is s.then_case and other is s.else_case:
                return s
            if then is None and other is None:
                return None
            return replace(s, then_case=Seq(()) if then is None else then, else_case=other)
        case Block():
            new = f(s.body)
            return None if new is None else s if new is s.body else replace(s, body=new)
        case _:
            return s


def _around(s: For | Allocate | AllocateConst | Let | AttrStmt | While | AssertStmt, body: Stmt) -> Stmt:
    """Return `s` around another body."""
    if type(s) is For:
        return For(s.var, s.min, s.extent, s.kind, body, s.annotations, s.origin)
    if type(s) is Allocate:
        return Allocate(s.buffer, body, s.annotations)
    return replace(s, body=body)


def map_expressions(
    s: Stmt, f: Callable[[PrimExpr], PrimExpr], within: Callable[[Stmt], bool] | None = None
) -> Stmt:
    """Apply `f` to every expression of `s` and of the statements inside. `within` tells which statements to change or
    to search."""
    if within is not None and not within(s):
        return s
    # recursion without an inner function, which would be a reference cycle
    match s:
        case Store():
            mask = None if s.mask is None else f(s.mask)
            return Store(s.buffer, f(s.value), tuple(f(i) for i in s.indices), mask)
        case For():
            body = map_expressions(s.body, f, within)
            return For(s.var, f(s.min), f(s.extent), s.kind, body, s.annotations, s.origin)
        case IfThenElse():
            condition, then = f(s.condition), map_expressions(s.then_case, f, within)
            return IfThenElse(
                condition, then, None if s.else_case is None else map_expressions(s.else_case, f, within))
        case While() | AssertStmt():
            return replace(s, condition=f(s.condition), body=map_expressions(s.body, f, within))
        case Evaluate():
            return Evaluate(f(s.value))
        case Let():
            return Let(s.var, f(s.value), map_expressions(s.body, f, within))
        case AttrStmt():
            value = f(s.value) if isinstance(s.value, PrimExpr) else s.value
            return AttrStmt(s.node, s.attr_key, value, map_expressions(s.body, f, within))
        case Block():
            init = None if s.init is None else map_expressions(s.init, f, within)
            return replace(
                s, bindings=tuple(f(b) for b in s.bindings), predicate=f(s.predicate), init=init,
                body=map_expressions(s.body, f, within))
        case _:
            return map_bodies(s, lambda b: map_expressions(b, f, within)) or s


def substitute_stmt(s: Stmt, mapping: Mapping[Any, PrimExpr]) -> Stmt:
    """Replace variables in all expressions inside `s`."""
    memo: dict[PrimExpr, PrimExpr] = {}
    return map_expressions(s, lambda e: substitute(e, mapping, memo)) if mapping else s


def redirect(
    s: Stmt, old: Buffer, new: Buffer, at: Callable[[tuple[PrimExpr, ...]], tuple[PrimExpr, ...]] = lambda i: i
) -> Stmt:
    """Replace every access `old[i]` in `s` by `new[at(i)]`."""
    memo: dict[PrimExpr, PrimExpr] = {}

    def loads(e: PrimExpr) -> PrimExpr | None:
        return Load(new, at(e.indices)) if isinstance(e, Load) and e.buffer is old else None

    return _redirect_stores(map_expressions(s, lambda e: rewrite(e, loads, memo)), old, new, at)


def _redirect_stores(
    s: Stmt, old: Buffer, new: Buffer, at: Callable[[tuple[PrimExpr, ...]], tuple[PrimExpr, ...]]
) -> Stmt:
    if isinstance(s, Store) and s.buffer is old:
        return replace(s, buffer=new, indices=at(s.indices))
    if isinstance(s, Block) and s.init is not None:
        s = replace(s, init=_redirect_stores(s.init, old, new, at))
    return map_bodies(s, lambda b: _redirect_stores(b, old, new, at)) or s


def replaced(func: PrimFunc, old: Stmt, new: Stmt) -> PrimFunc:
    """Return `func` with the statement `old` replaced by `new`."""
    return func.with_body(_replaced(func.body, old, new, {*path_to(func.body, old)}))


def _replaced(s: Stmt, old: Stmt, new: Stmt, around: Collection[Stmt]) -> Stmt:
    if s is old:
        return new
    return (map_bodies(s, lambda b: _replaced(b, old, new, around)) or s) if s in around else s


def nest(loops: Sequence[For], body: Stmt, fresh: Mapping[Var, Var] | None = None) -> Stmt:
    """Return `body` in copies of `loops`, outermost first; `fresh` are new loop variables."""
    for f in reversed(loops):
        body = replace(f, var=(fresh or {}).get(f.var, f.var), body=body)
    return body


def without_code(s: AssertStmt) -> CompileError:
    """Return the error of a program that is compiled with an assertion."""
    return CompileError(
        f"the assertion '{s.message}' has no code: kernels report no errors; check the arguments before the call",
        code="TW0611")


def block_names(func: PrimFunc) -> list[str]:
    """Return the names of the blocks of a schedulable program, in order."""
    return [s.name for s in walk_stmt(func.body) if isinstance(s, Block)]


def stored_buffers(s: Stmt) -> list[Buffer]:
    """Return the buffers that `s` stores to, each once, in order."""
    found: dict[Buffer, None] = {}
    for x in walk_stmt(s):
        if isinstance(x, Store):
            found.setdefault(x.buffer)
        elif isinstance(x, Evaluate):
            found.update(dict.fromkeys(handed_out(x.value, writes=True)))
    return list(found)


def handed_out(e: PrimExpr, *, writes: bool = False) -> list[Buffer]:
    """Return the buffers whose addresses a call passes on; with `writes`, only those that the callee may write."""
    calls = [x for x in walk(e) if isinstance(x, Call) and x.op is address_of]
    return [
        load.buffer for c in calls
        if isinstance(load := c.args[0], Load) and not (writes and len(c.args) > 1 and number_of(c.args[1]) == 1)]


def loaded_buffers(s: Stmt) -> list[Buffer]:
    """Return the buffers that `s` loads from, each once, in order."""
    found: dict[Buffer, None] = {}
    for x in walk_stmt(s):
        for top in expressions(x):
            found.update({e.buffer: None for e in walk(top) if isinstance(e, Load)})
    return list(found)
