"""Postprocessors: steps that complete a schedule after its decisions, or refuse it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tilewright.base.errors import OptionError, ScheduleError
from tilewright.scalar.expr import Buffer, Load, PrimExpr, Var, number_of
from tilewright.scalar.walk import free_vars, substitute, walk
from tilewright.search.meta_schedule import block_analysis as analysis
from tilewright.search.meta_schedule.bases import Postproc, PyPostproc
from tilewright.search.meta_schedule.schedule_rule import PARALLEL, UNROLL_EXPLICIT, UNROLL_IMPLICIT, VECTORIZE
from tilewright.search.meta_schedule.thread_postproc import RewriteCooperativeFetch, RewriteUnboundBlock
from tilewright.search.meta_schedule.tiling import AUTO_TENSORIZE
from tilewright.tir.index_map import map_by_loops
from tilewright.tir.loop_steps import LoopRV
from tilewright.tir.module_schedule import Schedule
from tilewright.tir.steps import BlockAt
from tilewright.tir.stmt import (
    ROOT_BLOCK,
    SERIAL,
    THREAD,
    Block,
    For,
    PrimFunc,
    Seq,
    Store,
    expressions,
    stored_buffers,
    walk_stmt,
)

__all__ = [
    "DisallowDynamicLoop", "Postproc", "PyPostproc", "RewriteCooperativeFetch", "RewriteLayout",
    "RewriteParallelVectorizeUnroll", "RewriteReductionBlock", "RewriteTensorize", "RewriteUnboundBlock",
]

PREPROCESSED: Final = "meta_schedule.layout_rewrite_preproc"
"""Annotation of a block that brings an input into another layout."""


class DisallowDynamicLoop(Postproc):
    """Refuses schedules with a loop of symbolic extent."""

    def apply(self, sch: Schedule) -> bool:
        return all(
            number_of(s.extent) is not None
            for func in sch.functions.values() for s in walk_stmt(func.body) if isinstance(s, For))


class RewriteReductionBlock(Postproc):
    """Initializes reductions in blocks of their own, before their outermost reduction loop.

    Reductions by several threads stay as they are.
    """

    def apply(self, sch: Schedule) -> bool:
        for name, func in list(sch.functions.items()):
            for s in list(walk_stmt(func.body)):
                if isinstance(s, Block) and s.init is not None and analysis.is_reduction(s):
                    self._decompose(sch, name, s)
        return True

    @staticmethod
    def _decompose(sch: Schedule, func: str, node: Block) -> None:
        trial = sch.copy()
        loops = trial.get_loops(BlockAt(node.name, func))
        reduced = [k for k, v in enumerate(loops) if "reduce" in analysis.axis_kinds(node, v.var)]
        if not reduced or any(THREAD in trial.get(loops[k]).annotations for k in reduced):
            return
        block = sch.get_block(node.name, func)
        first = sch.decompose_reduction(block, sch.get_loops(block)[reduced[0]])
        if AUTO_TENSORIZE in node.annotations:  # no instruction stores the initial values
            sch.unannotate(first, AUTO_TENSORIZE)
            sch.annotate(first, AUTO_TENSORIZE, "")


class RewriteTensorize(Postproc):
    """Replaces each block with the annotation `meta_schedule.auto_tensorize` by the instruction of that name. With
    `vectorize_init_loop`, vectorizes the last loop of blocks without a name, which store initial values.
    """

    def __init__(self, vectorize_init_loop: bool = False) -> None:
        self.vectorize_init_loop = vectorize_init_loop

    def apply(self, sch: Schedule) -> bool:
        for name, func in list(sch.functions.items()):
            for s in list(walk_stmt(func.body)):
                given = s.annotations.get(AUTO_TENSORIZE) if isinstance(s, Block) else None
                if isinstance(s, Block) and given is not None and not self._rewrite(sch, BlockAt(s.name, name), given):
                    return False
        return True

    def _rewrite(self, sch: Schedule, at: BlockAt, intrin: str) -> bool:
        """Tensorize a block, or vectorize its initial values. Return whether that was possible."""
        block = sch.get_block(at.block, at.func)
        if not intrin and not self.vectorize_init_loop:
            return True
        sch.unannotate(block, AUTO_TENSORIZE)
        if not intrin:
            sch.vectorize(sch.get_loops(sch.get_child_blocks(block)[0])[-1])
            return True
        if not analysis.attempt(sch, "tensorize", block, intrin):
            return False
        sch.tensorize(block, intrin)
        return True


@dataclass(slots=True)
class _Marks:
    """The marks of a root block, and the loops of one block to fuse for them; 0 for none."""

    parallel: int = -1
    vectorize: int = -1
    unroll: int = -1
    is_explicit: bool = True
    parallel_loops: int = 0
    vector_loops: int = 0


class RewriteParallelVectorizeUnroll(Postproc):
    """Applies the marks of `ParallelizeVectorizeUnroll`: outer loops run in parallel, inner ones as vectors."""

    def apply(self, sch: Schedule) -> bool:
        for func in list(sch.functions):
            found = sch.get(BlockAt(ROOT_BLOCK, func)).annotations
            marks = _Marks(
                int(found.get(PARALLEL, -1)), int(found.get(VECTORIZE, -1)),
                int(found.get(UNROLL_EXPLICIT, found.get(UNROLL_IMPLICIT, -1))), UNROLL_EXPLICIT in found)
            known = [k for k in (PARALLEL, VECTORIZE, UNROLL_EXPLICIT, UNROLL_IMPLICIT) if k in found]
            if not known:
                continue
            root = sch.get_block(ROOT_BLOCK, func)
            for key in known:
                sch.unannotate(root, key)
            for block in sch.get_child_blocks(root):
                loops = sch.get_loops(block)
                if loops:
                    _mark_loops(sch, block, loops, marks)
        return True


def _mark_loops(sch: Schedule, block: BlockAt, loops: list[LoopRV], marks: _Marks) -> None:
    """Apply the marks to the loops around one block."""
    marks.parallel_loops = fusible_outer(sch, loops, marks.parallel)[0] if marks.parallel > 0 else 0
    marks.vector_loops = fusible_inner(sch, block, loops, marks.vectorize) if marks.vectorize > 0 else 0
    n = len(loops)
    if marks.parallel > 0 and marks.vectorize > 0 and _is_elementwise(sch, block, loops):
        outer, inner = sch.split(sch.fuse(*loops), [None, marks.vectorize])
        _try(sch, "vectorize", inner)
        _try(sch, "parallel", outer)
        loops = [outer, inner]
    else:
        marks.vector_loops = min(marks.vector_loops, n - marks.parallel_loops)
        if marks.parallel_loops:
            outer = _fused(sch, loops[: marks.parallel_loops])
            _try(sch, "parallel", outer)
            loops = [outer, *loops[marks.parallel_loops :]]
        if marks.vector_loops:
            inner = _fused(sch, loops[-marks.vector_loops :])
            _try(sch, "vectorize", inner)
            loops = [*loops[: -marks.vector_loops], inner]
    if marks.unroll > 0 and analysis.is_reduction(sch.get(block)):
        sch.annotate(loops[0], "pragma_auto_unroll_max_step", marks.unroll)
        sch.annotate(loops[0], "pragma_unroll_explicit", int(marks.is_explicit))


def fusible_outer(sch: Schedule, loops: list[LoopRV], limit: int) -> tuple[int, list[int]]:
    """Return how many outer loops to fuse for at most about `limit` parallel iterations, and the iterations after each.
    """
    sizes, count, total = list[int](), 0, 1
    for loop in loops:
        s, extent = sch.get(loop), analysis.extent_of(sch, loop)
        if extent is None or s.kind != SERIAL or "reduce" in analysis.moved_kinds(s):
            break
        total *= extent
        sizes.append(total)
        count = count if total > limit and len(sizes) > 1 and sizes[-2] > limit else len(sizes)
        if isinstance(s.body, Seq):
            break
    return (count if sizes and sizes[-1] > 1 else 0), sizes


def fusible_inner(sch: Schedule, block: BlockAt, loops: list[LoopRV], limit: int) -> int:
    """Return how many inner loops to fuse for vectors of at most `limit` lanes, which access contiguous elements."""
    node, count, total = sch.get(block), 0, 1
    for loop in reversed(loops):
        s, extent = sch.get(loop), analysis.extent_of(sch, loop)
        if extent is None or s.kind != SERIAL or isinstance(s.body, Seq) or total * extent > limit:
            break
        if "reduce" in analysis.axis_kinds(node, loop.var) or not _is_contiguous(node, loop.var):
            break
        total, count = total * extent, count + 1
    return count if total > 1 else 0


def _is_contiguous(node: Block, loop: Var) -> bool:
    """Return whether stores move along their last index with a loop, or not at all, and some access moves."""
    axes = {i.var for i, b in zip(node.iters, node.bindings, strict=True) if loop in free_vars(b)}
    moved = False
    for s in walk_stmt(node.body):
        if isinstance(s, Store) and any(axes.intersection(free_vars(i)) for i in s.indices[:-1]):
            return False
        accesses = [s.indices] if isinstance(s, Store) else []
        accesses += [e.indices for top in expressions(s) for e in walk(top) if isinstance(e, Load)]
        moved = moved or any(i and axes.intersection(free_vars(i[-1])) for i in accesses)
    return moved or not axes


def _is_elementwise(sch: Schedule, block: BlockAt, loops: list[LoopRV]) -> bool:
    """Return whether a block stores one element for each iteration of all its loops, in order."""
    node = sch.get(block)
    if analysis.is_reduction(node) or [*node.bindings] != [v.var for v in loops]:
        return False
    if any(len(analysis.blocks_inside(sch.get(v))) > 1 for v in loops):
        return False
    stores = [s for s in walk_stmt(node.body) if isinstance(s, Store)]
    return len(stores) == 1 and [*stores[0].indices] == [i.var for i in node.iters]


class RewriteLayout(Postproc):
    """Stores inputs of free layout in the order in which their reader accesses them.

    The attribute `layout_free_buffers` of a function lists these inputs. Blocks marked
    `meta_schedule.layout_rewrite_preproc` bring them into their new layout.
    """

    def apply(self, sch: Schedule) -> bool:
        for name, func in list(sch.functions.items()):
            for argument in [func.params[int(k)] for k in func.attrs.get("layout_free_buffers", ())]:
                if isinstance(argument, Buffer):
                    self._rewrite(sch, name, argument)
        return True

    @staticmethod
    def _rewrite(sch: Schedule, func: str, original: Buffer) -> None:
        """Rewrite one input. It keeps its layout if several blocks read it, or its reader does so in no fixed order."""
        copies, buffer = list[Block](), original
        while True:
            reader = _only_reader(sch.functions[func], buffer)
            if reader is None:
                return
            if not analysis.is_copy(reader):
                break
            copies.append(reader)
            (buffer,) = stored_buffers(reader)
        loads = {e.indices for e in analysis.loads_of(reader)[buffer]}
        loops = sch.get_loops(BlockAt(reader.name, func))
        extents = [analysis.extent_of(sch, v) for v in loops]
        if len(loads) != 1 or not all(extents):
            return
        bound: dict[PrimExpr, PrimExpr] = {i.var: b for i, b in zip(reader.iters, reader.bindings, strict=True)}
        access = [substitute(i, bound) for i in loads.pop()]
        shape = [int(n) for n in buffer.shape]
        layout = map_by_loops(shape, access, {v.var: n for v, n in zip(loops, extents, strict=True) if n})
        if layout is None or layout.results == layout.params:
            return
        first = copies[0] if copies else reader
        made = sch.cache_read(sch.get_block(first.name, func), original.name, "global")
        sch.annotate(made, PREPROCESSED, True)
        for block in (made, *(sch.get_block(c.name, func) for c in copies)):
            sch.transform_layout(block, ("write", 0), layout)


def default_postprocs(kind: str) -> list[Postproc]:
    """Return the postprocessors for a kind of target: "llvm", "c" or "cuda". Raises `OptionError` for others."""
    if kind == "cuda":
        return [
            DisallowDynamicLoop(), RewriteCooperativeFetch(), RewriteUnboundBlock(), RewriteParallelVectorizeUnroll(),
            RewriteReductionBlock()]
    if kind not in ("llvm", "c"):
        raise OptionError(
            f"there are no postprocessors for '{kind}'; the kinds are 'llvm', 'c' and 'cuda'", code="TW1103")
    return [DisallowDynamicLoop(), RewriteParallelVectorizeUnroll(), RewriteReductionBlock(), RewriteLayout()]


def _only_reader(func: PrimFunc, buffer: Buffer) -> Block | None:
    """Return the block that reads a buffer; None if several do. Raises `ScheduleError` for reads outside of blocks."""
    readers = [
        s for s in walk_stmt(func.body)
        if isinstance(s, Block) and not analysis.blocks_inside(s) and buffer in analysis.loads_of(s)]
    inside = sum(len(analysis.loads_of(r)[buffer]) for r in readers)
    total = sum(
        isinstance(e, Load) and e.buffer == buffer
        for s in walk_stmt(func.body) for top in expressions(s) for e in walk(top))
    if total > inside:
        raise ScheduleError(f"the buffer {buffer.name} of free layout is read outside of blocks")
    return readers[0] if len(readers) == 1 else None


def _fused(sch: Schedule, loops: list[LoopRV]) -> LoopRV:
    return sch.fuse(*loops)


def _try(sch: Schedule, step: str, *args: Any) -> None:
    """Apply a step, unless it would change results."""
    try:
        getattr(sch, step)(*args)
    except ScheduleError:
        return
