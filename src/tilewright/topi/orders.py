"""Orders in which tensors are stored: permutations of their axes, some of which stand in blocks.

A piece `d` of an order is axis `d` of the value, a piece `(d, n)` a block of `n` of its elements: `(0, 1, 2, 3, (1,
8))` is NCHW8c of a value NCHW. So an order without blocks is the permutation that a transpose takes. Every axis is a
piece once, before its blocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

from tilewright.tir.data_layout import layout
from tilewright.topi.shapes import Shape

Order = tuple[Any, ...]
DIMENSIONS: Final = {1: "C", 2: "NC", 3: "NCW", 4: "NCHW", 5: "NCDHW"}
"""The letters that the axes of a value have by its rank, where nothing else says them."""


def axis_of(piece: Any) -> int:
    """The axis of which a piece is a part."""
    return piece if isinstance(piece, int) else int(piece[0])


def has_blocks(order: Order | None) -> bool:
    return order is not None and any(not isinstance(p, int) for p in order)


def rank(order: Order) -> int:
    """Of how many dimensions a value stored in this order is."""
    return sum(isinstance(p, int) for p in order)


def block(order: Order, axis: int) -> int:
    """How many elements of an axis all of its blocks hold together."""
    return math.prod(p[1] for p in order if not isinstance(p, int) and p[0] == axis)


def places(order: Order, axes: Iterable[int]) -> tuple[int, ...]:
    """Where the pieces of some axes stand in memory, ascending."""
    wanted = set(axes)
    return tuple(k for k, p in enumerate(order) if axis_of(p) in wanted)


def stored_shape(order: Order, shape: Shape) -> Shape:
    """The shape in memory of a value of `shape`, filled up where blocks do not divide it."""
    made = []
    for p in order:
        n = block(order, axis_of(p))
        made.append((shape[p] if n == 1 else (shape[p] + n - 1) // n) if isinstance(p, int) else p[1])
    return tuple(made)


def fits(order: Order, shape: Shape) -> bool:
    """Do the blocks divide a value of `shape`, so that nothing is filled up?"""
    return all(
        isinstance(p, int) or (isinstance(shape[p[0]], int) and shape[p[0]] % block(order, p[0]) == 0) for p in order
    )


def single(order: Order, shape: Shape) -> Order:
    """The same order for a value whose axes of size 1 are repeated: they stand in blocks of one."""
    return tuple(p if isinstance(p, int) or shape[p[0]] != 1 else (p[0], 1) for p in order)


def without(order: Order, axes: Sequence[int]) -> Order | None:
    """The order of what is left of a value without some axes; None for the logical one."""
    kept = sorted(p for p in order if isinstance(p, int) and p not in axes)
    number = {d: k for k, d in enumerate(kept)}
    left = tuple(number[p] if isinstance(p, int) else (number[p[0]], p[1]) for p in order if axis_of(p) not in axes)
    return None if left == tuple(range(len(left))) else left


def renamed(order: Order, axes: Sequence[int]) -> Order:
    """The order with `axes[d]` for axis `d`."""
    return tuple(axes[p] if isinstance(p, int) else (axes[p[0]], p[1]) for p in order)


def order_of(plain: str, name: str) -> Order:
    """The order in which a value with the dimensions `plain` is stored in the layout `name`."""
    return tuple(plain.index(c.upper()) if not n else (plain.index(c.upper()), n) for c, n in layout(name).axes)


def layout_of(order: Order | None, letters: str) -> str:
    """The name of an order of a value whose axes have these letters; theirs for the logical order."""
    if order is None:
        return letters
    return "".join(letters[p] if isinstance(p, int) else f"{p[1]}{letters[p[0]].lower()}" for p in order)
