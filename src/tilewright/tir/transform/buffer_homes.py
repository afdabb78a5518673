"""Where the intermediate values of a schedulable program live: the innermost block around all of their uses.

    for i: { for j: with block("B"): B[i, j] = …; for j: with block("C"): … = B[i, j] }
      ->
    for i: with block(""): { for j: with block("B"): B[i, j] = …; for j: with block("C"): … = B[i, j] }

`place_in_blocks` adds such a block where only a loop surrounds the uses. A loop stays outside of the home of a value if
its trips use values of earlier trips, or if a block has an opaque axis over it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.base.types import BOOL
from tilewright.scalar.arith.ranges import Ranges
from tilewright.scalar.expr import Buffer, IntImm, Load
from tilewright.scalar.walk import free_vars, walk
from tilewright.tir.coverage import lives_in_trips
from tilewright.tir.stmt import (
    PARALLEL,
    THREAD,
    Block,
    For,
    IfThenElse,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    bodies,
    expressions,
    map_bodies,
    walk_stmt,
)

INTERMEDIATES = "intermediates"
"""Attribute of a function: the buffers of its intermediate values."""


@dataclass(frozen=True, slots=True)
class Home:
    """The statements around the home of a value, outermost first, and the innermost one with all uses."""

    path: tuple[Stmt, ...]
    last: Stmt

    @property
    def block(self) -> Block | None:
        """The innermost block around all uses; None for the whole function."""
        return next((s for s in reversed((*self.path, self.last)) if isinstance(s, Block)), None)


def uses(s: Stmt, buffer: Buffer) -> bool:
    """Return whether a statement, or one inside, uses a buffer."""
    return any(_uses_itself(x, buffer) for x in walk_stmt(s))


def _uses_itself(s: Stmt, buffer: Buffer) -> bool:
    return (isinstance(s, Store) and s.buffer is buffer) or any(
        isinstance(e, Load) and e.buffer is buffer for top in expressions(s) for e in walk(top))


def home_of(body: Stmt, buffer: Buffer) -> Home | None:
    """Return where a value lives in `body`; None if nothing uses it."""
    if not uses(body, buffer):
        return None
    path: list[Stmt] = []
    s, ranges = body, Ranges()
    while True:
        users = [b for b in bodies(s) if uses(b, buffer)]
        if len(users) != 1 or _uses_itself(s, buffer) or not isinstance(s, (For, Seq, Block, IfThenElse)):
            break
        if isinstance(s, For):
            if not _separate_trips(s, buffer, ranges):
                break
            ranges = ranges.bind_loop(s.var, s.min, s.extent)
        path.append(s)
        s = users[0]
    return Home(tuple(path), s)


def _separate_trips(loop: For, buffer: Buffer, ranges: Ranges) -> bool:
    if loop.kind == PARALLEL or THREAD in loop.annotations:
        return True
    opaque = any(
        i.kind == "opaque" and loop.var in free_vars(b) for s in walk_stmt(loop.body) if isinstance(s, Block)
        for i, b in zip(s.iters, s.bindings, strict=True))
    return not opaque and lives_in_trips(loop, buffer, ranges)


def intermediates_of(func: PrimFunc) -> Sequence[Buffer]:
    found: Sequence[Buffer] = func.attrs.get(INTERMEDIATES, ())
    return found


def place_in_blocks(func: PrimFunc) -> PrimFunc:
    """Surround the uses of each intermediate value by a block of their own, if a loop has all of them in its body."""
    body = func.body
    for buffer in intermediates_of(func):
        home = home_of(body, buffer)
        if home is None:
            continue
        around = [s for s in home.path if isinstance(s, (For, Block))]
        if around and isinstance(loop := around[-1], For) and not isinstance(home.last, Block):
            body = _with_block(body, loop)
    return func.with_body(body)


def _with_block(s: Stmt, loop: For) -> Stmt:
    if s is loop:
        return replace(loop, body=Block("", (), (), IntImm(BOOL, 1), None, loop.body))
    return map_bodies(s, lambda b: _with_block(b, loop)) or s
