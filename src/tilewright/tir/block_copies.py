"""Copies of values in other memory, placed where the value is needed: `cache_read` and `cache_write` of `tir.Schedule`.

    for i: { for j: A[i, j] = …;  for j: B[i, j] = A[i, j] }
      ->  for i: { for j: A[i, j] = …;  for j: A_local[i, j] = A[i, j];  for j: B[i, j] = A_local[i, j] }

A copy is in the innermost loops around both the block that computes the value and the first block that needs the copy,
just before the latter, and copies what one trip of these loops writes. So after each change of the value, and before
each use of the copy, both have the same elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.base.types import BOOL, INT64
from tilewright.scalar.arith import Ranges
from tilewright.scalar.expr import Buffer, IntImm, Load, Var, as_expr, const, number_of
from tilewright.tir.block_rewrites import check_scope, free_name, reads
from tilewright.tir.block_tree import child_blocks, scope_loops, with_scope_body
from tilewright.tir.coverage import fills, writes_box
from tilewright.tir.legality import check_complete, check_written_whole, fault, makers, only_maker
from tilewright.tir.region import Box, regenerate, region_of
from tilewright.tir.stmt import (
    AllocateConst,
    Block,
    For,
    IterVar,
    PrimFunc,
    Stmt,
    Store,
    map_bodies,
    path_to,
    redirect,
    seq,
)


def cache_read(func: PrimFunc, source: Buffer, scope: str, readers: Sequence[str]) -> tuple[PrimFunc, str]:
    """Let the blocks `readers` (by default all readers) read a copy of `source`. Return the name of the copying block.
    """
    check_scope(scope)
    body = scope_loops(func)[1]
    blocks = child_blocks(body)
    made = makers(func, source)
    if len(made) > 1:
        names = ", ".join(f"'{m.name}'" for m in made)
        raise fault(f"'{source.name}' is computed by several blocks, {names}, so it has no copy", made[0], func)
    users = [b for b in blocks if reads(b, source) and b not in made]
    chosen = [b for b in users if b.name in readers] if readers else users
    missing = next((n for n in readers if n not in [b.name for b in chosen]), None)
    if missing is not None or not chosen:
        at = next((b for b in blocks if b.name == missing), blocks[0])
        raise fault(
            f"block '{at.name}' does not read '{source.name}', or computes it, so it cannot read a copy", at, func)
    copy = Buffer(free_name(func, f"{source.name}_{scope}"), source.shape, source.dtype, scope)
    if made and blocks.index(made[0]) < blocks.index(chosen[0]):
        before, box, ranges = _between(func, body, made[0], chosen[0], source)
        if source in func.params and not fills(func.body, source, Ranges()):
            box = None
    else:
        chosen = _unchanged(func, body, source, chosen, made, bool(readers))
        before, ranges = body, _ranges(scope_loops(func)[0])
        box = region_of(body, source, ranges) if scope_loops(func)[0] else None
    own = {b: redirect(b, source, copy) for b in chosen}
    new = _changed(body, own, before, copy_nest(source, copy, copy.name, box, ranges))
    return with_scope_body(func, new, copy), copy.name


def cache_write(func: PrimFunc, block: str, home: Buffer, scope: str, readers: Sequence[str]) -> tuple[PrimFunc, str]:
    """Let a block compute into a copy of its result `home`, which the blocks `readers` read, too; further blocks read
    what is copied back. Return the name of the block that copies back."""
    check_scope(scope)
    body = scope_loops(func)[1]
    blocks = child_blocks(body)
    node = next(b for b in blocks if b.name == block)
    only_maker(func, node)
    check_complete(func, node)
    users = [b for b in blocks if b is not node and reads(b, home)]
    early = next((b for b in users if blocks.index(b) < blocks.index(node)), None)
    if early is not None and (early.name in readers or _common_loops(body, early, node)):
        raise fault(f"block '{early.name}' reads '{home.name}' before block '{block}' computes it", early, func)
    cached = [b for b in users if b.name in readers]
    others = [b for b in users if b not in cached and blocks.index(b) > blocks.index(node)]
    copy = Buffer(free_name(func, f"{home.name}_{scope}"), home.shape, home.dtype, scope)
    loops = scope_loops(func)[0]
    if others:
        before, box, ranges = _between(func, body, node, others[0], home)
    else:
        before, ranges = None, _ranges(loops)
        box = region_of(body, home, ranges, stores=True) if loops else None
    if home in func.params:
        _check_copied_back(func, node, home, box, ranges, body)
    own = {b: redirect(b, home, copy) for b in (node, *cached)}
    new = _changed(body, own, before, copy_nest(copy, home, copy.name, box, ranges))
    return with_scope_body(func, new, copy), copy.name


def _check_copied_back(
    func: PrimFunc, node: Block, home: Buffer, box: Box | None, ranges: Ranges, body: Stmt
) -> None:
    """Raise `ScheduleError` unless the block writes every element that is copied to a parameter."""
    if box is None:
        check_written_whole(func, node, func.body)
    elif not writes_box(body, home, box, ranges):
        raise fault(
            f"block '{node.name}' may write only a part of the elements of '{home.name}' that would be copied back",
            node, func)


def _unchanged(
    func: PrimFunc, body: Stmt, source: Buffer, chosen: list[Block], made: list[Block], exact: bool
) -> list[Block]:
    """Return the blocks that read the value which `source` has at the beginning. Raises `ScheduleError` if another
    block of `chosen` is required (`exact`)."""
    blocks = child_blocks(body)
    kept = [b for b in chosen if all(blocks.index(b) < blocks.index(m) for m in made)]
    for b in chosen:
        if made and ((exact and b not in kept) or _common_loops(body, b, made[0])):
            raise fault(
                f"block '{made[0].name}' changes '{source.name}' before, or in the loops of, block '{b.name}', which "
                "cannot read a copy of the first value", b, func)
    return kept


def _between(func: PrimFunc, body: Stmt, maker: Block, user: Block, buffer: Buffer) -> tuple[Stmt, Box | None, Ranges]:
    """Return the statement before which a copy of `buffer` has its place between two blocks, the box that the first
    changes in one trip of the loops around both (None: the whole buffer), and the ranges of these loops."""
    first, second = [*path_to(body, maker), maker], [*path_to(body, user), user]
    depth = next(k for k, (a, b) in enumerate(zip(first, second, strict=False)) if a is not b)
    ranges = _ranges([*scope_loops(func)[0], *(s for s in first[:depth] if isinstance(s, For))])
    return second[depth], region_of(first[depth], buffer, ranges, stores=True), ranges


def _common_loops(body: Stmt, a: Stmt, b: Stmt) -> bool:
    around = path_to(body, b)
    loops = (s for s in path_to(body, a) if isinstance(s, For) and number_of(s.extent) != 1)
    return any(any(s is x for x in around) for s in loops)


def _ranges(loops: Sequence[For]) -> Ranges:
    ranges = Ranges()
    for f in loops:
        ranges = ranges.bind_loop(f.var, f.min, f.extent)
    return ranges


def _changed(body: Stmt, own: dict[Block, Stmt], before: Stmt | None, copy: Stmt) -> Stmt:
    """Return the body with other blocks, and with `copy` before a statement, or at the end. Constants stay around it.
    """
    if isinstance(body, AllocateConst):
        inner = body.body
        return replace(body, body=_changed(inner, own, inner if before is body else before, copy))

    def visit(s: Stmt) -> Stmt:
        made = own[s] if isinstance(s, Block) and s in own else s if isinstance(s, Block) else map_bodies(s, visit) or s
        return seq(copy, made) if s is before else made

    return visit(body) if before is not None else seq(visit(body), copy)


def copy_nest(source: Buffer, target: Buffer, name: str, box: Box | None, ranges: Ranges) -> Stmt:
    """Return a nest that copies a box of `source`, or all of it, to `target`."""
    axes = tuple(IterVar(Var(f"ax{k}"), as_expr(d)) for k, d in enumerate(source.shape))
    at = tuple(a.var for a in axes)
    block = Block(name, axes, (), IntImm(BOOL, 1), None, Store(target, Load(source, at), at))
    whole: Box = [(const(0, INT64), d) for d in source.shape]
    return regenerate(block, whole if box is None else box, ranges, True)[0]
