"""Kernels of windows over data in a blocked layout, such as `NCHW8c`: a block of channels is the vector.

    for image, chunk of channels, row (parallel): for tile of outputs: { acc[outputs, lane] = 0
                                                                         for depth, taps: acc += …
                                                                         out = epilogue(acc) }

The accumulators of a tile of a row stay in registers; one step reads one vector of the kernel, and one value per
output.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilewright.backends.cpu.strategies.schedules.kernel import CpuSchedule, KernelBlocks, parallel_over, row_divisor

_MOST_LANES: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChannelBlocksSchedule(CpuSchedule):
    """Schedule of a window over blocks of channels: the last axis of the output is a block, unless it is `row`, the
    axis along a row."""

    row: int

    def apply(self, k: KernelBlocks) -> None:
        s, acc = k.schedule, k.acc
        axes, _ = s.axes(k.output)
        row, lane = axes[self.row], axes[-1]
        outer = [v for v in axes if v is not row and v is not lane]
        lanes = 1 if lane is row else s.extent(lane)
        vectors = max(1, -(-lanes // k.machine.lanes("float32")))
        most = max(1, int(k.machine.vector_registers * k.machine.core.accumulator_share) // vectors)
        tile, point = s.split(row, [None, row_divisor(s.extent(row), most)])
        s.reorder(*outer, tile, point, *([] if lane is row else [lane]))
        s.set_scope(acc, "local")
        s.compute_at(acc, tile)
        around = s.loops(acc)
        spatial, reduce = s.axes(acc)
        inside = [v for v in spatial if around.index(v) > around.index(tile)]
        s.reorder(*reduce, *inside)
        vector = 1 < lanes <= _MOST_LANES and lanes & (lanes - 1) == 0
        columns = [inside.pop(), lane] if lane is not row and vector else []
        for v in (*inside, point):
            s.unroll(v)
        for v in columns:
            s.vectorize(v)
        parallel_over(s, outer, 2 * k.multiply_time, k.machine)
