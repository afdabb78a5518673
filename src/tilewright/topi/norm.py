"""Softmax and the normalisations: several reductions along the same axes, then one elementwise result."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright import te
from tilewright.expr import PrimExpr, Value, Var, cast, const, exp, log, rsqrt, sqrt
from tilewright.tir.stmt import IterVar
from tilewright.topi.schedules.rows import schedule_rows


class _Rows:
    """A tensor seen as rows along some of its axes."""

    def __init__(self, x: te.Tensor, axes: Sequence[int]) -> None:
        self.x = x
        self.axes = sorted(a % x.ndim for a in axes)
        self.kept = [d for d in range(x.ndim) if d not in self.axes]
        self.count = math.prod(x.extents[d] for d in self.axes)

    def reduce(self, term: object, kind: object, name: str) -> te.Tensor:
        """`kind` (a te reduction) of `term(element, row)` along the rows; a tensor over the kept axes."""
        over = [te.reduce_axis((0, self.x.extents[d]), f"r{d}") for d in self.axes]

        def body(*row: Var) -> PrimExpr:
            return kind(term(self.element(row, over), row), axis=over)  # type: ignore[operator,no-any-return]

        return te.compute(  # type: ignore[no-any-return]
            [self.x.shape[d] for d in self.kept], body, name=name, schedule=schedule_rows, attrs={"axes": self.axes},
            axis_names=[f"i{d}" for d in self.kept],
        )

    def element(self, row: Sequence[Value], over: Sequence[IterVar]) -> PrimExpr:
        where: dict[int, object] = dict(zip(self.kept, row, strict=True)) | dict(zip(self.axes, over, strict=True))
        return self.x(*(where[d] for d in range(self.x.ndim)))

    def row(self, i: Sequence[Value]) -> list[Value]:
        return [i[d] for d in self.kept]


def softmax(x: te.Tensor, axis: int) -> te.Tensor:
    """exp(x - max(x)) / sum(exp(x - max(x))) along `axis`."""
    rows = _Rows(x, [axis])
    most = rows.reduce(lambda e, row: e, te.max, "softmax_max")
    powers = te.compute(x.shape, lambda *i: exp(x(*i) - most(*rows.row(i))), name="softmax_exp", attrs={"keep": True})
    total = _Rows(powers, [axis]).reduce(lambda e, row: e, te.sum, "softmax_sum")
    inverse = te.compute(total.shape, lambda *i: const(1, x.dtype) / total(*i), name="softmax_inverse", attrs={"keep": True})
    return te.compute(x.shape, lambda *i: powers(*i) * inverse(*rows.row(i)), name="softmax")  # type: ignore[no-any-return]


def log_softmax(x: te.Tensor, axis: int) -> te.Tensor:
    """x - max(x) - log(sum(exp(x - max(x)))) along `axis`."""
    rows = _Rows(x, [axis])
    most = rows.reduce(lambda e, row: e, te.max, "softmax_max")
    total = rows.reduce(lambda e, row: exp(e - most(*row)), te.sum, "softmax_sum")
    shift = te.compute(total.shape, lambda *i: most(*i) + log(total(*i)), name="softmax_shift", attrs={"keep": True})
    return te.compute(x.shape, lambda *i: x(*i) - shift(*rows.row(i)), name="log_softmax")  # type: ignore[no-any-return]


def normalize(x: te.Tensor, axes: Sequence[int], epsilon: float) -> te.Tensor:
    """(x - mean) / sqrt(variance + epsilon) along `axes`, in two passes."""
    rows = _Rows(x, axes)
    scale = 1.0 / rows.count
    total = rows.reduce(lambda e, row: e, te.sum, "norm_sum")
    mean = te.compute(total.shape, lambda *i: total(*i) * cast(x.dtype, scale), name="norm_mean", attrs={"keep": True})

    def squared(e: PrimExpr, row: Sequence[Value]) -> PrimExpr:
        d: PrimExpr = e - mean(*row)
        return d * d

    variance = rows.reduce(squared, te.sum, "norm_variance")
    inverse = te.compute(
        total.shape, lambda *i: const(1, x.dtype) / sqrt(variance(*i) * cast(x.dtype, scale) + cast(x.dtype, epsilon)), name="norm_inverse",
        attrs={"keep": True},
    )
    return te.compute(  # type: ignore[no-any-return]
        x.shape, lambda *i: (x(*i) - mean(*rows.row(i))) * inverse(*rows.row(i)), name="normalized"
    )


def l2_normalize(x: te.Tensor, axes: Sequence[int], epsilon: float) -> te.Tensor:
    """x / sqrt(max(sum(x * x), epsilon)) along `axes`."""
    from tilewright.expr import maximum

    rows = _Rows(x, axes)
    total = rows.reduce(lambda e, row: e * e, te.sum, "norm_sum")
    inverse = te.compute(total.shape, lambda *i: rsqrt(maximum(total(*i), cast(x.dtype, epsilon))), name="norm_inverse", attrs={"keep": True})
    return te.compute(x.shape, lambda *i: x(*i) * inverse(*rows.row(i)), name="l2_normalized")  # type: ignore[no-any-return]
