"""Tiles for numbers of rows that are known when the kernel runs.

All tiles of a call are of one height, of at most `MOST_OPEN_ROWS` rows, and the last one begins earlier, so that it
overlaps the one before:

    9 rows   -> two tiles of 5: rows 0 … 4, 4 … 8          17 rows -> three tiles of 6: 0 … 5, 6 … 11, 11 … 16

The kernel has code for each height, and picks the smallest height that gives the minimum number of tiles. A schedule
lists its heights in `CpuSchedule.heights`, each with its condition: the first height whose condition holds is taken,
else the last.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, TypeAlias

from tilewright.backends.cpu.strategies.tiles import Tile, conv_tile
from tilewright.backends.kernel_options import KernelOptions
from tilewright.base.types import OpenSize
from tilewright.scalar.expr import LE, LT, PrimExpr, add, any_of, as_expr, compare, floordiv, sub

MOST_OPEN_ROWS: Final = 8
OPEN_ROWS: Final = 840
"""For what number of rows a tile is chosen: many, which all heights divide."""

Heights: TypeAlias = tuple[tuple[int, PrimExpr], ...]


def balanced(rows: int, most: int) -> Heights:
    """All heights from 1 to `most`: for each number of tiles the lowest that does; none for a number of rows that is
    known."""
    if not isinstance(rows, OpenSize):
        return ()
    needed = _needed(rows, most)
    return tuple((height, compare(LE, needed, height)) for height in range(1, most + 1))


def balanced_pixels(pixels: int, most: int) -> Heights:
    """The same for the pixels of an image, of which there are many where it takes long: a few heights, and 1 for less
    than half of the tallest."""
    if not isinstance(pixels, OpenSize) or most < 4:
        return balanced(pixels, most)
    half, needed = most // 2, _needed(pixels, most)
    lower = any_of(fewer_than(pixels, most), compare(LE, needed, half))
    return (1, fewer_than(pixels, half)), (half, lower), (
        most - 1, compare(LE, needed, most - 1)
    ), (most, compare(LE, needed, most))


def widths(outputs: int, most: int) -> Heights:
    """A few widths of tiles along a row, from half of the widest on: in a tile that is only partly inside, the rest is
    computed and not stored."""
    if not isinstance(outputs, OpenSize):
        return ()
    needed = _needed(outputs, most)
    return tuple(
        (width, compare(LE, needed, width)) for width in sorted({max(1, -(-most * k // 8)) for k in (4, 5, 7, 8)})
    )


def _needed(rows: int, most: int) -> PrimExpr:
    """The lowest height with which there are as few tiles as with the tallest."""
    total = as_expr(rows)
    tiles = floordiv(add(total, most - 1), most)
    return floordiv(add(total, sub(tiles, 1)), tiles)


def tile_along(
    outputs: int, channels: int, steps: int, stride: int, taps: int, options: KernelOptions, together: bool = False
) -> tuple[Tile, bool]:
    """The tile of a convolution along a row of `outputs`, of the height of `options` where their number is symbolic,
    and whether its taps share inputs."""
    if not isinstance(outputs, OpenSize):
        return conv_tile(outputs, channels, steps, options, stride, taps, together=together)
    tile, shared = conv_tile(OPEN_ROWS, channels, steps, options, stride, taps, MOST_OPEN_ROWS, together)
    return replace(tile, rows=options.height or tile.rows), shared


def fewer_than(rows: int, number: int) -> PrimExpr:
    """When there are fewer rows than a number."""
    return compare(LT, as_expr(rows), number)
