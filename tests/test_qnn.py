"""Quantized operators: what they mean in numpy, with which plain operators they are computed, and what they refuse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tilewright
from codegen_native import on_every_target
from tilewright import relay
from tilewright.base.errors import CompileError, ShapeError
from tilewright.compat.target import Target
from tilewright.compiler.build import build_module
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Call, Expr, Function, Tuple
from tilewright.relay.interpreter import evaluate
from tilewright.relay.op.registry import OPS
from tilewright.relay.qnn import numerics
from tilewright.relay.transform.simplify_inference import simplify_call
from tilewright.relay.visitor import calls

Array = np.ndarray[Any, Any]
qnn = relay.qnn.op
random = np.random.default_rng(11)


def u8(*shape: int) -> Array:
    return random.integers(0, 256, shape).astype(np.uint8)


def s8(*shape: int) -> Array:
    return random.integers(-128, 128, shape).astype(np.int8)


def strays(shape: tuple[int, ...], places: tuple[int, ...]) -> Array:
    """Weights near 90, all but those at `places` within a byte of it."""
    made = random.integers(60, 120, shape).astype(np.uint8)
    made.reshape(-1)[list(places)] = 250
    return made


def sums(*shape: int) -> Array:
    return random.integers(-(1 << 20), 1 << 20, shape).astype(np.int32)


def scale(*values: float) -> Array:
    return np.asarray(values if len(values) > 1 else values[0], np.float32)


def zero(*values: int) -> Array:
    return np.asarray(values if len(values) > 1 else values[0], np.int32)


def scales(n: int) -> Array:
    return random.uniform(0.001, 0.1, n).astype(np.float32)


def _conv(x: Array, w: Array, zx: Array, zw: Array, **attrs: Any) -> tuple[str, list[Array], int, dict[str, Any]]:
    return "conv2d", [x, w, zx, zw, scale(0.1), scale(0.2)], 1, attrs


CASES: list[tuple[str, list[Array], int, dict[str, Any]]] = [
    (
        "quantize", [random.uniform(-40, 40, (2, 3, 5)).astype(np.float32), scale(0.125), zero(7)], 1,
        {"out_dtype": "uint8"}
    ),
    (
        "quantize", [random.uniform(-4, 4, (2, 3, 5)).astype(np.float32), scale(0.5, 0.25, 1), zero(0, -3, 9)], 1,
        {"axis": 1}
    ),
    ("quantize", [random.uniform(-4e9, 4e9, (70,)).astype(np.float32), scale(1.0), zero(0)], 1, {"out_dtype": "int32"}),
    ("dequantize", [u8(2, 3, 5), scale(0.1), zero(128)], 1, {}),
    ("dequantize", [s8(3, 4), scale(0.1, 0.2, 0.3), zero(0, 1, 2)], 1, {"axis": 0}),
    ("dequantize", [sums(3, 4), scale(1e-4), zero(77)], 1, {}),
    *[(
        "requantize", [sums(2, 9, 3), scales(9), zero(0), scale(3.0), zero(-5)], 1,
        {"axis": 1, "rounding": r, "compute_dtype": c, "out_dtype": o}
    )
      for r, c,
      o in (("UPWARD", "int64", "int8"), ("TONEAREST", "int64", "uint8"), (
          "TONEAREST", "float32", "uint8"
      ), ("TOEVEN", "float32", "uint8"), ("TOEVEN", "int64", "int8"),
                      ("UPWARD", "float32", "int8"),
                      ("None", "None", "int8"), ("TONEAREST", "float64", "int16"), ("UPWARD", "int32", "int32"),
                      ("TFLITE", "None", "int8"))],
    (
        "requantize", [sums(2, 9, 3), scales(9) * np.float32(64), zero(0), scale(3.0), zero(-5)], 1,
        {"axis": 1, "rounding": "TFLITE", "out_dtype": "int16"}
    ),
    (
        "requantize", [sums(2, 9).astype(np.int64) << 12, scales(9), zero(0), scale(900.0), zero(0)], 1,
        {"axis": 1, "rounding": "TFLITE", "out_dtype": "int16"}
    ),
    ("requantize", [s8(5, 7), scale(0.5), zero(3), scale(0.5), zero(100)], 1, {"out_dtype": "uint8"}),
    (
        "requantize", [s8(5, 7), scale(9.0), zero(3), scale(0.5), zero(100)], 1,
        {"out_dtype": "int16", "rounding": "TONEAREST"}
    ),
    ("add", [u8(2, 3, 5), u8(2, 1, 5), scale(0.1), zero(3), scale(0.25), zero(120), scale(0.3), zero(9)], 2, {}),
    ("subtract", [s8(2, 3), s8(2, 3), scale(0.1), zero(3), scale(0.25), zero(-12), scale(0.3), zero(0)], 2, {}),
    ("mul", [s8(2, 3, 4), s8(2, 3, 4), scale(0.1), zero(3), scale(0.25), zero(-12), scale(0.3), zero(5)], 2, {}),
    _conv(u8(1, 3, 9, 11), s8(5, 3, 3, 3), zero(0), zero(0), padding=1),
    _conv(u8(2, 6, 7, 9), s8(20, 6, 3, 2), zero(113), zero(0), padding=(1, 0, 2, 1), strides=(2, 1)),
    _conv(s8(1, 8, 5, 5), s8(33, 8, 1, 1), zero(-7), zero(0)),
    _conv(s8(1, 4, 6, 6), u8(3, 4, 3, 3) // 2 + 64, zero(5), zero(128), padding=1, dilation=2),
    _conv(u8(1, 4, 6, 6), s8(3, 4, 3, 3), zero(5), zero(17), padding=1),
    _conv(u8(1, 4, 6, 6), u8(3, 4, 3, 3), zero(5), zero(117), padding=1),  # weights of one bit more than a byte
    # one or two weights wider than a byte
    _conv(u8(1, 24, 5, 4), strays((8, 24, 1, 1), (3, 17)), zero(5), zero(90)),
    _conv(
        u8(1, 9, 11, 8), strays((2, 3, 8, 6), (5, 100)), zero(5), zero(90), strides=(2, 1), dilation=(1, 2),
        data_layout="NHWC", kernel_layout="HWIO"
    ),
    _conv(
        u8(1, 9, 11, 3), strays((3, 3, 3, 6), (161,)), zero(5), zero(90), padding=1, strides=2, data_layout="NHWC",
        kernel_layout="HWIO"
    ),
    _conv(u8(1, 3, 9, 11), strays((6, 3, 3, 3), (0,)), zero(5), zero(90), padding=1, strides=2),
    ("dense", [u8(5, 20), strays((7, 20), (41, 40)), zero(3), zero(90), scale(0.1), scale(0.2)], 1, {}),
    # runs of rows: few channels behind each other, or planes
    _conv(u8(1, 9, 11, 3), s8(3, 3, 3, 20), zero(113), zero(0), padding=1, data_layout="NHWC", kernel_layout="HWIO"),
    _conv(
        s8(2, 9, 12, 1), s8(5, 4, 1, 8), zero(-3), zero(0), padding=(2, 1, 1, 2), strides=2, data_layout="NHWC",
        kernel_layout="HWIO"
    ),
    _conv(
        s8(1, 8, 10, 3), s8(17, 3, 3, 3), zero(0), zero(0), padding=(0, 0, 1, 1), strides=(2, 2), data_layout="NHWC",
        kernel_layout="OHWI"
    ),
    _conv(u8(1, 8, 10, 5), u8(3, 2, 5, 6), zero(0), zero(99), strides=(1, 3), data_layout="NHWC", kernel_layout="HWIO"),
    _conv(
        u8(1, 9, 9, 2), s8(3, 3, 2, 4), zero(9), zero(0), padding=2, dilation=(2, 1), data_layout="NHWC",
        kernel_layout="HWIO"
    ),
    _conv(u8(1, 3, 15, 14), s8(9, 3, 7, 7), zero(120), zero(0), padding=3, strides=2),
    _conv(s8(2, 1, 8, 9), s8(6, 1, 2, 5), zero(4), zero(0), strides=(1, 2)),
    _conv(u8(1, 2, 8, 9), s8(6, 2, 3, 4), zero(0), zero(0), padding=(1, 2, 0, 1), dilation=(2, 1)),
    _conv(u8(1, 24, 9, 7), s8(24, 1, 3, 3), zero(31), zero(0), padding=1, groups=24),
    _conv(u8(1, 8, 6, 6), s8(12, 4, 3, 3), zero(3), zero(0), padding=1, groups=2),
    _conv(u8(1, 9, 11, 5), s8(3, 3, 5, 7), zero(40), zero(0), padding=1, data_layout="NHWC", kernel_layout="HWIO"),
    ("dense", [u8(7, 30), s8(19, 30), zero(9), zero(0), scale(0.1), scales(19)], 1, {"units": 19}),
    ("dense", [s8(2, 3, 8), s8(70, 8), zero(9), zero(0), scale(0.1), scale(0.1)], 1, {}),
    ("dense", [u8(1, 64), u8(10, 64), zero(9), zero(200), scale(0.1), scale(0.1)], 1, {}),
    *[
        (name, [x, scale(0.05), zero(12), scale(0.02), zero(-3)], 1, {})
        for name in ("tanh", "sigmoid", "exp", "erf", "abs", "hardswish") for x in (u8(2, 70), s8(3, 5))
    ],
    *[(name, [u8(2, 70), scale(0.05), zero(-1), scale(0.02), zero(3)], 1, {}) for name in ("log", "sqrt", "rsqrt")],
    ("log", [s8(9), scale(0.1), zero(0), scale(0.02), zero(3)], 1, {}),
    ("leaky_relu", [s8(2, 5), scale(0.05), zero(12), scale(0.02), zero(-3)], 1, {"alpha": 0.1}),
    ("leaky_relu", [s8(2, 5), scale(0.05), zero(12), scale(0.02), zero(-3)], 5, {"alpha": 0.1}),
    ("softmax", [s8(2, 5), scale(0.05), zero(12), scale(1 / 256), zero(-128)], 1, {"axis": 1}),
    (
        "avg_pool2d", [u8(1, 5, 6, 3), scale(0.05), zero(12), scale(0.02), zero(-3)], 1,
        {"pool_size": 3, "strides": 2, "padding": 1}
    ),
    (
        "simulated_quantize",
        [
            random.uniform(-40, 40, (2, 3, 5)).astype(np.float32), np.asarray(1, np.int32), scale(0.125, 0.5, 0.25),
            zero(7)
        ], 1, {"axis": 1}
    ),
    (
        "simulated_quantize",
        [random.uniform(-40, 40, (2, 3)).astype(np.float32), np.asarray(0, np.int32), scale(0.125), zero(7)], 1, {}
    ),
    (
        "simulated_dequantize",
        [random.integers(0, 256, (2, 3)).astype(np.float32), np.asarray(2, np.int32), scale(0.125), zero(7)], 1, {}
    ),
    (
        "conv2d_transpose", [u8(1, 3, 4, 5), s8(3, 4, 3, 3), zero(9), zero(-4), scale(0.1), scale(0.1)], 1,
        {"strides": 2, "padding": 1, "output_padding": 1}
    ),
    (
        "conv2d_transpose", [s8(1, 3, 4, 2), s8(2, 2, 5, 2), zero(9), zero(0), scale(0.1), scales(5)], 1,
        {"strides": 2, "data_layout": "NHWC", "kernel_layout": "HWOI"}
    ),
    ("batch_matmul", [u8(2, 3, 6), s8(2, 5, 6), zero(9), zero(-4), scale(0.1), scale(0.1)], 2, {}),
]


def names(case: Any) -> str:
    name, inputs, _, attrs = case
    return f"{name}-{inputs[0].dtype}{list(inputs[0].shape)}-{attrs}".replace(" ", "")


cases = pytest.mark.parametrize("case", CASES, ids=names)


def built(case: Any) -> tuple[Function, list[Array], Array]:
    """The call with its data as parameters and the rest as constants, the data, and the answer of the reference."""
    name, inputs, count, attrs = case
    params = [relay.var(f"x{k}", shape=a.shape, dtype=str(a.dtype)) for k, a in enumerate(inputs[:count])]
    call = OPS["qnn." + name](**attrs)(*params, *map(relay.const, inputs[count:]))
    return Function(tuple(params), call), inputs[:count], OPS["qnn." + name](**attrs).reference(*inputs)


@cases
def test_type_and_meaning_agree(case: Any) -> None:
    function, _, wanted = built(case)
    assert function.body.tensor_type.shape == wanted.shape
    assert function.body.tensor_type.dtype == str(wanted.dtype)


@cases
def test_plain_operators_mean_the_same(case: Any) -> None:
    function, data, wanted = built(case)
    plain = simplify_call(function.body)
    if case[0].startswith("simulated"):  # tensor expressions, not plain operators
        assert plain is None
        return
    assert plain is not None
    assert "qnn." not in repr(plain)
    np.testing.assert_array_equal(evaluate(Function(function.params, plain), *data), wanted)


@pytest.mark.sampled(80)
@cases
@on_every_target
def test_compiled(case: Any, target: Target) -> None:
    function, data, wanted = built(case)
    artifact = build_module(IRModule.from_expr(function), target)
    found = artifact.executable(threads=1)(*data)
    if wanted.dtype.kind == "f":
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    elif case[0] in ("quantize", "softmax", "avg_pool2d") or len(data) == 5:  # division by a constant is a multiplication  # noqa: E501
        assert np.abs(found.astype(np.int64) - wanted).max() <= max(1, np.abs(wanted.astype(np.int64)).max() >> 22)
    else:
        np.testing.assert_array_equal(found, wanted)


def test_every_quantized_operator_is_tested() -> None:
    assert {n for n in OPS if n.startswith("qnn.")} == {f"qnn.{c[0]}" for c in CASES} | {"qnn.concatenate"}


def test_the_reference_of_a_convolution_is_the_definition() -> None:
    x, w, zx, zw = u8(1, 2, 4, 5), s8(3, 2, 3, 3), 9, np.asarray([0, 3, -4])
    padded = np.pad(x.astype(np.int64) - zx, [(0, 0), (0, 0), (1, 1), (1, 1)])
    shifted = w.astype(np.int64) - zw.reshape(3, 1, 1, 1)
    wanted = np.zeros((1, 3, 4, 5), np.int32)
    for o, i, j in np.ndindex(3, 4, 5):
        wanted[0, o, i, j] = (padded[0, :, i : i + 3, j : j + 3] * shifted[o]).sum()
    found = OPS["qnn.conv2d"](padding=1).reference(x, w, zero(zx), zw.astype(np.int32), scale(1.0), scale(1.0))
    np.testing.assert_array_equal(found, wanted)


def test_requantize_rounds_as_it_says() -> None:
    halves = np.asarray([-3, -1, 1, 3, 5], np.int32)
    wanted = {("UPWARD", "int64"): [-1, 0, 1, 2, 3], (
        "TONEAREST", "int64"
    ): [-2, -1, 1, 2, 3], ("UPWARD", "float32"): [-1, 0, 1, 2, 3],
              ("TONEAREST", "float32"): [-2, -1, 1, 2, 3], ("TONEAREST", "float64"): [-2, -1, 1, 2, 3],
              ("TOEVEN", "float32"): [-2, 0, 0, 2, 2], ("TOEVEN", "int64"): [-2, 0, 0, 2, 2]}
    for (rounding, kind), numbers in wanted.items():
        op = OPS["qnn.requantize"](rounding=rounding, compute_dtype=kind)
        given = (halves, scale(0.5), zero(0), scale(1.0), zero(0))
        assert op.reference(*given).tolist() == numbers
        x = relay.var("x", shape=(5,), dtype="int32")
        body = relay.qnn.op.requantize(x, *map(relay.const, given[1:]), rounding=rounding, compute_dtype=kind)
        assert tilewright.compile(IRModule.from_expr(Function([x], body)))(halves).tolist() == numbers


def test_tensorflow_lite_rounds_twice() -> None:
    """To 32 bits with halves upward, then with halves away from zero; sums of 64 bits once, by a number of 15 bits."""
    op = OPS["qnn.requantize"](rounding="TFLITE", out_dtype="int32")
    for numbers, factor, wanted in (
        ([-3, -1, 1, 3, 5], 0.5, [-1, 0, 1, 2, 3]), ([-6, -2, 2, 6], 0.25, [-2, -1, 1, 2]),
        ([-5, -3, 3, 5], 0.25, [-1, -1, 1, 2]), ([-7, 9], 4.0, [-28, 36]),
    ):
        assert op.reference(
            np.asarray(numbers, np.int32), np.asarray(factor), zero(0), np.asarray(1.0), zero(0)
        ).tolist() == wanted
    assert op.reference(
        np.asarray([-(1 << 40), 3 << 38], np.int64), np.asarray(2.0**-20), zero(0), np.asarray(1.0), zero(0)
    ).tolist() == [-(1 << 20), 3 << 18]


def test_fixed_point_numbers_are_those_of_gemmlowp() -> None:
    assert numerics.fixed_point(0.5) == (1 << 30, 0)
    assert numerics.fixed_point(1.0) == (1 << 30, 1)
    assert numerics.fixed_point(0.3) == (1288490189, -1)
    assert numerics.fixed_point(1 - 2.0**-40) == (1 << 30, 1)
    assert numerics.fixed_point(0.0) == (0, 0)
    assert numerics.fixed_point(2.0**-40) == (0, 0)


def test_concatenate_requantizes_each_part() -> None:
    parts, factors, zeros = [u8(2, 3), u8(2, 4)], [scale(0.5), scale(0.25)], [zero(3), zero(10)]
    params = [relay.var(f"x{k}", shape=p.shape, dtype="uint8") for k, p in enumerate(parts)]

    def constants(values: Sequence[Array]) -> Expr:
        return Tuple(tuple(map(relay.const, values)))

    call: Call = qnn.concatenate(
        Tuple(tuple(params)), constants(factors), constants(zeros), relay.const(scale(0.5)), relay.const(zero(3)),
        axis=1
    )
    half = np.clip(np.floor((parts[1].astype(np.int64) - 10) / 2 + 0.5) + 3, 0, 255).astype(np.uint8)
    wanted = np.concatenate([parts[0], half], axis=1)
    np.testing.assert_array_equal(call.op.reference(parts, factors, zeros, scale(0.5), zero(3)), wanted)
    simpler = simplify_call(call)
    assert simpler is not None
    np.testing.assert_array_equal(evaluate(Function(tuple(params), simpler), *parts), wanted)
    np.testing.assert_array_equal(
        build_module(IRModule.from_expr(Function(tuple(params), call))).executable(threads=1)(*parts), wanted
    )


X = relay.var("x", shape=(1, 4, 5, 5), dtype="uint8")
W = relay.const(s8(3, 4, 1, 1))
ONE, NONE = relay.const(scale(1.0)), relay.const(zero(0))


@pytest.mark.parametrize(("make", "message"), [
    (lambda: qnn.quantize(X, ONE, NONE), "data must be float32, and it is uint8"),
    (
        lambda: qnn.quantize(relay.var("y", shape=(2,)), ONE, NONE, out_dtype="float32"),
        "out_dtype is float32; it must be one of int8"
    ),
    (lambda: qnn.dequantize(relay.var("y", shape=(2,)), ONE, NONE), "data must be quantized"),
    (
        lambda: qnn.dequantize(X, relay.const(scales(3)), NONE, axis=1),
        "must be one number, or 4, one for each element of axis 1"
    ),
    (lambda: qnn.dequantize(X, NONE, NONE), "input_scale must be a tensor of float32"),
    (
        lambda: qnn.requantize(X, ONE, NONE, ONE, NONE, rounding="DOWN"),
        "rounding is 'DOWN'; it must be one of UPWARD, TONEAREST, TOEVEN"
    ),
    (
        lambda: qnn.requantize(X, ONE, NONE, ONE, NONE, compute_dtype="bool"),
        "compute_dtype is 'bool'; it must be one of"
    ),
    (
        lambda: qnn.conv2d(X, W, relay.const(zero(1, 2, 3, 4)), NONE, ONE, ONE),
        "the input's zero point must be one number"
    ),
    (lambda: qnn.conv2d(X, W, NONE, relay.const(zero(1, 2)), ONE, ONE), "kernel_zero_point must be one number, or 3"),
    (
        lambda: qnn.concatenate(Tuple((X, X)), Tuple((ONE,)), Tuple((NONE, NONE)), ONE, NONE),
        "must be tuples of one length"
    ),
])
def test_what_is_refused(make: Any, message: str) -> None:
    with pytest.raises((CompileError, ShapeError), match=message.replace("(", r"\(")):
        make()


def test_integers_need_constant_scales() -> None:
    s = relay.var("s", shape=(), dtype="float32")
    call = qnn.requantize(X, s, NONE, ONE, NONE)
    with pytest.raises(CompileError, match='needs constant scales; give compute_dtype="float32" for others'):
        simplify_call(call)


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("name", ["dense", "conv2d", "conv2d of planes"])
def test_products_of_bytes_whose_zero_point_is_computed(name: str, kind: str) -> None:
    """As dynamic quantization has them: bytes are multiplied, and the zero point, times the sums of the weights, is
    taken back."""
    make = u8 if kind == "uint8" else s8
    data, weight = (make(3, 22), s8(9, 22)) if name == "dense" else (
        make(1, 8 if name == "conv2d" else 3, 7, 6), s8(5, 8 if name == "conv2d" else 3, 3, 3)
    )
    x, zx = relay.var("x", shape=data.shape, dtype=kind), relay.var("z", shape=(), dtype="int32")
    attrs = {} if name == "dense" else {"padding": 1}
    call = OPS["qnn." + name.split(maxsplit=1)[0]](**attrs)(
        x, *map(relay.const, (weight,)), zx, *map(relay.const, (zero(0), scale(1.0), scale(1.0)))
    )
    plain = simplify_call(call)
    assert plain is not None
    products = [c for c in calls(plain) if c.op.name in ("nn.dense", "nn.conv2d")]
    assert [c.args[0].tensor_type.dtype for c in products] == ["uint8"]
    for value in (zero(0), zero(17)):
        wanted = evaluate(Function((x, zx), call), data, value)
        np.testing.assert_array_equal(evaluate(Function((x, zx), plain), data, value), wanted)
        np.testing.assert_array_equal(
            build_module(
                IRModule.from_expr(Function((x, zx), call)), Target("llvm")
            ).executable(threads=1)(data, value), wanted
        )


def test_weights_beyond_a_byte_and_rows_that_are_open() -> None:
    weight = strays((7, 20), (41, 40))
    x = relay.var("x", shape=(relay.Any(), 20), dtype="uint8")
    call = OPS["qnn.dense"]()(x, *map(relay.const, (weight, zero(3), zero(90), scale(1.0), scale(1.0))))
    plain, data = simplify_call(call), u8(5, 20)
    assert plain is not None
    assert [c.op.name for c in calls(plain)].count("nn.dense") == 2
    np.testing.assert_array_equal(
        evaluate(Function((x,), plain), data), (data.astype(int) - 3) @ (weight.astype(int) - 90).T
    )


@pytest.mark.parametrize("scale", [-0.3, -0.0932, -1.7, (0.3, -0.3)])
def test_tensorflow_lite_rounds_by_negative_scales(scale: Any) -> None:
    """The sign that the second rounding asks for is that of the product."""
    values = np.arange(-80, 80, dtype=np.int32).reshape(80, 2)
    x = relay.var("x", shape=values.shape, dtype="int32")
    call = qnn.requantize(
        x, relay.const(np.asarray(scale)), relay.const(0), relay.const(np.asarray(1.0)), relay.const(0), axis=1,
        rounding="TFLITE", out_dtype="int32"
    )
    function = Function((x,), call)
    wanted = evaluate(IRModule({"main": function}), values)
    assert np.abs(wanted - values * np.asarray(scale)).max() < 1
    np.testing.assert_array_equal(np.asarray(tilewright.compile(function, threads=1)(values)), wanted)


@pytest.mark.parametrize("kind", ["dense", "conv2d"])
def test_sums_of_64_bits(kind: str) -> None:
    """Products of int16 have int64 sums, beyond 32 bits, whose requantization does not overflow."""
    rng = np.random.default_rng(8)
    channels = 640
    x = relay.var("x", shape=(1, channels) if kind == "dense" else (1, 2, 2, channels), dtype="int16")
    weight = rng.integers(100, 127, (5, channels) if kind == "dense" else (1, 1, channels, 5), np.int8)
    quantization = [relay.const(v, t) for v, t in ((3, "int32"), (0, "int32"), (0.5, "float32"), (0.25, "float32"))]
    if kind == "dense":
        total = relay.qnn.op.dense(x, relay.const(weight), *quantization, units=5, out_dtype="int64")
    else:
        total = relay.qnn.op.conv2d(
            x, relay.const(weight), *quantization, kernel_size=(1, 1), channels=5, data_layout="NHWC",
            kernel_layout="HWIO", out_dtype="int64")
    scales = [relay.const(v, t) for v, t in ((0.125, "float32"), (0, "int32"), (12000.0, "float32"), (0, "int32"))]
    function = relay.Function([x], relay.Tuple([total, relay.qnn.op.requantize(total, *scales, out_dtype="int16")]))
    data: Any = rng.integers(30000, 32767, x.tensor_type.concrete_shape, np.int64).astype(np.int16)
    rows = data.reshape(-1, channels).astype(np.int64) - 3
    wanted = rows @ (weight.T if kind == "dense" else weight[0, 0]).astype(np.int64)
    assert np.abs(wanted).min() > 2**31
    for executor in ("graph", "debug"):
        sums, scaled = relay.create_executor(executor, IRModule.from_expr(function)).evaluate()(data)
        np.testing.assert_array_equal(sums.numpy().reshape(wanted.shape), wanted)
        np.testing.assert_allclose(scaled.numpy().reshape(wanted.shape), wanted * 0.125 / 12000, rtol=5e-5, atol=1)
    with pytest.raises(ShapeError, match="data must be quantized"):
        relay.transform.InferType()(IRModule.from_expr(
            relay.qnn.op.requantize(total, *scales, compute_dtype="float32", out_dtype="int16")))


def test_depthwise_weights_with_a_multiplier() -> None:
    """HWOI of a depthwise convolution: (height, width, channel, multiplier), as in TVM."""
    rng = np.random.default_rng(9)
    data, weight = rng.standard_normal((1, 5, 6, 4)), rng.standard_normal((3, 3, 4, 3))
    x = relay.var("x", shape=(1, 5, 6, 4), dtype="float64")
    call = relay.nn.conv2d(x, relay.Constant(weight), padding=(1, 1), kernel_size=(3, 3), channels=12, groups=4,
                           data_layout="NHWC", kernel_layout="HWOI")
    padded, wanted = np.pad(data, ((0, 0), (1, 1), (1, 1), (0, 0))), np.zeros((1, 5, 6, 4, 3))
    for i, j in np.ndindex(3, 3):
        wanted += padded[:, i:i + 5, j:j + 6, :, None] * weight[i, j]
    found = relay.create_executor("graph", IRModule.from_expr(call)).evaluate()(data).numpy()
    np.testing.assert_allclose(found, wanted.reshape(1, 5, 6, 12), rtol=1e-9)
