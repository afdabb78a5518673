"""Blocks inside blocks, and the loops around them.

A block inside another is part of its computation. Steps act on the blocks that are directly in a function, or in the
body of one block, which `nested_blocks.py` makes a function of its own. There, loops marked `SCOPE` around the body
stand for what is outside of the block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tilewright.scalar.expr import Buffer, IntImm
from tilewright.tir.stmt import (
    SCOPE,
    Block,
    For,
    PrimFunc,
    Seq,
    Stmt,
    bodies,
    map_bodies,
    nest,
    seq,
    substitute_stmt,
    walk_stmt,
)


def child_blocks(s: Stmt) -> list[Block]:
    """Return the blocks in `s` that are in no other block inside of `s`, in order."""
    found: list[Block] = []
    stack = [s]
    while stack:
        x = stack.pop()
        if isinstance(x, Block):
            found.append(x)
        else:
            stack.extend(reversed(bodies(x)))
    return found


def own_loops(around: Sequence[Stmt]) -> list[For]:
    """Return the loops among statements, outermost first, that are inside the innermost block among them."""
    loops: list[For] = []
    for s in around:
        if isinstance(s, Block):
            loops = []
        elif isinstance(s, For) and SCOPE not in s.annotations:
            loops.append(s)
    return loops


def scope_loops(func: PrimFunc) -> tuple[list[For], Stmt]:
    """Return the loops around the whole body that are marked `SCOPE`, and the body."""
    loops: list[For] = []
    body = func.body
    while isinstance(body, For) and SCOPE in body.annotations:
        loops.append(body)
        body = body.body
    return loops, body


def with_scope_body(func: PrimFunc, body: Stmt, *new: Buffer) -> PrimFunc:
    """Return the function with another body in the loops that are marked `SCOPE`, and further intermediate values."""
    attrs = {**func.attrs, "intermediates": (*func.attrs["intermediates"], *new)}
    return replace(func, body=nest(scope_loops(func)[0], body), attrs=attrs)


def dissolved(block: Block) -> Block:
    """Return a block without the blocks inside, whose axes are replaced by their bindings. Blocks inside that have
    conditions or initial values are kept.

    with block("C_o", vo = io): for ii: with block("C", vi = ii): C[vo * 4 + vi] = …
      ->  with block("C_o", vo = io): for ii: C[vo * 4 + ii] = …
    """

    def visit(s: Stmt) -> Stmt:
        s = map_bodies(s, visit) or s
        if isinstance(s, Block) and s.init is None and isinstance(s.predicate, IntImm) and s.predicate.value:
            return substitute_stmt(s.body, dict(zip((i.var for i in s.iters), s.bindings, strict=True)))
        return s

    if not any(isinstance(s, Block) for s in walk_stmt(block.body)):
        return block
    return replace(block, init=None if block.init is None else visit(block.init), body=visit(block.body))


def inserted(s: Stmt, place: int, new: Stmt) -> Stmt:
    """Return `s` with the statement `new` at a position among the statements of its sequence."""
    stmts = s.stmts if isinstance(s, Seq) else (s,)
    return seq(*stmts[:place], new, *stmts[place:])


def without_note(block: Block, key: str) -> dict[str, Any]:
    """Return the annotations of a block except `key`."""
    return {k: v for k, v in block.annotations.items() if k != key}
