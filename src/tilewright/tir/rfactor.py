"""Reductions in two stages: the trips of one reduction loop reduce to separate elements, which are then reduced.

    for i: for ko: for ki: C[i] += A[i, ko * 4 + ki]
      ->  for i: for ko: for ki: C_rf[ki, i] += A[i, ko * 4 + ki]
          for i: for ki: C[i] += C_rf[ki, i]

`rfactor` is the step of `tir.Schedule`, whose second stage keeps the loops of the block except those of the reduction.
`rfactor_stage` is the step of te, where the second stage is a computation with loops of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilewright.base.errors import ScheduleError
from tilewright.base.types import BOOL
from tilewright.scalar.arith.solve import conjuncts
from tilewright.scalar.expr import (
    Add,
    Buffer,
    IntImm,
    Load,
    Max,
    Min,
    Mul,
    PrimExpr,
    Var,
    add,
    all_of,
    number_of,
    sub,
)
from tilewright.scalar.walk import free_vars, substitute
from tilewright.tir.block_rewrites import find_block, free_name, nest_of, reduction_step, swap, top_statements
from tilewright.tir.block_tree import child_blocks, own_loops, with_scope_body, without_note
from tilewright.tir.legality import fault
from tilewright.tir.stmt import (
    ALIGNED,
    SERIAL,
    THREAD,
    Block,
    For,
    IfThenElse,
    IterVar,
    Let,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    loaded_buffers,
    map_bodies,
    nest,
    path_to,
    redirect,
    replaced,
    seq,
    stored_buffers,
    substitute_stmt,
    walk_stmt,
)


@dataclass(frozen=True, slots=True)
class _Split:
    """A reduction with its loops, outermost first: `loop` becomes an axis of the result. `reduced` are the variables of
    all loops of the reduction, and `kept` the reduction axes that stay axes of the first stage; for the others, each
    loop becomes an axis."""

    block: Block
    combiner: Any
    loop: For
    loops: tuple[For, ...]
    reduced: frozenset[Var]
    kept: frozenset[Var] = frozenset()

    def error(self, why: str) -> ScheduleError:
        return ScheduleError(f"rfactor of block '{self.block.name}' along '{self.loop.var.name}': {why}")

    def place(self, factor_axis: int) -> int:
        """Return the dimension of the new values that belongs to the loop. Raises `ScheduleError` for a wrong one."""
        rank = len(stored_buffers(self.block)[0].shape)
        if not -rank - 1 <= factor_axis <= rank:
            raise self.error(f"factor_axis={factor_axis} is not between {-rank - 1} and {rank}")
        return factor_axis % (rank + 1)


def rfactor_stage(func: PrimFunc, block: str, loop: Var, factor_axis: int = 0) -> tuple[PrimFunc, str]:
    """Let the trips of `loop` reduce to separate elements, along dimension `factor_axis` of a new value. The block
    reduces these in loops over its axes. Return the name of the new block."""
    statements = top_statements(func)
    k, node = find_block(statements, block)
    split = _alone(statements[k], block, loop)
    name, parts, first = _stored_apart(func, split, split.place(factor_axis))
    second = _second_stage(split, parts, split.place(factor_axis))
    loops = _first_axis_last(nest_of(replace(second, iters=(*second.iters[1:], second.iters[0]))))
    body = seq(*statements[:k], swap(statements[k], node, first), loops, *statements[k + 1 :])
    return with_scope_body(func, body, *parts), name


def rfactor(func: PrimFunc, block: str, loop: Var, factor_axis: int = 0) -> tuple[PrimFunc, str]:
    """Let the trips of `loop` reduce to separate elements, along dimension `factor_axis` of a new value, before the
    loops around the block. The block reduces these, in its own loops. Return the name of the new block."""
    _, node = find_block([func.body], block)
    loops = own_loops(path_to(func.body, node))
    split = _with_kept_axes(_split(_in_order(node), loops, loop))
    removed = [f for f in loops if f.var in split.reduced and f.var is not loop]
    _check_reduction_loops(func, split, removed)
    _check_first(func, node, loops[0])
    name, parts, first = _stored_apart(func, split, split.place(factor_axis))
    second = _second_stage(split, parts, split.place(factor_axis))
    bindings = dict(zip((i.var for i in node.iters), node.bindings, strict=True))
    points = (sub(loop, split.loop.min), *(bindings[i.var] for i in _spatial(node)))
    second = replace(second, bindings=points, predicate=_spatial_guard(split))
    alone = next(k for k, f in enumerate(loops) if child_blocks(f) == [node])
    kept = [f for f in loops[alone:] if f not in removed]
    fresh = {f.var: Var(f.var.name, f.var.dtype) for f in loops}
    if alone == 0:
        new = seq(nest(loops, first), substitute_stmt(nest(kept, second, fresh), fresh))
        return _with_parts(replaced(func, loops[0], new), parts), name
    changed = replaced(func, loops[alone], nest(kept, second))
    outer = next(s for s in walk_stmt(changed.body) if isinstance(s, For) and s.var is loops[0].var)
    new = seq(substitute_stmt(nest(loops, first, fresh), fresh), outer)
    return _with_parts(replaced(changed, outer, new), parts), name


def _with_parts(func: PrimFunc, parts: Sequence[Buffer]) -> PrimFunc:
    return replace(func, attrs={**func.attrs, "intermediates": (*func.attrs["intermediates"], *parts)})


# Which reductions can be split.
def _alone(s: Stmt, name: str, loop: Var) -> _Split:
    """Return the reduction in a nest of one block."""
    loops: list[For] = []
    while isinstance(s, For):
        loops.append(s)
        s = s.body
    if not isinstance(s, Block):
        raise ScheduleError(f"the loops around block '{name}' contain other blocks too; call rfactor before compute_at")
    return _split(s, loops, loop)


def _split(block: Block, loops: Sequence[For], loop: Var) -> _Split:
    mine = next((f for f in loops if f.var is loop), None)
    if mine is None:
        raise ScheduleError(
            f"loop '{loop.name}' is not around block '{block.name}'; its loops are "
            f"{', '.join(f.var.name for f in loops)}")
    over: dict[str, set[Var]] = {"spatial": set(), "reduce": set()}
    for it, binding in zip(block.iters, block.bindings, strict=True):
        over["reduce" if it.kind == "reduce" else "spatial"].update(free_vars(binding))
    reduced = frozenset(f.var for f in loops if f.var in over["reduce"])
    split = _Split(block, block.annotations.get("combiner"), mine, tuple(loops), reduced)
    if block.init is None or split.combiner is None:
        raise split.error("the block is not a reduction")
    if loop not in over["reduce"] and (loop in over["spatial"] or number_of(mine.extent) != 1):
        raise split.error("the loop is not a reduction loop of the block")
    varying = next(
        (
            f for f in loops
            if f.var in over["reduce"]
            and any(v is g.var for e in (f.min, f.extent) for v in free_vars(e) for g in loops)),
        None)
    if varying is not None:
        raise split.error(
            f"loop '{varying.var.name}' has {varying.extent} iterations, which depends on another loop; the new value "
            "needs a constant size")
    if over["reduce"] & over["spatial"]:
        raise split.error("a reduction loop is fused with a spatial loop; call rfactor before that fuse")
    return split


def _with_kept_axes(split: _Split) -> _Split:
    """Return the reduction with the reduction axes that have no loop in common with `loop`, other axes, or a guard."""
    node = split.block
    bound = list(zip(node.iters, node.bindings, strict=True))
    points: dict[PrimExpr, PrimExpr] = {i.var: b for i, b in bound}
    guarded = set(free_vars(substitute(node.predicate, points)))
    kept = set()
    for it, binding in bound:
        mine = set(free_vars(binding))
        others = {v for i, b in bound if i is not it and split.loop.var in free_vars(b) for v in free_vars(b)}
        if it.kind == "reduce" and split.loop.var not in mine and not mine & (others | guarded):
            kept.add(it.var)
    return replace(split, kept=frozenset(kept))


def _check_reduction_loops(func: PrimFunc, split: _Split, removed: Sequence[For]) -> None:
    """Raise `ScheduleError` unless the loops of the reduction are serial, and contain only its block."""
    for f in (*removed, split.loop):
        if f.kind != SERIAL or THREAD in f.annotations:
            raise fault(f"reduction loop '{f.var.name}' of block '{split.block.name}' is no longer serial", f, func)
        other = next((b for b in child_blocks(f) if b.name != split.block.name), None)
        if other is not None:
            raise fault(
                f"reduction loop '{f.var.name}' of block '{split.block.name}' contains block '{other.name}', too; call "
                "rfactor before compute_at", f, func)


def _check_first(func: PrimFunc, node: Block, outermost: For) -> None:
    """Raise `ScheduleError` unless what `node` computes can be computed before all of its loops."""
    beside = child_blocks(outermost)
    if beside[0] is not node:
        raise fault(
            f"block '{beside[0].name}' comes before block '{node.name}' in loop '{outermost.var.name}', so the new "
            "value cannot be computed before this loop", outermost, func)
    read = set(loaded_buffers(node)) - set(stored_buffers(node))
    writer = next((b for b in beside[1:] if read & set(stored_buffers(b))), None)
    if writer is not None:
        raise fault(
            f"block '{writer.name}' in loop '{outermost.var.name}' changes what block '{node.name}' reads, so the new "
            "value cannot be computed before this loop", writer, func)


def _spatial_guard(split: _Split) -> PrimExpr:
    """Return the conditions of the block that do not depend on its reduction."""
    axes = {i.var for i in split.block.iters if i.kind == "reduce"}
    gone = {*axes, *split.reduced, split.loop.var}
    return all_of(*(c for c in conjuncts(split.block.predicate) if not gone & set(free_vars(c))))


def _in_order(node: Block) -> Block:
    """Return a reduction with its stores in the order of its combiner's values.

    The step `v = f(C[i]); C[i] = v` of one value becomes `C[i] = f(C[i])`.
    """
    lets: list[Let] = []
    body = node.body
    while isinstance(body, Let):
        lets.append(body)
        body = body.body
    names: list[PrimExpr] = [s.var for s in lets]
    stores = list(body.stmts) if isinstance(body, Seq) else [body]
    if not lets or node.init is None or not all(isinstance(s, Store) and s.value in names for s in stores):
        return node
    if len(lets) == 1 and isinstance(body, Store):
        return replace(node, body=replace(body, value=lets[0].value))
    ordered = sorted((s for s in stores if isinstance(s, Store)), key=lambda s: names.index(s.value))
    places = [s.buffer for s in ordered]
    firsts = list(node.init.stmts) if isinstance(node.init, Seq) else [node.init]
    if not all(isinstance(s, Store) and s.buffer in places for s in firsts):
        return node
    init = sorted((s for s in firsts if isinstance(s, Store)), key=lambda s: places.index(s.buffer))
    step = seq(*ordered)
    for let in reversed(lets):
        step = replace(let, body=step)
    return replace(node, init=seq(*init), body=step)


# The two stages.
def _inserted(items: Sequence[Any], place: int, item: Any) -> tuple[Any, ...]:
    return (*items[:place], item, *items[place:])


def _stored_apart(func: PrimFunc, split: _Split, place: int) -> tuple[str, list[Buffer], Stmt]:
    """Return the first stage: its name, its values, and its block."""
    node, extent = split.block, split.loop.extent
    totals = stored_buffers(node)
    name = free_name(func, f"{node.name}_rf")
    parts = [
        Buffer(free_name(func, f"{b.name}_rf"), _inserted(b.shape, place, extent), b.dtype) for b in totals]
    own = IterVar(Var(split.loop.var.name, split.loop.var.dtype), extent)
    first: Stmt = _first_stage(split, own, name)
    for total, part in zip(totals, parts, strict=True):
        first = redirect(first, total, part, lambda indices: _inserted(indices, place, own.var))
    return name, parts, first


def _second_stage(split: _Split, parts: Sequence[Buffer], place: int) -> Block:
    """Return the block that reduces the separate elements; its first axis is over these. It has no bindings and no
    predicate yet."""
    node = split.block
    totals = stored_buffers(node)
    spatial = _spatial(node)
    axes = [IterVar(Var(i.var.name, i.var.dtype), i.extent) for i in spatial]
    last = IterVar(Var(split.loop.var.name, split.loop.var.dtype), split.loop.extent, "reduce")
    points: dict[PrimExpr, PrimExpr] = {old.var: new.var for old, new in zip(spatial, axes, strict=True)}
    at = tuple(substitute(i, points) for i in next(s for s in walk_stmt(node.body) if isinstance(s, Store)).indices)
    sources = tuple(Load(b, _inserted(at, place, last.var)) for b in parts)
    step = reduction_step(split.combiner, totals, at, sources)
    assert node.init is not None
    init = substitute_stmt(node.init, points)
    return replace(node, iters=(last, *axes), bindings=(), predicate=IntImm(BOOL, 1), init=init, body=step)


def _spatial(node: Block) -> list[IterVar]:
    return [i for i in node.iters if i.kind != "reduce"]


def _first_axis_last(s: Stmt) -> Stmt:
    """Return a nest around a block with the last axis of the block first."""
    if not isinstance(s, Block):
        return map_bodies(s, _first_axis_last) or s
    return replace(s, iters=(s.iters[-1], *s.iters[:-1]), bindings=(s.bindings[-1], *s.bindings[:-1]))


def _neutral_init(split: _Split) -> Stmt:
    """Return the statements that begin the reduction, with the neutral values."""
    totals = stored_buffers(split.block)
    neutral = dict(zip(totals, split.combiner.identity(tuple(b.dtype for b in totals)), strict=True))

    def visit(s: Stmt) -> Stmt:
        return replace(s, value=neutral[s.buffer]) if isinstance(s, Store) else map_bodies(s, visit) or s

    assert split.block.init is not None
    return visit(split.block.init)


def _first_stage(split: _Split, own: IterVar, name: str) -> Block:
    """Return the block over the same loops with `own` among its spatial axes. It begins with the neutral values. The
    guard of the reduction applies only to its step."""
    node = replace(split.block, init=_neutral_init(split))
    bound = list(zip(node.iters, node.bindings, strict=True))
    gone = [(i, b) for i, b in bound if i.kind == "reduce" and i.var not in split.kept]
    rest = _loops_of(split, [b for _, b in gone])
    others = [IterVar(Var(f.var.name, f.var.dtype), f.extent, "reduce") for f in rest]
    axis_of: dict[PrimExpr, PrimExpr] = {
        f.var: add(a.var, f.min) for f, a in zip((split.loop, *rest), (own, *others), strict=True)
    }
    points: dict[PrimExpr, PrimExpr] = {i.var: substitute(b, axis_of) for i, b in gone}
    guards = [substitute(substitute(c, points), axis_of) for c in conjuncts(node.predicate)]
    inner = [g for g in guards if any(v in (own.var, *(o.var for o in others)) for v in free_vars(g))]
    body = substitute_stmt(node.body, points)
    if inner:
        body = IfThenElse(all_of(*inner), body)
    axes: list[tuple[IterVar, PrimExpr]] = [(own, sub(split.loop.var, split.loop.min))]
    axes += [(i, b) for i, b in bound if i.kind != "reduce" or i.var in split.kept]
    axes += [(o, sub(f.var, f.min)) for o, f in zip(others, rest, strict=True)]
    alone = None if others or split.kept else _first_term(body)
    if alone is not None:
        node, body = replace(node, init=None, annotations=without_note(node, "combiner")), alone
    return replace(
        node, name=name, iters=tuple(i for i, _ in axes), bindings=tuple(b for _, b in axes),
        predicate=all_of(*(g for g in guards if g not in inner)), body=body, annotations=without_note(node, ALIGNED))


def _loops_of(split: _Split, bindings: Collection[PrimExpr]) -> list[For]:
    """Return the loops other than `loop` that the bindings contain."""
    used = {v for b in bindings for v in free_vars(b)}
    return [f for f in split.loops if f.var in used and f is not split.loop]


def _first_term(step: Stmt) -> Store | None:
    """Return the store of the only term of a sum instead of the sum, `C[i] = C[i] + x  ->  C[i] = x`; None for other
    reductions."""
    if not isinstance(step, Store) or not isinstance(step.value, (Add, Mul, Max, Min)):
        return None
    old = Load(step.buffer, step.indices)
    new = [e for e in (step.value.a, step.value.b) if e is not old]
    return replace(step, value=new[0]) if len(new) == 1 else None
