"""Quantized norms, `prelu` and bounds, computed like PyTorch's kernels: in float32, on dequantized values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.types import FLOAT32, INT32, INT64
from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.pytorch import pooling
from tilewright.relay.frontend.pytorch.node import Node
from tilewright.relay.frontend.pytorch.quantize import (
    Quantized,
    marked,
    parameters_of,
    quantized_from,
    real,
    real_at_once,
)
from tilewright.relay.frontend.pytorch.registry import converter
from tilewright.relay.frontend.shaping import cast, per_channel, reshape
from tilewright.relay.qnn.numerics import limits
from tilewright.relay.types_of import dtype_of, rank, scalar, shape_of

_MOST_SUMMED: Final = (1 << 31) // (255 * 255)
"""Largest number of squared bytes whose sum fits int32."""


def _number(value: float) -> Constant:
    return Constant(np.asarray(value, np.float32))


def _standardized(x: Expr, q: Quantized, axes: Sequence[int], weight: Expr | None, bias: Expr | None, eps: float,
                  node: Node) -> Expr:
    """(integers - mean) * (scale / deviation * weight) + bias, with mean and variance from exact integer sums."""
    shape = node.static(x, "input")
    count = math.prod(shape[a] for a in axes)
    wide = cast(x, INT32 if count < _MOST_SUMMED else INT64)
    n, scale = _number(count), np.float32(q.scale)

    def mean_of(values: Expr) -> Expr:
        return op.quotient(cast(op.sum(values, axis=tuple(axes), keepdims=True), FLOAT32), n)

    mean = mean_of(wide)
    variance = op.maximum(op.multiply_add(op.negative(mean), mean, mean_of(op.multiply(wide, wide))), _number(0))
    factor = op.quotient(_number(float(scale)),
                         op.sqrt(op.multiply_add(variance, _number(float(scale * scale)), _number(eps))))
    centred = op.subtract(cast(x, FLOAT32), mean)
    factor = factor if weight is None else op.multiply(factor, weight)
    return op.multiply(centred, factor) if bias is None else op.multiply_add(centred, factor, bias)


@converter("quantized::layer_norm")
def quantized_layer_norm(
    input: Expr, normalized_shape: Sequence[int], weight: Expr | None, bias: Expr | None, eps: float,
    output_scale: float, output_zero_point: int, node: Node,
) -> Expr:
    axes = range(rank(input) - len(normalized_shape), rank(input))
    y = _standardized(input, parameters_of(input, node), axes, weight, bias, eps, node)
    return quantized_from(y, output_scale, output_zero_point, dtype_of(input), node)


@converter("quantized::group_norm", "quantized::instance_norm")
def quantized_group_norm(
    input: Expr, weight: Expr | None, bias: Expr | None, eps: float, output_scale: float, output_zero_point: int,
    node: Node, num_groups: int | None = None,
) -> Expr:
    shape = node.static(input, "input")
    batch, channels, *rest = shape
    groups = channels if num_groups is None else num_groups
    parts = reshape(input, (batch, groups, channels // groups, *rest))

    def along_groups(v: Expr | None) -> Expr | None:
        return None if v is None else per_channel(reshape(v, (groups, channels // groups)), len(shape), 1)

    y = _standardized(parts, parameters_of(input, node), range(2, len(shape) + 1), along_groups(weight),
                      along_groups(bias), eps, node)
    return quantized_from(reshape(y, shape), output_scale, output_zero_point, dtype_of(input), node)


@converter(
    "quantized::batch_norm", "quantized::batch_norm1d", "quantized::batch_norm2d", "quantized::batch_norm3d",
    "quantized::batch_norm_relu", "quantized::batch_norm1d_relu", "quantized::batch_norm2d_relu",
    "quantized::batch_norm3d_relu")
def quantized_batch_norm(
    qx: Expr, weight: Expr | None, bias: Expr | None, mean: Expr, var: Expr, eps: float, output_scale: float,
    output_zero_point: int, node: Node,
) -> Expr:
    r = real(qx, parameters_of(qx, node))
    ones, zeros = (Constant(np.full(shape_of(qx)[1], v, np.float32)) for v in (1, 0))
    y = op.nn.batch_norm(r, ones if weight is None else weight, zeros if bias is None else bias, mean, var, axis=1,
                         epsilon=float(eps))[0]
    return quantized_from(y, output_scale, output_zero_point, dtype_of(qx), node, int(output_zero_point)
                          if node.name.endswith("relu") else None)


@converter("quantized::prelu")
def quantized_prelu(qx: Expr, weight: Expr, node: Node, output_scale: float | None = None,
                    output_zero_point: int | None = None) -> Expr:
    x = real_at_once(qx, parameters_of(qx, node))
    slopes = real_at_once(weight, parameters_of(weight, node))
    one = shape_of(weight) in ((), (1,))
    slopes = reshape(slopes, ()) if one else per_channel(slopes, rank(x), 1)
    y = op.where(op.greater(x, _number(0)), x, op.multiply(x, slopes))
    return quantized_from(y, output_scale, output_zero_point, dtype_of(qx), node)


# Operators that stay in integers


def _whole(value: Any, q: Quantized, kind: Any) -> float:
    """Quantize a number; the result is a float."""
    low, high = limits(kind)
    return float(np.clip(np.rint(np.float32(value) * (np.float32(1) / np.float32(q.scale))) + int(q.zero_point), low,
                         high))


@converter("quantized::clamp")
def quantized_clamp(qx: Expr, node: Node, min: float | None = None, max: float | None = None) -> Expr:
    q, kind = parameters_of(qx, node), dtype_of(qx)
    low, high = limits(kind)
    least, most = (float(end) if v is None else _whole(v, q, kind) for v, end in ((min, low), (max, high)))
    return marked(op.clip(qx, a_min=least, a_max=most), q, node)


@converter("quantized::threshold")
def quantized_threshold(qx: Expr, threshold: float, value: float, node: Node) -> Expr:
    q, kind = parameters_of(qx, node), dtype_of(qx)
    above = op.greater(real_at_once(qx, q), _number(threshold))
    return marked(op.where(above, qx, scalar(_whole(value, q, kind), qx)), q, node)


@converter("quantized::dropout")
def quantized_dropout(self: Expr, node: Node, output_scale: float = 1.0, output_zero_point: int = 0, p: float = 0.5,
                      training: bool = False) -> Expr:
    return marked(op.copy(self), parameters_of(self, node), node)


@converter("quantized::max_pool1d", "quantized::max_pool2d")
def quantized_max_pool(qx: Expr, kernel_size: Any, node: Node, stride: Any = (), padding: Any = 0, dilation: Any = 1,
                       ceil_mode: bool = False) -> Expr:
    return marked(pooling.max_pool(qx, kernel_size, node, stride, padding, dilation, ceil_mode),
                  parameters_of(qx, node), node)
