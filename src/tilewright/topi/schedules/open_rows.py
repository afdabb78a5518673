"""Tiles for numbers of rows that are known when the kernel runs.

All tiles of a call are of one height, of at most `MOST_OPEN_ROWS` rows, and the last one begins earlier, so that it overlaps the one before:

    9 rows   -> two tiles of 5: rows 0 … 4, 4 … 8          17 rows -> three tiles of 6: 0 … 5, 6 … 11, 11 … 16

The kernel has code for each height, and takes the lowest with which there are as few tiles as with the tallest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.expr import LE, PrimExpr, add, as_expr, compare, floordiv
from tilewright.te.create import computations
from tilewright.te.tensor import ComputeOp, Tensor
from tilewright.types import OpenSize

MOST_OPEN_ROWS: Final = 8
OPEN_ROWS: Final = 840
"""For what number of rows a tile is chosen: many, which all heights divide."""


def heights(args: Sequence[Tensor], outputs: Sequence[Tensor]) -> list[tuple[int, PrimExpr]]:
    """The heights that the kernel of these computations has code for, and when each is taken, where no one before it is; the last always is.

    Empty where no number of rows is open.
    """
    anchors = [op for op in computations(args, outputs) if isinstance(op, ComputeOp) and op.schedule is not None]
    rows = anchors[-1].attrs.get("rows") if anchors else None
    if not isinstance(rows, OpenSize):
        return []
    most: int = anchors[-1].attrs["tile"].rows
    total = as_expr(rows)
    tiles = floordiv(add(total, most - 1), most)
    needed = floordiv(sub_one(add(total, tiles)), tiles)
    return [(height, compare(LE, needed, height)) for height in range(1, most + 1)]


def sub_one(e: PrimExpr) -> PrimExpr:
    return add(e, -1)
