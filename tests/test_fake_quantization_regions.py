"""Operators between dequantizations and a quantization have integer forms, whose results are those of the floats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import daily
from tilewright import IRModule, relay
from tilewright.base.errors import CompileError
from tilewright.ir import TensorAffineType, structural_equal
from tilewright.ir.op_attributes import registrations
from tilewright.relay import qnn, transform
from tilewright.relay.expr import Expr, Var, const, var
from tilewright.relay.visitor import calls

SHAPE = (1, 4, 6, 6)
Region = Callable[[Expr, Expr], Expr]
FLOATS = {"qnn.dequantize", "qnn.quantize"}


def weights(*shape: int) -> Expr:
    values = np.random.default_rng(3).integers(-20, 20, shape).astype("int8")
    return qnn.op.dequantize(const(values), const(0.02), const(1))


EXACT: dict[str, Region] = {
    "abs": lambda x, y: relay.abs(x),
    "add-multiple": lambda x, y: relay.add(x, const(1.5)),
    "bounded": lambda x, y: relay.minimum(relay.maximum(x, const(-0.5)), const(2.0)),
    "broadcast": lambda x, y: relay.broadcast_to(relay.max(x, axis=1, keepdims=True), SHAPE),
    "conv-transpose": lambda x, y: relay.nn.conv2d_transpose(x, weights(4, 2, 3, 3), channels=2, kernel_size=(3, 3)),
    "depth-to-space": lambda x, y: relay.nn.depth_to_space(x, 2),
    "dense-bias": lambda x, y: relay.add(
        relay.nn.dense(relay.reshape(x, (4, 36)), weights(5, 36)), const(np.asarray([0.01, -0.03, 0, 0.1, 0.2], "f4"))),
    "edge": lambda x, y: relay.nn.pad(x, [[0, 0], [0, 0], [1, 2], [0, 1]], pad_mode="edge"),
    "less": lambda x, y: relay.subtract(x, const(2.5)),
    "mean": lambda x, y: relay.mean(x, axis=(1, 3)),
    "min": lambda x, y: relay.min(x, axis=2),
    "pad": lambda x, y: relay.nn.pad(x, [[0, 0], [0, 0], [1, 2], [0, 1]], 1.0),
    "pool": lambda x, y: relay.nn.adaptive_avg_pool1d(relay.reshape(x, (1, 4, 36)), 1),
    "scaled": lambda x, y: relay.multiply(const(0.75), relay.transpose(x, (0, 3, 1, 2))),
    "split": lambda x, y: relay.split(x, 3, axis=2)[1],
    "subtract-same": lambda x, y: relay.subtract(x, relay.multiply(y, const(2.0))),
    "take": lambda x, y: relay.take(x, const(np.asarray([3, 1, 1])), axis=3),
    "topk": lambda x, y: relay.topk(x, 3, 2, "values", True),
}
"""Regions that integers compute exactly, before the last rounding."""
ROUNDED: dict[str, Region] = {
    "concatenate": lambda x, y: relay.concatenate((x, y), 1), "erf": lambda x, y: relay.erf(x),
    "exp": lambda x, y: relay.exp(relay.minimum(x, const(2.0))),
    "leaky-relu": lambda x, y: relay.nn.leaky_relu(x, 0.1), "maximum": relay.maximum,
    "minimum": relay.minimum, "sigmoid": lambda x, y: relay.sigmoid(x),
    "sqrt": lambda x, y: relay.sqrt(relay.nn.relu(x)), "subtract": relay.subtract,
    "tanh": lambda x, y: relay.tanh(x),
}
"""Regions for which a step of the result is allowed."""
KEPT: dict[str, Region] = {
    "add-fraction": lambda x, y: relay.add(x, const(1.3)), "from": lambda x, y: relay.subtract(const(1.5), x),
    "negative": lambda x, y: relay.multiply(x, const(-0.75)), "sin": lambda x, y: relay.sin(x),
    "indices": lambda x, y: relay.cast(relay.topk(x, 3, 2, "indices"), "float32"),
    "pad-fraction": lambda x, y: relay.nn.pad(x, [[0, 0], [0, 0], [1, 2], [0, 1]], 1.1),
    "vector": lambda x, y: relay.add(x, const(np.ones((6, ), "float32"))),
}
"""Regions that stay in floating point."""


def region(build: Region, dtype: str, axis: int | None = None) -> tuple[IRModule, list[Any]]:
    """Return a module of a region, and random arguments."""
    zero = 100 if dtype == "uint8" else -5
    scale, zeros = const(0.25), const(zero)
    if axis is not None:
        scale, zeros = const(np.asarray([0.25, 0.5, 0.1, 0.2], "float32")), const(np.asarray([zero, 0, 3, 4], "int32"))
    x, y = Var("x", relay.TensorType(SHAPE, dtype)), Var("y", relay.TensorType(SHAPE, dtype))
    real = qnn.op.dequantize(x, scale, zeros, axis=-1 if axis is None else axis)
    body = build(real, qnn.op.dequantize(y, const(0.125), const(zero)))
    # no sum of scales is half a step of the result, so that roundings agree
    mod = IRModule.from_expr(qnn.op.quantize(body, const(0.2718), const(7), out_dtype=dtype))
    rng, info = np.random.default_rng(5), np.iinfo(dtype)
    return mod, [rng.integers(info.min, info.max, SHAPE, endpoint=True).astype(dtype) for _ in mod["main"].params]


def steps_apart(mod: IRModule, new: IRModule, args: list[Any]) -> int:
    old, found = (relay.create_executor("debug", mod=m).evaluate()(*args).numpy().astype(int) for m in (mod, new))
    return int(np.abs(old - found).max())


def names(mod: IRModule) -> set[str]:
    return {c.op.name for c in calls(mod["main"])}


@pytest.mark.parametrize("name", daily.sample([*EXACT, *ROUNDED], 12))
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_region_has_an_integer_form(name: str, dtype: str) -> None:
    mod, args = region({**EXACT, **ROUNDED}[name], dtype)
    new = transform.FakeQuantizationToInteger(hard_fail=True)(mod)
    assert new is not mod and not names(new) & FLOATS
    assert steps_apart(mod, new, args) <= (1 if name in ROUNDED else 0)


@pytest.mark.parametrize("name", sorted(KEPT))
def test_a_region_without_an_integer_form_stays(name: str) -> None:
    mod, _ = region(KEPT[name], "int8")
    assert transform.FakeQuantizationToInteger()(mod) is mod


@pytest.mark.parametrize("build", [
    lambda x, y: relay.nn.relu(x), lambda x, y: relay.clip(x, -1.0, 6.0), relay.multiply])
def test_scales_of_channels(build: Region) -> None:
    mod, args = region(build, "int8", axis=1)
    new = transform.FakeQuantizationToInteger(hard_fail=True)(mod)
    assert not names(new) & FLOATS and steps_apart(mod, new, args) <= 1


def test_a_bias_that_is_computed() -> None:
    x, bias = Var("x", relay.TensorType((3, 8), "int8")), Var("bias", relay.TensorType((5,), "int32"))
    scales = np.asarray([0.1, 0.2, 0.3, 0.4, 0.5], "float32")
    w = qnn.op.dequantize(
        const(np.random.default_rng(1).integers(-9, 9, (5, 8)).astype("int8")), const(scales), const(0), axis=0)
    real = relay.nn.dense(qnn.op.dequantize(x, const(0.5), const(3)), w)
    rng = np.random.default_rng(2)
    args = [rng.integers(-99, 99, (3, 8)).astype("int8"), rng.integers(-99, 99, 5).astype("int32")]
    for scale in (scales * np.float32(0.5), np.float32(0.7)):
        body = relay.add(real, qnn.op.dequantize(bias, const(scale), const(0)))
        mod = IRModule.from_expr(qnn.op.quantize(body, const(0.5), const(2)))
        new = transform.FakeQuantizationToInteger(hard_fail=True)(mod)
        assert not names(new) & FLOATS and steps_apart(mod, new, args) <= 1


def test_sums_that_do_not_fit_stay() -> None:
    sums = [qnn.op.dequantize(var(n, shape=(4,), dtype="int32"), const(0.5), const(0)) for n in "ab"]
    mod = IRModule.from_expr(qnn.op.quantize(relay.nn.relu(relay.subtract(*sums)), const(0.5), const(0)))
    assert transform.FakeQuantizationToInteger()(mod) is mod


@pytest.fixture
def registered() -> Iterator[None]:
    """Forget, after a test, the integer forms that it registers."""
    with registrations():
        yield


@pytest.mark.usefixtures("registered")
def test_a_program_registers_the_integer_form_of_an_operator() -> None:
    """sin(%x) -> %x with twice the scale, and concatenate by the types of a tuple."""

    @relay.op.register_fake_quantization_to_integer("sin")
    def sin(expr: Any, type_map: Any) -> list[Any]:
        given = type_map[expr.args[0]]
        return [expr.args[0], TensorAffineType(given.scale * const(2.0), given.zero_point, given.dtype)]

    @relay.op.register_fake_quantization_to_integer("concatenate")
    def joined(expr: Any, type_map: Any) -> list[Any]:
        (whole,) = expr.args
        first, second = type_map[whole].types
        assert float(first.scale.value) == 0.5 and float(second.scale.value) == 0.125
        return [relay.concatenate([*whole.fields], 1), first]

    mod, _ = region(lambda x, y: relay.concatenate((relay.sin(x), y), 1), "int8")
    new = transform.FakeQuantizationToInteger(hard_fail=True)(mod)["main"]
    assert [e.op.name for e in calls(new)] == ["concatenate", "qnn.requantize"]
    scale: Any = calls(new)[1].args[1]
    assert float(scale.value) == 0.5


@pytest.mark.usefixtures("registered")
def test_a_registered_form_that_refuses_leaves_the_operator_in_floating_point() -> None:
    @relay.op.register_fake_quantization_to_integer("abs")
    def refused(expr: Any, type_map: Any) -> list[Any]:
        raise NotImplementedError("not for these arguments")

    mod, _ = region(EXACT["abs"], "int8")
    assert structural_equal(transform.FakeQuantizationToInteger()(mod), mod)
    with pytest.raises(CompileError, match="registered integer form of abs refuses this call: not for these arguments"):
        transform.FakeQuantizationToInteger(hard_fail=True)(mod)


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda e, t: e, "the integer form of abs returned a Call; it must return a list of an expression and its "),
        (lambda e, t: [e, TensorAffineType(var("s", shape=()), const(0), "int8")], "must be constants; compute them"),
    ],
)
def test_results_of_registered_forms_are_checked(result: Any, message: str) -> None:
    relay.op.register_fake_quantization_to_integer("abs", result)
    with pytest.raises(CompileError, match=message):
        transform.FakeQuantizationToInteger(hard_fail=True)(region(EXACT["abs"], "int8")[0])
