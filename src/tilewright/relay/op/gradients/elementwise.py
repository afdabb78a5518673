"""Gradients of elementwise operators. At a kink, the gradient is that of one side, and zero for `nn.relu` and `abs`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from tilewright.relay.expr import Call, Expr
from tilewright.relay.op.broadcast import (
    Add,
    Divide,
    Equal,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    LogicalAnd,
    Multiply,
    Power,
    Subtract,
    Where,
)
from tilewright.relay.op.elementwise import Cos, Cosh, Exp, Log, Negative, Rsqrt, Sign, Sin, Sinh
from tilewright.relay.op.gradients.building import GradientRule, cast, masked, sum_like
from tilewright.relay.types_of import dtype_of, scalar


def times(number: float, x: Expr) -> Expr:
    return Multiply()(scalar(number, x), x)


def _more(number: float, x: Expr) -> Expr:
    return Add()(scalar(number, x), x)


def _less(number: float, x: Expr) -> Expr:
    return Subtract()(scalar(number, x), x)


def square(x: Expr) -> Expr:
    return Multiply()(x, x)


def _by_value(factor: Callable[[Expr, Expr], Expr]) -> GradientRule:
    """The rule of a function of one element whose derivative is `factor(argument, result)`."""
    return lambda e, g: [Multiply()(g, factor(e.args[0], e))]


def _quotient(divisor: Callable[[Expr], Expr]) -> GradientRule:
    """The rule of a function of one element whose derivative is 1 / `divisor(argument)`."""
    return lambda e, g: [Divide()(g, divisor(e.args[0]))]


def _broadcasting(rule: Callable[[Call, Expr], list[Expr | None]]) -> GradientRule:
    """`rule`, with each gradient summed over the dimensions along which its argument is repeated."""

    def summed(e: Call, g: Expr) -> list[Expr | None]:
        return [None if s is None else sum_like(s, a) for s, a in zip(rule(e, g), e.args, strict=True)]

    return summed


def _divide(e: Call, g: Expr) -> list[Expr | None]:
    by = Divide()(g, e.args[1])
    return [by, Negative()(Multiply()(by, e))]


def _power(e: Call, g: Expr) -> list[Expr | None]:
    """y * x^(y - 1), zero where y is; x^y * log(x), zero where x is."""
    x, y = e.args
    below = Multiply()(y, Power()(x, _more(-1, y)))
    above = Multiply()(e, Log()(x))
    return [Where()(Equal()(y, scalar(0, y)), scalar(0, g), Multiply()(g, below)),
            Where()(Equal()(x, scalar(0, x)), scalar(0, g), Multiply()(g, above))]


def _maximum(e: Call, g: Expr) -> list[Expr | None]:
    return [masked(GreaterEqual()(*e.args), g), masked(Less()(*e.args), g)]


def _minimum(e: Call, g: Expr) -> list[Expr | None]:
    return [masked(LessEqual()(*e.args), g), masked(Greater()(*e.args), g)]


def _where(e: Call, g: Expr) -> list[Expr | None]:
    return [None, masked(e.args[0], g), Where()(e.args[0], scalar(0, g), g)]


def _clip(e: Call, g: Expr) -> list[Expr]:
    x = e.args[0]
    inside = LogicalAnd()(GreaterEqual()(x, scalar(e.op.a_min, x)), LessEqual()(x, scalar(e.op.a_max, x)))
    return [masked(inside, g)]


def _relu(e: Call, g: Expr) -> list[Expr]:
    return [masked(Greater()(e.args[0], scalar(0, e.args[0])), g)]


def _leaky_relu(e: Call, g: Expr) -> list[Expr]:
    x = e.args[0]
    return [Where()(Greater()(x, scalar(0, x)), g, times(e.op.alpha, g))]


def _cast(e: Call, g: Expr) -> list[Expr | None]:
    return [cast(g, dtype_of(e.args[0])), *[None] * (len(e.args) - 1)]


def passed(e: Call, g: Expr) -> list[Expr]:
    return [g]


def zero(e: Call, g: Expr) -> list[Expr | None]:
    """The rule of a function that is constant almost everywhere."""
    return [None] * len(e.args)


RULES: Final[dict[str, GradientRule]] = {
    "add": _broadcasting(lambda e, g: [g, g]),
    "subtract": _broadcasting(lambda e, g: [g, Negative()(g)]),
    "multiply": _broadcasting(lambda e, g: [Multiply()(g, e.args[1]), Multiply()(g, e.args[0])]),
    "divide": _broadcasting(_divide),
    "power": _broadcasting(_power),
    "maximum": _broadcasting(_maximum),
    "minimum": _broadcasting(_minimum),
    "where": _broadcasting(_where),
    "exp": _by_value(lambda x, y: y),
    "sqrt": lambda e, g: [Divide()(times(0.5, g), e)],
    "rsqrt": _by_value(lambda x, y: times(-0.5, Divide()(y, x))),
    "log": _quotient(lambda x: x),
    "log2": _quotient(lambda x: times(math.log(2), x)),
    "log10": _quotient(lambda x: times(math.log(10), x)),
    "sigmoid": _by_value(lambda x, y: Multiply()(y, _less(1, y))),
    "tanh": _by_value(lambda x, y: _less(1, square(y))),
    "erf": _by_value(lambda x, y: times(2 / math.sqrt(math.pi), Exp()(Negative()(square(x))))),
    "sin": _by_value(lambda x, y: Cos()(x)),
    "cos": _by_value(lambda x, y: Negative()(Sin()(x))),
    "tan": _by_value(lambda x, y: _more(1, square(y))),
    "sinh": _by_value(lambda x, y: Cosh()(x)),
    "cosh": _by_value(lambda x, y: Sinh()(x)),
    "asin": _by_value(lambda x, y: Rsqrt()(_less(1, square(x)))),
    "acos": _by_value(lambda x, y: Negative()(Rsqrt()(_less(1, square(x))))),
    "atan": _quotient(lambda x: _more(1, square(x))),
    "asinh": _by_value(lambda x, y: Rsqrt()(_more(1, square(x)))),
    "acosh": _by_value(lambda x, y: Rsqrt()(_more(-1, square(x)))),
    "atanh": _quotient(lambda x: _less(1, square(x))),
    "abs": _by_value(lambda x, y: Sign()(x)),
    "negative": lambda e, g: [Negative()(g)],
    "nn.relu": _relu,
    "nn.leaky_relu": _leaky_relu,
    "clip": _clip,
    "cast": _cast,
    "cast_like": _cast,
    **dict.fromkeys(("copy", "annotation.checkpoint", "annotation.stop_fusion", "annotation.cast_hint", "on_device",
                     "device_copy"), passed),
    **dict.fromkeys(("floor", "ceil", "round", "trunc", "sign"), zero),
}
"""The rules by operator name."""
