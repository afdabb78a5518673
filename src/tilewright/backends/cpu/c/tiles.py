"""Loops over a tile of sums: a few loops around the loop over the lanes of a vector, with one store inside.

    for (m = 0; m < 6; ++m)
        for (n = 0; n < 2; ++n)
            for (lane = 0; lane < 8; ++lane)
                sums[m * 16 + n * 8 + lane] = …

A C compiler keeps such sums in registers only if these loops are unrolled, except for the last one, which it
vectorizes. If the last loop adds products of four bytes, it becomes a function (`dot4_x8`), because compilers do not
find the instruction for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilewright.scalar.arith.ranges import Ranges
from tilewright.scalar.arith.simplify import simplify
from tilewright.scalar.expr import Call, Load, PrimExpr, Var, number_of, sub
from tilewright.scalar.intrinsics import dot4
from tilewright.scalar.walk import walk
from tilewright.tir.stmt import SERIAL, For, Stmt, Store

_MOST: Final = 64
"""Largest number of vectors in a tile."""


def is_tile(s: For) -> bool:
    """Return whether to unroll a loop: it contains loops of constant sizes that end in one store, and is not the
    innermost."""
    vectors, inner = 1, 0
    here: Stmt = s
    while isinstance(here, For):
        count = number_of(here.extent)
        if here.kind != SERIAL or not isinstance(count, int):
            return False
        if isinstance(here.body, For):
            vectors *= count
            inner += 1
        here = here.body
    return isinstance(here, Store) and inner > 0 and vectors <= _MOST


@dataclass(frozen=True, slots=True)
class DotLanes:
    """`for lane: total[place + lane] = dot4(word, weights[at + lane], total[place + lane])`.

    `word` is the same for all lanes.
    """

    lanes: int
    total: Load
    word: PrimExpr
    weights: Load


LANES: Final = (8, 16)
"""Numbers of lanes with a helper function."""


def dot_lanes(s: For) -> DotLanes | None:
    """Return the parts of a loop over lanes that adds products of four bytes to adjacent elements; None for other
    loops."""
    count, store, lane = number_of(s.extent), s.body, s.var
    if count not in LANES or s.kind != SERIAL or number_of(s.min) != 0 or not isinstance(
        store, Store
    ) or store.mask is not None:
        return None
    value = store.value
    if not (isinstance(value, Call) and value.op is dot4 and value.dtype == "int32"):
        return None
    word, weights, total = value.args
    if not (
        isinstance(weights, Load) and total is Load(store.buffer, store.indices) and weights.buffer is not store.buffer
    ) or _reads(word, lane):
        return None
    first, at = _first(store.indices[0], lane), _first(weights.indices[0], lane)
    if first is None or at is None or weights.dtype != "int32":
        return None
    return DotLanes(int(count), Load(store.buffer, (first,)), word, Load(weights.buffer, (at,)))


def _first(index: PrimExpr, lane: Var) -> PrimExpr | None:
    """Return the index of the first lane; None if lanes are not adjacent."""
    base = simplify(sub(index, lane), Ranges())
    return None if _reads(base, lane) else base


def _reads(e: PrimExpr, v: Var) -> bool:
    return any(x is v for x in walk(e))
