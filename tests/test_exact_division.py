"""Quotients of floats are rounded once: by constants, by counts and by sums, on every back end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.relay import nn
from tilewright.relay.expr import Expr, Function
from tilewright.relay.transform import DivToMul, FastMath

Array = np.ndarray[Any, Any]
TARGETS = ("llvm", "llvm -mcpu=x86-64", "c")
DIVISORS = (3.0, 7.0, 0.1, -49.0, 1e-3, 1000.0, 8.0, -0.25, 6.0, 255.0)
SHAPE = (2, 3, 7, 14)

MEANS: dict[str, tuple[Callable[[Expr], Expr], Callable[[Array], Array]]] = {
    "mean of a row": (lambda x: relay.mean(x, axis=3), lambda x: x.sum(3) / np.float32(14)),
    "mean of all": (relay.mean, lambda x: x.sum() / np.float32(x.size)),
    "mean of images": (nn.global_avg_pool2d, lambda x: x.sum((2, 3), keepdims=True) / np.float32(98)),
    "mean of windows": (
        lambda x: nn.avg_pool2d(x, (7, 7), strides=(7, 7)),
        lambda x: x.reshape(2, 3, 1, 7, 2, 7).sum((3, 5)) / np.float32(49)
    ),
    "mean of parts": (
        lambda x: nn.adaptive_avg_pool2d(x, (1, 2)), lambda x: x.reshape(2, 3, 1, 7, 2, 7).sum((3, 5)) / np.float32(49)
    ),
    "softmax of equal numbers": (
        lambda x: nn.softmax(relay.multiply(x, relay.const(np.float32(0))), axis=3),
        lambda x: np.ones_like(x) / np.float32(14)
    ),
}


def run(function: Function, target: str, *arrays: Array) -> list[Array]:
    with tvm.transform.PassContext(opt_level=3):
        found = relay.create_executor("graph", mod=tvm.IRModule.from_expr(function), target=target).evaluate()(*arrays)
    return [f.numpy() for f in found]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("target", TARGETS)
def test_by_a_constant(target: str, dtype: str) -> None:
    x = relay.var("x", shape=(999,), dtype=dtype)
    each = np.resize(np.asarray(DIVISORS, dtype), 999)
    parts = [
        relay.divide(x, relay.Constant(np.asarray(d, dtype))) for d in DIVISORS
    ] + [relay.divide(x, relay.Constant(each))]
    data = (np.random.default_rng(1).standard_normal(999) * 100).astype(dtype)
    for divisor, found in zip(
        (*np.asarray(DIVISORS, dtype), each), run(Function((x,), relay.Tuple(parts)), target, data), strict=True
    ):
        np.testing.assert_array_equal(found, data / divisor, err_msg=str(divisor))


@pytest.mark.parametrize("target", TARGETS)
def test_by_a_count(target: str) -> None:
    """Sums of whole numbers are exact, so that the quotient alone is rounded."""
    x = relay.var("x", shape=SHAPE)
    data = np.random.default_rng(2).integers(-1000, 1000, SHAPE).astype("float32")
    for (name, (_, meaning)), found in zip(
        MEANS.items(), run(Function((x,), relay.Tuple([make(x) for make, _ in MEANS.values()])), target, data),
        strict=True
    ):
        np.testing.assert_array_equal(found, meaning(data), err_msg=name)


@pytest.mark.parametrize("fast", [FastMath(), DivToMul()], ids=["FastMath", "DivToMul"])
def test_products_where_they_are_asked_for(fast: Any) -> None:
    x = relay.var("x", shape=(999,))
    mod = fast(tvm.IRModule.from_expr(Function((x,), relay.divide(x, relay.const(np.float32(7))))))
    data = np.random.default_rng(3).standard_normal(999).astype("float32")
    found = relay.create_executor("graph", mod=mod, target="llvm").evaluate()(data).numpy()
    np.testing.assert_array_equal(found, data * np.float32(1 / np.float32(7)))
    assert (found != data / np.float32(7)).any()
