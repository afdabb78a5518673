"""Long epilogues of register tiles: in a loop over the rows of a tile, instead of written out for each row.

    acc[rows x vectors] = …                         acc[rows x vectors] = …
    out[0] = exp(acc[0]) …                    ->    sums[rows x vectors] = acc
    out[1] = exp(acc[1]) …                          for row: out[row] = exp(sums[row]) …

The sums of a tile take one store and one load for each vector, which is little beside a function such as `exp`. Kernels
with symbolic sizes have code for several tiles, and most of it would be the epilogue.
"""

from __future__ import annotations

from typing import Final

from tilewright.backends.cpu.strategies.schedules.kernel import KernelBlocks
from tilewright.base.graphs import reachable
from tilewright.scalar.expr import Call, Load, Var
from tilewright.tir.stmt import NUMBERS, Store, stored_buffers, walk_stmt

_LONG: Final = 8
"""Number of operations on each element from which an epilogue is long. A function call counts as several."""
_OF_A_CALL: Final = 8


def in_loop(k: KernelBlocks, rows: int, lanes: int) -> bool:
    """Return whether a kernel computes its epilogue in a loop over the `rows` of a tile of vectors."""
    return rows > 1 and lanes > 1 and bool(k.schedule.func.attrs.get(NUMBERS)) and _operations(k) >= _LONG


def store_sums(k: KernelBlocks, at: Var, lanes: int) -> None:
    """Let the epilogue read the sums of a tile, which are computed at `at`, from memory. To be called before the sums
    are moved there."""
    s = k.schedule
    (sums,) = stored_buffers(s.block(k.acc))
    *rows, column = s.compute_at(s.cache_read(sums.name, "global", [k.output]), at)
    vector, lane = s.split(column, [None, lanes])
    for v in (*rows, vector):
        s.unroll(v)
    s.vectorize(lane)


def _operations(k: KernelBlocks) -> int:
    """Return the number of operations on each element that the output block stores, without those on indices."""
    stores = [s for s in walk_stmt(k.schedule.block(k.output).body) if isinstance(s, Store)]
    values = reachable([s.value for s in stores], lambda e: () if isinstance(e, Load) else e.operands())
    return sum(_OF_A_CALL if isinstance(e, Call) else 1 for e in values if e.operands() and not isinstance(e, Load))
