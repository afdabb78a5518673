"""Positions of elements that are not zero."""

from __future__ import annotations

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.scalar import expr as E
from tilewright.scalar.expr import PrimExpr
from tilewright.tir.ir_builder import BufferVar
from tilewright.topi.loops import Loops, loops
from tilewright.topi.shapes import differ, product, text
from tilewright.topi.transform import dims

__all__ = ["argwhere"]


def argwhere(output_shape: te.Tensor, condition: te.Tensor) -> te.Tensor:
    """Return the indices of the elements of `condition` that are not zero, one row of int32 for each, in row-major
    order.

    The shape of the tensor `output_shape` is the shape of the result, (count, rank); its values are not read. Rows that
    do not fit are dropped, and rows without an element are -1. Raises `ShapeError` for another rank.
    """
    if output_shape.ndim != 2 or differ(dims(output_shape)[1], condition.ndim):
        raise ShapeError(
            f"the indices of elements of {text(dims(condition))} have the shape (count, {condition.ndim}), not "
            f"{text(dims(output_shape))}")
    rows, rank, sizes = output_shape.shape[0], condition.ndim, condition.shape

    def body(b: Loops, shape: BufferVar, x: BufferVar, out: BufferVar) -> None:
        found = b.variable("found", "int64", 0)
        with b.for_range(0, rows * rank, "k") as k:
            out[k] = E.const(-1, "int32")
        with b.for_range(0, product(sizes), "place") as place:
            is_kept = E.all_of(E.compare(E.NE, x[place if rank else ()], E.const(0, condition.dtype)), found[0] < rows)
            with b.if_scope(is_kept):
                rest: PrimExpr = place
                for d in reversed(range(rank)):
                    out[found[0] * rank + d] = E.cast("int32", E.floormod(rest, sizes[d]) if d else rest)
                    rest = E.floordiv(rest, sizes[d])
                found[0] = found[0] + 1

    return loops("argwhere", [output_shape, condition], [((rows, rank), "int32")], body)[0]
