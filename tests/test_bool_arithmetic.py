"""Arithmetic on truth values: `+` is or, `*` is and, `-` is exclusive or, on every back end, in the interpreter and in
numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, te
from tilewright.base.types import BOOL
from tilewright.relay import nn
from tilewright.relay.expr import Expr, Function
from tilewright.relay.interpreter import evaluate
from tilewright.scalar import expr as E
from tilewright.scalar import intrinsics as I
from tilewright.scalar.arith.evaluate import evaluate as value_of

Array = np.ndarray[Any, Any]
Case = tuple[Callable[[Expr, Expr], Expr], Callable[[Array, Array], Any]]

SHAPE = (5, 37)
"""Rows that are longer than a vector, with lanes left over."""
CASES: dict[str, Case] = {
    "sum of all": (lambda x, y: relay.sum(x), lambda x, y: x.any()),
    "sum along rows": (lambda x, y: relay.sum(x, axis=1), lambda x, y: x.any(1)),
    "sum along columns": (lambda x, y: relay.sum(x, axis=0, keepdims=True), lambda x, y: x.any(0, keepdims=True)),
    "sum behind": (lambda x, y: relay.sum(relay.logical_xor(x, y), axis=1), lambda x, y: (x ^ y).any(1)),
    "count": (lambda x, y: relay.sum(relay.cast(x, "int32"), axis=1), lambda x, y: x.sum(1, dtype="int32")),
    "prod": (lambda x, y: relay.prod(x, axis=1), lambda x, y: x.all(1)),
    "any": (lambda x, y: relay.any(x, axis=1), lambda x, y: x.any(1)),
    "all": (lambda x, y: relay.all(x, axis=1), lambda x, y: x.all(1)),
    "max": (lambda x, y: relay.max(x, axis=1), lambda x, y: x.any(1)),
    "min": (lambda x, y: relay.min(x, axis=1), lambda x, y: x.all(1)),
    "mean": (lambda x, y: relay.mean(x, axis=1), lambda x, y: x.any(1)),
    "variance": (lambda x, y: relay.variance(x, axis=1), lambda x, y: (x ^ x.any(1, keepdims=True)).any(1)),
    "cumsum": (lambda x, y: relay.cumsum(x, axis=1), lambda x, y: np.logical_or.accumulate(x, 1)),
    "cumsum as counts": (lambda x, y: relay.cumsum(x, axis=1, dtype="int32"), lambda x, y: x.cumsum(1, dtype="int32")),
    "cumprod": (lambda x, y: relay.cumprod(x, axis=0), lambda x, y: np.logical_and.accumulate(x, 0)),
    "add": (relay.add, np.logical_or), "subtract": (relay.subtract, np.logical_xor),
    "multiply": (relay.multiply, np.logical_and),
    "maximum": (relay.maximum, np.logical_or), "minimum": (relay.minimum, np.logical_and),
    "negative": (lambda x, y: relay.negative(x), lambda x, y: x), "sign": (lambda x, y: relay.sign(x), lambda x, y: x),
    "divide": (relay.divide, np.logical_and), "floor_divide": (relay.floor_divide, np.logical_and),
    "mod": (relay.mod, lambda x, y: np.zeros_like(x)), "floor_mod": (relay.floor_mod, lambda x, y: np.zeros_like(x)),
    "dense": (nn.dense, lambda x, y: x @ y.T),
    "matmul": (lambda x, y: nn.matmul(x, relay.transpose(y)), lambda x, y: x @ y.T),
    "batch_matmul": (
        lambda x, y: nn.batch_matmul(relay.expand_dims(x, 0), relay.expand_dims(y, 0)), lambda x, y: (x @ y.T)[None]
    ),
    "conv2d": (
        lambda x, y: nn.conv2d(
            relay.reshape(x, (1, 1, 5, 37)), relay.reshape(y, (1, 1, 5, 37)), kernel_size=(5, 37), channels=1
        ), lambda x, y: np.any(x & y).reshape(1, 1, 1, 1),
    ),
}
TARGETS = ("llvm", "llvm -mcpu=x86-64", "c")


def function(name: str) -> Function:
    x, y = (relay.var(v, shape=SHAPE, dtype="bool") for v in "xy")
    return Function((x, y), CASES[name][0](x, y))


def inputs() -> list[tuple[Array, Array]]:
    """One true element, two (which have no parity), about half of them, and nearly all; then none and all."""
    rng = np.random.default_rng(3)
    few = [np.zeros(SHAPE, bool), np.zeros(SHAPE, bool)]
    few[0][2, 7] = few[1][2, 7] = few[1][2, 8] = True
    some = [rng.random(SHAPE) < share for share in (0.05, 0.5, 0.97)]
    return [
        (few[0], few[1]), (few[1], few[1]), (some[0], some[1]), (some[1], some[2]), (some[2], some[0]),
        (~few[1], ~few[1])
    ]


@pytest.mark.parametrize("name", CASES)
def test_numpy_meaning(name: str) -> None:
    for x, y in inputs():
        found, wanted = evaluate(function(name), x, y), CASES[name][1](x, y)
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("target", TARGETS)
def test_native(target: str, level: int) -> None:
    x, y = (relay.var(v, shape=SHAPE, dtype="bool") for v in "xy")
    body = relay.Tuple([make(x, y) for make, _ in CASES.values()])
    with tvm.transform.PassContext(opt_level=level):
        run = relay.create_executor(
            "graph", mod=tvm.IRModule.from_expr(Function((x, y), body)), target=target
        ).evaluate()
    for a, b in inputs():
        for (name, (_, meaning)), found in zip(CASES.items(), run(a, b), strict=True):
            wanted = meaning(a, b)
            assert found.numpy().dtype == wanted.dtype, name
            np.testing.assert_array_equal(found.numpy(), wanted, err_msg=name)


@pytest.mark.parametrize("target", TARGETS)
def test_sums_of_every_length(target: str) -> None:
    """A schedule of one's own: sums of truth values in vectors, and multiplied and added in one step."""
    n = 64
    a = te.placeholder((n, n), "bool", "a")
    k = te.reduce_axis((0, n), "k")
    total = te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="total")
    fused = te.compute((n, n), lambda i, j: E.Call(BOOL, I.fma, [a[i, j], a[j, i], a[j, j]]), name="fused")
    x = np.tril(np.ones((n, n), bool)) & ~np.eye(n, dtype=bool)
    for made, wanted in ((total, x.any(1)), (fused, (x & x.T) | np.diag(x)[None])):
        run = tvm.build(te.create_schedule(made.op), [a, made], target)
        out = tvm.nd.array(np.zeros(wanted.shape, bool))
        run(tvm.nd.array(x), out)
        np.testing.assert_array_equal(out.numpy(), wanted)


def test_constants_are_truth_values() -> None:
    assert value_of(E.const(33, "bool")) is True
    assert value_of(E.const(0.5, "bool")) is True
    one, none = E.const(True, "bool"), E.const(False, "bool")
    assert [
        value_of(made(x, y)) for made in (E.add, E.sub, E.mul) for x, y in ((one, one), (none, one), (none, none))
    ] == [
        True, True, False, False, True, False, True, False, False,
    ]
