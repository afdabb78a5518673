"""Tiles for a symbolic number of rows.

All tiles of a call have the same height of at most `MOST_OPEN_ROWS` rows, and the last one overlaps the previous one:

    9 rows   -> two tiles of 5: rows 0 … 4, 4 … 8          17 rows -> three tiles of 6: 0 … 5, 6 … 11, 11 … 16

The kernel has code for each height, and picks the smallest height that gives the minimum number of tiles. A schedule
lists its heights in `CpuSchedule.heights`, each with its condition: the first height whose condition holds is taken,
else the last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeAlias

from tilewright.backends.cpu.strategies.tiles import OPEN_ROWS, Tile, conv_tile
from tilewright.backends.kernel_options import KernelOptions
from tilewright.base.types import OpenSize
from tilewright.scalar.arith.open_sizes import may_be_zero
from tilewright.scalar.expr import LE, LT, PrimExpr, add, all_of, any_of, as_expr, compare, floordiv, maximum, mul, sub

MOST_OPEN_ROWS: Final = 8
_PARTS: Final = 8
"""Parts of a cycle in which tiles are compared."""

Heights: TypeAlias = tuple[tuple[int, PrimExpr], ...]


def balanced(rows: int, most: int) -> Heights:
    """Return all heights from 1 to `most`, each the minimum for a number of tiles; empty for a static number of rows.
    """
    if not isinstance(rows, OpenSize):
        return ()
    needed = _needed(rows, most)
    return tuple((height, compare(LE, needed, height)) for height in range(1, most + 1))


def whole_or_single(rows: int, most: int) -> Heights:
    """Return the heights `most` and 1, which takes as long as heights between where fewer rows than `most` are needed.
    Empty for a static number of rows."""
    if not isinstance(rows, OpenSize):
        return ()
    needed = _needed(rows, most)
    return (1, compare(LT, needed, most)), (most, compare(LE, needed, most))


def balanced_pixels(pixels: int, most: int) -> Heights:
    """Return a few heights for the pixels of an image, because small images take little time; 1 below half of the
    tallest."""
    if not isinstance(pixels, OpenSize) or most < 4:
        return balanced(pixels, most)
    half, needed = most // 2, _needed(pixels, most)
    lower = any_of(fewer_than(pixels, most), compare(LE, needed, half))
    return (1, fewer_than(pixels, half)), (half, lower), (most, compare(LE, needed, most))


def overlapping(rows: int, most: int) -> Heights:
    """Return the tallest tiles, and tiles of two thirds of their height, which divide some small numbers better.
    The last tile overlaps the previous one, so there is no height for fewer rows than in one tile."""
    lower = -(-most * 2 // 3)
    fits = any_of(compare(LE, _needed(rows, most), lower), fewer_than(rows, most))
    return (lower, all_of(compare(LE, lower, as_expr(rows)), fits)), (most, compare(LE, most, as_expr(rows)))


def cheapest_widths(outputs: int, most: int, cycles: Callable[[int], float]) -> Heights:
    """Return tile widths along a row, three eighths and five eighths of the widest and the widest, each where all its
    tiles take the fewest cycles; `cycles` returns those of a tile. The outside part of a tile is computed but not
    stored."""
    if not isinstance(outputs, OpenSize):
        return ()
    found = sorted({-(-most * eighths // 8) for eighths in (3, 5, 8)})
    whole = [mul(floordiv(add(as_expr(outputs), w - 1), w), round(_PARTS * cycles(w))) for w in found]
    return tuple(
        (w, all_of(*(compare(LT, own, wider) for wider in whole[k + 1 :])) if k + 1 < len(found)
         else compare(LE, 0, own)) for k, (w, own) in enumerate(zip(found, whole, strict=True)))


def _needed(rows: int, most: int) -> PrimExpr:
    """Return the smallest height that gives the minimum number of tiles."""
    total = maximum(as_expr(rows), 1) if may_be_zero(rows) else as_expr(rows)
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
    """Return the condition that there are fewer rows than a number."""
    return compare(LT, as_expr(rows), number)
