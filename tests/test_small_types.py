"""Floats of a byte or less and integers of 2 and 4 bits: their codes, their conversions, and what moves them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.base.errors import CompileError
from tilewright.base.types import MINIFLOATS, DataType, DataTypeCode
from tilewright.relay.interpreter import evaluate
from tilewright.relay.op.elementwise import converted

Array = np.ndarray[Any, Any]

INTEGERS = ("int2", "uint2", "int4", "uint4")
OTHERS = ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool")


def _codes(dtype: str) -> Array:
    """Every value of a type of a byte or less."""
    kind = DataType(dtype)
    return np.arange(1 << kind.bits, dtype=np.uint8).view(kind.numpy())


def _floats() -> Array:
    """Floats around every value of every small type, and many others."""
    near = [_codes(t).astype(np.float32) for t in MINIFLOATS]
    near += [(a[1:] + a[:-1]) / np.float32(2) for a in (np.sort(a[np.isfinite(a)]) for a in list(near))]
    exact = np.concatenate(near)
    bits = np.random.default_rng(0).integers(0, 1 << 32, 20000, np.uint32).view(np.float32)
    special = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 1.17e-38, 3.4e38, 5e-8], np.float32)
    return np.concatenate(
        [exact, np.nextafter(exact, np.float32(np.inf)), np.nextafter(exact, np.float32(-np.inf)), bits, special]
    )


def _cast(values: Array, dtype: str) -> Array:
    x = relay.var("x", shape=values.shape, dtype=str(DataType(values.dtype)))
    result: Array = tvm.compile(tvm.IRModule.from_expr(relay.Function([x], relay.cast(x, dtype))))(values)
    return result


def _bits(a: Array) -> Array:
    return a.view(np.uint8) if a.dtype.itemsize == 1 else a


@pytest.mark.parametrize("dtype", [*MINIFLOATS, *INTEGERS])
def test_names_and_codes(dtype: str) -> None:
    kind = DataType(dtype)
    assert DataType(kind.numpy()) is kind and kind.itemsize == 1 and kind.with_lanes(4).element is kind
    assert DataType.of_code(kind.type_code, kind.bits) is kind
    assert kind.is_float is (dtype in MINIFLOATS) and kind.is_integer is (dtype in INTEGERS)


def test_dlpack_numbers_of_the_small_floats() -> None:
    codes = DataTypeCode.FLOAT8_E4M3FN, DataTypeCode.FLOAT8_E5M2, DataTypeCode.FLOAT4_E2M1FN
    assert list(map(int, codes)) == [10, 12, 17]
    with pytest.raises(CompileError, match="float8_e4m3fn takes no width"):
        DataType("float8_e4m3fn8")


@pytest.mark.parametrize("dtype", MINIFLOATS)
def test_floats_round_to_every_format_exactly(dtype: str) -> None:
    values = _floats()
    with np.errstate(all="ignore"):
        expected = values.astype(DataType(dtype).numpy())
    np.testing.assert_array_equal(_bits(_cast(values, dtype)), _bits(expected))


@pytest.mark.parametrize("dtype", MINIFLOATS)
def test_doubles_are_rounded_once(dtype: str) -> None:
    with np.errstate(all="ignore"):
        base = _floats().astype(np.float64)
        values = np.concatenate([np.nextafter(base, np.inf), np.nextafter(base, -np.inf), base])
    with np.errstate(all="ignore"):
        expected = values.astype(DataType(dtype).numpy())
    np.testing.assert_array_equal(_bits(_cast(values, dtype)), _bits(expected))


@pytest.mark.parametrize(
    ("source", "to"),
    [*itertools.product(MINIFLOATS, (*MINIFLOATS, "float16", "bfloat16", "float32", "float64", "bool"))]
)
def test_every_code_of_a_small_float_converts(source: str, to: str) -> None:
    values = _codes(source)
    expected, got = converted(values, to), _cast(values, to)
    # the least is subnormal there, which the machine may take as zero
    if (source, to) == ("float8_e8m0fnu", "bfloat16"):
        expected, got = expected[1:], got[1:]
    if DataType(to).bits > 8:
        with np.errstate(all="ignore"):  # what signals there is no number
            np.testing.assert_array_equal(got.astype(np.float64), expected.astype(np.float64))
    else:
        np.testing.assert_array_equal(_bits(got), _bits(expected))


@pytest.mark.parametrize(
    ("source", "to"),
    [*itertools.product(INTEGERS, (*INTEGERS, *OTHERS, *MINIFLOATS)), *itertools.product(OTHERS, INTEGERS)]
)
def test_small_integers_convert(source: str, to: str) -> None:
    kind = DataType(source)
    values = _codes(source) if source in INTEGERS else np.arange(-3, 4).astype(
        kind.numpy()
    ) if kind.code != "uint" else np.arange(7).astype(kind.numpy())
    expected = np.array(
        [int(v) & ((1 << DataType(to).bits) - 1) for v in values], np.uint8
    ) if to in INTEGERS else converted(values, to)
    np.testing.assert_array_equal(_bits(_cast(values, to)), _bits(expected))
    np.testing.assert_array_equal(_bits(converted(values, to)), _bits(expected))


@pytest.mark.parametrize("dtype", [*MINIFLOATS, *INTEGERS])
def test_moves_keep_every_code(dtype: str) -> None:
    values = np.resize(_codes(dtype), (4, 64))
    x = relay.var("x", shape=(4, 64), dtype=dtype)
    moved = relay.concatenate([relay.transpose(x), relay.transpose(relay.reverse(x, axis=1))], axis=0)
    taken = relay.take(moved, relay.const(np.array([3, 1, 15], np.int32)), axis=0)
    chosen = relay.where(
        relay.const(np.array([True, False, True, False])), taken, relay.strided_slice(moved, begin=[0, 0], end=[3, 4])
    )
    function = relay.Function([x], relay.Tuple([moved, chosen, relay.reshape(x, (256,))]))
    expected = evaluate(function, values)
    for got, wanted in zip(tvm.compile(tvm.IRModule.from_expr(function))(values), expected, strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(_bits(got), _bits(np.ascontiguousarray(wanted)))


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "float4_e2m1fn"])
def test_a_rounding_inside_a_kernel_stays(dtype: str) -> None:
    values = np.linspace(-5, 5, 64, dtype=np.float32)
    x = relay.var("x", shape=(64,))
    function = relay.Function([x], relay.cast(relay.cast(x, dtype), "float32") * relay.const(np.float32(2)))
    np.testing.assert_array_equal(tvm.compile(tvm.IRModule.from_expr(function))(values), evaluate(function, values))


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2fnuz", "float6_e3m2fn"])
def test_arithmetic_is_that_of_float32_rounded_each_time(dtype: str) -> None:
    a, b = np.resize(_codes(dtype), 256), np.resize(_codes(dtype)[::-1], 256)
    x, y = (relay.var(n, shape=(256,), dtype=dtype) for n in "xy")
    function = relay.Function([x, y], relay.maximum(relay.add(x, y), relay.multiply(x, y)))
    got, wanted = tvm.compile(tvm.IRModule.from_expr(function))(a, b), evaluate(function, a, b)
    np.testing.assert_array_equal(got.astype(np.float32), wanted.astype(np.float32))


@pytest.mark.parametrize("dtype", [*MINIFLOATS, *INTEGERS])
def test_text_json_and_parameters_keep_them(dtype: str) -> None:
    module = tvm.IRModule.from_expr(
        relay.Function([relay.var("x", shape=(2,), dtype=dtype)], relay.Constant(_codes(dtype)))
    )
    assert tvm.ir.structural_equal(tvm.parser.parse(module.astext(show_meta_data=True)), module)
    assert tvm.ir.structural_equal(tvm.ir.load_json(tvm.ir.save_json(module)), module)
    back = relay.load_param_dict(relay.save_param_dict({"w": _codes(dtype)}))["w"]
    assert back.dtype == dtype
    np.testing.assert_array_equal(back.numpy().view(np.uint8), _codes(dtype).view(np.uint8))
