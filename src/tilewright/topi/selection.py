"""Positions of selected elements of a row."""

from __future__ import annotations

from tilewright import te
from tilewright.scalar import expr as E
from tilewright.scalar.arith.open_sizes import room_for
from tilewright.tir.ir_builder import BufferVar
from tilewright.topi.loops import Loops, loops

__all__ = ["true_places"]


def true_places(mask: te.Tensor) -> tuple[te.Tensor, ...]:
    """Return the positions of true elements of a bool row, in order, padded with zeros, and their number.

    For a row of a dynamic size with a limit, there is room for that many.
    """
    (n,) = mask.extents
    room = room_for(n)

    def body(b: Loops, x: BufferVar, places: BufferVar, count: BufferVar) -> None:
        found = b.variable("found", "int64", 0)
        with b.for_range(0, n, "i") as i, b.if_scope(x[i]):
            places[found[0]] = E.cast("int64", i)
            found[0] = found[0] + 1
        count[0] = found[0]
        with b.for_range(found[0], room, "i") as i:
            places[i] = E.const(0, "int64")

    return loops("true_places", [mask], [((room,), "int64"), ((1,), "int64")], body)
