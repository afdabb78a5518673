"""Kernels that slide a small window over each channel: depthwise convolution and pooling.

    for image row (parallel): for vector of channels: for tile of outputs: { acc[outputs] = 0
                                                                             for kh: for kw: acc += …
                                                                             out = epilogue(acc) }
"""

from __future__ import annotations

from tilewright.topi.schedules.kernel import KernelBlocks, parallel_over

_MOST_UNROLLED = 128


def schedule_window(k: KernelBlocks) -> None:
    """`out[n, oh…, ow, c]`, axes in the order of the layout, from `acc[n, oh…, ow, c]`."""
    s, acc, machine = k.schedule, k.name(k.anchor), k.machine
    axes, _ = s.axes(k.output)
    *images, ow, channel = (axes[d] for d in k.anchor.attrs["channels_last"])
    lanes = min(machine.lanes("float32"), 1 << (s.extent(channel).bit_length() - 1))
    width = s.extent(ow)
    taps: int = k.anchor.attrs["taps"]
    most = max(1, min(7 if machine.vector_registers >= 32 else 4, 64 // max(1, taps // 3)))
    rows = next((r for r in range(most, max(1, most // 2), -1) if width % r == 0), min(most, width))
    block, lane = s.split(channel, [None, lanes])
    outer, inner = s.split(ow, [None, rows])
    s.reorder(*images, block, outer, inner, lane)
    s.set_scope(acc, "local")
    s.compute_at(acc, outer)
    spatial, reduce = s.axes(acc)
    around = s.loops(acc)
    tile = [v for v in spatial if around.index(v) > around.index(outer)]
    s.reorder(*reduce, *tile)
    columns = [tile.pop()] if lanes > 1 else []
    if s.extent(reduce[-1]) * rows <= _MOST_UNROLLED:
        s.unroll(reduce[-1])
    for v in (*tile, inner):
        s.unroll(v)
    for v in (*columns, lane):
        s.vectorize(v)
    parallel_over(s, images, 2 * k.multiply_time)
