"""Binds loops around blocks to the threads of a GPU, for rules and postprocessors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import OptionError
from tilewright.search.meta_schedule import block_analysis as analysis
from tilewright.tir.loop_steps import LoopRV
from tilewright.tir.module_schedule import Schedule
from tilewright.tir.steps import BlockAt
from tilewright.tir.stmt import SERIAL, THREAD, For, Seq

if TYPE_CHECKING:
    from tilewright.search.meta_schedule.tune_context import TuneContext

BLOCK, THREADS = "blockIdx.x", "threadIdx.x"
FactorOf = Callable[[int], Any]
"""The number of threads of a block, a number or a sample, for the largest possible one."""


def threads_of(context: TuneContext, name: str) -> int:
    """Return a limit of the target of a task, such as `max_threads_per_block`. Raises `OptionError` without one."""
    found = None if context.target is None else context.target.attrs.get(name)
    if found is None:
        raise OptionError(
            f"threads are bound for a target with the attribute '{name}', but '{context.target}' has none; add "
            f"-{name}= to the target", code="TW1103")
    return int(found)


def sampled_factor(sch: Schedule, extents: Sequence[int]) -> FactorOf:
    """Return a function that samples one of `extents` up to its argument; the argument itself if all are larger."""

    def factor_of(limit: int) -> Any:
        fitting = [n for n in extents if n <= limit]
        if len(fitting) < 2:
            return fitting[0] if fitting else limit
        return sch.sample_categorical(fitting, [1.0 / len(fitting)] * len(fitting))

    return factor_of


def bind_block(sch: Schedule, block: BlockAt, max_blocks: int, max_threads: int, factor_of: FactorOf) -> None:
    """Fuse the outer spatial loops around a block, and bind them to blocks and threads, unless both are bound already.

    for i, j: …  ->  for ij_0 in blockIdx.x: for ij_1 in threadIdx.x: …

    If there are more iterations than `max_blocks` blocks of `max_threads` threads, each thread runs a loop of them.
    """
    loops = sch.get_loops(block)
    nodes: list[For] = [sch.get(v) for v in loops]
    tags = [str(s.annotations.get(THREAD, "")) for s in nodes]
    has_threads = any(tag.startswith("threadIdx") for tag in tags)
    if any(tag.startswith("blockIdx") for tag in tags):
        return
    outer = _fused(sch, block, loops[: _leading(nodes)])
    extent = analysis.extent_of(sch, outer)
    if has_threads:
        sch.bind(outer, BLOCK)
    elif extent is None or extent <= max_blocks * max_threads:
        factor = factor_of(max_threads if extent is None else min(extent, max_threads))
        blocks, threads = sch.split(outer, [None, factor])
        sch.bind(blocks, BLOCK)
        sch.bind(threads, THREADS)
    else:
        rest, blocks, threads = sch.split(outer, [None, max_blocks, max_threads])
        sch.reorder(blocks, threads, rest)
        sch.bind(blocks, BLOCK)
        sch.bind(threads, THREADS)


def _leading(nodes: Sequence[For]) -> int:
    """Return the number of outer loops to bind: serial ones around one nest, which no reduction moves with."""
    for k, s in enumerate(nodes):
        if s.kind != SERIAL or THREAD in s.annotations or "reduce" in analysis.moved_kinds(s):
            return k
        if isinstance(s.body, Seq):
            return k + 1
    return len(nodes)


def _fused(sch: Schedule, block: BlockAt, loops: Sequence[LoopRV]) -> LoopRV:
    """Fuse the outer loops around a block, and return the fused loop, or a new loop of one iteration without any."""
    if loops:
        return sch.fuse(*loops)
    around = sch.get_loops(block)
    return sch.add_unit_loop(around[0] if around else block)
