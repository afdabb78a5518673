"""Elementwise operators of one, two and three tensors, and activations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tilewright.base.types import BOOL, FLOAT32, DataType
from tilewright.relay.expr import Expr
from tilewright.relay.frontend import shaping
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.pytorch.node import Node
from tilewright.relay.frontend.pytorch.promotion import dtype_named, floating, promoted, result_type, tensor
from tilewright.relay.frontend.pytorch.registry import converter
from tilewright.relay.frontend.shaping import angle_of, cast, log_1p, reshape
from tilewright.relay.types_of import dtype_of, rank, scalar, shape_of

_FLOAT_UNARY: Final = {
    "exp": op.exp, "log": op.log, "log2": op.log2, "log10": op.log10, "sqrt": op.sqrt, "rsqrt": op.rsqrt, "sin": op.sin,
    "cos": op.cos, "tan": op.tan,
    "asin": op.asin, "acos": op.acos, "atan": op.atan, "sinh": op.sinh, "cosh": op.cosh, "tanh": op.tanh,
    "asinh": op.asinh, "acosh": op.acosh,
    "atanh": op.atanh, "erf": op.erf, "sigmoid": op.sigmoid, "special_expit": op.sigmoid, "special_erf": op.erf,
    "arcsin": op.asin, "arccos": op.acos, "arctan": op.atan,
}
_WHOLE_UNARY: Final = {"floor": op.floor, "ceil": op.ceil, "trunc": op.trunc, "fix": op.trunc}
_COMPARISONS: Final = {"eq": op.equal, "ne": op.not_equal, "lt": op.less, "le": op.less_equal, "gt": op.greater,
                       "ge": op.greater_equal}
_LONG_NAMES: Final = {"eq": [], "ne": ["not_equal"], "lt": ["less"], "le": ["less_equal"], "gt": ["greater"],
                      "ge": ["greater_equal"]}
_LOGICAL: Final = {"logical_and": op.logical_and, "logical_or": op.logical_or, "logical_xor": op.logical_xor}
_BITWISE: Final = {
    "and": (op.bitwise_and, op.logical_and), "or": (op.bitwise_or, op.logical_or),
    "xor": (op.bitwise_xor, op.logical_xor),
}


def _register_float(name: str, build: Callable[..., Expr]) -> None:
    @converter(name)
    def unary(self: Expr, node: Node) -> Expr:
        return build(floating(self, node))


def _register_whole(name: str, build: Callable[..., Expr]) -> None:
    @converter(name)
    def unary(self: Expr) -> Expr:
        return build(self) if dtype_of(self).is_float else self


def _register_comparison(name: str, build: Callable[..., Expr]) -> None:
    @converter(name, *_LONG_NAMES[name])
    def compare(self: Any, other: Any, node: Node) -> Expr:
        a, b = promoted(self, other, node=node)
        if dtype_of(a) is BOOL:
            a, b = cast(a, "int8"), cast(b, "int8")
        return build(a, b)


def _register_logical(name: str, build: Callable[..., Expr]) -> None:
    @converter(name)
    def combine(self: Expr, other: Expr) -> Expr:
        return build(truth(self), truth(other))


def _register_bitwise(name: str, whole: Callable[..., Expr], truths: Callable[..., Expr]) -> None:
    @converter(f"bitwise_{name}", f"__{name}__", f"__i{name}__", f"__r{name}__")
    def combine(self: Any, other: Any, node: Node) -> Expr:
        a, b = promoted(self, other, node=node)
        return truths(a, b) if dtype_of(a) is BOOL else whole(a, b)


for _name, _build in _FLOAT_UNARY.items():
    _register_float(_name, _build)
for _name, _build in _WHOLE_UNARY.items():
    _register_whole(_name, _build)
for _name, _build in _COMPARISONS.items():
    _register_comparison(_name, _build)
for _name, _build in _LOGICAL.items():
    _register_logical(_name, _build)
for _name, (_whole, _truths) in _BITWISE.items():
    _register_bitwise(_name, _whole, _truths)


def truth(x: Expr) -> Expr:
    """Whether elements are nonzero."""
    return x if dtype_of(x) is BOOL else op.not_equal(x, scalar(0, x))


# Arithmetic


@converter("add", "__add__", "__iadd__", "__radd__")
def add(self: Any, other: Any, node: Node, alpha: Any = 1) -> Expr:
    a, b = promoted(self, other, node=node)
    if dtype_of(a) is BOOL:
        return op.logical_or(a, b) if isinstance(alpha, Expr) or alpha else a
    return op.add(a, _times(b, alpha))


@converter("sub", "subtract", "__sub__", "__isub__")
def subtract(self: Any, other: Any, node: Node, alpha: Any = 1) -> Expr:
    a, b = promoted(self, other, node=node)
    return op.subtract(a, _times(b, alpha))


@converter("rsub", "__rsub__")
def rsub(self: Any, other: Any, node: Node, alpha: Any = 1) -> Expr:
    return subtract(other, self, node, alpha)


def _times(x: Expr, alpha: Any) -> Expr:
    return x if not isinstance(alpha, Expr) and alpha == 1 else op.multiply(x, tensor(alpha, dtype_of(x)))


@converter("mul", "multiply", "__mul__", "__imul__", "__rmul__")
def multiply(self: Any, other: Any, node: Node) -> Expr:
    a, b = promoted(self, other, node=node)
    return op.logical_and(a, b) if dtype_of(a) is BOOL else op.multiply(a, b)


@converter("div", "divide", "true_divide", "__div__", "__truediv__")
def divide(self: Any, other: Any, node: Node, rounding_mode: str | None = None) -> Expr:
    a, b = promoted(self, other, node=node)
    if rounding_mode is None:
        return op.divide(floating(a, node), floating(b, node))
    if rounding_mode == "trunc":
        return op.trunc(op.divide(a, b)) if dtype_of(a).is_float else op.trunc_divide(a, b)
    return _floor_divided(a, b)


def _floor_divided(a: Expr, b: Expr) -> Expr:
    if not dtype_of(a).is_float:
        return op.floor_divide(a, b)
    # Divide after subtracting the remainder, so that rounding never reaches the next integer, like PyTorch's
    # `div_floor_floating`.
    zero, one, quotient = scalar(0, a), scalar(1, a), op.divide(a, b)
    rest = op.mod(a, b)
    whole = op.divide(op.subtract(a, rest), b)
    is_below = op.logical_and(op.not_equal(rest, zero), op.not_equal(op.less(b, zero), op.less(rest, zero)))
    whole = op.where(is_below, op.subtract(whole, one), whole)
    floor = op.floor(whole)
    floor = op.where(op.greater(op.subtract(whole, floor), scalar(0.5, a)), op.add(floor, one), floor)
    floor = op.where(op.equal(whole, zero), op.trunc(quotient), floor)
    return op.where(op.equal(b, zero), quotient, floor)


@converter("floor_divide", "__floordiv__", "floordiv")
def floor_divide(self: Any, other: Any, node: Node) -> Expr:
    return _floor_divided(*promoted(self, other, node=node))


@converter("reciprocal")
def reciprocal(self: Expr, node: Node) -> Expr:
    x = floating(self, node)
    return op.divide(scalar(1, x), x)


@converter("remainder", "mod", "__mod__")
def remainder(self: Any, other: Any, node: Node) -> Expr:
    a, b = promoted(self, other, node=node)
    return op.floor_mod(a, b)


@converter("fmod")
def fmod(self: Any, other: Any, node: Node) -> Expr:
    a, b = promoted(self, other, node=node)
    return op.trunc_mod(a, b) if dtype_of(a).is_integer else op.mod(a, b)


@converter("float_power")
def float_power(self: Any, exponent: Any, node: Node) -> Expr:
    return power(tensor(self, "float64"), tensor(exponent, "float64") if isinstance(exponent, Expr)
                 else float(exponent), node)


@converter("pow", "__pow__")
def power(self: Any, exponent: Any, node: Node) -> Expr:
    a, b = promoted(self, exponent, node=node)
    if not isinstance(exponent, Expr) and exponent == 2:
        return op.multiply(a, a)
    if not isinstance(exponent, Expr) and exponent == 0.5 and dtype_of(a).is_float:
        return op.sqrt(a)
    return op.power(a, b)


@converter("square")
def square(self: Expr) -> Expr:
    x = cast(self, "int64") if dtype_of(self) is BOOL else self
    return op.multiply(x, x)


@converter("neg", "negative")
def negative(self: Expr) -> Expr:
    return op.negative(self)


@converter("abs", "absolute")
def absolute(self: Expr) -> Expr:
    return self if dtype_of(self).code in ("uint", "bool") else op.abs(self)


@converter("sign", "sgn")
def sign(self: Expr) -> Expr:
    return self if dtype_of(self) is BOOL else op.sign(self)


@converter("round")
def round_half_even(self: Expr, decimals: int = 0) -> Expr:
    if not dtype_of(self).is_float:
        return self
    if decimals == 0:
        return op.round(self)
    factor = scalar(10.0 ** abs(decimals), self)
    there, back = (op.multiply, op.divide) if decimals > 0 else (op.divide, op.multiply)
    return back(op.round(there(self, factor)), factor)


@converter("expm1")
def expm1(self: Expr, node: Node) -> Expr:
    """exp(x) - 1; for small x as 2 t / (1 - t) with t = tanh(x / 2), which is more precise."""
    x = floating(self, node)
    half = op.tanh(op.multiply(x, scalar(0.5, x)))
    near = op.divide(op.multiply(scalar(2, x), half), op.subtract(scalar(1, x), half))
    return op.where(op.less(op.abs(x), scalar(1, x)), near, op.subtract(op.exp(x), scalar(1, x)))


@converter("log1p", "special_log1p")
def log1p(self: Expr, node: Node) -> Expr:
    return log_1p(floating(self, node))


@converter("exp2", "special_exp2")
def exp2(self: Expr, node: Node) -> Expr:
    x = floating(self, node)
    return op.power(scalar(2, x), x)


@converter("deg2rad", "radians")
def deg2rad(self: Expr, node: Node) -> Expr:
    x = floating(self, node)
    return op.multiply(x, scalar(math.pi / 180, x))


@converter("rad2deg")
def rad2deg(self: Expr, node: Node) -> Expr:
    x = floating(self, node)
    return op.multiply(x, scalar(180 / math.pi, x))


@converter("atan2", "arctan2")
def atan2(self: Expr, other: Expr, node: Node) -> Expr:
    y, x = (floating(v, node) for v in promoted(self, other, node=node))
    return angle_of(y, x)


@converter("hypot")
def hypot(self: Expr, other: Expr, node: Node) -> Expr:
    a, b = promoted(self, other, node=node)
    return length(a, b)


def length(a: Expr, b: Expr) -> Expr:
    """sqrt(a^2 + b^2), as the greater part times sqrt(1 + ratio^2) to avoid overflow."""
    a, b = op.abs(a), op.abs(b)
    greater, lesser = op.maximum(a, b), op.minimum(a, b)
    ratio = op.divide(lesser, op.where(op.equal(greater, scalar(0, greater)), scalar(1, greater), greater))
    found = op.multiply(greater, op.sqrt(op.add(scalar(1, ratio), op.multiply(ratio, ratio))))
    infinite = scalar(math.inf, greater)
    return op.where(op.logical_or(op.equal(a, infinite), op.equal(b, infinite)), infinite, found)


@converter("maximum", "max.other", "fmax")
def maximum(self: Expr, other: Any, node: Node) -> Expr:
    a, b = promoted(self, other, node=node)
    return op.logical_or(a, b) if dtype_of(a) is BOOL else op.maximum(a, b)


@converter("minimum", "min.other", "fmin")
def minimum(self: Expr, other: Any, node: Node) -> Expr:
    a, b = promoted(self, other, node=node)
    return op.logical_and(a, b) if dtype_of(a) is BOOL else op.minimum(a, b)


@converter("clamp", "clip")
def clamp(self: Expr, node: Node, min: Any = None, max: Any = None) -> Expr:
    given = [b for b in (min, max) if b is not None]
    kind = result_type([self, *given], node.default_dtype)
    x = cast(self, kind)
    if kind.is_float and given and all(isinstance(b, (int, float)) for b in given):
        low, high = (-np.inf if min is None else float(min)), (np.inf if max is None else float(max))
        return op.clip(x, a_min=low, a_max=high) if low <= high else op.minimum(op.maximum(x, scalar(low, x)),
            scalar(high, x))
    x = x if min is None else op.maximum(x, tensor(min, kind))
    return x if max is None else op.minimum(x, tensor(max, kind))


@converter("clamp_min")
def clamp_min(self: Expr, min: Any, node: Node) -> Expr:
    return clamp(self, node, min)


@converter("clamp_max")
def clamp_max(self: Expr, max: Any, node: Node) -> Expr:
    return clamp(self, node, None, max)


@converter("lerp")
def lerp(self: Expr, end: Expr, weight: Any, node: Node) -> Expr:
    a, b = promoted(self, end, node=node)
    return op.add(a, op.multiply(tensor(weight, dtype_of(a)), op.subtract(b, a)))


@converter("addcmul")
def addcmul(self: Expr, tensor1: Expr, tensor2: Expr, node: Node, value: Any = 1) -> Expr:
    x, a, b = promoted(self, tensor1, tensor2, node=node)
    return op.add(x, _times(op.multiply(a, b), value))


@converter("addcdiv")
def addcdiv(self: Expr, tensor1: Expr, tensor2: Expr, node: Node, value: Any = 1) -> Expr:
    x, a, b = (floating(v, node) for v in promoted(self, tensor1, tensor2, node=node))
    return op.add(x, _times(op.divide(a, b), value))


@converter("isnan")
def isnan(self: Expr) -> Expr:
    return op.isnan(cast(self, FLOAT32) if not dtype_of(self).is_float else self)


@converter("isinf")
def isinf(self: Expr) -> Expr:
    return op.isinf(cast(self, FLOAT32) if not dtype_of(self).is_float else self)


@converter("isfinite")
def isfinite(self: Expr) -> Expr:
    return op.isfinite(cast(self, FLOAT32) if not dtype_of(self).is_float else self)


@converter("nan_to_num")
def nan_to_num(self: Expr, nan: float | None = None, posinf: float | None = None, neginf: float | None = None) -> Expr:
    if not dtype_of(self).is_float:
        return self
    most = float(np.finfo(dtype_of(self).numpy()).max)
    high, low = most if posinf is None else posinf, -most if neginf is None else neginf
    x = op.where(op.isnan(self), scalar(nan or 0.0, self), self)
    x = op.where(op.equal(x, scalar(np.inf, x)), scalar(high, x), x)
    return op.where(op.equal(x, scalar(-np.inf, x)), scalar(low, x), x)


@converter("bitwise_not", "__not__")
def bitwise_not(self: Expr) -> Expr:
    return op.logical_not(self) if dtype_of(self) is BOOL else op.bitwise_not(self)


@converter("__lshift__", "__ilshift__", "bitwise_left_shift")
def left_shift(self: Expr, other: Any, node: Node) -> Expr:
    a, b = promoted(self, other, node=node)
    return op.multiply(a, op.power(scalar(2, a), b)) if dtype_of(a).is_float else op.left_shift(a, b)


@converter("__rshift__", "__irshift__", "bitwise_right_shift")
def right_shift(self: Expr, other: Any, node: Node) -> Expr:
    a, b = promoted(self, other, node=node)
    return op.divide(a, op.power(scalar(2, a), b)) if dtype_of(a).is_float else op.right_shift(a, b)


@converter("where")
def where(condition: Expr, node: Node, self: Any = None, other: Any = None) -> Any:
    if self is None or other is None:
        from tilewright.relay.frontend.pytorch.indexing import places_of

        found = places_of(condition)
        return [op.squeeze(op.strided_slice(found, begin=(k,), end=(k + 1,), axes=(1,)), axis=(1,))
                for k in range(rank(condition))]
    a, b = promoted(self, other, node=node)
    return op.where(truth(condition), a, b)


@converter("masked_fill")
def masked_fill(self: Expr, mask: Expr, value: Any) -> Expr:
    return op.where(truth(mask), tensor(value, dtype_of(self)), self)


# Types


@converter("to.dtype", "to.dtype_layout", "to.device", "to.prim_dtype", "to", "_to_copy")
def to(self: Expr, node: Node, dtype: Any = None) -> Expr:
    return self if dtype is None else _as(self, dtype_named(dtype, node))


@converter("to.other", "type_as")
def to_other(self: Expr, other: Expr) -> Expr:
    return _as(self, dtype_of(other))


@converter("prims::convert_element_type")
def convert_element_type(a: Expr, dtype: Any, node: Node) -> Expr:
    return _as(a, dtype_named(dtype, node))


def _as(x: Expr, kind: DataType) -> Expr:
    return truth(x) if kind is BOOL else cast(x, kind)


def _register_cast(name: str, kind: str) -> None:
    @converter(name)
    def as_type(self: Expr) -> Expr:
        return _as(self, DataType(kind))


for _name, _kind in {"float": "float32", "double": "float64", "half": "float16", "int": "int32", "long": "int64",
                     "bool": "bool"}.items():
    _register_cast(_name, _kind)


# Activations


@converter("hardtanh")
def hardtanh(self: Expr, node: Node, min_val: float = -1, max_val: float = 1) -> Expr:
    return cast(clamp(self, node, min_val, max_val), dtype_of(self))


@converter("leaky_relu")
def leaky_relu(self: Expr, negative_slope: float = 0.01) -> Expr:
    return op.nn.leaky_relu(self, alpha=float(negative_slope))


@converter("prelu", "_prelu_kernel")
def prelu(self: Expr, weight: Expr) -> Expr:
    slope = weight
    if not rank(self):
        slope = reshape(weight, ())
    elif rank(weight) <= 1:
        size = shape_of(weight)[0] if rank(weight) else 1
        slope = reshape(weight, (1, size, *[1] * (rank(self) - 2)) if rank(self) > 1 else (size,))
    return op.where(op.less(self, scalar(0, self)), op.multiply(self, slope), self)


@converter("elu")
def elu(self: Expr, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Expr:
    below = op.multiply(scalar(alpha * scale, self), op.subtract(op.exp(_scaled(self, input_scale)), scalar(1, self)))
    return op.where(op.greater(self, scalar(0, self)), _scaled(self, scale), below)


@converter("celu")
def celu(self: Expr, alpha: float = 1) -> Expr:
    return elu(self, alpha, 1, 1 / alpha)


def _scaled(x: Expr, by: float) -> Expr:
    return x if by == 1 else op.multiply(x, scalar(by, x))


@converter("gelu")
def gelu(self: Expr, approximate: str = "none") -> Expr:
    x = self
    half = scalar(0.5, x)
    if approximate == "tanh":
        inner = op.add(x, op.multiply(scalar(0.044715, x), op.multiply(x, op.multiply(x, x))))
        return op.multiply(op.multiply(half, x),
                           op.add(scalar(1, x), op.tanh(op.multiply(scalar(math.sqrt(2 / math.pi), x), inner))))
    return op.multiply(op.multiply(x, half), op.add(scalar(1, x), op.erf(op.multiply(x, scalar(math.sqrt(0.5), x)))))


@converter("hardsigmoid")
def hardsigmoid(self: Expr) -> Expr:
    return op.multiply(op.clip(op.add(self, scalar(3, self)), a_min=0.0, a_max=6.0), scalar(1 / 6, self))


@converter("hardswish")
def hardswish(self: Expr) -> Expr:
    return op.multiply(self, hardsigmoid(self))


@converter("hardshrink")
def hardshrink(self: Expr, lambd: float = 0.5) -> Expr:
    return op.where(op.less_equal(op.abs(self), scalar(lambd, self)), scalar(0, self), self)


@converter("softshrink")
def softshrink(self: Expr, lambd: float = 0.5) -> Expr:
    return op.subtract(self, op.clip(self, a_min=-float(lambd), a_max=float(lambd)))


@converter("softplus")
def softplus(self: Expr, node: Node, beta: float = 1, threshold: float = 20) -> Expr:
    x = _scaled(self, beta)
    zero = scalar(0, x)
    # log(1 + e^x) without overflow: max(x, 0) + log1p(e^-|x|), which is precise for small e^x
    smooth = op.add(op.maximum(x, zero), log_1p(op.exp(op.negative(op.abs(x)))))
    return op.where(op.greater(x, scalar(threshold, x)), self, _scaled(smooth, 1 / beta))


@converter("log_sigmoid")
def log_sigmoid(self: Expr, node: Node) -> Expr:
    return op.negative(softplus(op.negative(self), node))


@converter("threshold")
def threshold(self: Expr, threshold: float, value: float) -> Expr:
    return op.where(op.greater(self, scalar(threshold, self)), self, scalar(value, self))


@converter("logit", "special_logit")
def logit(self: Expr, node: Node, eps: float | None = None) -> Expr:
    x = floating(self, node)
    if eps is not None:
        x = op.clip(x, a_min=float(eps), a_max=1 - float(eps))
    return op.log(op.divide(x, op.subtract(scalar(1, x), x)))


@converter("glu")
def glu(self: Expr, dim: int = -1) -> Expr:
    parts = op.split(self, indices_or_sections=2, axis=dim % rank(self))
    return op.multiply(parts[0], op.sigmoid(parts[1]))


@converter("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout", "native_dropout")
def dropout(input: Expr, p: float, train: bool, node: Node) -> Any:
    if train and p:
        node.refuse("it is a dropout in training mode, but only inference is supported; call model.eval() before "
                    "tracing or exporting it")
    return (input, op.cast(op.ones_like(input), dtype="bool")) if node.name == "native_dropout" else input


def _register_plain(name: str, build: Callable[[Expr], Expr]) -> None:
    @converter(name)
    def convert(self: Expr) -> Expr:
        return build(self)


_PLAIN: Final[dict[str, Callable[[Expr], Expr]]] = {
    "relu": op.nn.relu, "relu6": lambda x: op.clip(x, a_min=0.0, a_max=6.0), "mish": shaping.mish,
    "silu": lambda x: op.multiply(x, op.sigmoid(x)), "selu": lambda x: elu(x, 1.6732632423543772, 1.0507009873554805),
    "softsign": lambda x: op.divide(x, op.add(scalar(1, x), op.abs(x))),
    "tanhshrink": lambda x: op.subtract(x, op.tanh(x)),
    "logical_not": lambda x: op.logical_not(truth(x)), "frac": lambda x: op.subtract(x, op.trunc(x)),
}
for _plain_name, _plain in _PLAIN.items():
    _register_plain(_plain_name, _plain)
