"""Kernels over images whose heights and widths are known when the kernel runs.

    padded = the image with its padding beside it, and room for whole tiles (`backends/cpu/strategies/conv.py`, `Geometry.spread`)
    for band of rows (parallel): for panel: for row of the band: for tile of outputs: { acc = …, nothing tested; out = epilogue(acc) where it is inside }

Only what is stored is tested, once for each output of a tile, and the widths of tiles are as `open_rows.py` has it.
"""

from __future__ import annotations

from typing import Final

from tilewright.backends.cpu.strategies.schedules.kernel import KernelBlocks
from tilewright.base.errors import ScheduleError
from tilewright.base.types import OpenSize
from tilewright.scalar.expr import Var, as_expr
from tilewright.te.tensor import Tensor
from tilewright.tir.schedule import Schedule

_BAND: Final = 8
"""Rows of outputs for which a panel of weights stays in the cache."""


def check_axes(k: KernelBlocks, images: list[Var], channels: int, channel: Var) -> None:
    """Raise `ScheduleError` where the axes of the output are not those of the sums: it stands in another layout, in which open sizes cannot be told apart."""
    s = k.schedule
    wanted = [as_expr(n) for n in k.anchor.outputs[0].extents[: len(images)]]
    found = [as_expr(s.extent(v)) for v in images]
    if s.extent(channel) != channels or isinstance(s.extent(channel), OpenSize) or any(a is not b for a, b in zip(wanted, found, strict=True)):
        raise ScheduleError(f"'{k.anchor.name}' has an open height or width, and stores its result in another layout than it is computed in")


def bands(s: Schedule, images: list[Var]) -> list[Var]:
    """The loop over bands of rows and images, and the one over the rows of a band."""
    *outer, row = images
    rows = s.extent(row)
    band, row = s.split(row, [None, _BAND if isinstance(rows, OpenSize) else min(_BAND, rows)])
    return [s.fuse(*outer, band), row]


def copy_whole(k: KernelBlocks, copy: Tensor) -> None:
    """The copy of an image, made before all else, a row at a time."""
    s, name = k.schedule, k.name(copy)
    *planes, _, last = s.loops(name)
    lanes = k.machine.lanes(copy.dtype)
    while lanes > 1 and lanes > s.extent(last):
        lanes //= 2
    if lanes > 1:
        s.vectorize(s.split(last, [None, lanes])[1])
    if k.is_shared:
        s.parallel(s.fuse(*planes), grain=_BAND)


def share(k: KernelBlocks, loops: list[Var]) -> None:
    """Hand out bands and panels."""
    if k.is_shared:
        k.schedule.parallel(k.schedule.fuse(*loops))
