"""Kernels that slide a small window over each channel: depthwise convolution and pooling.

    for image, vector of channels (parallel): for row: for tile of outputs: { acc[outputs] = 0
                                                                              for kh: for kw: acc += …
                                                                              out = epilogue(acc) }

One vector of channels is processed at a time, from the top row to the bottom. The rows of a window then stay in the
first-level cache for the next row of outputs. The weights of a small window stay in registers. The loops over rows and
tiles are split where windows cross the edge (`partition_loops`), so no tap is tested.

The set of a cache line is determined by its address within a page. If the pixel distance is a multiple of a large power
of two, the rows of a vector of channels share few sets and evict each other. Then a column of tiles is processed with
all channels, which are contiguous and use all sets:

    for image, tile of outputs (parallel): for row: for vector of channels: { … }
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from tilewright.backends.cpu.strategies.schedules import epilogues, open_images
from tilewright.backends.cpu.strategies.schedules.kernel import CpuSchedule, KernelBlocks, parallel_over, row_divisor
from tilewright.backends.kernel_options import KernelOptions
from tilewright.backends.machine import Machine
from tilewright.base.types import OpenSize
from tilewright.scalar.expr import Var
from tilewright.te.tensor import Tensor
from tilewright.tir.loop_schedule import Schedule

_MOST_UNROLLED: Final = 64
_MOST_OUTPUTS: Final = 10
_MOST_OF_A_ROW: Final = 128
_TYPICAL_ROW: Final = 32
"""Assumed number of outputs in a row of symbolic length, for estimates."""
FEW_TAPS: Final = 9
"""Largest number of taps of a window whose weights fit into registers, or take negligible space in the cache."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WindowSchedule(CpuSchedule):
    """Schedule of a window over each channel: `out[n, oh…, ow, c]`, axes in the order of the layout, from `acc[n, oh…,
    ow, c]`."""

    channels_last: tuple[int, ...]
    """The axes of batch, spatial dimensions and channels in the output."""
    taps: int
    stride: int
    """Distance of neighbouring outputs of a row, in inputs."""
    padded: Tensor | None = None
    """The padded copy of the input, if there is one."""
    channels_inside: bool = False
    """Whether all channels of a tile of an image of dynamic size are processed together."""

    copies_result: ClassVar = True

    def apply(self, k: KernelBlocks) -> None:
        s, machine = k.schedule, k.machine
        axes, _ = s.axes(k.output)
        batch, *rows, ow, channel = (axes[d] for d in self.channels_last)
        lanes = min(machine.lanes("float32"), 1 << (max(1, s.extent(channel)).bit_length() - 1))
        if any(isinstance(s.extent(v), OpenSize) for v in (*rows, ow, channel)):
            open_images.check_axes(k, [batch, *rows], k.anchor.outputs[0].extents[-1], channel)
            _schedule_open(k, self, [batch, *rows], ow, channel, lanes)
            return
        outputs, crowded = _decided(k, self, s.extent(ow), s.extent(channel))
        block, lane = s.split(channel, [None, lanes], overlap=True)
        outer, inner = s.split(ow, [None, outputs])
        nest = [outer, *rows, block] if crowded else [block, *rows, outer]
        s.reorder(batch, *nest, inner, lane)
        _reduce_in_registers(k, nest[-1], inner, lane, outputs, lanes)
        parallel_over(s, _pieces(s, batch, nest[0], rows, machine), 2 * k.multiply_time, machine)


def outputs_together(width: int, taps: int, stride: int, options: KernelOptions) -> int:
    """Return the number of neighbouring outputs that are computed together, at most the width of a row of static
    length."""
    most = 4 if _keeps_weights(taps, stride) else options.machine.window_outputs
    return options.height or most if isinstance(width, OpenSize) else min(most, width)


def unrolls(window: Sequence[int], outputs: int) -> bool:
    """Return whether all taps of a window are unrolled for neighbouring outputs."""
    return math.prod(window) * outputs <= _MOST_UNROLLED


def crowds(pixel: int, window: Sequence[int], stride: int, machine: Machine) -> bool:
    """Return whether pixels of `pixel` bytes compete for the same cache lines, for rows of symbolic length."""
    return _crowd(pixel, _reached(window, stride, _TYPICAL_ROW), machine) > 1


def fits_with_channels(
    pixel: int, window: Sequence[int], stride: int, outputs: int, weights: int, machine: Machine
) -> bool:
    """Return whether all channels of neighbouring outputs, and of as many `weights`, fit the first-level cache, for
    pixels of `pixel` bytes."""
    return (_reached(window, stride, outputs) + weights) * pixel <= machine.l1_bytes


def _keeps_weights(taps: int, stride: int) -> bool:
    """Return whether all weights of a window stay in registers together with four outputs."""
    return taps <= FEW_TAPS and stride == 1


def _schedule_open(k: KernelBlocks, plan: WindowSchedule, images: list[Var], ow: Var, channel: Var, lanes: int) -> None:
    """Schedule an image of dynamic size: the rows of a band for one vector of channels. If pixels crowd the cache, it
    is a padded copy of the band, or a column of tiles with all channels."""
    s, outputs = k.schedule, outputs_together(k.schedule.extent(ow), plan.taps, plan.stride, k.options)
    padded = plan.padded
    block, lane = s.split(channel, [None, lanes], overlap=True)
    band, row = open_images.bands(s, images)
    outer, inner = s.split(ow, [None, outputs], overlap=padded is None)
    nest = [outer, row, block] if plan.channels_inside else [block, row, outer]
    s.reorder(band, *nest, inner, lane)
    _reduce_in_registers(k, nest[-1], inner, lane, outputs, lanes)
    piece = band if plan.channels_inside else s.fuse(band, block)
    if padded is not None:
        copied = s.compute_at(k.name(padded), piece)
        if lanes > 1:
            s.vectorize(copied[-1])
    parallel_over(s, [piece], 2 * k.multiply_time, k.machine)


def _reduce_in_registers(k: KernelBlocks, at: Var, inner: Var, lane: Var, outputs: int, lanes: int) -> None:
    """Compute the accumulators of one tile of outputs in registers."""
    s, acc = k.schedule, k.acc
    looped = epilogues.in_loop(k, outputs, lanes)
    if looped:
        epilogues.store_sums(k, at, lanes)
    s.set_scope(acc, "local")
    s.compute_at(acc, at)
    spatial, reduce = s.axes(acc)
    around = s.loops(acc)
    tile = [v for v in spatial if around.index(v) > around.index(at)]
    s.reorder(*reduce, *tile)
    columns = [tile.pop()] if lanes > 1 else []
    _unroll_taps(k, reduce, outputs)
    for v in tile if looped else (*tile, inner):
        s.unroll(v)
    for v in (*columns, lane):
        s.vectorize(v)


def _decided(k: KernelBlocks, plan: WindowSchedule, width: int, channels: int) -> tuple[int, bool]:
    """Return the result of `_outputs`, or a decision that overrides it."""
    outputs, crowded = _outputs(k, plan, width, channels)
    tile, inside = k.options.decide(
        ("tile_ow", "channels_inside"), (outputs, int(crowded)),
        lambda: itertools.product(range(1, min(width, _MOST_OUTPUTS) + 1), (0, 1)),
    )
    return int(tile), bool(inside)


def _outputs(k: KernelBlocks, plan: WindowSchedule, width: int, channels: int) -> tuple[int, bool]:
    """Return the number of neighbouring outputs computed together, and whether all their channels are, because one
    vector of channels crowds the cache.

    `crowd` is the number of lines that the windows of one vector of channels need in each set of the first-level cache,
    over its ways. Processing all channels helps if the data and weights of a tile fit this cache; windows larger than
    3x3 mostly do not. Otherwise four or seven outputs, preferably a divisor of the row, hide the latency of additions.
    """
    most = k.machine.window_outputs
    taps = plan.taps
    weights = taps if len(k.anchor.inputs) > 1 and taps > FEW_TAPS else 0
    pixel = channels * k.anchor.inputs[0].dtype.itemsize
    crowd = _crowd(pixel, _touched(k, plan.stride, width), k.machine)
    if crowd > 1:
        wide = row_divisor(width, most)
        # a wider window needs too many registers for four outputs
        several = [wide, row_divisor(width, 4)] if k.schedule.extent(_taps(k)[-1]) <= 4 else [wide]
        fitting = next(
            (r for r in several if (_touched(k, plan.stride, r) + weights) * pixel <= k.machine.l1_bytes), None
        )
        if fitting is not None or (crowd > k.machine.core.crowding and not weights):
            return fitting or wide, True
    if _keeps_weights(taps, plan.stride) and width % 4 == 0:
        most = 4
    return row_divisor(width, most), False


def _touched(k: KernelBlocks, stride: int, outputs: int) -> int:
    """Return the number of pixels that neighbouring outputs of a row touch: their windows, and themselves."""
    return _reached([k.schedule.extent(v) for v in _taps(k)], stride, outputs)


def _reached(window: Sequence[int], stride: int, outputs: int) -> int:
    *above, along = window
    return math.prod(above) * ((outputs - 1) * stride + along) + outputs


def _crowd(pixel: int, touched: int, machine: Machine) -> float:
    """Return the number of lines that compete for one set of the first-level cache, relative to its ways, for pixels of
    `pixel` bytes."""
    page = machine.core.set_stride
    places = min(page // machine.core.line_bytes, page // math.gcd(pixel, page))
    return touched / (places * max(1, machine.l1_bytes // page))


def _taps(k: KernelBlocks) -> list[Var]:
    """Return the loops over the window, the one along a row last."""
    return k.schedule.axes(k.acc)[1]


def _unroll_taps(k: KernelBlocks, reduce: list[Var], outputs: int) -> None:
    """Unroll the taps, along the last dimension first, while the code stays short."""
    s, size = k.schedule, outputs
    most = k.options.decide_one("unroll_taps", _MOST_UNROLLED, lambda: [(0,), (256,)])
    for v in reversed(reduce):
        size *= s.extent(v)
        if size > (max(most, _MOST_OF_A_ROW) if v is reduce[-1] else most):
            return
        s.unroll(v)


def _pieces(s: Schedule, batch: Var, block: Var, rows: list[Var], machine: Machine) -> list[Var]:
    """Return the loops to parallelize: images and vectors of channels, or bands of rows if these cannot keep all cores
    busy."""
    trips, cores = s.extent(batch) * s.extent(block), machine.cores
    if -(-trips // cores) * cores <= machine.core.uneven_share * trips or not rows:
        return [batch, block]
    extent = s.extent(rows[0])
    bands = next((d for d in range(4 * cores, extent // 2 + 1) if extent % d == 0), 1)
    if bands == 1:
        return [batch, block]
    band, _ = s.split(rows[0], [bands, None])
    s.reorder(band, block)
    return [batch, band]
