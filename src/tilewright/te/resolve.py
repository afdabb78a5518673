"""From the record of a te schedule to steps of the scheduling engine.

    1. the computations as they are, one nest each                    (`te/create.py`)
    2. stages that were added: cache_read, cache_write, rfactor       in the order in which they were asked for
    3. inlined stages
    4. every other stage, those that read it first: moved to where it stands, then its splits, fuses and orders, then its marks

A stage is attached before its loops are split, since where it stands decides how long its loops are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tilewright.arith import linear
from tilewright.errors import ScheduleError
from tilewright.expr import Buffer, Load, PrimExpr, Var, add, const, mul
from tilewright.expr_walk import substitute, walk
from tilewright.te.create import computations, create_prim_func
from tilewright.te.schedule import CacheRead, CacheWrite, Rewrite, Schedule
from tilewright.te.stage import Ahead, Fuse, Mark, Relation, Split, Stage, root_axes
from tilewright.te.tensor import PlaceholderOp, Tensor
from tilewright.tir.schedule import Schedule as Engine
from tilewright.tir.stmt import Block, IterVar, PrimFunc, block_names, expressions, stored_buffers, walk_stmt
from tilewright.types import INT64


def schedule_func(s: Schedule, args: Sequence[Any], name: str = "main") -> PrimFunc:
    """The schedulable program with parameters `args`, as the schedule arranges it. Raises `ScheduleError`, `CompileError`."""
    _check_args(s, args)
    inputs = [t for t in args if isinstance(t.op, PlaceholderOp)]
    outputs = [t for t in args if not isinstance(t.op, PlaceholderOp)]
    ops = computations(inputs, outputs)
    func = create_prim_func(inputs, outputs, name)
    buffers = dict(zip([*inputs, *outputs], func.params, strict=True))
    func = replace(func, params=tuple(buffers[t] for t in args))
    if s.arrange is not None:
        _check_no_steps(s)
        return s.arrange(func, inputs, outputs)
    resolver = _Resolver(s, func, {s[op]: block for op, block in zip(ops, block_names(func), strict=True)}, buffers)
    for rewrite in s.rewrites:
        resolver.rewrite(rewrite)
    for stage in s.stages:
        if stage.inlined:
            resolver.engine.compute_inline(resolver.block(stage))
    for stage in reversed(s.stages):
        if stage in resolver.blocks and not stage.inlined:
            resolver.arrange(stage)
    return resolver.engine.func


def _check_args(s: Schedule, args: Sequence[Any]) -> None:
    for t in args:
        if not isinstance(t, Tensor):
            raise ScheduleError(f"an argument of a schedule is a tensor, and {t!r} is a {type(t).__name__}")
        if not isinstance(t.op, PlaceholderOp):  # an input need not be read
            s[t]
    doubled = [t.name for k, t in enumerate(args) if t in args[:k]]
    if doubled:
        raise ScheduleError(f"'{doubled[0]}' is twice among the arguments")
    missing = [t.name for op in s.outputs for t in op.outputs if t not in args]
    if missing:
        raise ScheduleError(f"'{missing[0]}' is an output of the schedule and not among the arguments, which are {', '.join(t.name for t in args)}")


def _check_no_steps(s: Schedule) -> None:
    """A schedule that arranges itself has no place for steps."""
    for stage in s.stages:
        if s.rewrites or stage.inlined or stage.attached or stage.scope or stage.relations or stage.marks or stage.notes or stage.prefetches:
            raise ScheduleError(
                f"'{stage.op.name}' has a step, and this schedule was made for its computation as a whole, which arranges all loops; "
                "begin with te.create_schedule or topi.generic, which leave the loops to you"
            )


class _Resolver:
    """The engine, with the block of each stage and the loop of each axis."""

    def __init__(self, s: Schedule, func: PrimFunc, blocks: dict[Stage, str], buffers: dict[Tensor, Buffer]) -> None:
        self.s, self.engine, self.blocks = s, Engine(func), blocks
        self.inputs = {t: b.name for t, b in buffers.items() if isinstance(t.op, PlaceholderOp)}
        self.loops: dict[IterVar, Var] = {}

    def block(self, stage: Stage) -> str:
        found = self.blocks.get(stage)
        if found is None:
            raise ScheduleError(f"'{stage.op.name}' is not computed for these arguments: none of them is made from it, or it is among them itself")
        return found

    def buffer(self, t: Tensor) -> str:
        """The name of the memory of a tensor."""
        known = self.inputs.get(t)
        return stored_buffers(self.engine.block(self.block(self.s[t])))[t.index].name if known is None else known

    # Stages that were added.
    def rewrite(self, r: Rewrite) -> None:
        if isinstance(r, CacheRead):
            self.blocks[r.made] = self.engine.cache_read(self.buffer(r.tensor), r.scope, [self.block(x) for x in r.readers])
        elif isinstance(r, CacheWrite):
            self.blocks[r.made], self.blocks[r.stage] = self.block(r.stage), self.engine.cache_write(self.block(r.stage), r.scope)
        else:
            block = self.block(r.stage)
            self.name_loops(r.roots, self.engine.loops(block))
            for relation in r.relations:
                self.relate(relation)
            own = self.loops[r.axis]
            spatial = [v for v in self.engine.axes(block)[0] if v is not own]
            rest = [v for v in self.engine.axes(block)[1] if v is not own]
            name = self.blocks[r.made] = self.engine.rfactor(block, own, r.factor_axis)
            self.engine.reorder(*spatial[: r.factor_axis], own, *spatial[r.factor_axis :], *rest)
            assert len(self.engine.loops(name)) == len(root_axes(r.made.op))

    # Where each stage stands.
    def arrange(self, stage: Stage) -> None:
        block = self.block(stage)
        if stage.scope:
            self.engine.set_scope(block, stage.scope)
        self.name_loops(root_axes(stage.op), self.engine.loops(block) if stage.attached is None else self.attach(stage, *stage.attached))
        for relation in stage.relations:
            self.relate(relation)
        for key, value in stage.notes.items():
            self.engine.annotate(block, key, value)
        for ahead in stage.prefetches:
            self.prefetch(block, ahead)
        for mark in stage.marks:
            self.mark(mark)

    def attach(self, stage: Stage, parent: Stage, axis: IterVar) -> list[Var]:
        if parent.inlined:
            raise ScheduleError(f"'{stage.op.name}' is to be computed in '{parent.op.name}', which is inlined and has no loops")
        if axis not in parent.leaf_iter_vars:
            names = ", ".join(a.var.name for a in parent.leaf_iter_vars)
            raise ScheduleError(
                f"'{stage.op.name}' is to be computed in loop '{axis.var.name}' of '{parent.op.name}', "
                f"which was split or fused; its loops are {names}"
            )
        loop = self.loops.get(axis)
        if loop is None:
            raise ScheduleError(f"'{stage.op.name}' is to be computed in '{parent.op.name}', which does not read it")
        return self.engine.compute_at(self.block(stage), loop, preserve_unit_loops=True)

    def name_loops(self, axes: Sequence[IterVar], loops: Sequence[Var]) -> None:
        self.loops.update(zip(axes, loops, strict=bool(axes)))

    def relate(self, r: Relation) -> None:
        if isinstance(r, Split):
            loop = self.loops[r.parent]
            size = min(r.factor or r.nparts or 1, self.engine.extent(loop))
            self.loops[r.outer], self.loops[r.inner] = self.engine.split(loop, [None, size] if r.factor else [size, None])
        elif isinstance(r, Fuse):
            self.loops[r.fused] = self.engine.fuse(*(self.loops[a] for a in r.parents))
        else:
            self.engine.reorder(*(self.loops[a] for a in r.axes))

    def mark(self, m: Mark) -> None:
        loop = self.loops[m.axis]
        match m.kind:
            case "vectorized":
                self.engine.vectorize(loop)
            case "unrolled":
                self.engine.unroll(loop)
            case "parallel":
                self.engine.parallel(loop)
            case _:
                self.engine.annotate(loop, m.kind, m.value)

    def prefetch(self, block: str, ahead: Ahead) -> None:
        """The engine counts in bytes: so many as the address moves in `offset` trips of the loop."""
        buffer, loop = self.buffer(ahead.tensor), self.loops[ahead.axis]
        node = self.engine.block(block)
        moves = {m for s in walk_stmt(node.body) for e in expressions(s) for x in walk(e) if isinstance(x, Load) and x.buffer.name == buffer
                 for m in [_elements_per_trip(node, x, loop)]}
        if len(moves) != 1 or 0 in moves:
            raise ScheduleError(f"'{buffer}' is not read at places that move with loop '{ahead.axis.var.name}' of '{block}'; prefetch along a loop that it is read along")
        self.engine.prefetch(buffer, moves.pop() * ahead.tensor.dtype.itemsize * ahead.offset)


def _elements_per_trip(block: Block, load: Load, loop: Var) -> int:
    """By how many elements the address of a load moves with each trip of a loop."""
    place: PrimExpr = const(0, INT64)
    for i, d in zip(load.indices, load.buffer.shape, strict=True):
        place = add(mul(place, d), i)
    points: dict[PrimExpr, PrimExpr] = {it.var: b for it, b in zip(block.iters, block.bindings, strict=True)}
    return linear(substitute(place, points)).coefs.get(loop, 0)
