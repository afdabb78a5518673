"""Sums, means and extremes along axes. Quantized integers are summed in 32 bits and rescaled once."""

from __future__ import annotations

import math

import numpy as np

from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import axis_of, cast, reshape
from tilewright.relay.frontend.tflite.fractions import inverse_root
from tilewright.relay.frontend.tflite.model import Tensor
from tilewright.relay.frontend.tflite.node import Node, Value, constant, parameters_of, scale_of, zero_point_of
from tilewright.relay.frontend.tflite.quotients import inverse_roots
from tilewright.relay.frontend.tflite.registry import converter
from tilewright.relay.frontend.tflite.rescale import by_fixed_point, requantize, saturated
from tilewright.relay.frontend.tflite.rounding import rounded_away
from tilewright.relay.qnn.numerics import fixed_point


def _axes(x: Value, axes: Value, node: Node) -> tuple[int, ...]:
    return tuple(sorted({axis_of(a, x.rank, node) for a in node.ints(axes)})) if x.rank else ()


def _kept(x: Value, axes: tuple[int, ...], keep: bool) -> tuple[int, ...]:
    return tuple(1 if k in axes else d for k, d in enumerate(x.shape) if keep or k not in axes)


def _reduced(kind: str, name: str) -> None:
    @converter(kind)
    def convert(x: Value, axes: Value, *, keep_dims: bool = False, node: Node) -> Expr:
        along = _axes(x, axes, node)
        if not along:
            return x.expr
        if x.is_quantized and kind == "REDUCE_PROD":
            node.refuse(f"it is of {x.dtype} with a scale; only floats and integers without a scale are supported")
        return getattr(op, name)(x.expr, axis=along, keepdims=keep_dims)  # type: ignore[no-any-return]


for _kind, _name in (("REDUCE_MAX", "max"), ("REDUCE_MIN", "min"), ("REDUCE_PROD", "prod"), ("REDUCE_ANY", "any"),
                     ("REDUCE_ALL", "all")):
    _reduced(_kind, _name)


@converter("SUM")
def total(x: Value, axes: Value, *, keep_dims: bool = False, node: Node) -> Expr:
    along = _axes(x, axes, node)
    if not x.is_quantized:
        return op.sum(x.expr, axis=along, keepdims=keep_dims) if along else x.expr
    t = node.output
    count = math.prod(x.shape[a] for a in along)
    summed = op.sum(cast(x.expr, "int32"), axis=along, keepdims=True) if along else cast(x.expr, "int32")
    if x.dtype != "uint8":
        return reshape(_signed_total(summed, x, count, t), _kept(x, along, keep_dims))
    moved = op.subtract(summed, constant(count * x.zero_point, "int32"))
    factor = float(np.float64(np.float32(x.scale)) / np.float64(np.float32(scale_of(t))))
    return reshape(requantize(moved, factor, 1.0, zero_point_of(t), t.dtype), _kept(x, along, keep_dims))


def _signed_total(summed: Expr, x: Value, count: int, t: Tensor) -> Expr:
    """Rescale signed sums in float32, like the default kernels; the reference kernel treats them as unsigned."""
    factor = np.float32(x.scale) / np.float32(scale_of(t))
    moved = np.float32(np.float32(-x.zero_point) * factor) * np.float32(count)
    scaled = op.multiply_add(cast(summed, "float32"), constant(factor, "float32"), constant(-0.0, "float32"))
    whole = op.clip(rounded_away(op.add(scaled, constant(moved, "float32"))), a_min=-(2.0**30), a_max=2.0**30)
    return saturated(cast(whole, "int32"), zero_point_of(t), t.dtype)


@converter("MEAN")
def mean(x: Value, axes: Value, *, keep_dims: bool = False, node: Node) -> Expr:
    along = _axes(x, axes, node)
    count = math.prod(x.shape[a] for a in along)
    shape = _kept(x, along, keep_dims)
    if x.is_quantized:
        return reshape(_mean_of_image(x, along, node.output) or _quantized_mean(x, along, count, node), shape)
    if not along:
        return x.expr
    if x.dtype.startswith("int"):
        summed = op.sum(cast(x.expr, "int64"), axis=along, keepdims=keep_dims)
        size = op.floor_divide(op.abs(summed), constant(count, "int64"))
        return cast(op.where(op.less(summed, constant(0, "int64")), op.negative(size), size), x.dtype)
    return op.mean(x.expr, axis=along, keepdims=keep_dims)


def _mean_of_image(x: Value, along: tuple[int, ...], t: Tensor) -> Expr | None:
    """The mean over the pixels of images as a pool with another scale; None if pooling would round differently."""
    given, made = parameters_of(x.tensor), parameters_of(t)
    same = all(a.value == b.value for a, b in zip(given, made, strict=True))
    if x.rank != 4 or along != (1, 2) or 0 in x.shape or same or x.dtype not in ("int8", "uint8") or t.dtype != x.dtype:
        return None
    window = x.shape[1:3]
    return op.qnn.avg_pool2d(x.expr, *given, *made, pool_size=window, strides=window, padding=(0, 0, 0, 0),
                             layout="NHWC", count_include_pad=False)


def _quantized_mean(x: Value, along: tuple[int, ...], count: int, node: Node) -> Expr:
    """The sum times a fixed-point multiplier that includes 1 / count, without renormalizing it to 31 bits."""
    t = node.output
    summed = op.sum(cast(x.expr, "int32"), axis=along, keepdims=True) if along else cast(x.expr, "int32")
    moved = op.subtract(summed, constant(count * x.zero_point, "int32")) if x.zero_point else summed
    m, exponent = fixed_point(float(np.float64(np.float32(x.scale)) / np.float64(np.float32(scale_of(t)))))
    shift = min(max(count, 1).bit_length() - 1, 32, 31 + exponent)
    return saturated(by_fixed_point(moved, (m << shift) // max(count, 1), exponent - shift), zero_point_of(t), t.dtype)


@converter("ARG_MAX")
def arg_max(x: Value, axis: Value, *, output_type: int = 0, node: Node) -> Expr:
    along = axis_of(node.whole(axis), x.rank, node)
    return cast(op.argmax(x.expr, axis=(along,)), node.output.dtype)


@converter("ARG_MIN")
def arg_min(x: Value, axis: Value, *, output_type: int = 0, node: Node) -> Expr:
    along = axis_of(node.whole(axis), x.rank, node)
    return cast(op.argmin(x.expr, axis=(along,)), node.output.dtype)


@converter("CUMSUM")
def cumsum(x: Value, axis: Value, *, exclusive: bool = False, reverse: bool = False, node: Node) -> Expr:
    along = axis_of(node.whole(axis), x.rank, node)
    data = op.reverse(x.expr, axis=along) if reverse else x.expr
    found = op.cumsum(data, axis=along, exclusive=exclusive)
    return op.reverse(found, axis=along) if reverse else found


@converter("L2_NORMALIZATION")
def l2_normalization(x: Value, *, fused_activation_function: int = 0, node: Node) -> Expr:
    if x.is_quantized:
        return _unit_vectors(x, node)
    squares = op.sum(op.multiply(x.expr, x.expr), axis=(-1,), keepdims=True)
    return op.divide(x.expr, op.sqrt(op.maximum(squares, constant(1e-12, x.dtype))))


def _unit_vectors(x: Value, node: Node) -> Expr:
    """L2 normalization of 8-bit rows, with a multiplier and shift per row; the result is in units of 1/128."""
    if not x.rank:
        node.refuse("its input is a scalar, but only vectors can be normalized; the file is damaged: convert it again")
    t, most = node.output, x.shape[-1] * 255**2
    if most >= 1 << 31:
        node.refuse(f"its rows of {x.shape[-1]} integers are longer than {(1 << 31) // 255**2}, which is not "
                    "supported; do not quantize this operator")
    data = op.subtract(cast(x.expr, "int32"), constant(x.zero_point, "int32"))
    total = op.sum(op.multiply(data, data), axis=(-1,), keepdims=True)
    bits = 7 if t.dtype == "int8" else 0
    if most < 1 << 22:
        m, shift = inverse_roots(np.arange(most + 1, dtype=np.int64))
        multiplier: Expr
        multiplier, right = (op.take(Constant(v.astype(np.int32)), total, mode="fast") for v in (m, shift - bits))
    else:
        multiplier, far = inverse_root(cast(total, "int64"))
        right = op.subtract(cast(far, "int32"), constant(bits, "int32"))
    wide = cast(data, "int64") if bits else op.left_shift(cast(data, "int64"), constant(7, "int64"))
    product = op.multiply(wide, cast(multiplier, "int64"))
    none = constant(0, "int32")
    left = op.maximum(op.negative(right), none)
    scaled = op.left_shift(product, cast(left, "int64"))
    whole = cast(op.right_shift(op.add(scaled, constant(1 << 30, "int64")), constant(31, "int64")), "int32")
    right = op.maximum(right, none)
    half = op.right_shift(op.left_shift(constant(1, "int32"), right), constant(1, "int32"))
    sign = op.where(op.greater(right, none), op.right_shift(whole, constant(31, "int32")), none)
    return saturated(op.right_shift(op.add(op.add(whole, half), sign), right), 0 if bits else 128, t.dtype)


@converter("LOCAL_RESPONSE_NORMALIZATION")
def local_response_normalization(x: Value, *, radius: int = 0, bias: float = 0.0, alpha: float = 0.0,
                                 beta: float = 0.0) -> Expr:
    """Divide each element by a power of the sum of squares around it along the last axis."""
    size = 2 * radius + 1
    return op.nn.lrn(x.expr, size=size, axis=x.rank - 1, bias=bias, alpha=alpha * size, beta=beta)
