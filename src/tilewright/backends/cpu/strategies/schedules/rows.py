"""Kernels that reduce along some axes of their output and use the result along the same axes: softmax, normalisations.

When the reduced axes are the last ones, a row is one contiguous run:

    for row (parallel): { stage 1 over the row, in lanes; stage 2 …; out = … }

Otherwise the last axis gives the lanes, and each vector of it is done at once:

    for other axes (parallel): for vector of the last axis: { stage 1 down the reduced axes; …; out = … }
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Final

from tilewright.backends.cpu.strategies.schedules.kernel import CpuSchedule, KernelBlocks, parallel_over
from tilewright.scalar.arith.open_sizes import typical
from tilewright.scalar.expr import Var

_VECTORS: Final = (1, 2, 4, 8)
"""Numbers of vectors that may be computed together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsSchedule(CpuSchedule):
    """Schedule of a kernel whose reductions are all along the same `axes` of the output; equal schedules share a
    kernel."""

    axes: tuple[int, ...]

    def apply(self, k: KernelBlocks) -> None:
        s = k.schedule
        axes, _ = s.axes(k.output)
        reduced = sorted(self.axes)
        work = 4.0 * math.prod(typical(s.extent(v)) for v in axes) / k.machine.lanes("float32")
        stages = [name for op, name in k.names.items() if name != k.output]
        along = reduced == list(range(len(axes) - len(reduced), len(axes)))
        if along:
            _contiguous(k, axes[: reduced[0]], axes[reduced[0] :], stages, work)
        else:
            _in_lanes(k, axes, reduced, stages, work)


def _contiguous(k: KernelBlocks, rows: list[Var], columns: list[Var], stages: list[str], work: float) -> None:
    s, lanes = k.schedule, k.machine.lanes("float32")
    row = s.fuse(*rows) if rows else None
    column = s.fuse(*columns)
    sums, vectors = map(
        int, k.options.decide(("vectors_of_sums", "vectors"), (4, 1), lambda: itertools.product(_VECTORS, _VECTORS))
    )
    if row is None:
        row, column = s.split(column, [1, None])
    for name in reversed(stages):
        s.compute_at(name, row)
        around = s.loops(name)
        inside = around[around.index(row) + 1 :]
        if not inside or s.block(name).init is not None:
            s.set_scope(name, "local")
        if not inside:
            continue
        last = s.fuse(*inside) if len(inside) > 1 else inside[0]
        _vectorize(k, last, lanes * (sums if s.block(name).init is not None else vectors))
    _vectorize(k, column, lanes * vectors)
    parallel_over(s, [row], work, k.machine)


def _vectorize(k: KernelBlocks, loop: Var, lanes: int) -> None:
    """Vectorize a loop with the widest vectors that it fills."""
    s = k.schedule
    extent = s.extent(loop)
    while lanes > 1 and lanes > extent:
        lanes //= 2
    if lanes > 1:
        s.vectorize(s.split(loop, [None, lanes])[1])


def _in_lanes(k: KernelBlocks, axes: list[Var], reduced: list[int], stages: list[str], work: float) -> None:
    s, lanes = k.schedule, k.machine.lanes("float32")
    outer = [v for d, v in enumerate(axes) if d not in reduced and d != len(axes) - 1]
    inner = [axes[d] for d in reduced if d != len(axes) - 1]
    if len(axes) - 1 in reduced:
        s.reorder(*outer, *inner, axes[-1])
        block = s.fuse(*outer) if outer else s.split(inner[0] if inner else axes[-1], [1, None])[0]
        outer = [block]
        _vectorize(k, axes[-1], lanes)
    else:
        while lanes > 1 and lanes > s.extent(axes[-1]):
            lanes //= 2
        block, lane = s.split(axes[-1], [None, lanes])
        s.reorder(*outer, block, *inner, lane)
        s.vectorize(lane)
    for name in reversed(stages):
        s.compute_at(name, block)
        around = s.loops(name)
        if len(axes) - 1 in reduced and around[-1] is not block:
            _vectorize(k, around[-1], lanes)
        spatial = [v for v in s.axes(name)[0] if around.index(v) > around.index(block)]
        if spatial and s.extent(spatial[-1]) == lanes and len(axes) - 1 not in reduced:
            s.reorder(*[v for v in around[around.index(block) + 1 :] if v is not spatial[-1]], spatial[-1])
            s.vectorize(spatial[-1])
    parallel_over(s, outer or [block], work, k.machine)
