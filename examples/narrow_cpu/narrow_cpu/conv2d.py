"""The strategy for convolutions: bands of the padded image are copied to the scratchpad, where all taps read them.

    for image, band of rows (parallel): scratchpad = padded rows of the band
                                        for row, vector of channels, tile of outputs: { acc[outputs, lane] = 0
                                                                                        for taps, depth: acc += …
                                                                                        out = epilogue(acc) }
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright import te
from tilewright.backends.cpu.strategies.schedules.kernel import CpuSchedule, KernelBlocks, parallel_over
from tilewright.backends.kernel_options import KernelOptions
from tilewright.relay.op.nn_conv import Conv2d
from tilewright.scalar.expr import PrimExpr, Var

TILE = 4
"""Outputs of a row that are computed together, at most."""
ROW_BYTES = 4
"""Bytes of a float32."""


def accepts(op: Conv2d, options: KernelOptions, data: te.Tensor, weight: te.Tensor) -> bool:
    """Tell whether a convolution is one of float32 in NHWC, of one group or depthwise, whose rows for one output row
    fit in the scratchpad.
    """
    if not all(
        isinstance(n, int) for n in (*data.extents, *weight.extents)
    ) or op.data_layout != "NHWC" or op.kernel_layout != "HWIO":
        return False
    floats = {
        str(t.dtype) for t in (data, weight)
    } == {"float32"} and op.out_dtype in ("", "float32") and op.out_layout in ("", "NHWC")
    depthwise = op.groups == data.extents[-1] == weight.extents[-1]
    return floats and (op.groups == 1 or depthwise) and band_rows(op, options, data, weight) > 0


def band_rows(op: Conv2d, options: KernelOptions, data: te.Tensor, weight: te.Tensor) -> int:
    """Return the output rows for which half of the scratchpad holds all inputs; 0 where it cannot hold those of one
    row.
    """
    (_, _, width, channels), (top, left, bottom, right) = data.extents, op.padding
    row = (width + left + right) * channels * ROW_BYTES
    span = (weight.extents[0] - 1) * op.dilation[0] + 1
    rows = (options.machine.l1_bytes // 2 // row - span) // op.strides[0] + 1
    height = (data.extents[1] + top + bottom - span) // op.strides[0] + 1
    return next((d for d in range(min(rows, height), 0, -1) if height % d == 0), 0)


def conv2d(op: Conv2d, options: KernelOptions, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
    """Return the convolution of `data` (n, h, w, c) with `weight` (kh, kw, depth, o) as a tensor (n, y, x, o)."""
    (n, height, width, channels), (kh, kw, depth, outputs) = data.extents, weight.extents
    (top, left, bottom, right), (sy, sx), (dy, dx) = op.padding, op.strides, op.dilation
    high, wide = height + top + bottom, width + left + right
    size = (high - (kh - 1) * dy - 1) // sy + 1, (wide - (kw - 1) * dx - 1) // sx + 1

    def padded(b: Var, y: Var, x: Var, c: Var) -> PrimExpr:
        inside = te.all(y >= top, y < height + top, x >= left, x < width + left)
        return te.if_then_else(inside, data(b, y - top, x - left, c), te.const(0.0, "float32"))

    scratchpad = te.compute((n, high, wide, channels), padded, name="scratchpad", inline=False)
    r, s, i = te.reduce_axis((0, kh), "r"), te.reduce_axis((0, kw), "s"), te.reduce_axis((0, depth), "i")

    def term(b: Var, y: Var, x: Var, o: Var) -> PrimExpr:
        channel = i.var if op.groups == 1 else o
        return te.sum(
            scratchpad(b, y * sy + r.var * dy, x * sx + s.var * dx, channel) * weight(r.var, s.var, i.var, o),
            axis=[r, s, i]
        )

    flops = 2 * n * math.prod(size) * outputs * kh * kw * depth
    schedule = BandSchedule(flops=flops, scratchpad=scratchpad, rows=band_rows(op, options, data, weight))
    acc = te.compute((n, *size, outputs), term, name="acc", schedule=schedule)
    return te.compute((n, *size, outputs), acc, name="conv2d")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BandSchedule(CpuSchedule):
    """Schedule of a convolution whose band of `rows` output rows reads its inputs from the tensor `scratchpad`."""

    scratchpad: te.Tensor
    rows: int

    def apply(self, k: KernelBlocks) -> None:
        s, acc, lanes = k.schedule, k.acc, k.machine.lanes("float32")
        (n, y, x, o), _ = s.axes(k.output)
        lanes = min(lanes, 1 << (s.extent(o).bit_length() - 1))
        band, row = s.split(y, [None, self.rows])
        block, lane = s.split(o, [None, lanes], overlap=True)
        tile, point = s.split(x, [None, max(d for d in range(1, TILE + 1) if s.extent(x) % d == 0)])
        s.reorder(n, band, row, block, tile, point, lane)
        s.set_scope(acc, "local")
        s.compute_at(acc, tile, preserve_unit_loops=True)
        copied = s.compute_at(k.name(self.scratchpad), band)[-1]
        if s.extent(copied) >= lanes > 1:
            s.vectorize(s.split(copied, [None, lanes], overlap=True)[1])
        spatial, reduce = s.axes(acc)
        points, column = spatial[-2:]
        s.reorder(*reduce, points, column)
        for v in (points, point):
            s.unroll(v)
        if lanes > 1:
            for v in (column, lane):
                s.vectorize(v)
        parallel_over(s, [n, band], k.multiply_time, k.machine)
