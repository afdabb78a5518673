"""Storage orders of tensors: permutations of axes, some of which are split into blocks.

A piece `d` of an order is axis `d` of the value, and a piece `(d, n)` a block of `n` of its elements: `(0, 1, 2, 3, (1,
8))` is NCHW8c for a value NCHW. An order without blocks is the permutation of a transpose. Every axis is a piece once,
before its blocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

from tilewright.tir.data_layout import layout
from tilewright.topi.shapes import Shape

Order = tuple[Any, ...]
DIMENSIONS: Final = {1: "C", 2: "NC", 3: "NCW", 4: "NCHW", 5: "NCDHW"}
"""Default letters of the axes by rank."""


def axis_of(piece: Any) -> int:
    """Return the axis of a piece."""
    return piece if isinstance(piece, int) else int(piece[0])


def has_blocks(order: Order | None) -> bool:
    return order is not None and any(not isinstance(p, int) for p in order)


def rank(order: Order) -> int:
    """Return the rank of a value stored in this order."""
    return sum(isinstance(p, int) for p in order)


def block(order: Order, axis: int) -> int:
    """Return the product of all block sizes of an axis."""
    return math.prod(p[1] for p in order if not isinstance(p, int) and p[0] == axis)


def places(order: Order, axes: Iterable[int]) -> tuple[int, ...]:
    """Return the positions of the pieces of some axes in memory, ascending."""
    wanted = set(axes)
    return tuple(k for k, p in enumerate(order) if axis_of(p) in wanted)


def stored_shape(order: Order, shape: Shape) -> Shape:
    """Return the shape in memory of a value of `shape`, padded if blocks do not divide it."""
    made = []
    for p in order:
        n = block(order, axis_of(p))
        made.append((shape[p] if n == 1 else (shape[p] + n - 1) // n) if isinstance(p, int) else p[1])
    return tuple(made)


def fits(order: Order, shape: Shape) -> bool:
    """Return whether the blocks divide a value of `shape`, so that no padding is needed."""
    return all(
        isinstance(p, int) or (isinstance(shape[p[0]], int) and shape[p[0]] % block(order, p[0]) == 0) for p in order
    )


def single(order: Order, shape: Shape) -> Order:
    """Return the same order for a value that broadcasts along axes of size 1: their blocks have size one."""
    return tuple(p if isinstance(p, int) or shape[p[0]] != 1 else (p[0], 1) for p in order)


def without(order: Order, axes: Sequence[int]) -> Order | None:
    """Return the order of a value without some of its axes; None for the logical order."""
    kept = sorted(p for p in order if isinstance(p, int) and p not in axes)
    number = {d: k for k, d in enumerate(kept)}
    left = tuple(number[p] if isinstance(p, int) else (number[p[0]], p[1]) for p in order if axis_of(p) not in axes)
    return None if left == tuple(range(len(left))) else left


def renamed(order: Order, axes: Sequence[int]) -> Order:
    """Return the order with axis `d` replaced by `axes[d]`."""
    return tuple(axes[p] if isinstance(p, int) else (axes[p[0]], p[1]) for p in order)


def order_of(plain: str, name: str) -> Order:
    """Return the order in which the layout `name` stores a value with the dimensions `plain`."""
    return tuple(plain.index(c.upper()) if not n else (plain.index(c.upper()), n) for c, n in layout(name).axes)


def layout_of(order: Order | None, letters: str) -> str:
    """Return the layout name of an order, for a value whose axes have these letters; `letters` for the logical order.
    """
    if order is None:
        return letters
    return "".join(letters[p] if isinstance(p, int) else f"{p[1]}{letters[p[0]].lower()}" for p in order)
