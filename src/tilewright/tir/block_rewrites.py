"""Rewrites that add blocks to a schedulable program: copies of a value in other memory.

Each maps a program to a new one, and returns the name of the added block; `Schedule` offers them as steps, with
examples. They act on whole computations, so they must precede `compute_at`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tilewright.base.errors import ScheduleError
from tilewright.base.types import BOOL
from tilewright.scalar.expr import Buffer, IntImm, Load, PrimExpr, Var, as_expr, const
from tilewright.scalar.walk import substitute, walk
from tilewright.tir.block_tree import scope_loops, with_scope_body
from tilewright.tir.stmt import (
    SERIAL,
    TAKEN,
    Block,
    For,
    IterVar,
    Let,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    bodies,
    expressions,
    map_bodies,
    redirect,
    seq,
    stored_buffers,
    walk_stmt,
)

SCOPES = (
    "global", "local", "shared", "shared.dyn", "warp", "wmma.matrix_a", "wmma.matrix_b", "wmma.accumulator",
    "m16n8k8.matrixA", "m16n8k8.matrixB", "m16n8k8.matrixC", "global.vtcm", "global.texture",
)
"""Memory scopes of schedules. Those of other devices, after the first two, are plain memory on a CPU."""
_TAGGED = ("global", "local", "shared", "warp")
"""Beginnings of scopes with a tag, such as `local.L0A`."""


def check_scope(scope: str) -> None:
    """Raise `ScheduleError` unless code can be generated for memory of that scope."""
    if scope not in SCOPES and not scope.startswith(_TAGGED):
        raise ScheduleError(
            f"'{scope}' is not a memory scope; use 'global' (memory) or 'local' (registers, else the stack)")


def named_buffer(func: PrimFunc, name: str) -> Buffer:
    """Return the parameter or intermediate buffer of that name."""
    known: tuple[Buffer, ...] = (*func.buffers, *func.attrs["intermediates"])
    for b in known:
        if b.name == name:
            return b
    raise ScheduleError(
        f"there is no buffer '{name}'; the buffers are {', '.join(b.name for b in known)}", code="TW0613")


def reads(s: Stmt, buffer: Buffer, *but: Stmt) -> bool:
    """Return whether `s` loads from `buffer`, ignoring the statements `but`."""
    stack = [s]
    while stack:
        x = stack.pop()
        if any(x is b for b in but):
            continue
        if any(isinstance(e, Load) and e.buffer is buffer for top in expressions(x) for e in walk(top)):
            return True
        stack.extend(bodies(x))
    return False


def reduction_step(
    combiner: Any, targets: Sequence[Buffer], at: tuple[PrimExpr, ...], sources: tuple[PrimExpr, ...]
) -> Stmt:
    """Combine `targets[at]` with one more term each; all new values are computed before the first store."""
    new = combiner.combine(tuple(Load(b, at) for b in targets), sources)
    if len(targets) == 1:
        return Store(targets[0], new[0], at)
    names = [Var(f"{b.name}_new", b.dtype) for b in targets]
    body = seq(*(Store(b, v, at) for b, v in zip(targets, names, strict=True)))
    for v, e in zip(reversed(names), reversed(new), strict=True):
        body = Let(v, e, body)
    return body


# Copies.
def cache_read(func: PrimFunc, buffer: str, scope: str, readers: Sequence[str]) -> tuple[PrimFunc, str]:
    """Copy `buffer` before the first of the blocks `readers`, which then read the copy."""
    check_scope(scope)
    source = named_buffer(func, buffer)
    statements = top_statements(func)
    places = []
    for name in readers:
        k, block = find_block(statements, name)
        if not reads(block, source):
            raise ScheduleError(f"block '{name}' does not read '{buffer}', so it cannot read a copy of it")
        places.append(k)
    if not places:
        raise ScheduleError(f"cache_read of '{buffer}' needs the blocks that will read the copy")
    first = min(places)
    if any(source in stored_buffers(s) for s in statements[first:]):
        raise ScheduleError(
            f"'{buffer}' is not completely computed before block '{readers[places.index(first)]}' reads it; "
            "cache_read before compute_at")
    copy = Buffer(free_name(func, f"{buffer}_{scope}"), source.shape, source.dtype, scope)

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, Block):
            return redirect(s, source, copy) if s.name in readers else s
        return map_bodies(s, visit) or s

    after = [visit(s) for s in statements[first:]]
    body = seq(*statements[:first], _copy([source], [copy], copy.name), *after)
    return with_scope_body(func, body, copy), copy.name


def cache_write(func: PrimFunc, block: str, scope: str) -> tuple[PrimFunc, str]:
    """Let the block compute into a copy of its result in other memory, and add a block that copies it back."""
    check_scope(scope)
    statements = top_statements(func)
    k, node = find_block(statements, block)
    homes = stored_buffers(node)
    if any(
        isinstance(s, Block) and s is not node and any(reads(s, home) for home in homes)
        for s in walk_stmt(statements[k])
    ):
        raise ScheduleError(
            f"'{homes[0].name}' is already read in the loops that compute it; call cache_write before compute_at")
    copies = [Buffer(free_name(func, f"{home.name}_{scope}"), home.shape, home.dtype, scope) for home in homes]
    names = [i.var.name for i in node.iters if i.kind != "reduce"]
    computed = statements[k]
    for home, copy in zip(homes, copies, strict=True):
        computed = redirect(computed, home, copy)
    name = copies[0].name if len(copies) == 1 else free_name(func, f"{node.name}_{scope}")
    body = seq(*statements[:k], computed, _copy(copies, homes, name, names), *statements[k + 1 :])
    return with_scope_body(func, body, *copies), name


def _copy(sources: Sequence[Buffer], targets: Sequence[Buffer], name: str, axes_named: Sequence[str] = ()) -> Stmt:
    """Return a loop nest that copies each of `sources`, all of one shape, into its target."""
    shape = sources[0].shape
    shown = axes_named if len(axes_named) == len(shape) else [f"ax{k}" for k in range(len(shape))]
    axes = tuple(IterVar(Var(n), as_expr(d)) for n, d in zip(shown, shape, strict=True))
    at = tuple(a.var for a in axes)
    stores = seq(*(Store(target, Load(source, at), at) for source, target in zip(sources, targets, strict=True)))
    return nest_of(Block(name, axes, (), IntImm(BOOL, 1), None, stores))


def nest_of(block: Block) -> Stmt:
    """Wrap a block in one loop for each of its axes."""
    loops = tuple(Var(i.var.name, i.extent.dtype) for i in block.iters)
    where = substitute(block.predicate, dict(zip((i.var for i in block.iters), loops, strict=True)))
    s: Stmt = replace(block, bindings=loops, predicate=where)
    for v, it in zip(reversed(loops), reversed(block.iters), strict=True):
        s = For(v, const(0, v.dtype), it.extent, SERIAL, s, origin=block.origin)
    return s


# The tree.
def top_statements(func: PrimFunc) -> list[Stmt]:
    """Return the statements of the body, without the loops that are marked `SCOPE`."""
    body = scope_loops(func)[1]
    return list(body.stmts) if isinstance(body, Seq) else [body]


def find_block(statements: Sequence[Stmt], name: str) -> tuple[int, Block]:
    """Return a block by its name, and the position of the statement that contains it. Raises `ScheduleError` for an
    unknown name."""
    for k, top in enumerate(statements):
        for s in walk_stmt(top):
            if isinstance(s, Block) and s.name == name:
                return k, s
    names = ", ".join(s.name for top in statements for s in walk_stmt(top) if isinstance(s, Block))
    raise ScheduleError(f"there is no block '{name}'; the blocks are {names}", code="TW0613")


def swap(s: Stmt, old: Stmt, new: Stmt) -> Stmt:
    """Return `s` with the statement `old` replaced by `new`."""
    return new if s is old else map_bodies(s, lambda b: swap(b, old, new)) or s


def free_name(func: PrimFunc, name: str) -> str:
    """Return `name`, with a number appended if a block or buffer already has this name."""
    taken = (
        {b.name for b in (*func.buffers, *func.attrs["intermediates"])}
        | {s.name for s in walk_stmt(func.body) if isinstance(s, Block)} | func.attrs.get(TAKEN, frozenset())
    )
    found, k = name, 1
    while found in taken:
        found, k = f"{name}_{k}", k + 1
    return found
