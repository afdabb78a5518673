"""Activation functions, and per-channel scales and shifts."""

from __future__ import annotations

from tilewright import te
from tilewright.scalar.expr import PrimExpr, Var
from tilewright.topi import elementwise as of
from tilewright.topi.norm import scaled
from tilewright.topi.shapes import axis_of
from tilewright.topi.tag import BROADCAST, tagged


def relu(x: te.Tensor) -> te.Tensor:
    """Return max(x, 0)."""
    return of.elementwise(x, of.positive, "relu")


def leaky_relu(x: te.Tensor, alpha: float) -> te.Tensor:
    """Return x above zero, alpha * x elsewhere."""
    return of.elementwise(x, lambda e: of.leaky(e, alpha), "leaky_relu")


@tagged(BROADCAST)
def prelu(x: te.Tensor, slope: te.Tensor, axis: int = 1) -> te.Tensor:
    """Return x above zero, slope[channel] * x elsewhere; `slope` has one value for each element of `axis`."""
    at = axis_of(axis, x.ndim)

    def element(*i: Var) -> PrimExpr:
        return of.leaky(x(*i), slope(i[at]))

    return te.compute(x.shape, element, name="prelu")


@tagged(BROADCAST)
def bias_add(data: te.Tensor, bias: te.Tensor, axis: int = 1) -> te.Tensor:
    """Return data plus bias[channel], with the channels along `axis`."""
    return scaled(data, axis_of(axis, data.ndim), None, bias, "bias_add")


@tagged(BROADCAST)
def scale_shift_nchw(Input: te.Tensor, Scale: te.Tensor, Shift: te.Tensor) -> te.Tensor:
    """Return Input * Scale[channel] + Shift[channel] for (batch, channels, height, width)."""
    return scaled(Input, 1, Scale, Shift, "scale_shift")


@tagged(BROADCAST)
def scale_shift_nhwc(Input: te.Tensor, Scale: te.Tensor, Shift: te.Tensor) -> te.Tensor:
    """Return Input * Scale[channel] + Shift[channel] for (batch, height, width, channels)."""
    return scaled(Input, 3, Scale, Shift, "scale_shift")


@tagged(BROADCAST)
def scale_shift_nchwc(Input: te.Tensor, Scale: te.Tensor, Shift: te.Tensor) -> te.Tensor:
    """Return Input * Scale + Shift for (batch, chunks, height, width, block), with scales and shifts (chunks, block).
    """
    return te.compute(
        Input.shape, lambda n, c, y, x, lane: Input(n, c, y, x, lane) * Scale(c, lane) + Shift(c, lane),
        name="scale_shift"
    )


__all__ = ["bias_add", "leaky_relu", "prelu", "relu", "scale_shift_nchw", "scale_shift_nchwc", "scale_shift_nhwc"]
