"""Replace blocks by plain statements, and allocate every intermediate value where it is used.

    for i: for r: with block("C", i=i, r=r reduce) where i < 10: init: C[i] = 0; C[i] = C[i] + A[i, r]
      ->
    for i: if i < 10: C[i] = 0
           for r: if i < 10: C[i] = C[i] + A[i, r]

The initial value of a reduction is stored before the outermost of its reduction loops. If a loop is over a spatial and
a reduction axis at once, the first step of each sum stores it. A vectorized reduction loop keeps one partial result in
each lane and combines the lanes once, after the reduction loops. Each trip of a reduction loop annotated `apart`
computes a separate sum, which is then added to the total. This reduces the rounding error of long sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from tilewright.base.errors import ScheduleError
from tilewright.base.types import INT64
from tilewright.scalar.expr import (
    EQ,
    And,
    Buffer,
    IntImm,
    Intrinsic,
    Load,
    PrimExpr,
    Ramp,
    Var,
    all_of,
    compare,
    const,
    integer,
)
from tilewright.scalar.intrinsics import horizontal_max, horizontal_min, horizontal_prod, horizontal_sum
from tilewright.scalar.walk import free_vars, rewrite, substitute, walk
from tilewright.tir.stmt import (
    ALIGNED,
    VECTORIZED,
    Block,
    For,
    IfThenElse,
    PrimFunc,
    Stmt,
    Store,
    bodies,
    map_bodies,
    nest,
    redirect,
    seq,
    stored_buffers,
    substitute_stmt,
    walk_stmt,
)
from tilewright.tir.transform.limit_loops import limit_loops
from tilewright.tir.transform.loop_facts import runs_once
from tilewright.tir.transform.place_buffers import Alignment, place_buffers
from tilewright.tir.transform.place_prefetches import place_prefetches

_ACROSS_LANES: dict[str, Intrinsic] = {
    "sum": horizontal_sum, "prod": horizontal_prod, "max": horizontal_max, "min": horizontal_min
}
APART: Final = "apart"
Points = dict[PrimExpr, PrimExpr]


def lower_blocks(func: PrimFunc) -> PrimFunc:
    """Remove the blocks. Needs a schedulable program; leaves a lowered one, with intermediate values allocated at
    reduced size."""
    partials: list[Buffer] = []
    apart = _aligned(func.body)
    body = _visit(func.body, partials)
    attrs = {k: v for k, v in func.attrs.items() if k != "intermediates"}
    placed = place_buffers(
        replace(func, body=body, attrs=attrs), [*func.attrs.get("intermediates", ()), *partials], apart)
    return limit_loops(place_prefetches(placed))


def _aligned(s: Stmt) -> dict[Buffer, list[Alignment]]:
    """Return the strides that blocks require for their results."""
    found: dict[Buffer, list[Alignment]] = {}
    for x in walk_stmt(s):
        for result, dimension, factor, offset in x.annotations.get(ALIGNED, ()) if isinstance(x, Block) else ():
            found.setdefault(stored_buffers(x)[result], []).append((dimension, factor, offset))
    return found


def guarded(condition: PrimExpr, body: Stmt) -> Stmt:
    """Return `body` under a condition, or `body` itself if the condition is true."""
    return body if isinstance(condition, IntImm) and condition.value else IfThenElse(condition, body)


def _visit(s: Stmt, partials: list[Buffer]) -> Stmt:
    if isinstance(s, For):
        block = _reduction_below(s)
        if block is not None and (mixed_loops(block) or _varying(s, block)):
            block = None
        if block is None:
            first, s = _first_values(s, partials)
            if first:
                return seq(*first, _visit(s, partials))
        elif _over_reduction(block, s.var):
            return _reduction(s, block, partials)
    if isinstance(s, Block):
        points = _points(s)
        init = None if s.init is None else _in_place(s, points, partials)
        return guarded(substitute(s.predicate, points), seq(init, _visit(substitute_stmt(s.body, points), partials)))
    return map_bodies(s, lambda b: _visit(b, partials)) or s


def mixed_loops(block: Block) -> frozenset[Var]:
    """Return the loops around a block that are over both a spatial and a reduction axis, as made by `fuse`."""
    over: dict[str, set[Var]] = {"spatial": set(), "reduce": set()}
    for it, binding in zip(block.iters, block.bindings, strict=True):
        over["reduce" if it.kind == "reduce" else "spatial"].update(free_vars(binding))
    return frozenset(over["spatial"] & over["reduce"])


def _varying(s: Stmt, block: Block) -> bool:
    """Return whether the bounds of another loop around `block` depend on a reduction loop: then no separate nest can
    initialize all results before."""
    over = set[Var]()
    while isinstance(s, For):
        if not _over_reduction(block, s.var) and any(v in over for e in (s.min, s.extent) for v in free_vars(e)):
            return True
        over.update([s.var] if _over_reduction(block, s.var) else [])
        s = s.body
    return False


def _in_place(block: Block, points: Points, partials: list[Buffer]) -> Stmt:
    """Return the statement that stores the initial values of a reduction under a condition: its first iteration."""
    assert block.init is not None
    first = all_of(*(compare(EQ, b, 0) for i, b in zip(block.iters, block.bindings, strict=True) if i.kind == "reduce"))
    return guarded(first, _start(block, points, partials))


def _start(block: Block, points: Points, partials: list[Buffer]) -> Stmt:
    """Return the statement that stores the initial values of a reduction, without blocks inside."""
    assert block.init is not None
    return _visit(substitute_stmt(block.init, points), partials)


def _points(block: Block) -> Points:
    return dict(zip((i.var for i in block.iters), block.bindings, strict=True))


def _reduction_below(s: Stmt) -> Block | None:
    """Return the only block inside `s` if it is a reduction reached only through loops, else None."""
    while isinstance(s, For):
        s = s.body
    return s if isinstance(s, Block) and s.init is not None else None


def _first_values(outermost: For, partials: list[Buffer]) -> tuple[list[Stmt], For]:
    """Return the initialization of the reductions along a loop that also contains other computations, and the rest of
    the loop."""
    found = list(_reductions_over(outermost, outermost.var, []))
    if not found:
        return [], outermost
    first: list[Stmt] = []
    for block, loops in found:
        points = _points(block)
        reducing = [f.var for f in loops if _over_reduction(block, f.var)]
        shared = _without(substitute(block.predicate, points), reducing)
        first.append(
            nest([f for f in loops if f.var not in reducing], guarded(shared, _start(block, points, partials))))
    blocks = [block for block, _ in found]

    def steps_only(s: Stmt) -> Stmt:
        if isinstance(s, Block):
            return replace(s, init=None) if s in blocks else s
        return map_bodies(s, steps_only) or s

    return first, replace(outermost, body=steps_only(outermost.body))


def _reductions_over(s: Stmt, var: Var, loops: list[For]) -> Iterator[tuple[Block, list[For]]]:
    """Yield the reductions inside `s` along `var`, with the loops around each."""
    if isinstance(s, Block):
        if s.init is not None and _over_reduction(s, var) and not mixed_loops(s):
            yield s, loops
        return
    inner = [*loops, s] if isinstance(s, For) else loops
    for b in bodies(s):
        yield from _reductions_over(b, var, inner)


def _over_reduction(block: Block, var: Var) -> bool:
    return any(
        i.kind == "reduce" and any(v is var for v in walk(b)) for i, b in zip(block.iters, block.bindings, strict=True))


def _reduction(outermost: For, block: Block, partials: list[Buffer]) -> Stmt:
    """Return the nest from the outermost reduction loop inwards: initialization, then the steps."""
    loops: list[For] = []
    s: Stmt = outermost
    while isinstance(s, For):
        loops.append(s)
        s = s.body
    points = _points(block)
    reducing = [f for f in loops if _over_reduction(block, f.var)]
    spatial = [f for f in loops if f not in reducing]
    predicate = substitute(block.predicate, points)
    shared = _without(predicate, [f.var for f in reducing])
    vector = [f for f in reducing if f.kind == VECTORIZED and not runs_once(f)]
    if vector:
        return _in_lanes(block, loops, spatial, vector[0], predicate, shared, partials)
    init = nest(spatial, guarded(shared, _start(block, points, partials)))
    apart = next((d for d, f in enumerate(loops) if f.annotations.get(APART) and f in reducing), None)
    if apart is not None:
        return seq(init, _apart(block, loops, reducing, apart, predicate, shared, partials))
    return seq(init, nest(loops, guarded(predicate, _visit(substitute_stmt(block.body, points), partials))))


def _apart(
    block: Block, loops: list[For], reducing: list[For], depth: int, predicate: PrimExpr, shared: PrimExpr,
    partials: list[Buffer]
) -> Stmt:
    """Let each trip of one reduction loop compute a separate sum, which is added to the total at its end."""
    outer, inner, points = loops[: depth + 1], loops[depth + 1 :], _points(block)
    rows = [f for f in inner if f not in reducing]
    combiner = block.annotations.get("combiner")
    totals = stored_buffers(block)
    if combiner is None or len(totals) != 1:
        raise ScheduleError(
            f"reduction '{block.name}' has several results; its loop '{outer[-1].var.name}' cannot be summed "
            "separately")
    total = totals[0]
    partial = Buffer(f"{total.name}_part", tuple(f.extent for f in rows) or (1,), total.dtype, "local")
    partials.append(partial)
    at: tuple[PrimExpr, ...] = tuple(f.var for f in rows) or (const(0, INT64),)
    place = tuple(substitute(i, points) for i in _first_store(block).indices)
    own = redirect(block.body, total, partial, lambda _: at)
    (identity,) = combiner.identity((total.dtype,))
    (joined,) = combiner.combine((Load(total, place),), (Load(partial, at),))
    clear = nest(rows, Store(partial, identity, at))
    steps = nest(inner, guarded(predicate, substitute_stmt(own, points)))
    return nest(outer, seq(clear, steps, nest(rows, guarded(shared, Store(total, joined, place)))))


def _first_store(block: Block) -> Store:
    return next(s for s in walk_stmt(block.body) if isinstance(s, Store))


def _without(predicate: PrimExpr, variables: Sequence[Var]) -> PrimExpr:
    """Return the conjuncts of a predicate that do not involve `variables`."""
    parts, stack = [], [predicate]
    while stack:
        p = stack.pop()
        if isinstance(p, And):
            stack.extend((p.b, p.a))
        elif not any(v in variables for v in walk(p) if isinstance(v, Var)):
            parts.append(p)
    return all_of(*parts)


def _in_lanes(
    block: Block, loops: list[For], spatial: list[For], vector: For, predicate: PrimExpr, shared: PrimExpr,
    partials: list[Buffer]
) -> Stmt:
    """Return a reduction with partial results in lanes: clear the lanes, step, combine the lanes and the first value.
    """
    combiner = block.annotations.get("combiner")
    across = None if combiner is None else _ACROSS_LANES.get(combiner.name)
    body, condition = (
        (block.body.then_case, block.body.condition) if isinstance(block.body, IfThenElse) else (block.body, predicate)
    )
    if across is None or not isinstance(body, Store):
        raise ScheduleError(
            f"reduction '{block.name}' cannot be vectorized along '{vector.var.name}': only sums, products, maxima "
            "and minima of one value support this")
    points = _points(block)
    lanes = integer(vector.extent)
    rows = tuple(f.var for f in spatial)
    partial = Buffer(f"{body.buffer.name}_lanes", (*(f.extent for f in spatial), lanes), body.buffer.dtype, "local")
    partials.append(partial)
    (identity,) = combiner.identity((body.buffer.dtype,))  # type: ignore[union-attr]
    lane = Var(vector.var.name)
    total = Load(body.buffer, body.indices)

    def step_into(mine: Load) -> Stmt:
        step = Store(mine.buffer, rewrite(body.value, lambda e: mine if e is total else None), mine.indices)
        return guarded(all_of(predicate, substitute(condition, points)), substitute_stmt(step, points))

    depth = next((d for d, f in enumerate(loops) if f.annotations.get(APART)), None)
    if depth is None:
        steps = nest(loops, step_into(Load(partial, (*rows, vector.var))))
    else:
        within = [f for f in loops[depth + 1 :] if f in spatial]
        piece = Buffer(f"{body.buffer.name}_part", (*(f.extent for f in within), lanes), body.buffer.dtype, "local")
        partials.append(piece)
        at = (*(f.var for f in within), lane)
        (joined,) = combiner.combine((Load(partial, (*rows, lane)),), (Load(piece, at),))  # type: ignore[union-attr]
        inner = nest(loops[depth + 1 :], step_into(Load(piece, (*(f.var for f in within), vector.var))))
        begin, end = Store(piece, identity, at), Store(partial, joined, (*rows, lane))
        around = [*within, replace(vector, var=lane)]
        steps = nest(loops[: depth + 1], seq(nest(around, begin), inner, nest(around, end)))
    clear = replace(vector, var=lane, body=Store(partial, identity, (*rows, lane)))
    all_lanes = Load(partial, (*rows, Ramp(const(0, INT64), 1, lanes)))
    place = tuple(substitute(i, points) for i in body.indices)
    value = across(all_lanes, dtype=body.buffer.dtype)
    first = next((s.value for s in walk_stmt(block.init) if isinstance(s, Store)), identity) if block.init else identity
    if first is not identity:
        (value,) = combiner.combine((substitute(first, points),), (value,))  # type: ignore[union-attr]
    combine = guarded(shared, Store(body.buffer, value, place))
    return seq(nest(spatial, clear), steps, nest(spatial, combine))



