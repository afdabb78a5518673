"""Rules for GPUs: loops are bound to blocks and threads, and sums are computed by the threads of a block together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from tilewright.search.meta_schedule import block_analysis as analysis
from tilewright.search.meta_schedule.bases import ScheduleRule
from tilewright.search.meta_schedule.block_analysis import TILED
from tilewright.search.meta_schedule.thread_binding import THREADS, bind_block, sampled_factor, threads_of
from tilewright.tir.loop_steps import LoopRV
from tilewright.tir.module_schedule import Schedule
from tilewright.tir.steps import BlockAt
from tilewright.tir.stmt import THREAD, stored_buffers

if TYPE_CHECKING:
    from tilewright.search.meta_schedule.tune_context import TuneContext

_EXTENTS: Final = (32, 64, 128, 256, 512, 1024)


class AutoBind(ScheduleRule):
    """Binds the outer loops of blocks that no other rule bound. The number of threads is one of `thread_extents`.

    There are at most `max_threadblocks` blocks, and `max_threads_per_block` threads (-1: the limit of the target).
    """

    def __init__(
        self, max_threadblocks: int = 256, thread_extents: Sequence[int] | None = None, max_threads_per_block: int = -1
    ) -> None:
        self.max_threadblocks, self.max_threads_per_block = max_threadblocks, max_threads_per_block
        self.thread_extents = list(_EXTENTS if thread_extents is None else thread_extents)

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        if self.max_threads_per_block == -1:
            self.max_threads_per_block = threads_of(context, "max_threads_per_block")

    def apply(self, sch: Schedule, block: BlockAt) -> list[Schedule]:
        if not analysis.is_root(sch, block) and TILED not in sch.get(block).annotations:
            bind_block(
                sch, block, self.max_threadblocks, self.max_threads_per_block, sampled_factor(sch, self.thread_extents))
        return [sch]


class CrossThreadReduction(ScheduleRule):
    """Computes long sums by several threads. A reader of the sums is computed by the same threads.

    for i: for k: s[i] += a[i, k]  ->  for i: for k_0: for k_1 in threadIdx.x: s[i] += a[i, k_0 * n + k_1]
    """

    def __init__(self, thread_extents: Sequence[int]) -> None:
        self.thread_extents = list(thread_extents)
        self.max_threads = self.warp = -1

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        attrs = {} if context.target is None else context.target.attrs
        self.max_threads = int(attrs.get("max_threads_per_block", -1))
        self.warp = int(attrs.get("thread_warp_size", -1))

    def apply(self, sch: Schedule, block: BlockAt) -> list[Schedule]:
        if -1 in (self.max_threads, self.warp) or not analysis.is_long_sum(sch, block, self.max_threads, self.warp):
            return [sch]
        new = sch.copy()
        place = _shared_loops(new, block)
        count = len(self.thread_extents)
        extent = new.sample_categorical(self.thread_extents, [1.0 / count] * count)
        if place is not None:
            at, innermost = place
            bound = _threads_around(new, innermost)
            if bound is None:
                rest, threads = new.split(innermost, [None, extent])
                new.bind(threads, THREADS)
                at = rest if at is innermost else at
            extent = bound or extent
            new.compute_at(block, at, preserve_unit_loops=True)
            new.set_scope(block, 0, "shared")
        new.bind(new.split(_reduction(new, block), [None, extent])[1], THREADS)
        return [new, sch]


def _shared_loops(sch: Schedule, block: BlockAt) -> tuple[LoopRV, LoopRV] | None:
    """Return the loop of the reader of a sum at which the sum can be computed, and the reader's innermost loop.

    None if there is no reader, if it will be tiled, or if several readers share no loop.
    """
    readers = sch.get_consumers(block)
    if not readers or len(stored_buffers(sch.get(block))) != 1 or analysis.has_reuse(sch.get(readers[0])):
        return None
    own, loops = sch.get_loops(block), sch.get_loops(readers[0])
    shared = len(loops)
    for other in readers[1:]:
        around = sch.get_loops(other)
        shared = min(shared, next((k for k, (a, b) in enumerate(zip(loops, around, strict=False)) if a != b), shared))
    count = 0
    for a, b in zip(own, loops[:shared], strict=False):
        if "reduce" in analysis.moved_kinds(sch.get(a)) or analysis.extent_of(sch, a) != analysis.extent_of(sch, b):
            break
        count += 1
    return (loops[count - 1], loops[-1]) if count else None


def _threads_around(sch: Schedule, loop: LoopRV) -> int | None:
    """Return the threads of a loop, if it is bound to them."""
    return analysis.extent_of(sch, loop) if THREAD in sch.get(loop).annotations else None


def _reduction(sch: Schedule, block: BlockAt) -> LoopRV:
    """Move the reduction loops of a block inside the others, and return them as one loop."""
    node, loops = sch.get(block), sch.get_loops(block)
    reduced = [v for v in loops if "reduce" in analysis.axis_kinds(node, v.var)]
    spatial = [v for v in loops if v not in reduced]
    order: list[Any] = [*spatial, *reduced]
    if order != loops:
        sch.reorder(*order)
    return sch.fuse(*reduced) if len(reduced) > 1 else reduced[0]
