"""Kernels that only reduce: sums, means, extrema over some axes.

If the last axis of the input is kept, it is vectorized; if it is reduced, lanes hold partial results.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.backends.cpu.strategies.schedules.kernel import CpuSchedule, KernelBlocks, parallel_over
from tilewright.base.types import OpenSize
from tilewright.scalar.arith.divisors import divisors
from tilewright.scalar.arith.open_sizes import typical
from tilewright.scalar.expr import Load, Var
from tilewright.scalar.walk import walk
from tilewright.tir.stmt import SERIAL, expressions, walk_stmt

_VECTORS = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReduceSchedule(CpuSchedule):
    """Schedule of one reduction: the accumulators are computed inside the output loops, which are the kept axes."""

    def apply(self, k: KernelBlocks) -> None:
        s, acc, lanes = k.schedule, k.acc, k.machine.lanes("float32")
        axes, _ = s.axes(k.output)
        separate = acc != k.output
        work = 2.0 * math.prod(typical(s.extent(v)) for v in (*axes, *s.axes(acc)[1])) / lanes
        kept = [v for v in axes if s.extent(v) > 1]
        last = kept[-1] if kept else axes[-1] if axes else None
        contiguous = _reads_along_reduction(k, acc)
        several = "combiner" in s.block(acc).annotations and len(k.anchor.body) > 1
        if last is None or not s.extent(last) > 1 or contiguous or several:
            if separate and axes:
                s.compute_at(acc, axes[-1])
            if contiguous and not several:
                _lanes_of_reduction(k, acc, lanes * _VECTORS)
            if not several:
                _in_pieces(k, acc)
            if axes:
                parallel_over(s, axes, work, k.machine)
            return
        width = min(lanes * _VECTORS, 1 << (s.extent(last).bit_length() - 1))
        vectors = max(1, width // lanes)
        block, vector, lane = s.split(last, [None, vectors, min(lanes, width)])
        s.unroll(vector) if separate else None
        if separate:
            s.set_scope(acc, "local")
            s.compute_at(acc, block)
            around = s.loops(acc)
            spatial = [v for v in s.axes(acc)[0] if around.index(v) > around.index(block)]
            v_in, l_in = s.split(spatial[-1], [vectors, None])
            s.reorder(*s.axes(acc)[1], *spatial[:-1], v_in, l_in)
            s.unroll(v_in)
            s.vectorize(l_in)
            _in_pieces(k, acc)
        s.vectorize(lane)
        shared = [*[v for v in axes if v is not last], block] if axes[-1] is last else [block]
        parallel_over(s, shared, work, k.machine)


def _in_pieces(k: KernelBlocks, acc: str) -> None:
    """Split a long float sum into pieces at the innermost loop that makes pieces long enough."""
    s = k.schedule
    combiner = s.block(acc).annotations.get("combiner")
    if combiner is None or combiner.name != "sum" or not k.anchor.body[0].dtype.is_float:
        return
    length, piece = 1, k.machine.core.sum_piece
    for loop in reversed([v for v in s.axes(acc)[1] if s.loop(v).kind == SERIAL]):
        extent = s.extent(loop)
        if isinstance(extent, OpenSize):
            return
        if length * extent > 2 * piece:
            # a longer one is farther from the goal than 1
            farthest = max(1, min(extent, math.ceil(piece / length) ** 2))
            rest = min(divisors(extent, farthest), key=lambda d: abs(math.log(length * d / piece)))
            if 1 < rest < extent:
                loop, _ = s.split(loop, [None, rest])
            if rest < extent:
                s.annotate(loop, "apart", True)
            return
        length *= extent


def _reads_along_reduction(k: KernelBlocks, acc: str) -> bool:
    """Return whether the last reduction axis moves through the last dimension of an input."""
    block = k.schedule.block(acc)
    reduce = [i.var for i in block.iters if i.kind == "reduce"]
    if not reduce:
        return False
    return any(
        isinstance(e, Load) and e.indices and any(v is reduce[-1] for v in walk(e.indices[-1]))
        for st in walk_stmt(block.body) for top in expressions(st) for e in walk(top)
    )


def _lanes_of_reduction(k: KernelBlocks, acc: str, lanes: int) -> None:
    s = k.schedule
    inner: Var = s.axes(acc)[1][-1]
    extent = s.extent(inner)
    while lanes > 1 and lanes > extent:
        lanes //= 2
    if lanes >= 4:
        s.vectorize(s.split(inner, [None, lanes])[1])
