"""Kernels that slide a small window over each channel: depthwise convolution and pooling.

    for image, vector of channels (parallel): for row: for tile of outputs: { acc[outputs] = 0
                                                                              for kh: for kw: acc += …
                                                                              out = epilogue(acc) }

Going down one vector of channels at a time, the rows of a window are in the first-level cache when the next row of outputs
reads them again, and the weights of a small window stay in registers from the first output to the last. The loops over rows
and tiles are cut where a window begins and ends to reach over the edge (`partition_loops`): no tap is tested.
"""

from __future__ import annotations

from typing import Final

from tilewright.expr import Var
from tilewright.tir.schedule import Schedule
from tilewright.topi.schedules.kernel import KernelBlocks, parallel_over

_MOST_UNROLLED: Final = 64
_MOST_OF_A_ROW: Final = 128
_IDLE: Final = 1.25
"""Time with uneven shares, over that with even ones."""


def schedule_window(k: KernelBlocks) -> None:
    """`out[n, oh…, ow, c]`, axes in the order of the layout, from `acc[n, oh…, ow, c]`."""
    s, acc, machine = k.schedule, k.name(k.anchor), k.machine
    axes, _ = s.axes(k.output)
    batch, *rows, ow, channel = (axes[d] for d in k.anchor.attrs["channels_last"])
    lanes = min(machine.lanes("float32"), 1 << (s.extent(channel).bit_length() - 1))
    outputs = _outputs(k, s.extent(ow))
    block, lane = s.split(channel, [None, lanes], overlap=True)
    outer, inner = s.split(ow, [None, outputs])
    s.reorder(batch, block, *rows, outer, inner, lane)
    s.set_scope(acc, "local")
    s.compute_at(acc, outer)
    spatial, reduce = s.axes(acc)
    around = s.loops(acc)
    tile = [v for v in spatial if around.index(v) > around.index(outer)]
    s.reorder(*reduce, *tile)
    columns = [tile.pop()] if lanes > 1 else []
    _unroll_taps(s, reduce, outputs)
    for v in (*tile, inner):
        s.unroll(v)
    for v in (*columns, lane):
        s.vectorize(v)
    parallel_over(s, _pieces(s, batch, block, rows, machine.cores), 2 * k.multiply_time)


def _outputs(k: KernelBlocks, width: int) -> int:
    """How many outputs of a row are computed together: enough to hide the latency of the adds, and dividing the row."""
    taps: int = k.anchor.attrs["taps"]
    if k.machine.vector_registers < 32 or (taps <= 9 and k.anchor.attrs["stride"] == 1 and width % 4 == 0):
        most = 4
    else:
        most = 7
    most = max(1, min(most, 64 // max(1, taps // 3)))
    return next((r for r in range(most, max(1, most // 2), -1) if width % r == 0), min(most, width))


def _unroll_taps(s: Schedule, reduce: list[Var], outputs: int) -> None:
    """Write out the taps, along the last dimension first, while the code stays short."""
    size = outputs
    for v in reversed(reduce):
        size *= s.extent(v)
        if size > (_MOST_OF_A_ROW if v is reduce[-1] else _MOST_UNROLLED):
            return
        s.unroll(v)


def _pieces(s: Schedule, batch: Var, block: Var, rows: list[Var], cores: int) -> list[Var]:
    """What is shared out: images and vectors of channels, or bands of rows where these cannot keep all cores busy."""
    trips = s.extent(batch) * s.extent(block)
    if -(-trips // cores) * cores <= _IDLE * trips or not rows:
        return [batch, block]
    extent = s.extent(rows[0])
    bands = next((d for d in range(4 * cores, extent // 2 + 1) if extent % d == 0), 1)
    if bands == 1:
        return [batch, block]
    band, _ = s.split(rows[0], [bands, None])
    s.reorder(band, block)
    return [batch, band]
