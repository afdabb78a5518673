"""Pools of images whose width is contiguous, in two steps: along the columns of windows, then along their rows.

    for image, channel (parallel): for band of rows: {
        for row: for vector of x: { down = reduce over kh of data; rows[row, x] = down }
        for row: for vector of outputs: { acc = reduce over kw of rows[row, x * stride + kw]; out = epilogue(acc) } }

The intermediate rows include their padding, so nothing is tested along them. A band is short enough for the first-level
cache, and long enough that its rows are read well after they were written. A load of data that several recent stores
wrote stalls until they have reached the cache.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Final

from tilewright.backends.cpu.strategies.schedules.kernel import CpuSchedule, KernelBlocks, parallel_over
from tilewright.base.types import OpenSize
from tilewright.scalar.arith.divisors import divisors
from tilewright.scalar.expr import Var
from tilewright.te.tensor import Tensor

_MOST_TAPS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WindowRowsSchedule(CpuSchedule):
    """Schedule of a pool in two steps: `out[…, x]` from `acc[…, x]`, which reads `rows`, the stored copy of the
    reduction `down`."""

    down: Tensor
    rows: Tensor
    axis: int
    """The axis of the output that counts rows."""

    copies_result: ClassVar = True

    def apply(self, k: KernelBlocks) -> None:
        s, acc = k.schedule, k.acc
        rows, axis = self.rows, self.axis
        lanes = k.machine.lanes(rows.dtype)
        *outer, width = s.axes(k.output)[0]
        at = outer[-1]
        if axis is not None:
            at, _ = s.split(outer[axis], [None, _band(k, rows, s.extent(outer[axis]))])
            outer = [*outer[:axis], at]
        block = _vectors(k, width, lanes)
        s.set_scope(acc, "local")
        s.compute_at(acc, block)
        _inside(k, acc, block)
        name, down = k.name(rows), k.name(self.down)
        *_, x = s.compute_at(name, at, preserve_unit_loops=True)
        block = _vectors(k, x, lanes)
        s.set_scope(down, "local")
        s.compute_at(down, block)
        _inside(k, down, block)
        parallel_over(s, outer, 2 * k.multiply_time, k.machine)


def _vectors(k: KernelBlocks, loop: Var, lanes: int) -> Var:
    """Split a row into vectors, the last of which may overlap the previous one; return the loop over them."""
    s, extent = k.schedule, k.schedule.extent(loop)
    known = not isinstance(extent, OpenSize)  # a dynamic row may be shorter than a vector, so its last one is masked
    lanes = min(lanes, 1 << (extent.bit_length() - 1)) if known else lanes
    block, lane = s.split(loop, [None, lanes], overlap=known)
    s.vectorize(lane)
    return block


def _inside(k: KernelBlocks, name: str, at: Var) -> None:
    """Compute a reduction in a register."""
    s = k.schedule
    spatial, reduce = s.axes(name)
    around = s.loops(name)
    tile = [v for v in spatial if around.index(v) > around.index(at)]
    s.reorder(*reduce, *tile)
    if math.prod(s.extent(v) for v in reduce) <= _MOST_TAPS:
        for v in reduce:
            s.unroll(v)
    for v in tile:
        s.vectorize(v)


def _band(k: KernelBlocks, down: Tensor, rows: int) -> int:
    """Return the rows of a band: a divisor of all rows whose values fill at most a quarter of the first-level cache."""
    row = down.extents[-1] * down.dtype.itemsize
    most = max(1, k.machine.l1_bytes // 4 // row)
    best = max(divisors(rows, most), default=1)
    return k.options.decide_one("band", best, lambda: [(d,) for d in divisors(rows)])
