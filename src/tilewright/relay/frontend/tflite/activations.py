"""Activation operators. On integers most are lookup tables; the others use fixed-point arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast
from tilewright.relay.frontend.tflite import logarithms
from tilewright.relay.frontend.tflite.fixed_point import logistic_16, tanh_16
from tilewright.relay.frontend.tflite.node import Node, Value, constant, parameters_of, scale_of, zero_point_of
from tilewright.relay.frontend.tflite.registry import converter
from tilewright.relay.frontend.tflite.rescale import bounded, centred, limits, place, requantize, saturated
from tilewright.relay.frontend.tflite.tables import by_table, function_of, interpolated, interpolation_table

Array = np.ndarray[Any, Any]
_ALL_BITS: Final = 32
"""Bits of an int32; a shift by this many leaves nothing."""


_LIMITS = {"RELU": (0.0, math.inf), "RELU6": (0.0, 6.0), "RELU_N1_TO_1": (-1.0, 1.0), "RELU_0_TO_1": (0.0, 1.0)}


def _bounded(name: str, x: Value, node: Node) -> Expr:
    if not x.is_quantized:
        return bounded(x.expr, name, node.output)
    scale, zero_point = scale_of(node.output), zero_point_of(node.output)
    first, last = limits(x.dtype)
    low, high = _LIMITS[name]
    found = requantize(centred(x.expr, x.zero_point), float(np.float32(x.scale) / np.float32(scale)), 1.0, zero_point,
                       x.dtype)
    least = max(first, place(low, scale, zero_point))
    return op.clip(found, a_min=least, a_max=last if math.isinf(high) else min(last, place(high, scale, zero_point)))


def _register_bounded(kind: str) -> None:
    @converter(kind)
    def convert(x: Value, *, node: Node) -> Expr:
        return _bounded(kind, x, node)


for _kind in _LIMITS:
    _register_bounded(_kind)


@converter("LOGISTIC")
def logistic(x: Value, *, node: Node) -> Expr:
    if not x.is_quantized:
        return op.sigmoid(x.expr)
    if x.dtype == "int16":
        return logistic_16(cast(x.expr, "int32"), x.scale)
    return function_of(x, node.output, lambda v: 1 / (np.float32(1) + np.exp(-v).astype(np.float32)))


@converter("TANH")
def tanh(x: Value, *, node: Node) -> Expr:
    if not x.is_quantized:
        return op.tanh(x.expr)
    if x.dtype == "int16":
        return tanh_16(cast(x.expr, "int32"), x.scale)
    return function_of(x, node.output, np.tanh)


@converter("ELU")
def elu(x: Value, *, node: Node) -> Expr:
    if x.is_quantized:
        return function_of(x, node.output, lambda v: np.where(v < 0, np.expm1(v), v))
    one = constant(1, x.dtype)
    return op.where(op.less(x.expr, constant(0, x.dtype)), op.subtract(op.exp(op.minimum(x.expr, constant(0, x.dtype))),
        one), x.expr)


@converter("GELU")
def gelu(x: Value, *, approximate: bool = False, node: Node) -> Expr:
    if x.is_quantized:
        return function_of(x, node.output, _gelu_tanh if approximate else _gelu_erf)
    half, v = constant(0.5, x.dtype), x.expr
    if approximate:
        cube = op.multiply(constant(0.044715, x.dtype), op.multiply(op.multiply(v, v), v))
        inner = op.tanh(op.multiply(constant(math.sqrt(2 / math.pi), x.dtype), op.add(v, cube)))
    else:
        inner = op.erf(op.multiply(v, constant(math.sqrt(0.5), x.dtype)))
    return op.multiply(op.multiply(half, v), op.add(constant(1, x.dtype), inner))


def _gelu_tanh(v: Array) -> Array:
    found: Array = 0.5 * v * (1 + np.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)))
    return found


def _gelu_erf(v: Array) -> Array:
    return np.asarray([0.5 * e * math.erfc(-e * math.sqrt(0.5)) for e in v.ravel()]).reshape(v.shape)


@converter("HARD_SWISH")
def hard_swish(x: Value, *, node: Node) -> Expr:
    if not x.is_quantized:
        share = op.clip(op.add(x.expr, constant(3, x.dtype)), a_min=0.0, a_max=6.0)
        return op.multiply(op.multiply(x.expr, share), constant(1 / 6, x.dtype))
    return by_table(x, _hard_swish_table(x, node))


def _hard_swish_table(x: Value, node: Node) -> Array:
    """The hard swish table, in 16-bit arithmetic; the gate relu6(x + 3) / 6 has 15 bits and saturates at 0 and 1."""
    hires = np.float32(1 / 128) * np.float32(x.scale)
    to_result = _multiplier_16(float(hires / np.float32(scale_of(node.output))))
    if to_result[1] > 0:
        node.refuse(f"the scale of its result, {scale_of(node.output)}, must be at least 1/128 of that of its input, "
                    f"{x.scale}; convert the model again")
    to_share = _multiplier_16(float(hires / np.float32(3 / 32768)))
    low, high = limits(x.dtype)
    data = (np.arange(low, high + 1) - x.zero_point) << 7
    result = _high_product(data, to_result[0])
    m, exponent = to_share
    share = data
    if exponent > 0:
        share = np.clip(share << min(exponent - 1, _ALL_BITS), -32768, 32767)
    share = _high_product(share, m)
    if exponent > 0:
        share = np.clip(share << 1, -32768, 32767)
    elif exponent < 0:
        share = _rounding_shift(share, -exponent)
    share = (share + (1 << 15)) >> 1
    product = np.trunc(share * result / (1 << 15)).astype(np.int64)
    whole = _rounding_shift(product, -to_result[1])
    table: Array = np.clip(whole + zero_point_of(node.output), low, high).astype(x.dtype)
    return table


def _multiplier_16(real: float) -> tuple[int, int]:
    fraction, exponent = math.frexp(real)
    wide = round(fraction * (1 << 31))
    if wide == 1 << 31:
        wide, exponent = wide // 2, exponent + 1
    return (32767 if wide >= (1 << 31) - 1 - (1 << 15) else (wide + (1 << 15)) >> 16), exponent


def _high_product(a: Array, m: int) -> Array:
    """Twice the high half of the product of 16-bit numbers, rounded half up."""
    return (a * m + (1 << 14)) >> 15


def _rounding_shift(x: Array, count: int) -> Array:
    """Divide numbers of at most 32 bits by 2^count, rounding half away from zero."""
    if not count:
        return x
    count = min(count, _ALL_BITS + 1)
    found: Array = (x + (1 << (count - 1)) - (x < 0)) >> count
    return found


@converter("LEAKY_RELU")
def leaky_relu(x: Value, *, alpha: float = 0.0, node: Node) -> Expr:
    if not x.is_quantized:
        return op.nn.leaky_relu(x.expr, alpha=alpha)
    scale, t = np.float32(x.scale), node.output
    data = centred(x.expr, x.zero_point)
    same = requantize(data, float(scale / np.float32(scale_of(t))), 1.0, 0, "int32")
    sloped = _signed_rescale(data, float(np.float32(scale * np.float32(alpha)) / np.float32(scale_of(t))))
    return saturated(op.where(op.greater_equal(data, constant(0, "int32")), same, sloped), zero_point_of(t), x.dtype)


def _signed_rescale(x: Expr, factor: float) -> Expr:
    """Multiply by a factor that may be negative, with the rounding of the signed factor."""
    return requantize(x, factor, 1.0, 0, "int32")


@converter("PRELU")
def prelu(x: Value, alpha: Value, *, node: Node) -> Expr:
    if not x.is_quantized:
        return op.where(op.less(x.expr, constant(0, x.dtype)), op.multiply(x.expr, alpha.expr), x.expr)
    t = node.output
    data, slope = centred(x.expr, x.zero_point), centred(alpha.expr, alpha.zero_point)
    same = requantize(data, float(np.float32(x.scale) / np.float32(scale_of(t))), 1.0, 0, "int32")
    factor = float(np.float32(np.float32(x.scale) * np.float32(alpha.scale)) / np.float32(scale_of(t)))
    sloped = requantize(op.multiply(data, slope), factor, 1.0, 0, "int32")
    return saturated(op.where(op.greater_equal(data, constant(0, "int32")), same, sloped), zero_point_of(t), x.dtype)


@converter("SOFTMAX")
def softmax(x: Value, *, beta: float = 0.0, node: Node) -> Expr:
    if not x.is_quantized:
        if beta == 1:
            return op.nn.softmax(x.expr, axis=-1)
        below = op.subtract(x.expr, op.max(x.expr, axis=-1, keepdims=True))  # because `beta * x` may overflow
        return op.nn.softmax(op.multiply(below, constant(beta, x.dtype)), axis=-1)
    if x.dtype == "int16":
        return _softmax_16(x, beta, node)
    if beta == 1:
        return op.qnn.softmax(x.expr, *parameters_of(x.tensor), *parameters_of(node.output), axis=-1)
    return _quantized_probabilities(x, _exponentials(x, beta), node)


def _exponentials(x: Value, beta: float) -> Expr:
    """exp of each element's difference to the maximum of its row, from a table of 256 float32 numbers."""
    scale = -np.float32(x.scale) * np.float32(beta)
    table = np.exp((scale * np.arange(256).astype(np.float32)).astype(np.float64)).astype(np.float32)
    wide = cast(x.expr, "int32")
    return op.take(Constant(table), op.subtract(op.max(wide, axis=-1, keepdims=True), wide), mode="fast")


def _quantized_probabilities(x: Value, exponentials: Expr, node: Node) -> Expr:
    """Divide exponentials by their row's sum, which is computed sequentially because its rounding depends on the order.
    """
    t, depth = node.output, x.shape[-1]
    sums = op.take(op.cumsum(exponentials, axis=x.rank - 1), constant([depth - 1], "int32"), axis=x.rank - 1)
    inverse = op.divide(constant(1, "float32"), op.multiply(sums, constant(scale_of(t), "float32")))
    share = op.multiply(exponentials, inverse)
    whole = cast(op.floor(op.add(share, constant(0.5, "float32"))), "int32")
    return saturated(whole, zero_point_of(t) if t.dtype != "uint8" else 0, t.dtype)


def _softmax_16(x: Value, beta: float, node: Node) -> Expr:
    """Softmax of int16, with exponentials and the reciprocal of their sum from 513-entry tables."""
    wide = cast(x.expr, "int32")
    below = op.subtract(wide, op.max(wide, axis=-1, keepdims=True))
    scaled = requantize(below, float(np.float32(x.scale) * np.float32(beta)) / (10.0 / 65535.0), 1.0, 0, "int32")
    place_16 = cast(op.clip(op.add(scaled, constant(32767, "int32")), a_min=-32768, a_max=32767), "int32")
    exponentials = cast(interpolated(place_16, _unit_table(np.exp, -10.0, 0.0)), "int32")
    total = op.sum(exponentials, axis=-1, keepdims=True)
    zeros = _leading_zeros(total)
    ones = constant(1, "int32")
    shifted = op.subtract(op.right_shift(op.add(op.left_shift(total, op.subtract(zeros, ones)),
                                                constant(1 << 13, "int32")), constant(14, "int32")),
                          constant(98304, "int32"))
    inverse = cast(interpolated(op.clip(shifted, a_min=-32768, a_max=32767),
                                _unit_table(lambda v: 1 / (1 + v), 0.0, 1.0)), "int32")
    right = op.subtract(constant(30, "int32"), zeros)
    product = op.multiply(exponentials, inverse)
    rounded = op.add(product, op.left_shift(ones, right))
    return cast(op.clip(op.right_shift(rounded, op.add(right, ones)), a_min=0, a_max=32767), "int16")


def _leading_zeros(x: Expr) -> Expr:
    """The number of leading zero bits of positive int32 numbers."""
    bits = [cast(op.greater_equal(x, constant(1 << k, "int32")), "int32") for k in range(1, 31)]
    total: Expr = bits[0]
    for b in bits[1:]:
        total = op.add(total, b)
    return op.subtract(constant(31, "int32"), total)


def _unit_table(function: Callable[[Array], Array], least: float, most: float) -> Array:
    """A 513-entry table of 15-bit values of a function into [-1, 1], computed in float64."""
    return interpolation_table(function, least, most, -1.0, 1.0, np.float64)


@converter("LOG_SOFTMAX")
def log_softmax(x: Value, *, node: Node) -> Expr:
    if not x.is_quantized:
        return op.nn.log_softmax(x.expr, axis=-1)
    t = node.output
    if x.dtype == "int8":
        return logarithms.log_softmax(x.expr, x.scale)
    if x.dtype != "uint8":
        node.refuse(
            f"it is of {x.dtype}, but only floats, int8 and uint8 are supported; do not quantize this operator")
    exponentials = _exponentials(x, 1.0)
    sums = op.take(op.cumsum(exponentials, axis=x.rank - 1), constant([x.shape[-1] - 1], "int32"), axis=x.rank - 1)
    scale = np.float32(x.scale) / np.float32(scale_of(t))
    logs = op.multiply(op.log(sums), constant(np.float32(1) / np.float32(scale_of(t)), "float32"))
    wide = cast(x.expr, "int32")
    below = cast(op.subtract(wide, op.max(wide, axis=-1, keepdims=True)), "float32")
    real = op.subtract(op.multiply(below, constant(scale, "float32")), logs)
    return saturated(cast(op.round(real), "int32"), zero_point_of(t), t.dtype)
