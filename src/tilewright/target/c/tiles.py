"""Which loops go over a tile of sums: a few of them, around the loop over the lanes of a vector, with one store inside.

    for (m = 0; m < 6; ++m)
      for (n = 0; n < 2; ++n)
        for (lane = 0; lane < 8; ++lane)
          sums[m * 16 + n * 8 + lane] = …

A C compiler keeps such sums in registers only where these loops are unrolled but for the last one, which it makes a vector of.
"""

from __future__ import annotations

from typing import Final

from tilewright.expr import number_of
from tilewright.tir.stmt import SERIAL, For, Stmt, Store

_MOST: Final = 64
"""Vectors of a tile at most."""


def is_tile(s: For) -> bool:
    """Whether the loop is to be unrolled: it holds loops of constant sizes that end in one store, and is not the innermost of them."""
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
