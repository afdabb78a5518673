"""Rewrites that add blocks to a schedulable program: copies of a value in other memory, two-stage reductions.

Each maps a program to a new one, and returns the name of the added block; `Schedule` offers them as steps, with
examples. They act on whole computations, so they must precede `compute_at`.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    all_of,
    as_expr,
    const,
)
from tilewright.scalar.walk import free_vars, substitute, walk
from tilewright.tir.block_tree import scope_loops, with_scope_body, without_note
from tilewright.tir.stmt import (
    ALIGNED,
    SERIAL,
    TAKEN,
    Block,
    For,
    IfThenElse,
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
    substitute_stmt,
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
    statements = _top(func)
    places = []
    for name in readers:
        k, block = _find(statements, name)
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
    statements = _top(func)
    k, node = _find(statements, block)
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


# Two-stage reductions.
@dataclass(frozen=True, slots=True)
class _Split:
    """A reduction with its loops: `loop` becomes an axis of the result, and `rest` are the remaining reduction loops.
    """

    block: Block
    combiner: Any
    loop: For
    rest: tuple[For, ...]

    def error(self, why: str) -> ScheduleError:
        return ScheduleError(f"rfactor of block '{self.block.name}' along '{self.loop.var.name}': {why}")


def rfactor(func: PrimFunc, block: str, loop: Var, factor_axis: int = 0) -> tuple[PrimFunc, str]:
    """Let the trips of `loop` reduce to separate elements, along dimension `factor_axis` of a new value, which the
    block then reduces."""
    statements = _top(func)
    k, _ = _find(statements, block)
    split = _two_stages(statements[k], block, loop)
    node, extent = split.block, split.loop.extent
    totals = stored_buffers(node)
    rank = len(totals[0].shape)
    if not -rank - 1 <= factor_axis <= rank:
        raise split.error(f"factor_axis={factor_axis} is not between {-rank - 1} and {rank}")
    place = factor_axis % (rank + 1)

    def inserted(items: Sequence[Any], item: Any) -> tuple[Any, ...]:
        return (*items[:place], item, *items[place:])

    name = free_name(func, f"{node.name}_rf")
    parts = [Buffer(free_name(func, f"{b.name}_rf"), inserted(b.shape, extent), b.dtype) for b in totals]
    own = IterVar(Var(loop.name), extent)
    first: Stmt = _first_stage(split, own, name)
    for total, part in zip(totals, parts, strict=True):
        first = redirect(first, total, part, lambda indices: inserted(indices, own.var))
    statement = swap(statements[k], node, first)
    spatial = [i for i in node.iters if i.kind != "reduce"]
    axes = [IterVar(Var(i.var.name), i.extent) for i in spatial]
    last = IterVar(Var(loop.name), extent, "reduce")
    points: dict[PrimExpr, PrimExpr] = {old.var: new.var for old, new in zip(spatial, axes, strict=True)}
    at = tuple(substitute(i, points) for i in next(s for s in walk_stmt(node.body) if isinstance(s, Store)).indices)
    step = reduction_step(split.combiner, totals, at, tuple(Load(b, inserted(at, last.var)) for b in parts))
    assert node.init is not None
    init = substitute_stmt(node.init, points)
    summing = replace(node, iters=(*axes, last), bindings=(), predicate=IntImm(BOOL, 1), init=init, body=step)
    second = _first_axis_last(nest_of(summing))
    body = seq(*statements[:k], statement, second, *statements[k + 1 :])
    return with_scope_body(func, body, *parts), name


def _first_axis_last(s: Stmt) -> Stmt:
    """Return a nest around a block with the last axis of the block first."""
    if not isinstance(s, Block):
        return map_bodies(s, _first_axis_last) or s
    return replace(s, iters=(s.iters[-1], *s.iters[:-1]), bindings=(s.bindings[-1], *s.bindings[:-1]))


def _two_stages(s: Stmt, name: str, loop: Var) -> _Split:
    loops: list[For] = []
    while isinstance(s, For):
        loops.append(s)
        s = s.body
    if not isinstance(s, Block):
        raise ScheduleError(f"the loops around block '{name}' contain other blocks too; call rfactor before compute_at")
    mine = next((f for f in loops if f.var is loop), None)
    if mine is None:
        raise ScheduleError(
            f"loop '{loop.name}' is not around block '{name}'; its loops are {', '.join(f.var.name for f in loops)}")
    over: dict[str, set[Var]] = {"spatial": set(), "reduce": set()}
    for it, binding in zip(s.iters, s.bindings, strict=True):
        over["reduce" if it.kind == "reduce" else "spatial"].update(free_vars(binding))
    split = _Split(
        s, s.annotations.get("combiner"), mine, tuple(f for f in loops if f.var in over["reduce"] and f is not mine))
    if s.init is None or split.combiner is None:
        raise split.error("the block is not a reduction")
    if loop not in over["reduce"]:
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
    others = [IterVar(Var(f.var.name), f.extent, "reduce") for f in split.rest]
    axis_of: dict[PrimExpr, PrimExpr] = {
        split.loop.var: own.var, **{f.var: o.var for f, o in zip(split.rest, others, strict=True)}
    }
    bound = list(zip(node.iters, node.bindings, strict=True))
    points: dict[PrimExpr, PrimExpr] = {i.var: substitute(b, axis_of) for i, b in bound if i.kind == "reduce"}
    guards = [substitute(substitute(c, points), axis_of) for c in conjuncts(node.predicate)]
    inner = [g for g in guards if any(v in (own.var, *(o.var for o in others)) for v in free_vars(g))]
    body = substitute_stmt(node.body, points)
    if inner:
        body = IfThenElse(all_of(*inner), body)
    axes: list[tuple[IterVar, PrimExpr]] = [(i, b) for i, b in bound if i.kind != "reduce"]
    axes.insert(0, (own, split.loop.var))
    axes += [(o, f.var) for o, f in zip(others, split.rest, strict=True)]
    alone = None if others else _first_term(body)
    if alone is not None:
        node, body = replace(node, init=None, annotations=without_note(node, "combiner")), alone
    return replace(
        node, name=name, iters=tuple(i for i, _ in axes), bindings=tuple(b for _, b in axes),
        predicate=all_of(*(g for g in guards if g not in inner)), body=body, annotations=without_note(node, ALIGNED))


def _first_term(step: Stmt) -> Store | None:
    """Return the store of the only term of a sum instead of the sum, `C[i] = C[i] + x  ->  C[i] = x`; None for other
    reductions."""
    if not isinstance(step, Store) or not isinstance(step.value, (Add, Mul, Max, Min)):
        return None
    old = Load(step.buffer, step.indices)
    new = [e for e in (step.value.a, step.value.b) if e is not old]
    return replace(step, value=new[0]) if len(new) == 1 else None


# The tree.
def _top(func: PrimFunc) -> list[Stmt]:
    body = scope_loops(func)[1]
    return list(body.stmts) if isinstance(body, Seq) else [body]


def _find(statements: Sequence[Stmt], name: str) -> tuple[int, Block]:
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
