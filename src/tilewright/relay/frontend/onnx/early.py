"""Experimental operators of ONNX 1.0 to 1.3, which exporters of that time wrote and later releases removed.

Sources: "Experimental operators" in docs/Operators.md of ONNX 1.3, and the behaviour of ONNX Runtime for what that
leaves undefined.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.onnx.math import softplus
from tilewright.relay.frontend.onnx.node import Node
from tilewright.relay.frontend.onnx.reading import element_type
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.frontend.onnx.transform import slice_
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import per_channel
from tilewright.relay.types_of import dtype_of, rank, scalar, shape_of


def _times(x: Expr, factor: float) -> Expr:
    return op.multiply(x, scalar(factor, x))


@converter("Affine")
def affine(x: Expr, *, alpha: float = 1.0, beta: float = 0.0) -> Expr:
    return op.add(_times(x, alpha), scalar(beta, x))


@converter("ScaledTanh")
def scaled_tanh(x: Expr, *, alpha: float = 1.0, beta: float = 1.0) -> Expr:
    return _times(op.tanh(_times(x, beta)), alpha)


@converter("ParametricSoftplus")
def parametric_softplus(x: Expr, *, alpha: float = 1.0, beta: float = 1.0) -> Expr:
    return _times(softplus(_times(x, beta)), alpha)


@converter("Scale")
def scale_all(x: Expr, *, scale: float = 1.0) -> Expr:
    return _times(x, scale)


@converter("ImageScaler")
def image_scaler(x: Expr, *, scale: float = 1.0, bias: Sequence[float] = (), node: Node) -> Expr:
    """Pixels times `scale`, plus a bias for each channel."""
    if len(bias) != shape_of(x)[1]:
        node.refuse(f"bias has {len(bias)} numbers, but its input has {shape_of(x)[1]} channels")
    return op.add(_times(x, scale), per_channel(Constant(np.asarray(bias, dtype_of(x).numpy())), rank(x)))


@converter("Crop")
def crop(x: Expr, *, border: Sequence[int] = (), scale: Sequence[int] = (), node: Node) -> Expr:
    """Crop the borders (left, top, right, bottom); `scale` limits the result to (rows, columns)."""
    if len(border) != 4 or len(scale) not in (0, 2):
        node.refuse(f"border has {len(border)} numbers and scale {len(scale)}; border must have 4 (left, top, right, "
                    "bottom), and scale 2 (height, width) or 0")
    height, width = node.static(x, "input")[2:]
    left, top, right, bottom = border
    ends = (top + scale[0], left + scale[1]) if scale else (height - bottom, width - right)
    if not (0 <= top < ends[0] <= height and 0 <= left < ends[1] <= width):
        node.refuse(f"rows {top} to {ends[0]} and columns {left} to {ends[1]} are outside an image of {height} by "
                    f"{width}")
    return op.strided_slice(x, begin=(top, left), end=ends, strides=(1, 1), axes=(2, 3))


@converter("DynamicSlice")
def dynamic_slice(data: Expr, starts: Expr, ends: Expr, axes: Expr | None = None, *, node: Node) -> Expr:
    return slice_(data, starts, ends, axes, node=node)


@converter("ConstantFill")
def constant_fill(
    x: Expr | None = None, *, dtype: int = TensorProto.FLOAT, extra_shape: Sequence[int] = (), input_as_shape: int = 0,
    shape: Sequence[int] = (), value: float = 0.0, node: Node,
) -> Expr:
    """A filled tensor whose shape is `shape`, the shape of the input, or the value of the input."""
    dims = tuple(shape) if x is None else node.ints(x, "input") if input_as_shape else shape_of(x)
    kind = element_type(dtype, "attribute 'dtype'", node.origin)
    return op.full(Constant(np.asarray(value, kind.numpy())), shape=(*dims, *extra_shape), dtype=kind)


@converter("MeanVarianceNormalization")
def mean_variance_by_channel(x: Expr, *, across_channels: int = 0, normalize_variance: int = 1) -> Expr:
    return _normalized(x, tuple(k for k in range(rank(x)) if k != 1 or across_channels), bool(normalize_variance))


@converter("MeanVarianceNormalization", since=9)
def mean_variance(x: Expr, *, axes: Sequence[int] = (0, 2, 3)) -> Expr:
    return _normalized(x, tuple(axes), True)


def _normalized(x: Expr, axes: tuple[int, ...], by_deviation: bool) -> Expr:
    """Centre `x`, and optionally divide by its deviation + 1e-9, as specified."""
    centred = op.subtract(x, op.mean(x, axis=axes, keepdims=True))
    if not by_deviation:
        return centred
    deviation = op.sqrt(op.mean(op.multiply(centred, centred), axis=axes, keepdims=True))
    return op.divide(centred, op.add(deviation, scalar(1e-9, x)))
