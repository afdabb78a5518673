"""Arithmetic: elementwise operators of one, two and any number of inputs, and the functions made of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any, Final

import numpy as np

from tilewright import relay
from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.onnx.node import Node
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.frontend.onnx.shaping import cast, dtype_of, rank, reshape, scalar, shape_of
from tilewright.types import DataType

_UNARY: Final = {
    "Abs": relay.abs, "Neg": relay.negative, "Floor": relay.floor, "Ceil": relay.ceil, "Round": relay.round, "Sign": relay.sign,
    "Sqrt": relay.sqrt, "Exp": relay.exp, "Log": relay.log, "Erf": relay.erf, "Sin": relay.sin, "Cos": relay.cos, "Tan": relay.tan,
    "Asin": relay.asin, "Acos": relay.acos, "Atan": relay.atan, "Sinh": relay.sinh, "Cosh": relay.cosh, "Asinh": relay.asinh,
    "Acosh": relay.acosh, "Atanh": relay.atanh, "Tanh": relay.tanh, "Sigmoid": relay.sigmoid, "IsNaN": relay.isnan,
    "Relu": relay.nn.relu, "Not": relay.logical_not, "BitwiseNot": relay.bitwise_not,
}
_BINARY: Final = {
    "Add": relay.add, "Sub": relay.subtract, "Mul": relay.multiply, "Div": relay.divide, "And": relay.logical_and, "Or": relay.logical_or,
    "Xor": relay.logical_xor, "Equal": relay.equal, "Greater": relay.greater, "Less": relay.less, "Pow": relay.power,
}
_SINCE_BINARY: Final = {
    "GreaterOrEqual": relay.greater_equal, "LessOrEqual": relay.less_equal, "BitwiseAnd": relay.bitwise_and,
    "BitwiseOr": relay.bitwise_or, "BitwiseXor": relay.bitwise_xor,
}


def _register_unary(op_type: str, build: Callable[..., Expr]) -> None:
    @converter(op_type)
    def unary(x: Expr) -> Expr:
        return build(x)


def _register_binary(op_type: str, build: Callable[..., Expr]) -> None:
    @converter(op_type)
    def with_axis(a: Expr, b: Expr, *, axis: int | None = None, broadcast: int = 0) -> Expr:
        if broadcast and axis is not None:
            b = reshape(b, (*shape_of(b), *[1] * (rank(a) - axis % rank(a) - rank(b))))
        return build(a, b)

    @converter(op_type, since=7)
    def binary(a: Expr, b: Expr) -> Expr:
        return build(a, b)


for _name, _build in _UNARY.items():
    _register_unary(_name, _build)
for _name, _build in (_BINARY | _SINCE_BINARY).items():
    _register_binary(_name, _build)


@converter("Pow", since=12)
def power(x: Expr, y: Expr) -> Expr:
    kind = dtype_of(x)
    if dtype_of(y) is not kind:
        wide = dtype_of(y) if dtype_of(y).is_float and not kind.is_float else kind
        return cast(relay.power(cast(x, wide), cast(y, wide)), kind)
    return relay.power(x, y)


@converter("Mod")
def mod(a: Expr, b: Expr, *, fmod: int = 0) -> Expr:
    return relay.mod(a, b) if fmod else relay.floor_mod(a, b)


@converter("Reciprocal")
def reciprocal(x: Expr) -> Expr:
    return relay.divide(scalar(1, x), x)


@converter("IsInf")
def isinf(x: Expr, *, detect_negative: int = 1, detect_positive: int = 1) -> Expr:
    if detect_negative and detect_positive:
        return relay.isinf(x)
    if not detect_negative and not detect_positive:
        return relay.logical_and(relay.isinf(x), relay.const(False))
    return relay.equal(x, scalar(-np.inf if detect_negative else np.inf, x))


@converter("BitShift")
def bit_shift(x: Expr, y: Expr, *, direction: str, node: Node) -> Expr:
    if direction not in ("LEFT", "RIGHT"):
        node.refuse(f"direction is {direction!r}; it must be 'LEFT' or 'RIGHT'")
    return relay.left_shift(x, y) if direction == "LEFT" else relay.right_shift(x, y)


@converter("Max")
def maximum(*data: Expr) -> Expr:
    return reduce(relay.maximum, data)


@converter("Min")
def minimum(*data: Expr) -> Expr:
    return reduce(relay.minimum, data)


@converter("Sum")
def add_all(*data: Expr) -> Expr:
    return reduce(relay.add, data)


@converter("Mean")
def mean_of_all(*data: Expr) -> Expr:
    return relay.divide(reduce(relay.add, data), scalar(len(data), data[0])) if len(data) > 1 else data[0]


@converter("Clip")
def clip_by_attributes(x: Expr, *, max: float = 3.4028234663852886e38, min: float = -3.4028234663852886e38) -> Expr:
    return _clipped(x, min, max)


@converter("Clip", since=11)
def clip(x: Expr, min: Expr | None = None, max: Expr | None = None, *, node: Node) -> Expr:
    low, high = node.known(min), node.known(max)
    if (min is None or low is not None) and (max is None or high is not None):
        kind = dtype_of(x)
        return _clipped(x, _bound(low, kind, "min"), _bound(high, kind, "max"))
    if min is not None:
        x = relay.maximum(x, min)
    return x if max is None else relay.minimum(x, max)


def _bound(value: Any, kind: DataType, end: str) -> Any:
    if value is not None:
        return value.reshape(-1)[0].item()
    if kind.is_float:
        return math.inf if end == "max" else -math.inf
    return int(getattr(np.iinfo(kind.numpy()), end))


def _clipped(x: Expr, low: float, high: float) -> Expr:
    """min(max(x, low), high), as the one operator that says it best."""
    if math.isinf(low) and math.isinf(high):
        return x
    if low == 0 and high >= 3.4e38:
        return relay.nn.relu(x)
    if low > high:  # the specification: then all values are `max`
        return relay.minimum(relay.maximum(x, scalar(low, x)), scalar(high, x))
    if not dtype_of(x).is_float and max(abs(low), abs(high)) > 1 << 53:
        return relay.minimum(relay.maximum(x, scalar(low, x)), scalar(high, x))
    if math.isinf(high):
        return relay.maximum(x, scalar(low, x))
    if math.isinf(low):
        return relay.minimum(x, scalar(high, x))
    return relay.clip(x, a_min=low, a_max=high)


@converter("LeakyRelu")
def leaky_relu(x: Expr, *, alpha: float = 0.01) -> Expr:
    return relay.nn.leaky_relu(x, alpha=alpha)


@converter("PRelu", since=7)
def prelu(x: Expr, slope: Expr) -> Expr:
    return relay.where(relay.less(x, scalar(0, x)), relay.multiply(x, slope), x)


@converter("PRelu", since=1)
def prelu_per_channel(x: Expr, slope: Expr) -> Expr:
    """Before opset 7 a slope of one dimension belongs to the channels."""
    if rank(slope) == 1 and rank(x) > 2 and shape_of(slope) != (1,):
        slope = reshape(slope, (*shape_of(slope), *[1] * (rank(x) - 2)))
    return prelu(x, slope)


@converter("HardSigmoid")
def hard_sigmoid(x: Expr, *, alpha: float = 0.2, beta: float = 0.5) -> Expr:
    return relay.clip(relay.add(relay.multiply(x, scalar(alpha, x)), scalar(beta, x)), a_min=0.0, a_max=1.0)


@converter("HardSwish")
def hard_swish(x: Expr) -> Expr:
    return relay.multiply(x, hard_sigmoid(x, alpha=1 / 6, beta=0.5))


@converter("Elu")
def elu(x: Expr, *, alpha: float = 1.0) -> Expr:
    negative = relay.minimum(x, scalar(0, x))
    return relay.where(relay.less(x, scalar(0, x)), relay.multiply(relay.subtract(relay.exp(negative), scalar(1, x)), scalar(alpha, x)), x)


@converter("Celu")
def celu(x: Expr, *, alpha: float = 1.0) -> Expr:
    negative = relay.divide(relay.minimum(x, scalar(0, x)), scalar(alpha, x))
    return relay.add(relay.nn.relu(x), relay.multiply(relay.subtract(relay.exp(negative), scalar(1, x)), scalar(alpha, x)))


@converter("Selu", since=1)
def selu_first(x: Expr, *, alpha: float = 1.6732, gamma: float = 1.0507) -> Expr:
    return relay.multiply(elu(x, alpha=alpha), scalar(gamma, x))


@converter("Selu", since=6)
def selu(x: Expr, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875) -> Expr:
    return selu_first(x, alpha=alpha, gamma=gamma)


@converter("ThresholdedRelu")
def thresholded_relu(x: Expr, *, alpha: float = 1.0) -> Expr:
    return relay.where(relay.greater(x, scalar(alpha, x)), x, scalar(0, x))


@converter("Softplus")
def softplus(x: Expr) -> Expr:
    """max(x, 0) + log(1 + exp(-|x|)): never overflows."""
    return relay.add(relay.nn.relu(x), relay.log(relay.add(relay.exp(relay.negative(relay.abs(x))), scalar(1, x))))


@converter("Softsign")
def softsign(x: Expr) -> Expr:
    return relay.divide(x, relay.add(relay.abs(x), scalar(1, x)))


@converter("Mish")
def mish(x: Expr) -> Expr:
    return relay.multiply(x, relay.tanh(softplus(x)))


@converter("Swish")
def swish(x: Expr, *, alpha: float = 1.0) -> Expr:
    return relay.multiply(x, relay.sigmoid(x if alpha == 1 else relay.multiply(x, scalar(alpha, x))))


@converter("Gelu")
def gelu(x: Expr, *, approximate: str = "none", node: Node) -> Expr:
    if approximate == "none":
        inner = relay.erf(relay.multiply(x, scalar(math.sqrt(0.5), x)))
    elif approximate == "tanh":
        cubic = relay.multiply(relay.multiply(relay.multiply(x, x), x), scalar(0.044715, x))
        inner = relay.tanh(relay.multiply(relay.add(x, cubic), scalar(math.sqrt(2 / math.pi), x)))
    else:
        node.refuse(f"approximate is {approximate!r}; it must be 'none' or 'tanh'")
    return relay.multiply(relay.multiply(x, scalar(0.5, x)), relay.add(inner, scalar(1, x)))


@converter("Shrink")
def shrink(x: Expr, *, bias: float = 0.0, lambd: float = 0.5) -> Expr:
    lower = relay.where(relay.less(x, scalar(-lambd, x)), relay.add(x, scalar(bias, x)), scalar(0, x))
    return relay.where(relay.greater(x, scalar(lambd, x)), relay.subtract(x, scalar(bias, x)), lower)


@converter("Det")
def determinant(x: Expr, *, node: Node) -> Expr:
    value = node.value(x, "X")
    return Constant(np.asarray(np.linalg.det(value), value.dtype))
