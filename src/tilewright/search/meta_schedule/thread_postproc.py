"""Postprocessors for GPUs: they bind the loops that rules left to threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.search.meta_schedule import block_analysis as analysis
from tilewright.search.meta_schedule.bases import Postproc
from tilewright.search.meta_schedule.thread_binding import THREADS, bind_block, threads_of
from tilewright.search.meta_schedule.tiling import COOPERATIVE_FETCH
from tilewright.tir.module_schedule import Schedule
from tilewright.tir.steps import BlockAt
from tilewright.tir.stmt import THREAD, Block, PrimFunc, walk_stmt

if TYPE_CHECKING:
    from tilewright.search.meta_schedule.tune_context import TuneContext

WARP_EXECUTION = "warp_execution"
"""Annotation of a block whose instructions a whole warp executes."""


class RewriteUnboundBlock(Postproc):
    """Binds blocks that are outside of threads to threads, in at most `max_threadblocks` blocks of them."""

    def __init__(self, max_threadblocks: int = 256) -> None:
        self.max_threadblocks, self.max_threads = max_threadblocks, -1

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        self.max_threads = threads_of(context, "max_threads_per_block")

    def apply(self, sch: Schedule) -> bool:
        for name in list(sch.functions):
            for node in _leaves(sch.functions[name]):
                if _is_unbound(sch, name, node):
                    block = sch.get_block(node.name, name)
                    bind_block(sch, block, self.max_threadblocks, self.max_threads, lambda limit: limit)
        return True


class RewriteCooperativeFetch(Postproc):
    """Lets all threads of a block load a part of the inputs that `MultiLevelTiling` copies, in vectors.

    for i in range(64): A_shared[i] = A[i]  ->
    for i_0: for i_1 in threadIdx.x: for i_2 in vectorized(4): A_shared[…] = A[…]
    """

    def __init__(self) -> None:
        self.warp = -1

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        self.warp = int((context.target.attrs if context.target is not None else {}).get("thread_warp_size", -1))

    def apply(self, sch: Schedule) -> bool:
        for name, func in list(sch.functions.items()):
            nodes = [s for s in walk_stmt(func.body) if isinstance(s, Block)]
            is_by_warp = any(WARP_EXECUTION in s.annotations for s in nodes)
            for node in nodes:
                if COOPERATIVE_FETCH in node.annotations:
                    self._share(sch, sch.get_block(node.name, name), is_by_warp)
        return True

    def _share(self, sch: Schedule, block: BlockAt, is_by_warp: bool) -> None:
        """Split the innermost loop of a copy between the threads around it."""
        loops = sch.get_loops(block)
        lanes, extent = int(sch.get(block).annotations[COOPERATIVE_FETCH]), analysis.extent_of(sch, loops[-1])
        sch.unannotate(block, COOPERATIVE_FETCH)
        threads = {str(sch.get(v).annotations.get(THREAD, "")): analysis.extent_of(sch, v) for v in loops}
        if is_by_warp:
            threads = {**threads, THREADS: self.warp}
        shares = [(tag, threads[tag]) for tag in ("threadIdx.y", THREADS) if tag in threads]
        is_vector = lanes > 1 and extent is not None and extent % lanes == 0
        sizes: list[Any] = [None, *(n for _, n in shares), *((lanes,) if is_vector else ())]
        parts = sch.split(loops[-1], sizes)
        if is_vector:
            sch.vectorize(parts[-1])
        for (tag, _), part in reversed([*zip(shares, parts[1:], strict=False)]):
            sch.bind(part, tag)


def _leaves(func: PrimFunc) -> list[Block]:
    """Return the blocks of a function that contain no others, in order."""
    return [s for s in walk_stmt(func.body) if isinstance(s, Block) and not analysis.blocks_inside(s)]


def _is_unbound(sch: Schedule, func: str, node: Block) -> bool:
    loops = sch.copy().get_loops(BlockAt(node.name, func))
    tags = {str(sch.get(v).annotations.get(THREAD, "")).partition(".")[0] for v in loops}
    return not {"blockIdx", "threadIdx"} <= tags
