"""`ByteArithmetic`: what two bytes make is the same in every one of its 65,536 cases, by one sum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import relay
from tilewright.ir import IRModule
from tilewright.relay.expr import Call, Constant, Expr, Function, var
from tilewright.relay.interpreter import evaluate
from tilewright.relay.op.fixed_point import HighProduct
from tilewright.relay.transform import ByteArithmetic, SimplifyInference
from tilewright.relay.visitor import calls

Array = np.ndarray[Any, Any]


def number(value: float, dtype: str = "int32") -> Constant:
    return Constant(np.asarray(value, dtype))


def requantized(x: Expr, factor: float, zero_point: int = 0, dtype: str = "int32") -> Expr:
    return relay.qnn.op.requantize(
        x, number(factor, "float64"), number(0), number(1, "float64"), number(zero_point), rounding="TFLITE",
        out_dtype=dtype
    )


def part(x: Expr, scale: float, zero_point: int, largest: float) -> Expr:
    """One operand of TensorFlow Lite's residual sum."""
    centred = relay.subtract(relay.cast(x, dtype="int32"), number(zero_point))
    return requantized(relay.left_shift(centred, number(20)), scale / largest)


def residual_sum(kind: str, scales: tuple[float, float, float], zeros: tuple[int, int, int]) -> Function:
    a, b = (var(n, shape=(256, 256), dtype=kind) for n in "ab")
    largest = 2 * max(scales[:2])
    total = relay.add(part(a, scales[0], zeros[0], largest), part(b, scales[1], zeros[1], largest))
    return Function((a, b), requantized(total, largest / (scales[2] * (1 << 20)), zeros[2], kind))


def every_pair(kind: str) -> list[Array]:
    info = np.iinfo(kind)
    a, b = np.meshgrid(np.arange(info.min, info.max + 1), np.arange(info.min, info.max + 1), indexing="ij")
    return [a.astype(kind), b.astype(kind)]


def after(function: Function) -> Function:
    plain = SimplifyInference()(IRModule.from_expr(function))
    found: Function = ByteArithmetic()(plain)["main"]
    return found


def high_products(function: Function) -> int:
    return sum(isinstance(c, Call) and isinstance(c.op, HighProduct) for c in calls(function.body))


SCALES = [
    ((0.0235, 0.0471, 0.0322), (-128, 4, -128)), ((0.1, 0.03, 0.11), (-3, 17, 9)), ((0.05, 0.05, 0.1), (0, 0, 0)),
    ((0.007, 0.3, 0.29), (-100, 100, -1))
]


@pytest.mark.parametrize(("scales", "zeros"), SCALES)
@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_a_residual_sum_is_one_sum_of_products(
    kind: str, scales: tuple[float, float, float], zeros: tuple[int, int, int]
) -> None:
    function = residual_sum(kind, scales, zeros if kind == "int8" else (zeros[0] + 128, zeros[1] + 128, zeros[2] + 128))
    new = after(function)
    np.testing.assert_array_equal(evaluate(new, *every_pair(kind)), evaluate(function, *every_pair(kind)))
    assert high_products(new) == 0


@pytest.mark.parametrize("factor", [0.5, 0.99, 1.7])
def test_one_byte(factor: float) -> None:
    x = var("x", shape=(256,), dtype="int8")
    function = Function((x,), requantized(relay.subtract(relay.cast(x, dtype="int32"), number(5)), factor, -7, "int8"))
    new, values = after(function), np.arange(-128, 128).astype("int8")
    np.testing.assert_array_equal(evaluate(new, values), evaluate(function, values))
    assert high_products(new) == 0


def test_what_is_no_sum_stays() -> None:
    a, b = (var(n, shape=(256, 256), dtype="int8") for n in "ab")
    function = Function(
        (a, b), requantized(relay.multiply(relay.cast(a, dtype="int32"), relay.cast(b, dtype="int32")), 0.01, 3, "int8")
    )
    new = after(function)
    np.testing.assert_array_equal(evaluate(new, *every_pair("int8")), evaluate(function, *every_pair("int8")))
    assert high_products(new) == 1


def test_factors_of_channels_stay() -> None:
    x = var("x", shape=(4, 3), dtype="int8")
    scales = Constant(np.asarray([0.3, 0.2, 0.7], "float64"))
    wide = relay.cast(x, dtype="int32")
    body = relay.qnn.op.requantize(
        wide, scales, number(0), number(1, "float64"), number(0), rounding="TFLITE", out_dtype="int8"
    )
    assert high_products(after(Function((x,), body))) == 1


@pytest.mark.parametrize("factor", [0.11, 0.3719])
def test_numbers_whose_first_rounding_is_coarse_stay(factor: float) -> None:
    """Rounded to eighths, then to whole numbers: no one sum is rounded so."""
    x = var("x", shape=(256,), dtype="int8")
    function = Function((x,), requantized(relay.subtract(relay.cast(x, dtype="int32"), number(5)), factor, -7, "int8"))
    new, values = after(function), np.arange(-128, 128).astype("int8")
    np.testing.assert_array_equal(evaluate(new, values), evaluate(function, values))
    assert high_products(new) == 1


@pytest.mark.parametrize("dense_first", [True, False])
def test_bytes_that_a_product_reads_moved_are_stored_so(dense_first: bool) -> None:
    x, w = var("x", shape=(5, 8), dtype="int32"), Constant(np.arange(32, dtype="int8").reshape(4, 8) - 9)
    held = relay.clip(relay.add(x, number(-128)), a_min=-128, a_max=127)
    bytes_ = relay.cast(held, dtype="int8")
    moved = relay.bitwise_xor(relay.cast(bytes_, dtype="uint8"), number(128, "uint8"))
    results = [relay.nn.dense(moved, w, out_dtype="int32"), relay.subtract(held, number(3)), bytes_]
    function = Function((x,), relay.Tuple(tuple(results if dense_first else results[::-1])))
    new: Any = ByteArithmetic()(IRModule.from_expr(function))["main"]
    values = np.random.default_rng(2).integers(-300, 500, (5, 8)).astype("int32")
    for a, b in zip(evaluate(new, values), evaluate(function, values), strict=True):
        np.testing.assert_array_equal(a, b)
    product = next(c for c in calls(new.body) if c.op is results[0].op)
    assert isinstance(product.args[0], relay.Call)
    assert str(product.args[0].op) == str(relay.cast(held, dtype="uint8").op)
    assert [str(c.op) for c in calls(product.args[0])] == [
        str(relay.clip(x, a_min=0, a_max=255).op), str(relay.cast(held, dtype="uint8").op)
    ]


def test_bounds_that_are_no_bytes_stay() -> None:
    x = var("x", shape=(4, 8), dtype="int32")
    held = [relay.clip(x, a_min=low, a_max=high) for low, high in ((float("-inf"), 255), (-0.5, 9), (-1, 255))]
    function = Function(
        (x,), relay.Tuple(tuple(f for h in held for f in (relay.cast(h, dtype="uint8"), relay.add(h, number(1)))))
    )
    module = IRModule.from_expr(function)
    assert ByteArithmetic()(module)["main"] is module["main"]
