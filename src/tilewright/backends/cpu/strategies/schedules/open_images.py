"""Kernels over images whose heights and widths are known when the kernel runs.

    for band of rows (parallel): {
        padded = the rows that the band reads, with padding on the left and right, extended for whole tiles
        for panel: for row of the band: for tile of outputs: {
            acc = sum over the rows of the window that are inside; out = epilogue(acc) if it is inside } }

`Geometry.spread` in `strategies/conv.py` makes the copy. Along a row only stores are tested, once for each output of a
tile; `open_rows.py` describes the widths of tiles. With many panels, or windows much taller than a band, the whole
image is copied before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.backends.cpu.strategies.schedules.kernel import KernelBlocks
from tilewright.base.errors import ScheduleError
from tilewright.base.types import OpenSize
from tilewright.scalar.expr import Var, as_expr
from tilewright.te.tensor import Tensor
from tilewright.tir.loop_schedule import Schedule

BAND: Final = 8
"""Number of output rows for which a panel of weights stays in the cache."""


_MOST_PANELS: Final = 8
"""Number of panels from which a band's sums take much longer than its copy, and panels are parallel, too."""


def copies_bands(
    ksize: Sequence[int], strides: Sequence[int], dilation: Sequence[int], groups: int, panels: int
) -> bool:
    """Return whether each band of rows has a copy of its own: where this copies no row more than about twice, and
    the panels of the weights are few. With groups, a band's copy has the channels of one group."""
    *rows, _ = zip(ksize, strides, dilation, strict=True)
    repeats = len(rows) > 1 or any((BAND - 1) * s + (k - 1) * d + 1 > 2 * BAND * s for k, s, d in rows)
    return not repeats and (groups > 1 or panels < _MOST_PANELS)


def check_axes(k: KernelBlocks, images: list[Var], channels: int, channel: Var) -> None:
    """Raise `ScheduleError` if the output and the sums have different layouts, because symbolic sizes cannot be told
    apart."""
    s = k.schedule
    wanted = [as_expr(n) for n in k.anchor.outputs[0].extents[: len(images)]]
    found = [as_expr(s.extent(v)) for v in images]
    if s.extent(channel) != channels or isinstance(s.extent(channel), OpenSize) or any(
        a is not b for a, b in zip(wanted, found, strict=True)
    ):
        raise ScheduleError(
            f"'{k.anchor.name}' has a dynamic height or width, but stores its result in another layout than it is "
            "computed in"
        )


def bands(s: Schedule, images: list[Var]) -> list[Var]:
    """Return the loop over bands of rows and images, and the loop over the rows of a band."""
    *outer, row = images
    rows = s.extent(row)
    band, row = s.split(row, [None, BAND if isinstance(rows, OpenSize) else min(BAND, rows)])
    return [s.fuse(*outer, band), row]


def copy_whole(k: KernelBlocks, copy: Tensor) -> None:
    """Schedule the copy of an image before the kernel, one row at a time."""
    s, name = k.schedule, k.name(copy)
    *planes, _, last = s.loops(name)
    lanes = k.machine.lanes(copy.dtype)
    while lanes > 1 and lanes > s.extent(last):
        lanes //= 2
    if lanes > 1:
        s.vectorize(s.split(last, [None, lanes])[1])
    if k.is_shared:
        s.parallel(s.fuse(*planes), grain=BAND)


def copy_band(k: KernelBlocks, copy: Tensor, at: Var) -> None:
    """Schedule the copy of the rows that an iteration of the loop `at` reads."""
    s, name = k.schedule, k.name(copy)
    last = s.compute_at(name, at)[-1]
    lanes = k.machine.lanes(copy.dtype)
    while lanes > 1 and lanes > s.extent(last):
        lanes //= 2
    if lanes > 1:
        s.vectorize(s.split(last, [None, lanes])[1])


def share(k: KernelBlocks, loops: list[Var]) -> None:
    """Parallelize bands and panels."""
    if k.is_shared:
        k.schedule.parallel(k.schedule.fuse(*loops))
