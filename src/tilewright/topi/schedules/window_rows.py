"""Pools of images whose width is contiguous, in two steps: down the windows, and along their rows.

    for image, channel (parallel): for band of rows: {
        for row: for vector of x: { down = reduce over kh of data; rows[row, x] = down }
        for row: for vector of outputs: { acc = reduce over kw of rows[row, x * stride + kw]; out = epilogue(acc) } }

The rows in between have their padding beside them, so nothing is tested along them. A band is short enough for the first-level
cache, and long enough that its rows are read well after they were written: a load of what several stores have just written waits
until they have reached the cache.
"""

from __future__ import annotations

import math
from typing import Final

from tilewright.scalar.expr import Var
from tilewright.te.tensor import ComputeOp
from tilewright.topi.decisions import decide_one
from tilewright.topi.schedules.kernel import KernelBlocks, parallel_over

_MOST_TAPS: Final = 16


def schedule_window_rows(k: KernelBlocks) -> None:
    """`out[…, x]` from `acc[…, x]`; the axis `attrs["axis"]` is the one of rows, where there are any."""
    s, acc = k.schedule, k.name(k.anchor)
    rows: ComputeOp = k.anchor.attrs["rows"]
    axis: int | None = k.anchor.attrs["axis"]
    lanes = k.machine.lanes(rows.outputs[0].dtype)
    *outer, width = s.axes(k.output)[0]
    at = outer[-1]
    if axis is not None:
        at, _ = s.split(outer[axis], [None, _band(k, rows, s.extent(outer[axis]))])
        outer = [*outer[:axis], at]
    block = _vectors(k, width, lanes)
    s.set_scope(acc, "local")
    s.compute_at(acc, block)
    _inside(k, acc, block)
    name, down = k.name(rows), k.name(k.anchor.attrs["down"])
    *_, x = s.compute_at(name, at, preserve_unit_loops=True)
    block = _vectors(k, x, lanes)
    s.set_scope(down, "local")
    s.compute_at(down, block)
    _inside(k, down, block)
    parallel_over(s, outer, 2 * k.multiply_time)


def _vectors(k: KernelBlocks, loop: Var, lanes: int) -> Var:
    """A row as vectors, the last of which may begin inside the one before; the loop over them."""
    s = k.schedule
    block, lane = s.split(loop, [None, min(lanes, 1 << (s.extent(loop).bit_length() - 1))], overlap=True)
    s.vectorize(lane)
    return block


def _inside(k: KernelBlocks, name: str, at: Var) -> None:
    """A reduction in a register."""
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


def _band(k: KernelBlocks, down: ComputeOp, rows: int) -> int:
    """The rows of one band: a divisor of all of them whose values fill a quarter of the first-level cache at most."""
    row = down.outputs[0].extents[-1] * down.outputs[0].dtype.itemsize
    most = max(1, k.machine.l1_bytes // 4 // row)
    best = next((d for d in range(min(rows, most), 0, -1) if rows % d == 0), 1)
    return decide_one("band", best, lambda: [(d,) for d in range(1, rows + 1) if rows % d == 0])
