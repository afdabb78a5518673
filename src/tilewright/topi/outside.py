"""Checks whether any index is out of bounds: one number for a whole tensor."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from math import prod
from typing import Any

from tilewright import te
from tilewright.base.types import OpenSize
from tilewright.scalar import expr as E
from tilewright.scalar.expr import PrimExpr
from tilewright.tir.ir_builder import BufferVar
from tilewright.topi.kinds import Reduction
from tilewright.topi.loops import Loops, loops
from tilewright.topi.tag import COMM_REDUCE


def outside(indices: te.Tensor, sizes: Sequence[int], negative: bool = True) -> te.Tensor:
    """Return 1 if an element of `indices` is outside of [-size, size), else 0, as an int32 scalar.

    `sizes` is one number for all, or one for each position along the last dimension. Without `negative`, elements below
    zero are out of bounds.
    """
    if any(isinstance(n, OpenSize) for n in indices.extents):
        return _by_a_loop(indices, sizes, negative)
    several = len(sizes) > 1
    over = [te.reduce_axis((0, n), f"r{d}") for d, n in enumerate(indices.shape[: indices.ndim - several])]
    places = [axis.var for axis in over]

    def wrong() -> PrimExpr:
        found = [
            _wrong(indices(*places, *([k] if several else [])), E.const(n, "int64"), negative) for k,
            n in enumerate(sizes)
        ]
        return functools.reduce(E.maximum, found)

    if not over:
        return te.compute((), wrong, name="outside")
    found = te.compute(
        (), lambda: te.max(wrong(), axis=over), name="outside", tag=COMM_REDUCE, schedule=Reduction()
    )
    return te.compute((), found, name="outside_out", tag=COMM_REDUCE)


def _by_a_loop(indices: te.Tensor, sizes: Sequence[int], negative: bool) -> te.Tensor:
    count: Any = prod(indices.extents)

    def body(b: Loops, x: BufferVar, out: BufferVar) -> None:
        out[()] = E.const(0, "int32")
        with b.for_range(0, count, "k") as k:
            out[()] = E.maximum(out[()], _wrong(x[k], _size(sizes, E.floormod(k, len(sizes))), negative))

    return loops("outside", [indices], [((), "int32")], body)[0]


def _size(sizes: Sequence[int], place: PrimExpr) -> PrimExpr:
    size: PrimExpr = E.const(sizes[0], "int64")
    for k, n in enumerate(sizes[1:], 1):
        size = E.if_then_else(E.compare(E.EQ, place, k), E.const(n, "int64"), size)
    return size


def _wrong(index: PrimExpr, size: PrimExpr, negative: bool) -> PrimExpr:
    """Return 1 if the index is out of bounds, else 0, by one unsigned comparison, in which negative numbers are the
    greatest."""
    position = E.cast("int64", index)
    place, end = (E.add(position, size), E.mul(size, 2)) if negative else (position, size)
    return E.cast("int32", E.cast("uint64", place) >= E.cast("uint64", end))
