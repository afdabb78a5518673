"""The edges of arithmetic in compiled code: what is no number, no elements, no dimensions, and every type of
element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import daily
from codegen_native import TARGETS
from tilewright import relay
from tilewright.base.types import DataType
from tilewright.compat.target import Target
from tilewright.compiler.build import build_module
from tilewright.ir.module import IRModule
from tilewright.relay import nn
from tilewright.relay.expr import Expr, Function, const, var
from tilewright.relay.interpreter import evaluate

pytestmark = pytest.mark.slow

Array = np.ndarray[Any, Any]
on_targets = pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.mcpu)
STRANGE = np.asarray(
    [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-42, -1e38, 3e38, 2.5, -7.0, np.nan, 1.0, -1.0, 88.0, -104.0, 89.0, 0.5],
    "float32"
)


def both(build: Callable[..., Expr], *arrays: Array, target: Target = TARGETS[0]) -> tuple[Any, Any]:
    """What the compiled code and what the reference give for a function of `arrays`."""
    params = tuple(var(f"x{k}", shape=a.shape, dtype=DataType(a.dtype)) for k, a in enumerate(arrays))
    function = Function(params, build(*params))
    with np.errstate(all="ignore"):
        return build_module(
            IRModule.from_expr(function), target
        ).executable(threads=1)(*arrays), evaluate(function, *arrays)


def same(found: Any, wanted: Any, rtol: float = 2e-6) -> None:
    """Equal types and shapes, not-a-numbers at the same places, infinities of the same sign, the rest close."""
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    if wanted.dtype.kind in "fV":
        np.testing.assert_allclose(found.astype("float64"), wanted.astype("float64"), rtol=rtol, atol=1e-37)
    else:
        np.testing.assert_array_equal(found, wanted)


ON_STRANGE: dict[str, Callable[[Expr], Expr]] = {
    "relu": nn.relu,
    "leaky_relu": lambda x: nn.leaky_relu(x, 0.1),
    "clip": lambda x: relay.clip(x, -1.0, 6.0),
    "maximum": lambda x: relay.maximum(x, const(np.float32(1))),
    "minimum": lambda x: relay.minimum(const(np.float32(1)), x),
    "maximum of two": lambda x: relay.maximum(x, relay.reverse(x, 0)),
    "minimum of two": lambda x: relay.minimum(relay.reverse(x, 0), x),
    "sigmoid": relay.sigmoid, "tanh": relay.tanh, "exp": relay.exp, "log": relay.log, "sqrt": relay.sqrt,
    "erf": relay.erf,
    "floor": relay.floor, "round": relay.round, "sign": relay.sign, "abs": relay.abs, "negative": relay.negative,
    "isnan": relay.isnan, "isinf": relay.isinf, "isfinite": relay.isfinite,
    "reciprocal": lambda x: relay.divide(const(np.float32(1)), x),
    "where": lambda x: relay.where(relay.greater(x, const(np.float32(0))), x, relay.negative(x)),
    "swish": lambda x: relay.multiply(x, relay.sigmoid(x)),
}


@on_targets
@pytest.mark.parametrize("name", ON_STRANGE)
def test_what_is_no_number_goes_through(name: str, target: Target) -> None:
    same(*both(ON_STRANGE[name], STRANGE, target=target), rtol=2e-5)


@on_targets
@pytest.mark.parametrize(
    "made", [relay.max, relay.min, relay.sum, relay.mean, relay.argmax, relay.argmin], ids=lambda f: f.__name__
)
def test_reductions_of_what_is_infinite(made: Callable[..., Expr], target: Target) -> None:
    rows = np.ones((6, 19), "float32") * np.arange(19, dtype="float32")
    rows[2, 3], rows[3, 5], rows[4, 18], rows[5, 2], rows[5, 9] = np.inf, -np.inf, np.inf, np.inf, -np.inf
    if made in (relay.sum, relay.mean):
        rows[1, 7] = np.nan
    for axis in (0, 1):
        same(*both(lambda x, axis=axis: made(x, axis=axis), rows, target=target))


@on_targets
def test_softmax_of_large_values(target: Target) -> None:
    rows = np.asarray(
        [[1e4, 1e4, -1e4, 0], [-np.inf, 0, 1, -np.inf], [88, 89, 90, 700], [-3e38, 3e38, 0, 1], [np.nan, 0, 1, 2]],
        "float32"
    )
    same(*both(lambda x: nn.softmax(x, axis=-1), rows, target=target), rtol=1e-5)
    same(*both(lambda x: nn.log_softmax(x, axis=-1), rows[2:4], target=target), rtol=1e-5)


@on_targets
def test_pooling_and_products_of_what_is_no_number(target: Target) -> None:
    x = np.zeros((1, 2, 5, 6), "float32")
    x[0, 0, 3, 4], x[0, 1, 2, 2] = np.inf, -np.inf
    same(*both(lambda x: nn.max_pool2d(x, (2, 2), (1, 1), padding=(1, 1)), x, target=target))
    x[0, 0, 1, 1] = np.nan
    same(*both(lambda x: nn.avg_pool2d(x, (3, 3), (1, 1), padding=(1, 1)), x, target=target))
    weight = const(np.ones((3, 2, 3, 3), "float32"))
    same(*both(lambda x: nn.conv2d(x, weight, padding=(1, 1), channels=3, kernel_size=(3, 3)), x, target=target))


ARITHMETIC: dict[str, Callable[[Expr, Expr], Expr]] = {
    "add": relay.add, "subtract": relay.subtract, "multiply": relay.multiply, "maximum": relay.maximum,
    "minimum": relay.minimum,
    "less": relay.less, "equal": relay.equal,
    "relu": lambda x, y: nn.relu(x), "abs": lambda x, y: relay.abs(x), "clip": lambda x, y: relay.clip(x, 1, 5),
    "where": lambda x, y: relay.where(relay.greater(x, y), x, y),
    "sum": lambda x, y: relay.sum(x, axis=1), "max": lambda x, y: relay.max(y, axis=0),
    "transpose": lambda x, y: relay.transpose(x, axes=(1, 0)),
    "concatenate": lambda x, y: relay.concatenate((x, y), axis=0),
    "reverse": lambda x, y: relay.reverse(x, 1),
}
NUMBERS = [
    "float16", "bfloat16", "float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64",
    "uint64"
]
FOR_BOOL = ["maximum", "minimum", "equal", "where", "transpose", "concatenate", "reverse"]


def values(dtype: str, seed: int) -> Array:
    """Small values of every type; integers do not overflow in sums."""
    numbers = np.random.default_rng(seed).integers(0 if dtype.startswith("u") else -9, 9, (5, 21))
    return (numbers > 0) if dtype == "bool" else numbers.astype(DataType(dtype).numpy())


@pytest.mark.parametrize(("name", "dtype"), daily.of_each(
    [*((n, d) for n in ARITHMETIC for d in NUMBERS), *((n, "bool") for n in FOR_BOOL)], lambda c: c[0], 3, "arithmetic"
))
def test_every_type_of_element(name: str, dtype: str) -> None:
    same(*both(ARITHMETIC[name], values(dtype, 1), values(dtype, 2)), rtol=1e-2 if "16" in dtype else 1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["exp", "sigmoid", "tanh", "sqrt", "erf", "log"])
def test_functions_of_short_floats(name: str, dtype: str) -> None:
    x = np.linspace(0.1, 3, 37).astype(DataType(dtype).numpy())
    same(*both(getattr(relay, name), x), rtol=2e-2 if dtype == "bfloat16" else 3e-3)


@pytest.mark.parametrize("source", [*NUMBERS, "bool"])
@pytest.mark.parametrize("result", [*NUMBERS, "bool"])
def test_every_conversion(source: str, result: str) -> None:
    x = np.abs(values(source, 3).astype("int32")).astype(DataType(source).numpy())
    same(*both(lambda x: relay.cast(x, result), x))


@on_targets
def test_no_dimensions(target: Target) -> None:
    x, y = np.asarray(2.5, "float32"), np.asarray(-4.0, "float32")
    same(*both(lambda x, y: nn.relu(relay.add(x, y)), x, y, target=target))
    same(*both(lambda x, y: relay.add(relay.exp(x), y), x, np.ones((3, 4), "float32"), target=target))
    same(*both(relay.sum, np.ones((7, 9), "float32"), target=target))
    same(*both(lambda x: relay.reshape(x, newshape=(1, 1)), x, target=target))
    same(*both(lambda x: relay.cast(x, "int64"), x, target=target))


EMPTY: dict[str, Callable[[Expr], Expr]] = {
    "relu": nn.relu,
    "add": lambda x: relay.add(x, x),
    "transpose": lambda x: relay.transpose(x, axes=(1, 0)),
    "concatenate": lambda x: relay.concatenate((x, x), axis=0),
    "concatenate with something": lambda x: relay.concatenate((x, const(np.ones((2, 4), "float32"))), axis=0),
    "reshape": lambda x: relay.reshape(x, newshape=(4, 0), allowzero=True),
    "sum": lambda x: relay.sum(x, axis=1),
    "sum of nothing": lambda x: relay.sum(x, axis=0),
    "dense": lambda x: nn.dense(x, const(np.ones((5, 4), "float32"))),
    "softmax": lambda x: nn.softmax(x, axis=1),
    "cast": lambda x: relay.cast(x, "int8"),
}


@pytest.mark.parametrize("name", EMPTY)
def test_no_elements(name: str) -> None:
    same(*both(EMPTY[name], np.zeros((0, 4), "float32")))
