"""Translates the record of a te schedule to steps of `tir.Schedule`, in this order:

    1. the computations without steps, one nest each                  (`te/create.py`)
    2. added stages: cache_read, cache_write, rfactor                 in the order of their creation
    3. layouts of values
    4. inlined stages
    5. every other stage, readers first: its placement, then its splits, fuses and orders, then its marks

A stage is attached before its loops are split, since its placement determines the extents of its loops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from tilewright.base.errors import ScheduleError
from tilewright.base.types import INT64
from tilewright.scalar.arith import linear
from tilewright.scalar.expr import Buffer, IntImm, Load, PrimExpr, Var, add, const, mul, number_of
from tilewright.scalar.walk import free_vars, substitute, walk
from tilewright.te.create import create_blocks
from tilewright.te.relayout import compute_in_order
from tilewright.te.scan import ScanOp
from tilewright.te.schedule import CacheRead, CacheWrite, Rewrite, Rfactor, Schedule
from tilewright.te.stage import Ahead, Fuse, Mark, Relation, Singleton, Split, Stage, root_axes
from tilewright.te.tensor import ComputeOp, Instruction, Operation, PlaceholderOp, Tensor, producers_first
from tilewright.te.thread import VIRTUAL, ThreadAxis
from tilewright.te.unroll_by_hint import unroll_by_hint
from tilewright.tir.index_map import IndexMap
from tilewright.tir.legality import check_any_order, check_threads, fault
from tilewright.tir.loop_schedule import Schedule as Engine
from tilewright.tir.stmt import (
    IMPORTS,
    THREAD,
    Block,
    For,
    IterVar,
    PrimFunc,
    expressions,
    stored_buffers,
    walk_stmt,
)

_SHARING: Final = {"shared": ("threadIdx.", *VIRTUAL), "warp": ("threadIdx.x",)}
"""Memory scope -> the threads that share such memory."""


def schedule_func(
    s: Schedule, args: Sequence[Any], name: str = "main", binds: Mapping[Tensor, Buffer] | None = None
) -> PrimFunc:
    """Return the scheduled program with the parameters `args`. Raises `ScheduleError` and `CompileError`.

    An argument is a tensor, or a `te.var` scalar; `binds` are buffers to use for some of the tensors.
    """
    given, args = args, [a for a in args if not isinstance(a, Var)]
    _check_args(s, args)
    inputs = [t for t in args if isinstance(t.op, PlaceholderOp)]
    outputs = [t for t in args if not isinstance(t.op, PlaceholderOp)]
    placed = [t for t in outputs if t not in (binds or ()) and _is_placed(s, s[t])]
    whole = [t for t in outputs if t not in placed]
    func, blocks = create_blocks(inputs, whole, name, binds=binds)
    buffers = dict(zip([*inputs, *whole], func.buffers, strict=True))
    params = [a for a in given if isinstance(a, Var) or a not in placed]
    func = replace(func, params=tuple(a if isinstance(a, Var) else buffers[a] for a in params))
    if s.arrange is not None:
        _check_no_steps(s)
        return s.arrange(func, inputs, outputs)
    buffers |= _stored(func, blocks, placed)
    func = unroll_by_hint(_resolved(s, func, blocks, buffers).func)
    if placed:
        whole_params = [a if isinstance(a, Var) else buffers[a] for a in given]
        func = _with_placed(func, whole_params, [buffers[t] for t in placed])
    imports = tuple(dict.fromkeys(text for stage in s.stages for text in stage.imports))
    return replace(func, attrs={**func.attrs, IMPORTS: imports}) if imports else func


def _stored(func: PrimFunc, blocks: Mapping[Operation, str], tensors: Sequence[Tensor]) -> dict[Tensor, Buffer]:
    """Return the buffers of intermediate tensors."""
    found = {b.name: stored_buffers(b) for b in walk_stmt(func.body) if isinstance(b, Block)}
    return {t: found[blocks[t.op]][t.index] for t in tensors}


def _is_placed(s: Schedule, stage: Stage) -> bool:
    """Return whether a stage is an intermediate value that is computed inside of its readers, in its own layout."""
    return stage.op not in s.outputs and stage.has_place and not (stage.scope or stage.rolling or stage.layout)


def _with_placed(func: PrimFunc, params: Sequence[Buffer | Var], placed: Sequence[Buffer]) -> PrimFunc:
    """Make intermediate values that are computed inside of their readers parameters. The function writes the elements
    that the readers need, and none of a value that is inlined."""
    rest = tuple(b for b in func.attrs["intermediates"] if b not in placed)
    return replace(func, params=tuple(params), attrs={**func.attrs, "intermediates": rest})


def apply_schedule(s: Schedule, args: Sequence[Tensor], func: PrimFunc) -> PrimFunc:
    """Apply the schedule to `func`, a program of the same computations whose blocks have the same names.

    The buffers, origins and attributes of `func` are kept. Raises `ScheduleError` if a step cannot be applied.
    """
    inputs = [t for t in args if isinstance(t.op, PlaceholderOp)]
    outputs = [t for t in args if not isinstance(t.op, PlaceholderOp)]
    own, blocks = create_blocks(inputs, outputs)
    engine = Engine(func)
    engine.apply(_resolved(s, own, blocks, dict(zip([*inputs, *outputs], own.buffers, strict=True))).steps)
    return unroll_by_hint(engine.func)


def _resolved(s: Schedule, func: PrimFunc, blocks: Mapping[Operation, str], buffers: dict[Tensor, Buffer]) -> Engine:
    """Return the engine after all steps of the schedule."""
    resolver = Resolver(s, func, {s[op]: block for op, block in blocks.items()}, buffers)
    resolver.resolve()
    return resolver.engine


def _check_args(s: Schedule, args: Sequence[Any]) -> None:
    for t in args:
        if not isinstance(t, Tensor):
            raise ScheduleError(f"an argument of a schedule must be a tensor; {t!r} is a {type(t).__name__}")
        if not isinstance(t.op, PlaceholderOp):  # an input may be unused
            s[t]
    doubled = [t.name for k, t in enumerate(args) if t in args[:k]]
    if doubled:
        raise ScheduleError(f"'{doubled[0]}' occurs twice among the arguments")
    inner = set(producers_first([t.op for t in args]))  # an output that an argument is computed from needs no memory
    missing = [t.name for op in s.outputs if op not in inner for t in op.outputs if t not in args]
    if missing:
        raise ScheduleError(
            f"'{missing[0]}' is an output of the schedule, but is missing from the arguments "
            f"{', '.join(t.name for t in args)}")


def _check_no_steps(s: Schedule) -> None:
    """Raise `ScheduleError` if a schedule with `arrange` has steps."""
    for stage in s.stages:
        if (
            s.rewrites or stage.inlined or stage.attached or stage.scope or stage.relations or stage.marks
            or stage.notes or stage.prefetches
        ):
            raise ScheduleError(
                f"'{stage.op.name}' has schedule steps, but this predefined schedule already arranges all loops of "
                "its computation; begin with te.create_schedule or topi.generic")


class Resolver:
    """The engine, the block of each stage, and the loop of each axis."""

    def __init__(self, s: Schedule, func: PrimFunc, blocks: dict[Stage, str], buffers: dict[Tensor, Buffer]) -> None:
        self.s, self.engine, self.blocks = s, Engine(func, checked=True), blocks
        self.inputs = {t: b.name for t, b in buffers.items() if isinstance(t.op, PlaceholderOp)}
        self.loops: dict[IterVar, Var] = {}
        self.threads: dict[ThreadAxis, PrimExpr] = {}
        self.bound: dict[Var, ThreadAxis] = {}
        """The thread axes that loops are bound to."""
        self.depths: dict[str, int] = {}
        """The numbers of loops around the own loops of a block."""

    def resolve(self) -> None:
        """Apply all steps of the schedule."""
        for rewrite in self.s.rewrites:
            self.rewrite(rewrite)
        for stage in self.s.stages:
            if stage.layout is not None:
                self.lay_out(stage, stage.layout)
        for stage in self.s.stages:
            if stage.inlined:
                self.engine.compute_inline(self.block(stage))
        for stage in reversed(self.s.stages):
            if isinstance(stage.op, ScanOp):
                self.arrange_scan(stage, stage.op)
            elif stage in self.blocks and not stage.inlined:
                self.arrange(stage)

    def block(self, stage: Stage) -> str:
        found = self.blocks.get(stage)
        if found is None:
            raise ScheduleError(
                f"'{stage.op.name}' is not computed for these arguments: no argument depends on it, or it is itself "
                "an argument")
        return found

    def buffer(self, t: Tensor) -> str:
        """Return the name of a tensor's buffer."""
        known = self.inputs.get(t)
        return stored_buffers(self.engine.block(self.block(self.s[t])))[t.index].name if known is None else known

    # Added stages.
    def rewrite(self, r: Rewrite) -> None:
        if isinstance(r, CacheRead):
            self.blocks[r.made] = self.engine.cache_read(
                self.buffer(r.tensor), r.scope, [self.block(x) for x in r.readers])
        elif isinstance(r, CacheWrite):
            self.blocks[r.made], self.blocks[r.stage] = self.block(r.stage), self.engine.cache_write(
                self.block(r.stage), r.scope)
            if r.order is not None:
                self.engine.func = compute_in_order(self.engine.func, self.blocks[r.made], r.order)
        else:
            block = self.block(r.stage)
            self.name_loops(r.roots, block, self.engine.loops(block))
            for relation in r.relations:
                self.relate(relation, block)
            own = self.loops[r.axis]
            spatial = [v for v in self.engine.axes(block)[0] if v is not own]
            rest = [self.loops[a] for a in r.rest]
            name = self.blocks[r.made] = self.engine.rfactor(block, own, r.factor_axis)
            self.engine.reorder(*spatial[: r.factor_axis], own, *spatial[r.factor_axis :], *rest)
            self.first_axis_to(block, len(spatial))
            self.first_axis_to(name, r.factor_axis)
            assert len(self.engine.loops(name)) == len(root_axes(r.made.op))

    def first_axis_to(self, block: str, place: int) -> None:
        """Move the first axis of a block, that of the factor, to the place that it has in te."""
        from tilewright.tir.block_moves import reorder_block_iter_var

        _, *others = range(len(self.engine.block(block).iters))
        self.engine.func = reorder_block_iter_var(
            self.engine.func, block, [*others[:place], 0, *others[place:]])

    def lay_out(self, stage: Stage, layout: IndexMap) -> None:
        """Change the layout of an argument, or of a stage's value, which is computed in the order of the new layout."""
        from tilewright.tir.layout_rewrites import transform_block_layout, transform_layout

        if isinstance(stage.op, PlaceholderOp):
            name = self.inputs.get(stage.op.outputs[0])
            for argument in [b for b in self.engine.func.buffers if b.name == name]:
                self.engine.func, _ = transform_layout(self.engine.func, argument, layout)
            return
        block = self.engine.block(self.block(stage))
        (buffer,) = stored_buffers(block)
        rest = tuple(Var(i.var.name) for i in block.iters if i.kind == "reduce")
        whole = IndexMap((*layout.params, *rest), (*layout.results, *rest))
        func, _ = transform_layout(self.engine.func, buffer, layout)
        self.engine.func = transform_block_layout(func, block.name, whole)

    # Placement of stages.
    def arrange(self, stage: Stage) -> None:
        block = self.block(stage)
        if stage.scope:
            self.set_scope(block, stage.scope)
        at = stage.place
        loops = self.engine.loops(block) if at is None else self.attach(stage, *at)
        axes = stage.roots
        self.name_loops(axes, block, loops[len(loops) - len(axes) :])
        for relation in stage.relations:
            self.relate(relation, block)
        for key, value in stage.notes.items():
            self.engine.annotate(block, key, value)
        for ahead in stage.prefetches:
            self.prefetch(block, ahead)
        for predicate in stage.predicates:
            self.guard(stage, block, predicate)
        if stage.rolling:
            self.engine.rolling_buffer(block)
        for mark in stage.marks:
            self.mark(mark)
        if isinstance(stage.op, ComputeOp) and stage.op.instruction is not None:
            self.perform(stage, stage.op, stage.op.instruction)

    def perform(self, stage: Stage, op: ComputeOp, by: Instruction) -> None:
        """Replace the loops over the innermost axes of a computation by its instruction, inside all other loops."""
        inner = [*op.axis[len(op.axis) - by.spatial :], *op.reduce_axis[len(op.reduce_axis) - by.reduce :]]
        gone = next((a for a in inner if a not in stage.leaf_iter_vars), None)
        if gone is not None:
            raise ScheduleError(
                f"loop '{gone.var.name}' of '{op.name}' is a part of the instruction '{by.intrin.name}', so it cannot "
                "be split or fused")
        block, loops = self.block(stage), [self.loops[a] for a in inner]
        own = self.engine.loops(block)[self.depths[block] :]
        order = [*(v for v in own if v not in loops), *loops]
        if order != own:
            self.engine.reorder(*order)
        self.engine.tensorize(loops[0], by.intrin)

    def set_scope(self, block: str, scope: str) -> None:
        """Store the result of a block in memory of a scope."""
        self.engine.set_scope(block, scope)

    def arrange_scan(self, stage: Stage, op: ScanOp) -> None:
        """Check that a scan has no steps, since its loop stays outside of the loops of its updates."""
        if stage.relations or any(
            m.kind in ("vectorized", "unrolled", "parallel", "thread", "tensorized") for m in stage.marks
        ) or stage.attached or stage.scope:
            raise ScheduleError(
                f"'{op.name}' is a scan, which runs sequentially; schedule its update '{op.update[0].name}' instead")
        for t in op.update:
            update = self.s[t]
            steps = update.op.axis[0] if isinstance(update.op, ComputeOp) else None
            touched = any(m.axis is steps and not m.kind.startswith("pragma_") for m in update.marks)
            if touched or update.leaf_iter_vars[0] is not steps or update.attached or update.inlined:
                raise ScheduleError(
                    f"loop '{op.update[0].op.axis[0].var.name}' of '{t.name}' iterates over the steps of scan "
                    f"'{op.name}', so it must stay outermost and serial; transform the loops inside it instead")
        if any(self.s[t] in self.blocks for t in op.update):
            self.loops[op.scan_axis] = self.engine.loops(self.block(self.s[op.update[0]]))[0]

    def guard(self, stage: Stage, block: str, predicate: PrimExpr) -> None:
        """Guard the store by a condition over the axes of the block and the loops derived from them."""
        iters = [it.var for it in self.engine.block(block).iters]
        known: dict[PrimExpr, PrimExpr] = {a.var: self.loops[a] for a in stage.leaf_iter_vars if a in self.loops}
        known.update({m.value.var: self.loops[m.axis] for m in stage.marks if m.kind == "thread"})
        known.update({a.var: v for a, v in zip(stage.roots, iters, strict=True)})
        if stage.layout is not None:
            axes = [a for a in root_axes(stage.op) if a.kind == "spatial"]
            back = stage.layout.by_digits([int(a.extent) for a in axes])  # type: ignore[call-overload]
            assert back is not None
            known.update(zip((a.var for a in axes), back(iters[: len(stage.layout.results)]), strict=True))
        unknown = [v.name for v in free_vars(predicate) if v not in known]
        if unknown:
            raise ScheduleError(
                f"set_store_predicate of '{stage.op.name}' uses '{unknown[0]}', which is not one of its axes or loops")
        condition = substitute(predicate, known)
        self.engine.where(block, condition)

    def attach(self, stage: Stage, parent: Stage, axis: IterVar) -> list[Var]:
        if parent.inlined:
            raise ScheduleError(
                f"'{stage.op.name}' cannot be computed in '{parent.op.name}', which is inlined and has no loops")
        if parent is stage:
            raise ScheduleError(
                f"'{stage.op.name}' cannot be computed inside its own loop; choose a stage that reads it")
        axis = parent.loop_of(axis)
        if axis not in parent.leaf_iter_vars:
            names = ", ".join(a.var.name for a in parent.leaf_iter_vars)
            raise ScheduleError(
                f"'{stage.op.name}' cannot be computed in loop '{axis.var.name}' of '{parent.op.name}', which was "
                f"split or fused; its loops are {names}")
        loop = self.loops.get(axis)
        if loop is None:
            raise ScheduleError(f"'{stage.op.name}' cannot be computed in '{parent.op.name}', which does not read it")
        around = self.engine.loops(self.block(stage))
        if loop in around:  # the step loop of a scan, which already contains the stage
            return around[around.index(loop) + 1 :]
        shared = self.sharing(stage, loop)
        return self.engine.compute_at(self.block(stage), loop, preserve_unit_loops=True, across=shared)

    def sharing(self, stage: Stage, loop: Var) -> tuple[Var, ...]:
        """Return the loops from `loop` outwards whose threads share the memory of a stage, and so need it filled for
        all of them."""
        made = (r.scope for r in self.s.rewrites if not isinstance(r, Rfactor) and r.made is stage)
        tags = _SHARING.get((stage.scope or next(made, "")).partition(".")[0])
        target = self.engine.loop(loop)
        around = [f.var for f in [*self.engine.around(target), target] if isinstance(f, For)]
        return tuple(v for v in around if tags and v in self.bound and self.bound[v].thread_tag.startswith(tags))

    def name_loops(self, axes: Sequence[IterVar], block: str, loops: Sequence[Var]) -> None:
        """Note the loops of a block that run over its axes."""
        self.loops.update(zip(axes, loops, strict=bool(axes)))
        around = self.engine.loops(block)
        self.depths[block] = around.index(loops[0]) if loops else len(around)

    def relate(self, r: Relation, block: str) -> None:
        if isinstance(r, Split):
            loop = self.loops[r.parent]
            size, extent = r.factor or r.nparts or 1, self.engine.loop(loop).extent
            size = min(size, extent.value) if isinstance(extent, IntImm) else size
            self.loops[r.outer], self.loops[r.inner] = self.engine.split(
                loop, [None, size] if r.factor else [size, None])
        elif isinstance(r, Singleton):
            own = self.engine.loops(block)[self.depths[block] :]
            self.loops[r.iter] = self.engine.add_unit_loop(own[0] if own else block)
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
            case "thread":
                self.bind(loop, m.value)
            case "tensorized":
                check_any_order(self.engine.func, self.engine.loop(loop), f"loop '{loop.name}' cannot be tensorized")
                self.engine.tensorize(loop, m.value)
            case _:
                self.engine.annotate(loop, m.kind, m.value)

    def bind(self, loop: Var, axis: ThreadAxis) -> None:
        self.bound[loop] = axis
        node = self.engine.loop(loop)
        extent = node.extent
        wanted = self.threads.setdefault(axis, extent)
        for other in (wanted, axis.extent):
            if number_of(other) != 0 and other is not extent:
                why = (
                    f"loop '{loop.name}' has {extent} iterations, but is bound to thread axis '{axis.thread_tag}' of "
                    f"extent {other}; split it by the extent of the axis"
                )
                raise fault(why, node, self.engine.func)
        check_threads(self.engine.func, self.engine.loop(loop))
        self.engine.annotate(loop, THREAD, axis.thread_tag)

    def prefetch(self, block: str, ahead: Ahead) -> None:
        """Prefetch `offset` trips of the loop ahead; the engine needs this distance in bytes."""
        buffer, loop = self.buffer(ahead.tensor), self.loops[ahead.axis]
        node = self.engine.block(block)
        moves = {
            m for s in walk_stmt(node.body) for e in expressions(s) for x in walk(e) if isinstance(x, Load)
            and x.buffer.name == buffer
                 for m in [_elements_per_trip(node, x, loop)]}
        if len(moves) != 1 or 0 in moves:
            why = (
                f"'{buffer}' is not indexed by loop '{ahead.axis.var.name}' of '{block}'; prefetch along a loop that "
                "indexes it"
            )
            raise fault(why, self.engine.loop(loop), self.engine.func)
        self.engine.prefetch(buffer, moves.pop() * ahead.tensor.dtype.itemsize * ahead.offset)


def _elements_per_trip(block: Block, load: Load, loop: Var) -> int:
    """Return the change of a load's address, in elements, for each trip of a loop."""
    place: PrimExpr = const(0, INT64)
    for i, d in zip(load.indices, load.buffer.shape, strict=True):
        place = add(mul(place, d), i)
    points: dict[PrimExpr, PrimExpr] = {it.var: b for it, b in zip(block.iters, block.bindings, strict=True)}
    return linear(substitute(place, points)).coefs.get(loop, 0)
