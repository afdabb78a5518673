"""Softmax and normalizations: several reductions along the same axes, then an elementwise result."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tilewright import te
from tilewright.scalar.expr import PrimExpr, Value, Var, add, all_of, cast, const, div, if_then_else, maximum, mul
from tilewright.scalar.intrinsics import exp, log, rsqrt, sqrt
from tilewright.scalar.intrinsics import pow as power
from tilewright.tir.stmt import IterVar
from tilewright.topi.kinds import RowReductions


class _Rows:
    """A tensor viewed as rows along some of its axes."""

    def __init__(self, x: te.Tensor, axes: Sequence[int], scheduled: bool = True) -> None:
        self.x, self.scheduled = x, scheduled
        self.axes = sorted(a % x.ndim for a in axes)
        self.kept = [d for d in range(x.ndim) if d not in self.axes]
        self.count = math.prod(x.extents[d] for d in self.axes)

    def reduce(
        self, term: Callable[[PrimExpr, Sequence[Value]], PrimExpr], kind: Callable[..., PrimExpr], name: str
    ) -> te.Tensor:
        """Return `kind` (a te reduction) of `term(element, row)` along the rows, as a tensor over the remaining axes.
        """
        over = [te.reduce_axis((0, self.x.extents[d]), f"r{d}") for d in self.axes]

        def body(*row: Var) -> PrimExpr:
            return kind(term(self.element(row, over), row), axis=over)

        return te.compute(
            [self.x.shape[d] for d in self.kept], body, name=name,
            schedule=RowReductions(tuple(self.axes)) if self.scheduled else None,
            axis_names=[f"i{d}" for d in self.kept],
        )

    def element(self, row: Sequence[Value], over: Sequence[IterVar]) -> PrimExpr:
        where: dict[int, Value] = dict(zip((*self.kept, *self.axes), (*row, *over), strict=True))
        return self.x(*(where[d] for d in range(self.x.ndim)))

    def row(self, i: Sequence[Value]) -> list[Value]:
        return [i[d] for d in self.kept]


def softmax(x: te.Tensor, axis: int) -> te.Tensor:
    """Return exp(x - max(x)) / sum(exp(x - max(x))) along `axis`."""
    rows = _Rows(x, [axis])
    most = rows.reduce(lambda e, row: e, te.max, "softmax_max")
    powers = te.compute(x.shape, lambda *i: exp(x(*i) - most(*rows.row(i))), name="softmax_exp", inline=False)
    total = _Rows(powers, [axis]).reduce(lambda e, row: e, te.sum, "softmax_sum")
    return te.compute(x.shape, lambda *i: powers(*i) / total(*rows.row(i)), name="softmax")


def log_softmax(x: te.Tensor, axis: int) -> te.Tensor:
    """Return x - max(x) - log(sum(exp(x - max(x)))) along `axis`."""
    rows = _Rows(x, [axis])
    most = rows.reduce(lambda e, row: e, te.max, "softmax_max")
    total = rows.reduce(lambda e, row: exp(e - most(*row)), te.sum, "softmax_sum")
    shift = te.compute(total.shape, lambda *i: most(*i) + log(total(*i)), name="softmax_shift", inline=False)
    return te.compute(x.shape, lambda *i: x(*i) - shift(*rows.row(i)), name="log_softmax")


def statistics(x: te.Tensor, axes: Sequence[int]) -> tuple[te.Tensor, te.Tensor]:
    """Return mean and variance of `x` along `axes`, in two passes. Without axes, the mean is `x` and the variance 0."""
    rows = _Rows(x, axes, scheduled=False)
    count = cast(x.dtype, rows.count)
    total = rows.reduce(lambda e, row: e, te.sum, "norm_sum")
    mean = te.compute(total.shape, lambda *i: div(total(*i), count), name="norm_mean", inline=False)

    def squared(e: PrimExpr, row: Sequence[Value]) -> PrimExpr:
        d: PrimExpr = e - mean(*row)
        return d * d

    squares = rows.reduce(squared, te.sum, "norm_squares")
    return mean, te.compute(total.shape, lambda *i: div(squares(*i), count), name="norm_variance", inline=False)


def normalize(x: te.Tensor, axes: Sequence[int], epsilon: float, scheduled: bool = True) -> te.Tensor:
    """Return (x - mean) / sqrt(variance + epsilon) along `axes`, in two passes. Without `scheduled`, the result may be
    reshaped."""
    rows = _Rows(x, axes, scheduled)
    total = rows.reduce(lambda e, row: e, te.sum, "norm_sum")
    mean = te.compute(total.shape, lambda *i: div(total(*i), cast(x.dtype, rows.count)), name="norm_mean", inline=False)

    def squared(e: PrimExpr, row: Sequence[Value]) -> PrimExpr:
        d: PrimExpr = e - mean(*row)
        return d * d

    variance = rows.reduce(squared, te.sum, "norm_variance")
    inverse = te.compute(
        total.shape,
        lambda *i: const(1, x.dtype) / sqrt(div(variance(*i), cast(x.dtype, rows.count)) + cast(x.dtype, epsilon)),
        name="norm_inverse", inline=False,
    )
    return te.compute(
        x.shape, lambda *i: (x(*i) - mean(*rows.row(i))) * inverse(*rows.row(i)), name="normalized"
    )


def l2_normalize(x: te.Tensor, axes: Sequence[int], epsilon: float) -> te.Tensor:
    """Return x / sqrt(max(sum(x * x), epsilon)) along `axes`."""
    rows = _Rows(x, axes)
    total = rows.reduce(lambda e, row: e * e, te.sum, "norm_sum")
    inverse = te.compute(
        total.shape, lambda *i: rsqrt(maximum(total(*i), cast(x.dtype, epsilon))), name="norm_inverse", inline=False
    )
    return te.compute(x.shape, lambda *i: x(*i) * inverse(*rows.row(i)), name="l2_normalized")


def rms_normalize(x: te.Tensor, axes: Sequence[int], epsilon: float) -> te.Tensor:
    """Return x / sqrt(mean of x * x + epsilon) along `axes`."""
    rows = _Rows(x, axes)
    total = rows.reduce(lambda e, row: e * e, te.sum, "norm_sum")
    inverse = te.compute(
        total.shape,
        lambda *i: const(1, x.dtype) / sqrt(div(total(*i), cast(x.dtype, rows.count)) + cast(x.dtype, epsilon)),
        name="norm_inverse", inline=False,
    )
    return te.compute(x.shape, lambda *i: x(*i) * inverse(*rows.row(i)), name="rms_normalized")


def scaled(x: te.Tensor, axis: int, gamma: te.Tensor | None, beta: te.Tensor | None, name: str) -> te.Tensor:
    """Return `x * gamma + beta` along `axis`; both are optional."""

    def element(*i: Var) -> PrimExpr:
        value = x(*i)
        value = value if gamma is None else mul(value, gamma(i[axis]))
        return value if beta is None else add(value, beta(i[axis]))

    return te.compute(x.shape, element, name=name)


def lrn(x: te.Tensor, size: int, axis: int, bias: float, alpha: float, beta: float) -> te.Tensor:
    """Return x / (bias + alpha / size * sum of x * x over the `size` neighbours along `axis`)^beta."""
    count, before = x.shape[axis], (size - 1) // 2
    tap = te.reduce_axis((0, size), "r")

    def neighbours(*i: Var) -> PrimExpr:
        at = i[axis] + tap.var - before
        value = x(*i[:axis], at, *i[axis + 1 :])
        return te.sum(if_then_else(all_of(at >= 0, at < count), value * value, const(0, x.dtype)), axis=tap)

    total = te.compute(x.shape, neighbours, name="lrn_sum")

    def element(*i: Var) -> PrimExpr:
        scale = add(mul(total(*i), const(alpha / size, x.dtype)), const(bias, x.dtype))
        return div(x(*i), power(scale, const(beta, x.dtype)))

    return te.compute(x.shape, element, name="lrn")
