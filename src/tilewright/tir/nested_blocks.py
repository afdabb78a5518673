"""Steps inside a block: a schedule of the statements in the body of one block.

    for i: with block("rows", v = i):           for v: (marked)
        for k: with block("sum", w = k): …  ->      for k: with block("sum", w = k): …

`ScopeSchedule.func` is the body as a function of its own, and a step that sets it changes the block in the whole
program. Loops marked `SCOPE` around the body stand for the axes and loops outside, of which it uses the variables, so
that steps know their ranges. Steps leave these loops in place, and do not count them as loops around a block. Buffers
that are used outside of the block are parameters of this function, because their values are needed afterwards.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.base.errors import InternalError
from tilewright.base.types import INT64
from tilewright.scalar.expr import Buffer, Load, PrimExpr, Var, const
from tilewright.scalar.walk import free_vars, walk
from tilewright.tir.block_tree import scope_loops
from tilewright.tir.loop_schedule import Schedule
from tilewright.tir.stmt import (
    INNER,
    SCOPE,
    SERIAL,
    TAKEN,
    Block,
    For,
    PrimFunc,
    Stmt,
    Store,
    block_names,
    bodies,
    expressions,
    nest,
    path_to,
    replaced,
    walk_stmt,
)


class ScopeSchedule(Schedule):
    """A schedule of the body of the block `holder` of the program of `whole`. Steps are not recorded."""

    def __init__(self, whole: Schedule, holder: str) -> None:
        self._whole, self._holder = whole, holder
        self._seen: tuple[PrimFunc, PrimFunc] | None = None
        """The whole program, and the function of the body for it."""
        super().__init__(self.func, checked=whole.checked, recorded=False)
        self._facts = whole._facts

    @property
    def func(self) -> PrimFunc:
        """The body as a function."""
        whole = self._whole.func
        if self._seen is None or self._seen[0] is not whole:
            self._seen = whole, _body_of(whole, self._whole.block(self._holder))
        return self._seen[1]

    @func.setter
    def func(self, new: PrimFunc) -> None:
        if self._seen is not None and self._seen[1] is new:
            return
        self._whole.func = _with_body(self._whole.func, self._whole.block(self._holder), new)
        self._seen = self._whole.func, new


def scope_of(e: Schedule, at: Stmt) -> Schedule:
    """Return the schedule of the innermost block around a statement, or `e` if no block is around it."""
    holders = [s for s in path_to(e.func.body, at) if isinstance(s, Block)]
    return ScopeSchedule(e, holders[-1].name) if holders else e


def holder_of(func: PrimFunc, at: Stmt) -> Block | None:
    """Return the innermost block around a statement, or None."""
    return next((s for s in reversed(path_to(func.body, at)) if isinstance(s, Block)), None)


def _body_of(func: PrimFunc, holder: Block) -> PrimFunc:
    inside, outside = _uses(holder.body), _uses(func.body, holder.body)
    inner = tuple(b for b in func.attrs.get(INNER, ()) if b in inside and b not in outside)
    others = tuple(b for b in func.attrs.get(INNER, ()) if b not in inner)
    own = set(block_names(func.with_body(holder.body)))
    taken = frozenset(n for n in block_names(func) if n not in own)
    body = nest(_marked(func, holder), holder.body)
    return PrimFunc(
        func.name, (*func.params, *others), body, {**func.attrs, INNER: inner, TAKEN: taken}, func.origin)


def _marked(func: PrimFunc, holder: Block) -> list[For]:
    """Return the loops that stand for the axes and loops outside of the body of `holder` whose variables it uses."""
    needed = {v for s in walk_stmt(holder.body) for e in expressions(s) for v in free_vars(e)}
    found: list[For] = []
    for s in reversed([*path_to(func.body, holder), holder]):
        ranges: list[tuple[Var, PrimExpr, PrimExpr]] = []
        if isinstance(s, For):
            ranges = [(s.var, s.min, s.extent)]
        elif isinstance(s, Block):
            ranges = [(i.var, const(0, INT64), i.extent) for i in reversed(s.iters)]
        for v, low, extent in ranges:
            if v in needed:
                needed |= {*free_vars(low), *free_vars(extent)}
                found.insert(0, For(v, low, extent, SERIAL, holder, {SCOPE: True}))
    return found


def _with_body(func: PrimFunc, holder: Block, new: PrimFunc) -> PrimFunc:
    """Return `func` with the body of `holder`, and the intermediate values, of a changed function of this body."""
    _, body = scope_loops(new)
    before: tuple[Buffer, ...] = func.attrs.get(INNER, ())
    now: tuple[Buffer, ...] = new.attrs[INNER]
    if any(isinstance(s, For) and SCOPE in s.annotations for s in walk_stmt(body)):
        raise InternalError(f"a step moved statements out of block '{holder.name}':\n{new}")
    kept = tuple(b for b in before if b in now or b in new.params)
    made = replaced(func, holder, replace(holder, body=body))
    return replace(made, attrs={**func.attrs, INNER: (*kept, *(b for b in now if b not in before))})


def _uses(s: Stmt, but: Stmt | None = None) -> set[Buffer]:
    """Return the buffers that `s` uses, outside of the statement `but`."""
    found: set[Buffer] = set()
    stack = [s]
    while stack:
        x = stack.pop()
        if x is not but:
            found.update(e.buffer for top in expressions(x) for e in walk(top) if isinstance(e, Load))
            found.update([x.buffer] if isinstance(x, Store) else [])
            stack.extend(bodies(x))
    return found
