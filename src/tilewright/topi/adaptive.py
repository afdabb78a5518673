"""Pooling to a given output size; window sizes differ by at most one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te
from tilewright.scalar import expr as E
from tilewright.scalar.expr import PrimExpr, Value, Var
from tilewright.topi.elementwise import greatest
from tilewright.topi.kinds import Reduction


def adaptive_pool(data: te.Tensor, spatial: Sequence[int], output: Sequence[int], mean: bool) -> te.Tensor:
    """Return the mean or maximum over the window `[i * n // out, ceil((i + 1) * n / out))` of each spatial dimension.
    """
    sizes = [data.extents[d] for d in spatial]
    shape: list[Any] = list(data.shape)
    for d, n in zip(spatial, output, strict=True):
        shape[d] = n
    widest = [_widest(n, out) for n, out in zip(sizes, output, strict=True)]
    taps = [te.reduce_axis((0, w), f"r{d}") for d, w in zip(spatial, widest, strict=True)]

    def bounds(i: Sequence[Var], k: int) -> tuple[PrimExpr, PrimExpr]:
        n, out, at = sizes[k], output[k], i[spatial[k]]
        return E.floordiv(at * n, out), E.floordiv((at + 1) * n + out - 1, out)

    def element(*i: Var) -> PrimExpr:
        where: list[Value] = list(i)
        inside = E.all_of()
        for k, tap in enumerate(taps):
            begin, end = bounds(i, k)
            where[spatial[k]] = begin + tap.var
            inside = E.all_of(inside, begin + tap.var < end)
        nothing = E.const(0, data.dtype) if mean else te.min_value(data.dtype)
        return (te.sum if mean else greatest)(E.if_then_else(inside, data(*where), nothing), axis=taps)

    pooled = te.compute(shape, element, name="adaptive_sum" if mean else "adaptive_max", schedule=Reduction())
    if not mean:
        return te.compute(shape, pooled, name="adaptive_pool")

    def average(*i: Var) -> PrimExpr:
        count: PrimExpr = E.const(1, "int64")
        for k in range(len(taps)):
            begin, end = bounds(i, k)
            count = E.mul(count, end - begin)
        return E.div(pooled(*i), E.cast(data.dtype, count))

    return te.compute(shape, average, name="adaptive_mean")


def _widest(n: int, out: int) -> int:
    return max(-((-(i + 1) * n) // out) - i * n // out for i in range(out))
