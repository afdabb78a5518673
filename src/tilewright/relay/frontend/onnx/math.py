"""Arithmetic: elementwise operators of one, two and any number of inputs, and functions composed of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any, Final

import numpy as np

from tilewright.base.types import DataType
from tilewright.relay.expr import Expr, const
from tilewright.relay.frontend import linear_algebra, shaping
from tilewright.relay.frontend.onnx.node import Node
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast, log_1p, reshape
from tilewright.relay.types_of import dtype_of, rank, scalar, shape_of

_UNARY: Final = {
    "Abs": op.abs, "Neg": op.negative, "Floor": op.floor, "Ceil": op.ceil, "Round": op.round, "Sign": op.sign,
    "Sqrt": op.sqrt, "Exp": op.exp, "Log": op.log, "Erf": op.erf, "Sin": op.sin, "Cos": op.cos, "Tan": op.tan,
    "Asin": op.asin, "Acos": op.acos, "Atan": op.atan, "Sinh": op.sinh, "Cosh": op.cosh, "Asinh": op.asinh,
    "Acosh": op.acosh, "Atanh": op.atanh, "Tanh": op.tanh, "Sigmoid": op.sigmoid, "IsNaN": op.isnan,
    "Relu": op.nn.relu, "Not": op.logical_not, "BitwiseNot": op.bitwise_not,
}
_BINARY: Final = {
    "Add": op.add, "Sub": op.subtract, "Mul": op.multiply, "Div": op.divide, "And": op.logical_and, "Or": op.logical_or,
    "Xor": op.logical_xor, "Equal": op.equal, "Greater": op.greater, "Less": op.less, "Pow": op.power,
}
_SINCE_BINARY: Final = {
    "GreaterOrEqual": op.greater_equal, "LessOrEqual": op.less_equal, "BitwiseAnd": op.bitwise_and,
    "BitwiseOr": op.bitwise_or, "BitwiseXor": op.bitwise_xor,
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
    kind, exponent = dtype_of(x), dtype_of(y)
    if exponent is kind:
        return op.power(x, y)
    wide = kind if kind.is_float else DataType("float64") if exponent.is_float else DataType("int64")
    return cast(op.power(cast(x, wide), cast(y, wide)), kind)


@converter("Mod")
def mod(a: Expr, b: Expr, *, fmod: int = 0) -> Expr:
    return op.mod(a, b) if fmod else op.floor_mod(a, b)


@converter("Reciprocal")
def reciprocal(x: Expr) -> Expr:
    return op.divide(scalar(1, x), x)


@converter("IsInf")
def isinf(x: Expr, *, detect_negative: int = 1, detect_positive: int = 1) -> Expr:
    if detect_negative and detect_positive:
        return op.isinf(x)
    if not detect_negative and not detect_positive:
        return op.logical_and(op.isinf(x), const(False))
    return op.equal(x, scalar(-np.inf if detect_negative else np.inf, x))


@converter("BitShift")
def bit_shift(x: Expr, y: Expr, *, direction: str, node: Node) -> Expr:
    if direction not in ("LEFT", "RIGHT"):
        node.refuse(f"direction is {direction!r}; it must be 'LEFT' or 'RIGHT'")
    kind = dtype_of(x)
    fits = op.less(y, scalar(kind.bits, y))
    if kind.code == "int":
        fits = op.logical_and(fits, op.greater_equal(y, scalar(0, y)))
    by = op.where(fits, y, scalar(0, y))
    if direction == "LEFT":
        return op.where(fits, op.left_shift(x, by), scalar(0, x))
    beyond = op.where(op.less(x, scalar(0, x)), scalar(-1, x), scalar(0, x)) if kind.code == "int" else scalar(0, x)
    return op.where(fits, op.right_shift(x, by), beyond)


@converter("Max")
def maximum(*data: Expr) -> Expr:
    return reduce(op.maximum, data)


@converter("Min")
def minimum(*data: Expr) -> Expr:
    return reduce(op.minimum, data)


@converter("Sum")
def add_all(*data: Expr) -> Expr:
    return reduce(op.add, data)


@converter("Mean")
def mean_of_all(*data: Expr) -> Expr:
    return op.divide(reduce(op.add, data), scalar(len(data), data[0])) if len(data) > 1 else data[0]


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
        x = op.maximum(x, min)
    return x if max is None else op.minimum(x, max)


def _bound(value: Any, kind: DataType, end: str) -> Any:
    if value is not None:
        return value.reshape(-1)[0].item()
    if kind.is_float:
        return math.inf if end == "max" else -math.inf
    return int(getattr(np.iinfo(kind.numpy()), end))


def _clipped(x: Expr, low: float, high: float) -> Expr:
    """min(max(x, low), high), as the simplest operator for the bounds."""
    if math.isinf(low) and math.isinf(high):
        return x
    if low == 0 and high >= 3.4e38:
        return op.nn.relu(x)
    if low > high:  # as specified: all values become `max`
        return op.minimum(op.maximum(x, scalar(low, x)), scalar(high, x))
    if not dtype_of(x).is_float and max(abs(low), abs(high)) > 1 << 53:
        return op.minimum(op.maximum(x, scalar(low, x)), scalar(high, x))
    if math.isinf(high):
        return op.maximum(x, scalar(low, x))
    if math.isinf(low):
        return op.minimum(x, scalar(high, x))
    return op.clip(x, a_min=low, a_max=high)


@converter("LeakyRelu")
def leaky_relu(x: Expr, *, alpha: float = 0.01) -> Expr:
    return op.nn.leaky_relu(x, alpha=alpha)


@converter("PRelu", since=7)
def prelu(x: Expr, slope: Expr) -> Expr:
    return op.where(op.less(x, scalar(0, x)), op.multiply(x, slope), x)


@converter("PRelu", since=1)
def prelu_per_channel(x: Expr, slope: Expr) -> Expr:
    """PRelu before opset 7, where a one-dimensional slope has one value per channel."""
    if rank(slope) == 1 and rank(x) > 2 and shape_of(slope) != (1,):
        slope = reshape(slope, (*shape_of(slope), *[1] * (rank(x) - 2)))
    return prelu(x, slope)


@converter("HardSigmoid")
def hard_sigmoid(x: Expr, *, alpha: float = 0.2, beta: float = 0.5) -> Expr:
    return op.clip(op.add(op.multiply(x, scalar(alpha, x)), scalar(beta, x)), a_min=0.0, a_max=1.0)


@converter("HardSwish")
def hard_swish(x: Expr) -> Expr:
    return op.multiply(x, hard_sigmoid(x, alpha=1 / 6, beta=0.5))


@converter("Elu")
def elu(x: Expr, *, alpha: float = 1.0) -> Expr:
    negative = op.minimum(x, scalar(0, x))
    return op.where(op.less(x, scalar(0, x)), op.multiply(op.subtract(op.exp(negative), scalar(1, x)),
        scalar(alpha, x)), x)


@converter("Celu")
def celu(x: Expr, *, alpha: float = 1.0) -> Expr:
    negative = op.divide(op.minimum(x, scalar(0, x)), scalar(alpha, x))
    return op.add(op.nn.relu(x), op.multiply(op.subtract(op.exp(negative), scalar(1, x)), scalar(alpha, x)))


@converter("Selu", since=1)
def selu_first(x: Expr, *, alpha: float = 1.6732, gamma: float = 1.0507) -> Expr:
    return op.multiply(elu(x, alpha=alpha), scalar(gamma, x))


@converter("Selu", since=6)
def selu(x: Expr, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875) -> Expr:
    return selu_first(x, alpha=alpha, gamma=gamma)


@converter("ThresholdedRelu")
def thresholded_relu(x: Expr, *, alpha: float = 1.0) -> Expr:
    return op.where(op.greater(x, scalar(alpha, x)), x, scalar(0, x))


@converter("Softplus")
def softplus(x: Expr) -> Expr:
    """max(x, 0) + log(1 + exp(-|x|)), which never overflows and keeps its precision for small values."""
    return op.add(op.nn.relu(x), log_1p(op.exp(op.negative(op.abs(x)))))


@converter("Softsign")
def softsign(x: Expr) -> Expr:
    return op.divide(x, op.add(op.abs(x), scalar(1, x)))


@converter("Mish")
def mish(x: Expr) -> Expr:
    return shaping.mish(x)


@converter("Swish")
def swish(x: Expr, *, alpha: float = 1.0) -> Expr:
    return op.multiply(x, op.sigmoid(x if alpha == 1 else op.multiply(x, scalar(alpha, x))))


@converter("Gelu")
def gelu(x: Expr, *, approximate: str = "none", node: Node) -> Expr:
    if approximate == "none":
        inner = op.erf(op.multiply(x, scalar(math.sqrt(0.5), x)))
    elif approximate == "tanh":
        cubic = op.multiply(op.multiply(op.multiply(x, x), x), scalar(0.044715, x))
        inner = op.tanh(op.multiply(op.add(x, cubic), scalar(math.sqrt(2 / math.pi), x)))
    else:
        node.refuse(f"approximate is {approximate!r}; it must be 'none' or 'tanh'")
    return op.multiply(op.multiply(x, scalar(0.5, x)), op.add(inner, scalar(1, x)))


@converter("Shrink")
def shrink(x: Expr, *, bias: float = 0.0, lambd: float = 0.5) -> Expr:
    whole = x
    if not x.tensor_type.dtype.is_float:  # the bounds and the bias are floats
        x = op.cast(x, "float64")
    upper = op.where(op.greater(x, scalar(lambd, x)), op.subtract(x, scalar(bias, x)), scalar(0, x))
    # takes precedence if lambd is negative and both conditions hold
    y = op.where(op.less(x, scalar(-lambd, x)), op.add(x, scalar(bias, x)), upper)
    return y if x is whole else op.cast(y, whole.tensor_type.dtype)


@converter("Det")
def determinant(x: Expr, *, node: Node) -> Expr:
    if rank(x) < 2 or shape_of(x)[-1] != shape_of(x)[-2]:
        node.refuse(f"its input must be square matrices, but its shape is {shape_of(x)}")
    node.static(x, "X")
    kind = x.tensor_type.dtype
    wide = x if kind in ("float32", "float64") else op.cast(x, "float32")
    found = linear_algebra.determinant(wide)
    return found if wide is x else op.cast(found, kind)
