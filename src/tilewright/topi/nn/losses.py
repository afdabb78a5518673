"""Losses of neural networks."""

from __future__ import annotations

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.scalar import expr as E
from tilewright.tir.ir_builder import BufferVar
from tilewright.topi.loops import Loops, Rows, loops

__all__ = ["nll_loss"]


def nll_loss(
    predictions: te.Tensor, targets: te.Tensor, weights: te.Tensor, reduction: str, ignore_index: int
) -> te.Tensor:
    """Return the negative log likelihood `-predictions[n, c, …] * weights[c]` of the classes `c = targets[n, …]`.

    The loss of the class `ignore_index` is zero. The losses are the result for the `reduction` "none"; "sum" adds them,
    and "mean" divides their sum by the sum of the used weights. Targets are clamped to the range of classes. Raises
    `ShapeError` for another reduction.
    """
    if reduction not in ("mean", "sum", "none"):
        raise ShapeError(f"reduction '{reduction}' is not supported; it must be mean, sum or none")
    dtype = predictions.dtype
    rows = Rows.of(predictions.extents, 1 if predictions.ndim > 1 else 0)
    shape = targets.extents if reduction == "none" else ()

    def body(b: Loops, x: BufferVar, kinds: BufferVar, share: BufferVar, out: BufferVar) -> None:
        total, weight = b.variable("total", dtype, 0.0), b.variable("weight", dtype, 0.0)
        with b.for_range(0, rows.count, "row") as row:
            given = b.let("given", E.cast("int64", kinds[row if targets.ndim else ()]))
            used = E.compare(E.NE, given, ignore_index)
            kind = b.let("kind",
                         E.maximum(E.minimum(given, E.const(weights.extents[0] - 1, "int64")), E.const(0, "int64")))
            here = b.let("here", E.if_then_else(used, share[kind], E.const(0, dtype)))
            loss = b.let("loss", E.if_then_else(used, -x[rows.at(row, kind)] * here, E.const(0, dtype)))
            if reduction == "none":
                out[row if targets.ndim else ()] = loss
            total[0] = total[0] + loss
            weight[0] = weight[0] + here
        if reduction != "none":
            out[()] = total[0] / weight[0] if reduction == "mean" else total[0]

    return loops("nll_loss", [predictions, targets, weights], [(shape, dtype)], body)[0]
