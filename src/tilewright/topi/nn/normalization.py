"""Softmax and normalizations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.scalar.expr import PrimExpr, Var, add, cast, mul
from tilewright.scalar.intrinsics import sqrt
from tilewright.topi import norm as of
from tilewright.topi.shapes import axes_of, axis_of, differ, is_multiple, text
from tilewright.topi.tag import tagged
from tilewright.topi.transform import dims, reshape

Axis = int | Sequence[int]


@tagged("softmax_output")
def softmax(x: te.Tensor, axis: int = -1) -> te.Tensor:
    """Return exp(x - max(x)) / sum(exp(x - max(x))) along `axis`."""
    return of.softmax(x, axis_of(axis, x.ndim))


fast_softmax = softmax
"""The exact softmax: its code for exp uses vectorized polynomials."""


@tagged("log_softmax_output")
def log_softmax(x: te.Tensor, axis: int = -1) -> te.Tensor:
    """Return x - max(x) - log(sum(exp(x - max(x)))) along `axis`."""
    return of.log_softmax(x, axis_of(axis, x.ndim))


def batch_norm(
    data: te.Tensor, gamma: te.Tensor, beta: te.Tensor, moving_mean: te.Tensor, moving_var: te.Tensor,
    axis: int | None = None, epsilon: float | None = None, center: bool | None = None, scale: bool | None = None,
    training: bool | None = None, momentum: float | None = None,
) -> list[te.Tensor]:
    """Return `gamma * (data - mean) / sqrt(variance + epsilon) + beta` along `axis`, and the two moving statistics.

    For inference, mean and variance are the moving statistics, which are returned unchanged. With `training`, they are
    those of the data, and the moving statistics become `(1 - momentum) * old + momentum * new`. The default of `axis`
    is 1, of `epsilon` 1e-5, of `center` and `scale` true, of `training` false, and of `momentum` 0.1. Without `scale`,
    gamma counts as ones; without `center`, beta counts as zeros.
    """
    at = axis_of(1 if axis is None else axis, data.ndim)
    small = 1e-5 if epsilon is None else epsilon
    moving = [moving_mean, moving_var]
    mean, variance = of.statistics(data, [d for d in range(data.ndim) if d != at]) if training else moving

    def element(*i: Var) -> PrimExpr:
        c = i[at]
        value: PrimExpr = (data(*i) - mean(c)) / sqrt(add(variance(c), cast(data.dtype, small)))
        value = value if scale is False else mul(value, gamma(c))
        return value if center is False else add(value, beta(c))

    normal = te.compute(data.shape, element, name="batch_norm", tag="broadcast")
    if not training:
        return [normal, *(te.compute(t.shape, t, name=t.name, tag="elemwise") for t in moving)]
    share = 0.1 if momentum is None else momentum
    return [normal, *(_moved(old, new, share) for old, new in zip(moving, (mean, variance), strict=True))]


def _moved(old: te.Tensor, new: te.Tensor, share: float) -> te.Tensor:
    """Return `(1 - share) * old + share * new`."""
    kept, taken = cast(old.dtype, 1 - share), cast(old.dtype, share)
    return te.compute(
        old.shape, lambda c: add(mul(kept, old(c)), mul(taken, cast(old.dtype, new(c)))), name=old.name,
        tag="elemwise")


def _affine(x: te.Tensor, axes: Sequence[int], gamma: te.Tensor | None, beta: te.Tensor | None, name: str) -> te.Tensor:
    """Return `x * gamma + beta`, both over the dimensions `axes` of x."""
    for t, what in ((gamma, "gamma"), (beta, "beta")):
        if t is not None and (
            t.ndim != len(axes) or any(differ(n, dims(x)[d]) for n, d in zip(dims(t), axes, strict=True))
        ):
            raise ShapeError(
                f"{what} must have the shape {text([dims(x)[d] for d in axes])}, not {text(dims(t))}"
            )

    def element(*i: Var) -> PrimExpr:
        at = [i[d] for d in axes]
        value = x(*i) if gamma is None else mul(x(*i), gamma(*at))
        return value if beta is None else add(value, beta(*at))

    return te.compute(x.shape, element, name=name)


@tagged("layer_norm")
def layer_norm(
    data: te.Tensor, gamma: te.Tensor, beta: te.Tensor | None, axis: Axis, epsilon: float = 1e-5
) -> te.Tensor:
    """Return gamma * (x - mean) / sqrt(variance + epsilon) + beta, with statistics and gamma over one or several `axis`
    (Ba et al., 2016)."""
    axes = axes_of(axis, data.ndim)
    return _affine(of.normalize(data, axes, epsilon), axes, gamma, beta, "layer_norm")


@tagged("instance_norm")
def instance_norm(
    data: te.Tensor, gamma: te.Tensor, beta: te.Tensor, axis: Axis, epsilon: float = 1e-5
) -> te.Tensor:
    """Return gamma * (x - mean) / sqrt(variance + epsilon) + beta, with statistics, gamma and beta over `axis`, as in
    TVM v0.13; `group_norm` with one channel in each group has gamma per channel."""
    axes = axes_of(axis, data.ndim)
    return _affine(of.normalize(data, axes, epsilon), axes, gamma, beta, "instance_norm")


@tagged("group_norm")
def group_norm(
    data: te.Tensor, gamma: te.Tensor | None, beta: te.Tensor | None, num_groups: int, channel_axis: int, axes: Axis,
    epsilon: float = 1e-5
) -> te.Tensor:
    """Normalize as `instance_norm` does, with statistics over `axes` and the channels of each of `num_groups` groups.
    Raises `ShapeError`."""
    channel = axis_of(channel_axis, data.ndim)
    shape, channels = dims(data), dims(data)[channel]
    if not is_multiple(channels, num_groups):
        raise ShapeError(f"the {channels} channels cannot be divided into {num_groups} groups")
    grouped = reshape(data, (*shape[:channel], num_groups, channels // num_groups, *shape[channel + 1 :]), "grouped")
    over = [a + (a >= channel) for a in axes_of(axes, data.ndim) if a != channel]
    normal = reshape(of.normalize(grouped, [*over, channel + 1], epsilon, scheduled=False), shape, "ungrouped")
    return of.scaled(normal, channel, gamma, beta, "group_norm")


@tagged("rms_norm")
def rms_norm(data: te.Tensor, weight: te.Tensor, axis: Axis, epsilon: float = 1e-5) -> te.Tensor:
    """Return weight * x / sqrt(mean of x * x + epsilon), with mean and weight over `axis` (Zhang and Sennrich, 2019).
    """
    axes = axes_of(axis, data.ndim)
    return _affine(of.rms_normalize(data, axes, epsilon), axes, weight, None, "rms_norm")


@tagged("l2_normalize")
def l2_normalize(data: te.Tensor, eps: float, axis: Any = None) -> te.Tensor:
    """Return x / sqrt(max(sum(x * x), eps)) along `axis` (default: all axes)."""
    return of.l2_normalize(data, axes_of(axis, data.ndim), eps)


@tagged("lrn")
def lrn(
    data: te.Tensor, size: int, axis: int = 1, alpha: float = 0.0001, beta: float = 0.75, bias: float = 2
) -> te.Tensor:
    """Return x / (bias + alpha / size * sum of x * x over the `size` neighbours along `axis`)^beta (Krizhevsky et al.,
    2012)."""
    return of.lrn(data, size, axis_of(axis, data.ndim), bias, alpha, beta)


__all__ = [
    "batch_norm", "fast_softmax", "group_norm", "instance_norm", "l2_normalize", "layer_norm", "log_softmax", "lrn",
    "rms_norm", "softmax",
]
