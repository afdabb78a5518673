"""Every kind of expression in native code against numpy: arithmetic, division, casts, intrinsics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from codegen_native import NATIVE, doubles_between_halves, on_every_target, run
from tilewright.backends.cpu.llvm.codegen import emit
from tilewright.backends.cpu.llvm.compile import assembly
from tilewright.base.types import DataType
from tilewright.compat.target import Target
from tilewright.scalar import expr as E
from tilewright.scalar import intrinsics as I
from tilewright.scalar.expr import Buffer, PrimExpr, Ramp, Var, as_expr
from tilewright.tir.stmt import SERIAL, For, PrimFunc, Store

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(11)
DTYPES = [
    "float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64",
    "uint64", "int4", "uint4", "bool"
]
Array = np.ndarray[Any, Any]


def reference(op: E.Intrinsic) -> Callable[..., Any]:
    """The meaning of an intrinsic in numpy."""
    assert op.reference is not None
    return op.reference


def repeated(*values: float) -> Array:
    """The values of one vector of four, four times, as float32."""
    return np.tile(np.array(values, np.float32), 4)


def apply(
    function: Callable[..., PrimExpr], arrays: list[Array], dtype: str, *, lanes: int, target: Target = NATIVE
) -> Array:
    """`function` over the elements of the arrays, in vectors of `lanes`."""
    n = arrays[0].size
    assert n % lanes == 0
    i = Var("i")
    buffers = [Buffer(f"x{k}", (n,), DataType(str(a.dtype))) for k, a in enumerate(arrays)]
    out = Buffer("out", (n,), dtype)
    at = Ramp(i * lanes, 1, lanes) if lanes > 1 else i * 1
    value = function(*(b[at] for b in buffers))
    result = np.zeros(n, DataType(dtype).numpy())
    func = PrimFunc("f", (*buffers, out), For(i, as_expr(0), as_expr(n // lanes), SERIAL, Store(out, value, (at,))))
    run(func, *arrays, result, target=target)
    return result


def numbers(dtype: str, n: int = 64) -> Array:
    """Values with the interesting ones first."""
    kind = DataType(dtype)
    if kind.code == "bool":
        return RNG.integers(0, 2, n).astype(bool)
    values: Array
    if kind.is_float:
        values = RNG.standard_normal(n) * 3
        values[:6] = [0.0, -0.0, 1.0, -1.5, 2.5, 0.1]
    else:
        low, high = (
            -(1 << (kind.bits - 1)), (1 << (kind.bits - 1)) - 1
        ) if kind.code == "int" else (0, (1 << kind.bits) - 1)
        values = RNG.integers(max(low, -100), min(high, 100), n, endpoint=True)
        values[:4] = [max(low, -8), min(high, 7), 0, 1]
    return values.astype(kind.numpy())


ARITHMETIC = [
    (E.add, np.add), (E.sub, np.subtract), (E.mul, np.multiply), (E.maximum, np.maximum), (E.minimum, np.minimum)
]


@on_every_target
@pytest.mark.parametrize("lanes", [1, 4, 16])
@pytest.mark.parametrize("dtype", [d for d in DTYPES if d not in ("bool", "int4", "uint4")])
def test_arithmetic(dtype: str, lanes: int, target: Target) -> None:
    a, b = numbers(dtype), numbers(dtype)[::-1].copy()
    for build, meaning in ARITHMETIC:
        with np.errstate(over="ignore"):
            expected = meaning(a, b)
        np.testing.assert_array_equal(
            apply(build, [a, b], dtype, lanes=lanes, target=target), expected, err_msg=build.__name__
        )


@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize("dtype", ["int4", "uint4"])
def test_narrow_integers_wrap_around(dtype: str, lanes: int) -> None:
    a, b = numbers(dtype), numbers(dtype)[::-1].copy()
    wide = a.astype("int32") * b.astype("int32") + a.astype("int32")
    np.testing.assert_array_equal(
        apply(lambda x, y: x * y + x, [a, b], dtype, lanes=lanes), wide.astype("int8").astype(a.dtype)
    )


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_division_of_floats(dtype: str, lanes: int) -> None:
    a, b = numbers(dtype), numbers(dtype)[::-1].copy() + np.array(10).astype(dtype)
    np.testing.assert_array_equal(apply(E.div, [a, b], dtype, lanes=lanes), a / b)


@on_every_target
@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
def test_division_of_integers_by_values(dtype: str, lanes: int, target: Target) -> None:
    """By zero, and of the least integer by minus one, there is no trap: the results are numpy's."""
    a, b = numbers(dtype), numbers(dtype)[::-1].copy()
    b[:8] = np.array([0, 1, -1, 3, -3, 0, 7, -1]).astype(dtype)
    a[2] = np.iinfo(dtype).min
    with np.errstate(all="ignore"):
        floor, mod = np.floor_divide(a, b), np.mod(a, b)
        zero = b == 0
        whole = np.where(
            zero, 0, np.trunc(a.astype(object) / np.where(zero, 1, b).astype(object)).astype(object)
        ).astype(object)
    wrapped = np.array([int(v) for v in whole], object)
    small = np.array(
        [(int(v) & ((1 << 8 * a.itemsize) - 1)) for v in wrapped], "uint64"
    ).astype(f"uint{8 * a.itemsize}").view(dtype)
    np.testing.assert_array_equal(apply(E.floordiv, [a, b], dtype, lanes=lanes, target=target), floor)
    np.testing.assert_array_equal(apply(E.floormod, [a, b], dtype, lanes=lanes, target=target), mod)
    np.testing.assert_array_equal(apply(E.truncdiv, [a, b], dtype, lanes=lanes, target=target), small)
    np.testing.assert_array_equal(
        apply(E.truncmod, [a, b], dtype, lanes=lanes, target=target),
        np.where(zero, 0, np.fmod(a, np.where(zero, 1, b)))
    )


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 8, 64, -1, -2, -5])
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint32"])
def test_division_by_constants(dtype: str, divisor: int, lanes: int) -> None:
    if dtype == "uint32" and divisor < 0:
        divisor = 1 << 31
    a = numbers(dtype)
    a[-1] = np.iinfo(dtype).min
    d = np.array(divisor).astype(dtype)
    with np.errstate(over="ignore"):
        floor, trunc = a // d, (a - np.fmod(a, d)) // d
    np.testing.assert_array_equal(apply(lambda x: E.floordiv(x, divisor), [a], dtype, lanes=lanes), floor)
    np.testing.assert_array_equal(apply(lambda x: E.floormod(x, divisor), [a], dtype, lanes=lanes), a % d)
    np.testing.assert_array_equal(apply(lambda x: E.truncdiv(x, divisor), [a], dtype, lanes=lanes), trunc)
    np.testing.assert_array_equal(apply(lambda x: E.truncmod(x, divisor), [a], dtype, lanes=lanes), np.fmod(a, d))


@on_every_target
@pytest.mark.parametrize("lanes", [1, 8])
def test_doubles_are_rounded_once_to_half_precision(target: Target, lanes: int) -> None:
    values = doubles_between_halves()
    with np.errstate(over="ignore"):
        same_bits(
            apply(lambda x: E.cast(f"float16x{lanes}", x), [values], "float16", lanes=lanes, target=target),
            values.astype(np.float16)
        )


def remainder_cases(dtype: str) -> tuple[Array, Array]:
    """Pairs of all magnitudes, signs and special values; 128 times 128 of them."""
    kind = DataType(dtype).numpy()
    info: Any = ml_dtypes.finfo(kind)  # type: ignore[no-untyped-call]
    most = float(info.max)
    # The instruction that rounds to bfloat16 takes subnormal numbers as zero.
    least = float(info.smallest_normal if dtype == "bfloat16" else info.smallest_subnormal)
    special = np.array(
        [0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 7, -7, 5.3, -5.3, 0.1, most, -most, least, 2, 128, -3.5, 0.25, 1e-3]
    )
    rng = np.random.default_rng(5)
    drawn = rng.standard_normal(44) * np.exp(rng.uniform(np.log(1 / most) / 2, np.log(most), 44))
    values = np.concatenate([special, drawn]).astype(kind)
    a, b = np.meshgrid(values, values)
    return np.ascontiguousarray(a.ravel()), np.ascontiguousarray(b.ravel())


def same_bits(found: Array, expected: Array) -> None:
    """Equal, the signs of zeros included; what is no number is equal to itself."""
    np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))
    number = ~np.isnan(expected.astype(np.float64))
    np.testing.assert_array_equal(
        np.signbit(found.astype(np.float64))[number], np.signbit(expected.astype(np.float64))[number]
    )


@on_every_target
@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_remainders_of_floats_are_exact(dtype: str, lanes: int, target: Target) -> None:
    a, b = remainder_cases(dtype)
    wide = np.float32 if dtype == "bfloat16" else a.dtype
    with np.errstate(all="ignore"):
        fmod, mod = (f(a.astype(wide), b.astype(wide)).astype(a.dtype) for f in (np.fmod, np.mod))
    same_bits(apply(E.truncmod, [a, b], dtype, lanes=lanes, target=target), fmod)
    same_bits(apply(E.floormod, [a, b], dtype, lanes=lanes, target=target), mod)


@pytest.mark.parametrize("divisor", [1, 8, 128, 0.5, 7, -2])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_remainders_of_floats_by_constants_are_exact(dtype: str, divisor: float) -> None:
    """By a whole power of two, without the C library."""
    a, d = remainder_cases(dtype)[0], np.array(divisor).astype(dtype)
    with np.errstate(all="ignore"):
        same_bits(apply(lambda x: E.truncmod(x, divisor), [a], dtype, lanes=8), np.fmod(a, d))
        same_bits(apply(lambda x: E.floormod(x, divisor), [a], dtype, lanes=8), np.mod(a, d))


def power_cases(dtype: str) -> tuple[Array, Array]:
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    bases = [low, high, 0, 1, -1 if low else 2, 2, 3, -3 if low else 5, 7, 10, 100]
    exponents = [0, 1, 2, 3, 5, 7, 30, 41, 63, 64, high, *([-1, -2, -3, low] if low else [8, 9, 10, 11])]
    a, b = np.meshgrid(np.array(bases, dtype), np.array(exponents, dtype))
    return np.resize(a.ravel(), 160), np.resize(b.ravel(), 160)


def integer_power(x: int, y: int, bits: int) -> int:
    if y < 0:
        return int(1 / x**-y) if x in (1, -1) else 0
    return pow(x, y, 1 << bits)


@on_every_target
@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
def test_powers_of_integers_wrap_around(dtype: str, lanes: int, target: Target) -> None:
    a, b = power_cases(dtype)
    bits = 8 * a.itemsize
    exact = [integer_power(int(x), int(y), bits) & ((1 << bits) - 1) for x, y in zip(a, b, strict=True)]
    expected = np.array(exact, np.uint64).astype(f"uint{bits}").view(dtype)
    np.testing.assert_array_equal(apply(I.pow, [a, b], dtype, lanes=lanes, target=target), expected)
    np.testing.assert_array_equal(I.power(a, b), expected)


def test_loop_variables_divide_without_sign() -> None:
    out, i = Buffer("out", (12,), "int64"), Var("i")
    text = emit(
        PrimFunc(
            "f", (out,), For(i, as_expr(0), as_expr(12), SERIAL, Store(out, (i * 5 + 2) // 3 + i % 7 + i // 4, (i,)))
        ), NATIVE
    )
    assert "udiv" in text and "urem" in text and "lshr" in text and "sdiv" not in text


def sources(dtype: str) -> Array:
    values = numbers(dtype)
    if DataType(dtype).is_float:
        values = np.clip(np.abs(values), 0, 7).astype(values.dtype)
    return values


@on_every_target
@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize("source", DTYPES)
def test_casts(source: str, lanes: int, target: Target) -> None:
    a = sources(source)
    for to in DTYPES:
        wide = a.astype("float32") if DataType(source).is_float and to != "float64" else a
        expected = (wide != 0) if to == "bool" else wide.astype("int8").astype(
            DataType(to).numpy()
        ) if "int4" in to else wide.astype(DataType(to).numpy())
        result = apply(
            lambda x, to=to: E.cast(DataType(to).with_lanes(x.dtype.lanes), x), [a], to, lanes=lanes, target=target
        )
        np.testing.assert_array_equal(result, expected, err_msg=f"{source} -> {to}")


@on_every_target
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_floats_round_to_even(dtype: str, target: Target) -> None:
    """All 65,536 values widen exactly; floats around every boundary narrow as numpy narrows them.

    Where x86 has an instruction for bfloat16, it takes what is subnormal as zero.
    """
    kind = DataType(dtype).numpy()
    every = np.arange(1 << 16, dtype="uint16").view(kind)
    wide = apply(
        lambda x: E.cast(DataType("float32").with_lanes(x.dtype.lanes), x), [every], "float32", lanes=16, target=target
    )
    np.testing.assert_array_equal(wide, every.astype("float32"))
    bits = np.concatenate([RNG.integers(
        0, 1 << 32, 1 << 14, dtype="uint32"
    ), every.astype("float32").view("uint32")[::8] + 0x8000,
                           every.astype("float32").view("uint32")[::8] + 0x1000])
    reals = bits.view("float32")
    narrow = apply(
        lambda x: E.cast(DataType(dtype).with_lanes(x.dtype.lanes), x), [reals], dtype, lanes=16, target=target
    )
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype == "bfloat16" and "avx512bf16" in target.features:
            reals = np.where(np.abs(reals) < np.finfo("float32").tiny, np.copysign(np.float32(0), reals), reals)
        expected = reals.astype(kind)
    nan = np.isnan(reals)
    np.testing.assert_array_equal(narrow.view("uint16")[~nan], expected.view("uint16")[~nan])
    assert np.isnan(narrow[nan].astype("float32")).all()


@pytest.mark.parametrize("lanes", [1, 16])
def test_comparisons_and_logic(lanes: int) -> None:
    for dtype in ("float32", "float16", "int8", "uint8", "int64", "bool"):
        a, b = numbers(dtype), numbers(dtype)[::-1].copy()
        b[::3] = a[::3]
        if dtype == "float32":
            a[5] = b[9] = np.nan
        for compare in (E.EQ, E.NE, E.LT, E.LE, E.GT, E.GE):
            got = apply(lambda x, y, c=compare: c(x, y), [a, b], "bool", lanes=lanes)
            np.testing.assert_array_equal(got, compare.fold(a, b), err_msg=f"{compare.__name__} {dtype}")
    a, b = numbers("bool"), numbers("bool")[::-1].copy()
    np.testing.assert_array_equal(
        apply(lambda x, y: E.logical_and(x, E.logical_not(y)), [a, b], "bool", lanes=lanes), a & ~b
    )
    np.testing.assert_array_equal(apply(E.logical_or, [a, b], "bool", lanes=lanes), a | b)
    np.testing.assert_array_equal(apply(E.maximum, [a, b], "bool", lanes=lanes), a | b)
    x, y = numbers("float32"), numbers("float32")[::-1].copy()
    np.testing.assert_array_equal(
        apply(lambda p, q: E.if_then_else(p < q, p, q * 2.0), [x, y], "float32", lanes=lanes), np.where(x < y, x, y * 2)
    )


@on_every_target
@pytest.mark.parametrize("lanes", [1, 16])
def test_nan_of_the_first_operand_is_kept(lanes: int, target: Target) -> None:
    a, b = repeated(np.nan, 1.0, np.nan, 2.0), repeated(3.0, np.nan, np.nan, 1.0)
    np.testing.assert_array_equal(
        apply(E.maximum, [a, b], "float32", lanes=lanes, target=target), repeated(np.nan, 1, np.nan, 2)
    )
    np.testing.assert_array_equal(
        apply(E.minimum, [a, b], "float32", lanes=lanes, target=target), repeated(np.nan, 1, np.nan, 1)
    )


def keeping_nan(extremum: Callable[..., PrimExpr]) -> Callable[..., PrimExpr]:
    """One step of a maximum or minimum over elements that keeps what is no number."""
    return lambda acc, x: E.if_then_else(E.compare(E.NE, x, x), x, extremum(acc, x))


@on_every_target
@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize(
    ("extremum", "expected", "identity"), [(E.maximum, np.maximum, -np.inf), (E.minimum, np.minimum, np.inf)]
)
def test_a_step_that_keeps_nan(extremum: Any, expected: Any, identity: float, lanes: int, target: Target) -> None:
    a, b = repeated(np.nan, 1.0, np.nan, 2.0), repeated(3.0, np.nan, -np.inf, np.inf)
    step = keeping_nan(extremum)
    np.testing.assert_array_equal(apply(step, [a, b], "float32", lanes=lanes, target=target), expected(a, b))
    for first in (identity, -identity, 1.0):
        found = apply(
            lambda x, first=first: step(E.const(first, x.dtype), x), [b], "float32", lanes=lanes, target=target
        )
        np.testing.assert_array_equal(found, expected(np.float32(first), b))


def test_the_first_element_of_a_maximum_is_taken_as_it_is() -> None:
    x, out = Buffer("x", (16,), "float32"), Buffer("out", (16,), "float32")
    at = Ramp(as_expr(0), 1, 16)

    def text(first: float) -> str:
        value = keeping_nan(E.maximum)(E.const(first, x[at].dtype), x[at])
        return emit(PrimFunc("f", (x, out), Store(out, value, (at,))), NATIVE)

    assert "fcmp" not in text(-np.inf)
    assert text(0.0).count("fcmp") == 2


EXACT = [I.sqrt, I.floor, I.ceil, I.trunc, I.nearbyint, I.fabs]
LIBRARY = [
    I.exp, I.log, I.log2, I.exp2, I.tanh, I.erf, I.sin, I.cos, I.tan, I.asin, I.acos, I.atan, I.sinh, I.cosh, I.asinh,
    I.acosh, I.atanh,
           I.rsqrt, I.sigmoid]


@on_every_target
@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("op", EXACT, ids=repr)
def test_exact_functions(op: E.Intrinsic, dtype: str, lanes: int, target: Target) -> None:
    a = numbers(dtype)
    a = np.abs(a) if op is I.sqrt else a
    np.testing.assert_array_equal(apply(op, [a], dtype, lanes=lanes, target=target), reference(op)(a))


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("op", LIBRARY, ids=repr)
def test_library_functions(op: E.Intrinsic, dtype: str, lanes: int) -> None:
    a = np.linspace(0.05, 0.95, 32).astype(DataType(dtype).numpy())
    if op is I.acosh:
        a = a + np.array(1).astype(a.dtype)
    with np.errstate(all="ignore"):
        expected = reference(op)(a.astype("float64"))
    tolerance = {"float32": 2e-6, "float64": 1e-13, "bfloat16": 1e-2}[dtype]
    np.testing.assert_allclose(
        apply(op, [a], dtype, lanes=lanes).astype("float64"), expected, rtol=tolerance, atol=tolerance
    )


@on_every_target
@pytest.mark.parametrize("lanes", [1, 16])
def test_other_functions(lanes: int, target: Target) -> None:
    a, b, c = numbers("float32"), numbers("float32")[::-1].copy(), numbers("float32")
    np.testing.assert_allclose(
        apply(I.fma, [a, b, c], "float32", lanes=lanes, target=target), a * b + c, rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(
        apply(I.pow, [np.abs(a) + 1, b], "float32", lanes=lanes, target=target), (np.abs(a) + 1) ** b, rtol=1e-5
    )
    special = np.array([np.nan, np.inf, -np.inf, 0.0] * 16, np.float32)
    for op in I.PREDICATES:
        got = apply(
            lambda x, op=op: op(x, dtype=DataType("bool").with_lanes(x.dtype.lanes)), [special], "bool", lanes=lanes,
            target=target
        )
        np.testing.assert_array_equal(got, reference(op)(special))
    x, y = numbers("int32"), np.abs(numbers("int32")) % 31
    for op in (I.bitwise_and, I.bitwise_or, I.bitwise_xor, I.shift_left, I.shift_right):
        np.testing.assert_array_equal(apply(op, [x, y], "int32", lanes=lanes, target=target), reference(op)(x, y))
    u = x.view("uint32")
    np.testing.assert_array_equal(
        apply(I.shift_right, [u, y.view("uint32")], "uint32", lanes=lanes, target=target), u >> y.view("uint32")
    )
    np.testing.assert_array_equal(apply(I.bitwise_not, [x], "int32", lanes=lanes, target=target), ~x)
    np.testing.assert_array_equal(apply(I.fabs, [x], "int32", lanes=lanes, target=target), np.abs(x))
    np.testing.assert_array_equal(apply(
        lambda p: I.reinterpret(p, dtype=DataType("int32").with_lanes(p.dtype.lanes)), [a], "int32", lanes=lanes,
        target=target
    ),
                                  a.view("int32"))


def test_constants_of_every_type() -> None:
    for dtype in DTYPES:
        kind = DataType(dtype)
        for value in (0, 1, 5) if kind.code != "bool" else (0, 1):
            for lanes in (1, 8):
                got = apply(
                    lambda x, v=value, k=kind: E.const(v, k.with_lanes(x.dtype.lanes)), [np.zeros(8, "float32")], dtype,
                    lanes=lanes
                )
                np.testing.assert_array_equal(got, np.full(8, value).astype(kind.numpy()))
    for number in (np.inf, -np.inf, np.nan, 1e-45, 3.4e38, -0.0):
        got = apply(lambda x, v=number: E.const(v, x.dtype), [np.zeros(8, "float32")], "float32", lanes=8)
        np.testing.assert_array_equal(got.view("uint32"), np.full(8, number, "float32").view("uint32"))
    assert ml_dtypes.bfloat16 is DataType("bfloat16").numpy().type


def test_fma_is_not_a_library_call_without_the_instruction() -> None:
    x = Buffer("x", (4,))
    func = PrimFunc("f", (x,), Store(x, I.fma(x[0], x[1], x[2]), (as_expr(3),)))
    assert "llvm.fma" not in emit(func, Target("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v2"))
    assert "llvm.fma" in emit(func, Target("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3"))


def test_ramps_as_values() -> None:
    out, i = Buffer("out", (24,), "int64"), Var("i")
    value = Ramp(i * 3, 2, 8) + Ramp(as_expr(5), i + 1, 8) * Ramp(as_expr(1), 1, 8)
    result = np.zeros(24, "int64")
    run(PrimFunc("f", (out,), For(i, as_expr(0), as_expr(3), SERIAL, Store(out, value, (Ramp(i * 8, 1, 8),)))), result)
    k, rows = np.arange(8), np.arange(3)[:, None]
    np.testing.assert_array_equal(result.reshape(3, 8), rows * 3 + 2 * k + (5 + (rows + 1) * k) * (1 + k))


def held(x: PrimExpr, dtype: str, low: int, high: int) -> PrimExpr:
    """`x` rounded, and held between two numbers."""

    def number(value: int) -> PrimExpr:
        one = E.const(float(value), "float32")
        return E.Broadcast(one, x.dtype.lanes) if x.dtype.lanes > 1 else one

    return E.cast(
        DataType(dtype).with_lanes(x.dtype.lanes), E.minimum(E.maximum(I.nearbyint(x), number(low)), number(high))
    )


@on_every_target
@pytest.mark.parametrize("lanes", [1, 4, 8, 16])
@pytest.mark.parametrize(("dtype", "low", "high"), [("uint8", 0, 255), ("int8", -128, 127), ("int32", -1000, 1 << 20)])
def test_rounding_while_converting(dtype: str, low: int, high: int, lanes: int, target: Target) -> None:
    """Halves go to the even number, and bounds hold, however far away the value is."""
    x = np.concatenate(
        [
            np.arange(-6, 6, 0.25),
            [
                1e30, -1e30, 254.5, 255.5, -128.5, np.inf, -np.inf, 2.0**31, -(2.0**31), 126.5, 127.5, -127.5, 0.5, 1.5,
                2.5, 3.5
            ]
        ]
    )
    values = x.astype(np.float32)
    got = apply(lambda v: held(v, dtype, low, high), [values], dtype, lanes=lanes, target=target)
    np.testing.assert_array_equal(got, np.clip(np.rint(values), low, high).astype(dtype))
    unbounded = apply(
        lambda v: E.cast(DataType("int32").with_lanes(lanes), I.nearbyint(v)), [values[:48]], "int32", lanes=lanes,
        target=target
    )
    np.testing.assert_array_equal(unbounded, np.rint(values[:48]).astype(np.int32))


def test_rounding_while_converting_is_one_instruction() -> None:
    target = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=znver5")
    x, out, i = Buffer("x", (64,), DataType("float32")), Buffer("out", (64,), DataType("uint8")), Var("i")
    at = Ramp(i * 16, 1, 16)
    value = held(x[at], "uint8", 0, 255)
    func = PrimFunc("f", (x, out), For(i, as_expr(0), as_expr(4), SERIAL, Store(out, value, (at,))))
    text = assembly(emit(func, target), target)
    assert "vcvtps2dq" in text and "vrndscaleps" not in text and "vcvttps2dq" not in text
