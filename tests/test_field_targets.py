"""The tables of Arm Compute Library, Ethos-N, Ethos-U, BNNS and CMSIS-NN: what each row takes, and what each rule says
of what it does not."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import relay
from tilewright.backends.accelerators.library_calls import stand_in
from tilewright.base.errors import OptionError
from tilewright.base.plugins import FIELD_TARGETS
from tilewright.ir import IRModule
from tilewright.relay import transform
from tilewright.relay.op.contrib import Refusal, arm_compute_lib, get_pattern_table, partition_for, register_partitioner
from tilewright.relay.op.contrib.bnns import partition_for_bnns
from tilewright.relay.op.contrib.cmsisnn import partition_for_cmsisnn
from tilewright.relay.op.contrib.ethosn import partition_for_ethosn, partition_for_ethosn77, partition_for_ethosn78
from tilewright.relay.visitor import post_order

Q = relay.qnn.op


def F(value: float) -> relay.Constant:
    return relay.const(np.float32(value))


def N(value: int) -> relay.Constant:
    return relay.const(np.int32(value))


def image(*shape: int, dtype: str = "uint8") -> relay.Var:
    return relay.var("x", shape=shape or (1, 8, 8, 4), dtype=dtype)


def weight(*shape: int, dtype: str = "int8") -> relay.Constant:
    return relay.Constant(np.ones(shape, dtype))


def requantized(e: Any, dtype: str = "uint8", scale: float = 0.5) -> Any:
    return Q.requantize(e, F(0.25), N(0), F(scale), N(3), axis=3, out_dtype=dtype)


def conv(
    x: Any, kernel: tuple[int, ...] = (3, 3, 4, 8), dtype: str = "uint8", zero: int = 0, axis: int = 3, **attrs: Any
) -> Any:
    given = {"channels": kernel[3], "kernel_size": kernel[:2], "data_layout": "NHWC", "kernel_layout": "HWIO", **attrs}
    y = Q.conv2d(x, weight(*kernel), N(7), N(zero), F(0.5), F(0.25), **given)
    return requantized(relay.nn.bias_add(y, relay.const(np.arange(kernel[3], dtype="int32")), axis=axis), dtype)


def two(name: str, a: Any, b: Any, zeros: tuple[int, int, int] = (1, 2, 3)) -> Any:
    first, second, third = map(N, zeros)
    return getattr(Q, name)(a, b, F(0.5), first, F(0.25), second, F(0.75), third)


def real(f: Callable[[Any], Any], x: Any, scale: float, zero: int, dtype: str = "uint8") -> Any:
    return Q.quantize(f(Q.dequantize(x, F(0.1), N(5))), F(scale), N(zero), out_dtype=dtype)


def dense(x: Any, dtype: str = "uint8") -> Any:
    return requantized(Q.dense(x, weight(6, 4), N(7), N(0), F(0.5), F(0.25), units=6), dtype)


def transposed(x: Any, strides: tuple[int, int] = (2, 2)) -> Any:
    return requantized(Q.conv2d_transpose(
        x, weight(2, 2, 8, 4), N(7), N(0), F(0.5), F(0.25), strides=strides, channels=8, kernel_size=(2, 2),
        data_layout="NHWC", kernel_layout="HWOI"))


def pooled(x: Any, **attrs: Any) -> Any:
    given = {"pool_size": (2, 2), "strides": (2, 2), "layout": "NHWC", **attrs}
    return relay.cast(relay.nn.avg_pool2d(relay.cast(x, "int32"), **given), str(x.type_annotation.dtype))


def quantized_pool(x: Any, scale: float = 0.5) -> Any:
    return Q.avg_pool2d(
        x, F(0.5), N(1), F(scale), N(1), pool_size=(2, 2), strides=(2, 2), padding=(0, 0, 0, 0), layout="NHWC"
    )


def max_pool(x: Any, **attrs: Any) -> Any:
    return relay.nn.max_pool2d(x, **{"pool_size": (2, 2), "strides": (2, 2), "layout": "NHWC", **attrs})


def mean(x: Any, axis: tuple[int, ...] = (1, 2)) -> Any:
    return requantized(relay.mean(relay.cast(x, "int32"), axis=axis, keepdims=True))


def padded(x: Any, value: float = 7.0, widths: Any = ((0, 0), (1, 1), (1, 1), (0, 0))) -> Any:
    return relay.nn.pad(x, pad_width=widths, pad_value=value)


def resized(x: Any, size: tuple[int, int] = (16, 16)) -> Any:
    return relay.image.resize2d(
        x, size=size, layout="NHWC", method="nearest_neighbor", rounding_method="",
        coordinate_transformation_mode="asymmetric", out_dtype="uint8"
    )


x8, other = image(), relay.var("y", shape=(1, 8, 8, 4), dtype="uint8")
signed, signed_other = image(dtype="int8"), relay.var("y", shape=(1, 8, 8, 4), dtype="int8")
wide, wide_other = image(dtype="int16"), relay.var("y", shape=(1, 8, 8, 4), dtype="int16")
ETHOS_N: dict[str, Callable[[], Any]] = {
    "qnn_conv2d": lambda: conv(padded(x8)),
    "qnn_conv2d_transpose": lambda: transposed(x8),
    "qnn_fc": lambda: dense(image(1, 4)),
    "qnn_avg_pool2d": lambda: pooled(x8),
    "qnn_mean": lambda: mean(image(1, 7, 7, 4)),
    "qnn_sigmoid": lambda: real(relay.sigmoid, x8, 1 / 256, 0),
    "qnn_tanh": lambda: real(relay.tanh, x8, 1 / 128, 128),
    "qnn_leaky_relu": lambda: real(lambda v: relay.nn.leaky_relu(v, 0.1), x8, 0.1, 5),
    "qnn_resize": lambda: resized(x8),
    "qnn_requantize": lambda: requantized(x8),
    "qnn_add": lambda: two("add", x8, other),
    "qnn_add_to_depthwise": lambda: two("add", x8, weight(1, 1, 1, 4, dtype="uint8")),
    "qnn_add_to_reinterpret_quantize": lambda: two("add", x8, weight(1, 1, 1, 1, dtype="uint8")),
    "qnn_mul_to_depthwise": lambda: two("mul", x8, weight(4, dtype="uint8")),
    "qnn_mul_to_reinterpret_quantize": lambda: two("mul", x8, weight(dtype="uint8")),
    "max_pool2d": lambda: max_pool(x8),
    "concatenate": lambda: relay.concatenate([x8, other], axis=3),
    "depth_to_space": lambda: relay.nn.depth_to_space(x8, 2, layout="NHWC"),
    "split": lambda: relay.split(x8, 2, axis=3)[0],
    "reshape": lambda: relay.reshape(x8, (1, 64, 4)),
    "clip": lambda: relay.clip(x8, 1.0, 100.0),
}
CMSIS_NN: dict[str, Callable[[], Any]] = {
    "qnn_conv2d": lambda: conv(signed, dtype="int8"),
    "qnn_fully_connected": lambda: dense(image(1, 4, dtype="int8"), "int8"),
    "qnn_avg_pool2d": lambda: quantized_pool(signed),
    "qnn_max_pool2d": lambda: relay.clip(max_pool(signed), 0.0, 100.0),
    "qnn_add": lambda: two("add", signed, signed_other),
    "qnn_mul": lambda: two("mul", signed, signed_other),
    "qnn_softmax": lambda: real(relay.nn.softmax, image(1, 4, dtype="int8"), 1 / 256, -128, "int8"),
}
ETHOS_U: dict[str, Callable[[], Any]] = {
    "conv2d": lambda: conv(padded(signed), dtype="int8"),
    "fully_connected": lambda: dense(image(1, 4, dtype="int8"), "int8"),
    "avg_pool2d": lambda: quantized_pool(signed),
    "max_pool2d": lambda: max_pool(signed),
    "add": lambda: two("add", signed, signed_other),
    "mul": lambda: two("mul", signed, signed_other),
    "reshape": lambda: relay.reshape(signed, (1, 64, 4)),
    "softmax": lambda: Q.softmax(image(1, 4, dtype="int8"), F(0.1), N(5), F(1 / 256), N(-128)),
}
f4, f2 = relay.var("x", shape=(1, 4, 8, 8)), relay.var("x", shape=(2, 4))


def conv_f(groups: int = 1, **attrs: Any) -> Any:
    return relay.nn.conv2d(
        f4, weight(8, 4 // groups, 3, 3, dtype="float32"), channels=8, kernel_size=(3, 3), groups=groups, **attrs
    )


def biased(e: Any, axis: int = 1) -> Any:
    return relay.nn.bias_add(e, weight(8, dtype="float32"), axis=axis)


def gelu(e: Any) -> Any:
    return e * (relay.erf(e * relay.const(0.7071068)) * relay.const(0.5) + relay.const(0.5))


def dense_f() -> relay.Call:
    return relay.nn.dense(f2, weight(8, 4, dtype="float32"))


BNNS: dict[str, Callable[[], Any]] = {
    "conv2d": conv_f,
    "conv2d_bias": lambda: biased(conv_f()),
    "conv2d_relu": lambda: relay.nn.relu(conv_f()),
    "conv2d_sigmoid": lambda: relay.sigmoid(conv_f()),
    "conv2d_bias_relu": lambda: relay.nn.relu(relay.add(conv_f(), weight(8, 1, 1, dtype="float32"))),
    "conv2d_bias_sigmoid": lambda: relay.sigmoid(biased(conv_f())),
    "dense": dense_f,
    "dense_bias": lambda: biased(dense_f()),
    "dense_gelu": lambda: gelu(dense_f()),
    "dense_bias_gelu": lambda: gelu(biased(dense_f())),
    "batch_matmul": lambda: relay.nn.batch_matmul(relay.var("a", shape=(2, 3, 4)), relay.var("b", shape=(2, 5, 4))),
    "max_pool2d": lambda: relay.nn.max_pool2d(f4, pool_size=(2, 2)),
    "avg_pool2d": lambda: relay.nn.avg_pool2d(f4, pool_size=(2, 2)),
    "global_max_pool2d": lambda: relay.nn.global_max_pool2d(f4),
    "global_avg_pool2d": lambda: relay.nn.global_avg_pool2d(f4),
    "instance_norm": lambda: relay.nn.instance_norm(f4, weight(4, dtype="float32"), weight(4, dtype="float32")),
}
image_f = relay.var("x", shape=(1, 8, 8, 4))


def conv_l(groups: int = 1, size: int = 3, **attrs: Any) -> Any:
    """In float32, channels last."""
    kernel = (size, size, 4, 1) if groups == 4 else (size, size, 4 // groups, 8)
    given = {
        "channels": 4 if groups == 4 else 8, "kernel_size": (size, size), "groups": groups, "data_layout": "NHWC",
        "kernel_layout": "HWOI" if groups == 4 else "HWIO", **attrs
    }
    return relay.nn.conv2d(
        attrs.pop("source", image_f), weight(*kernel, dtype="float32"),
        **{k: v for k, v in given.items() if k != "source"}
    )


def pool_l(x: Any, **attrs: Any) -> Any:
    return relay.nn.avg_pool2d(x, **{"pool_size": (2, 2), "layout": "NHWC", **attrs})


ACL: dict[str, Callable[[], Any]] = {
    "conv2d": lambda: relay.nn.relu(biased(conv_l(source=padded(image_f, 0.0)), axis=3)),
    "qnn_conv2d": lambda: conv(padded(x8)),
    "dense": lambda: biased(dense_f()),
    "qnn_dense": lambda: dense(image(1, 4)),
    "l2_pool2d": lambda: relay.sqrt(pool_l(relay.power(image_f, relay.const(2.0)))),
    "avg_pool2d": lambda: pooled(x8),
    "max_pool2d": lambda: max_pool(image_f),
    "global_max_pool2d": lambda: relay.nn.global_max_pool2d(image_f, layout="NHWC"),
    "global_avg_pool2d": lambda: relay.nn.global_avg_pool2d(image_f, layout="NHWC"),
    "reshape": lambda: relay.reshape(image_f, (1, 256)),
    "maximum": lambda: relay.maximum(image_f, relay.var("y", shape=(1, 8, 8, 4))),
    "add": lambda: relay.add(image_f, relay.var("y", shape=(1, 8, 8, 4))),
    "qnn_add": lambda: two("add", x8, other),
}
TABLES = (("arm_compute_lib", ACL), ("ethos-n", ETHOS_N), ("ethos-u", ETHOS_U), ("cmsis-nn", CMSIS_NN), ("bnns", BNNS))
ROWS = [(t, name, make) for t, rows in TABLES for name, make in rows.items()]


def composites(mod: IRModule) -> list[str]:
    return [
        str(e.attrs["Composite"]) for _,
        f in mod.items() for e in post_order(f) if isinstance(e, relay.Function) and "Composite" in e.attrs
    ]


def left(mod: IRModule) -> list[str]:
    """The operators that the host computes."""
    done = {
        e for f in post_order(mod["main"]) if isinstance(f, relay.Function) and "Composite" in f.attrs
        for e in post_order(f)
    }
    return [
        e.op.name for e in post_order(mod["main"]) if isinstance(e, relay.Call) and hasattr(e.op, "name")
        and e not in done
    ]


@pytest.mark.parametrize(("target", "name", "make"), ROWS, ids=[f"{t}.{n}" for t, n, _ in ROWS])
def test_what_each_row_takes(target: str, name: str, make: Callable[[], Any]) -> None:
    mod = partition_for(target, IRModule.from_expr(make()))
    assert composites(mod) == [f"{target}.{name}"]
    assert left(mod) == []
    assert [f.attrs["Compiler"] for n, f in mod.items() if n != "main"] == [target]


def test_every_row_has_an_example() -> None:
    for target, rows in TABLES:
        table = get_pattern_table(target)
        assert table is not None
        assert {row[0] for row in table} == {f"{target}.{name}" for name in rows}


def test_rows_of_the_compute_library_that_are_left_to_others() -> None:
    joined = relay.concatenate([relay.reshape(image_f, (1, 256)), relay.reshape(image_f, (1, 256))], axis=1)
    mod = IRModule.from_expr(joined)
    assert left(arm_compute_lib.partition_for_arm_compute_lib(mod)) == ["concatenate"]
    whole = arm_compute_lib.partition_for_arm_compute_lib(mod, disabled_ops=())
    assert sorted(composites(whole)) == ["arm_compute_lib.concatenate", *["arm_compute_lib.reshape"] * 2]
    x = np.arange(256, dtype=np.float32).reshape(1, 8, 8, 4)
    with stand_in("arm_compute_lib"):
        assert arm_compute_lib.is_arm_compute_runtime_enabled()
        got = tilewright.compile(whole)(x)
    assert not arm_compute_lib.is_arm_compute_runtime_enabled()
    np.testing.assert_array_equal(got, np.tile(x.reshape(1, 256), 2))
    kept = arm_compute_lib.partition_for_arm_compute_lib(mod, disabled_ops=["concatenate", "reshape"])
    assert composites(kept) == []


REFUSED: list[tuple[str, Callable[[], Any], str, str]] = [
    (
        "ethos-n", lambda: conv(image(1, 4, 8, 8), data_layout="NCHW", axis=1),
        "data_layout of qnn.conv2d is NCHW; it must be NHWC", "run transform.ConvertLayout"
    ),
    *((
        t, lambda d=d: conv(image(1, 8, 8, 8, dtype=d), kernel=(3, 3, 8, 8), padding=(1, 1), dtype=d, axis=2),
        "nn.bias_add adds along axis 2 of qnn.conv2d", "make axis 3"
    )
      for t, d in (("ethos-n", "uint8"), ("ethos-u", "int8"), ("arm_compute_lib", "uint8"), ("cmsis-nn", "int8"))),
    (
        "bnns",
        lambda: biased(relay.nn.conv2d(f4, weight(8, 4, 1, 1, dtype="float32"), channels=8, kernel_size=(1, 1)), 2),
        "nn.bias_add adds along axis 2 of nn.conv2d", "make axis 1"
    ),
    (
        "bnns", lambda: biased(relay.nn.dense(relay.var("x", shape=(8, 4)), weight(8, 4, dtype="float32")), 0),
        "nn.bias_add adds along axis 0 of nn.dense", "make axis 1"
    ),
    (
        "ethos-n", lambda: conv(x8, dtype="int32"), "the result is int32; it must be uint8 or int8",
        "convert the result to uint8"
    ),
    (
        "ethos-n", lambda: conv(image(2, 8, 8, 4)), "the input has a batch of 2; it must be 1",
        "compile the network for a batch of 1"
    ),
    (
        "ethos-n", lambda: conv(x8, kernel=(4, 4, 4, 8)), r"kernel_size of qnn.conv2d is \(4, 4\); each must be one of",
        "make kernel_size one of"
    ),
    (
        "ethos-n", lambda: conv(x8, zero=3),
        "the zero point of the weight of qnn.conv2d, of signed bytes, is 3; it must be 0",
        "quantize the weight around 0"
    ),
    (
        "ethos-n", lambda: conv(x8, strides=(3, 3)), r"strides of qnn.conv2d are \(3, 3\); they must be 1 or 2",
        "make strides 1 or 2"
    ),
    (
        "ethos-n", lambda: conv(x8, dilation=(2, 2)), r"dilation of qnn.conv2d is \(2, 2\); it must be 1",
        "make dilation 1"
    ),
    (
        "ethos-n", lambda: conv(x8, kernel=(3, 3, 2, 8), groups=2),
        "qnn.conv2d has 2 groups; it must have one, or one for each channel", "make groups 1"
    ),
    ("ethos-n", lambda: conv(padded(x8, 0.0)), r"nn.pad pads with 0, and zero of its input is 7", "pad with 7"),
    (
        "ethos-n", lambda: conv(padded(x8, 7.0, ((0, 0), (0, 0), (0, 0), (2, 2))), kernel=(3, 3, 8, 8)),
        "only rows and columns can be padded", "pad rows and columns only"
    ),
    (
        "ethos-n", lambda: transposed(x8, (1, 1)),
        r"strides of qnn.conv2d_transpose are \(1, 1\); they must be \(2, 2\)", r"make strides \(2, 2\)"
    ),
    ("ethos-n", lambda: dense(image(2, 4)), "the input has a batch of 2", "compile the network for a batch of 1"),
    (
        "ethos-n", lambda: pooled(x8, padding=(1, 1, 1, 1), count_include_pad=True),
        "count_include_pad of nn.avg_pool2d counts padding", "make count_include_pad False"
    ),
    (
        "ethos-n", lambda: mean(image(1, 6, 6, 4)), "mean is over 6 x 6; it must be over 7 x 7 or 8 x 8",
        "average with nn.avg_pool2d"
    ),
    ("ethos-n", lambda: mean(image(1, 7, 7, 4), (1,)), r"mean is over axes \(1,\)", r"make axis \(1, 2\)"),
    (
        "ethos-n", lambda: real(relay.sigmoid, x8, 0.1, 0), "sigmoid gives a scale of 0.1",
        "quantize the result of sigmoid by 1/256"
    ),
    (
        "ethos-n", lambda: real(relay.tanh, x8, 1 / 128, 0),
        "tanh gives a scale of 0.0078125 around 0; it must be 1/128 around 128", "quantize the result of tanh by 1/128"
    ),
    (
        "ethos-n", lambda: real(lambda v: relay.nn.leaky_relu(v, 1.5), x8, 0.1, 5), "alpha of leaky_relu is 1.5",
        "make alpha less than 1"
    ),
    (
        "ethos-n", lambda: requantized(x8, scale=0.001), "qnn.requantize multiplies by 249.9",
        "choose scales that are nearer"
    ),
    (
        "ethos-n", lambda: resized(x8, (24, 24)),
        r"image.resize2d makes \(24, 24\) of \(8, 8\); it must double the size", "resize to twice the size"
    ),
    ("ethos-n", lambda: two("add", x8, image(1, 1, 8, 4)), "they must be of one shape", "broadcast the smaller one"),
    (
        "ethos-n", lambda: two("mul", x8, weight(1, 8, 8, 4, dtype="uint8")),
        r"the constant is \(1, 8, 8, 4\); it must be one for each of 4 channels", "make it one for each of 4"
    ),
    (
        "ethos-n", lambda: max_pool(x8, strides=(1, 1)), r"nn.max_pool2d of \(2, 2\) has strides \(1, 1\)",
        r"make strides \(2, 2\)"
    ),
    ("ethos-n", lambda: relay.concatenate([x8, other], axis=0), "the result has a batch of 2", "compile the network"),
    (
        "ethos-n", lambda: relay.nn.depth_to_space(image(1, 8, 8, 9), 3, layout="NHWC"),
        "block_size of nn.depth_to_space is 3; it must be 2", "make block_size 2"
    ),
    (
        "ethos-u", lambda: conv(signed, dtype="uint8"),
        "the input is int8 and the result uint8; they must be of one type", "convert the result to int8"
    ),
    ("ethos-u", lambda: conv(image(2, 8, 8, 4)), "the input has a batch of 2", "compile the network for a batch of 1"),
    (
        "ethos-u", lambda: conv(x8, zero=2), "the zero point of the weight of qnn.conv2d is 2",
        "quantize the weight around 0"
    ),
    (
        "ethos-u", lambda: conv(x8, strides=(4, 1)), r"strides of qnn.conv2d are \(4, 1\); they must be at most 3",
        "make strides 1, 2 or 3"
    ),
    (
        "ethos-u", lambda: conv(image(1, 80, 80, 4), kernel=(65, 1, 4, 8)), r"kernel_size of qnn.conv2d is \(65, 1\)",
        "make kernel_size smaller"
    ),
    ("ethos-u", lambda: conv(x8, kernel=(3, 3, 2, 8), groups=2), "qnn.conv2d has 2 groups", "make groups 1"),
    (
        "ethos-u", lambda: conv(x8, kernel=(3, 3, 1, 8), groups=4), "qnn.conv2d makes several channels from each input",
        "make channels as many as the input has"
    ),
    ("ethos-u", lambda: conv(padded(x8, 1.0)), "nn.pad pads with 1, and zero of its input is 7", "pad with 7"),
    (
        "ethos-u", lambda: dense(image(1, 4), "int8"), "the input is uint8 and the result int8",
        "convert the result to uint8"
    ),
    (
        "ethos-u", lambda: max_pool(x8, padding=(1, 1, 1, 1)),
        r"padding of nn.max_pool2d is \(1, 1, 1, 1\); it must be 0", "make padding 0"
    ),
    (
        "ethos-u", lambda: max_pool(x8, strides=(4, 4)),
        r"strides of nn.max_pool2d are \(4, 4\); they must be at most 3", "make strides 1, 2 or 3"
    ),
    (
        "ethos-u", lambda: max_pool(image(1, 300, 300, 1), pool_size=(257, 1), strides=(1, 1)),
        r"pool_size of nn.max_pool2d is \(257, 1\)", "make pool_size smaller"
    ),
    ("ethos-u", lambda: two("add", x8, image(1, 1, 8, 4)), "they must be of one shape", "broadcast the smaller one"),
    ("ethos-u", lambda: relay.reshape(x8, (4, 64)), "the result has a batch of 4", "batch of 1"),
    ("arm_compute_lib", conv_f, "data_layout of nn.conv2d is NCHW; it must be NHWC", "make data_layout NHWC"),
    ("arm_compute_lib", lambda: conv_l(groups=2), "nn.conv2d has 2 groups", "make groups 1"),
    (
        "arm_compute_lib", lambda: conv_l(groups=4, size=2), r"nn.conv2d of single channels has kernel_size \(2, 2\)",
        r"make kernel_size \(3, 3\)"
    ),
    (
        "arm_compute_lib", lambda: conv_l(groups=4, strides=(2, 1)),
        r"nn.conv2d of single channels has strides \(2, 1\)", "make strides equal"
    ),
    (
        "arm_compute_lib", lambda: conv_l(groups=4, dilation=(2, 2)),
        r"nn.conv2d of single channels has dilation \(2, 2\)", "make dilation 1"
    ),
    (
        "arm_compute_lib", lambda: conv_l(source=padded(image_f, 1.0)),
        "nn.pad pads with 1, and zero of its input is 0", "pad with 0"
    ),
    (
        "arm_compute_lib",
        lambda: conv_l(
            source=relay.nn.pad(relay.var("x", shape=(1, 8, 8, 2)), pad_width=((0, 0), (0, 0), (0, 0), (1, 1)))
        ), "only rows and columns can be padded", "pad rows and columns only"
    ),
    (
        "arm_compute_lib", lambda: relay.sqrt(pool_l(relay.power(image_f, relay.const(3.0)))),
        "the exponent before nn.avg_pool2d is 3.0; it must be 2", "make it 2"
    ),
    ("arm_compute_lib", lambda: max_pool(image_f, dilation=(2, 2)), "dilation of nn.max_pool2d", "make dilation 1"),
    (
        "arm_compute_lib", lambda: relay.add(x8, other), "the first input is uint8; it must be float32",
        "convert the first input to float32"
    ),
    ("cmsis-nn", lambda: conv(x8), "the input is uint8; it must be int8 or int16", "convert the input to int8"),
    (
        "cmsis-nn", lambda: conv(signed, dtype="int8", zero=2), "the zero point of the weight of qnn.conv2d is 2",
        "quantize the weight around 0"
    ),
    (
        "cmsis-nn", lambda: conv(signed, dtype="int8", kernel=(3, 3, 2, 8), groups=2), "qnn.conv2d has 2 groups",
        "make groups 1"
    ),
    (
        "cmsis-nn", lambda: max_pool(signed, layout="NCHW"), "layout of nn.max_pool2d is NCHW; it must be NHWC",
        "make layout NHWC"
    ),
    (
        "cmsis-nn", lambda: max_pool(image(2, 8, 8, 4, dtype="int8")),
        "nn.max_pool2d is of 2 images; only one is supported", "batch of 1"
    ),
    (
        "cmsis-nn", lambda: two("add", signed, image(1, 1, 1, 4, dtype="int8")),
        "they must be of one shape, or one is a number", "broadcast the smaller one"
    ),
    (
        "cmsis-nn", lambda: conv(signed, dtype="int16"), "the result is int16; it must be int8",
        "convert the result to int8"
    ),
    (
        "cmsis-nn", lambda: conv(wide, dtype="int16"), "the input is int16 with the zero point 7; it must be 0",
        "quantize int16 around 0"
    ),
    (
        "cmsis-nn", lambda: two("add", wide, wide_other),
        "the first input is int16 with the zero point 1; it must be 0", "quantize int16 around 0"
    ),
    (
        "cmsis-nn", lambda: two("mul", wide, wide_other, (0, 2, 0)),
        "the second input is int16 with the zero point 2; it must be 0", "quantize int16 around 0"
    ),
    (
        "cmsis-nn", lambda: two("mul", wide, wide_other, (0, 0, 3)),
        "the result is int16 with the zero point 3; it must be 0", "quantize int16 around 0"
    ),
    (
        "cmsis-nn", lambda: two("add", relay.const(np.int8(3)), relay.const(np.int8(4))),
        "both inputs are numbers; one must be a tensor", "fold the constants before"
    ),
    (
        "cmsis-nn", lambda: real(relay.nn.softmax, image(1, 4), 1 / 256, -128, "int8"),
        "the input is uint8; it must be int8", "convert the input to int8"
    ),
    (
        "cmsis-nn", lambda: real(relay.nn.softmax, image(1, 4, dtype="int16"), 1 / 256, -128, "int8"),
        "the input is int16; it must be int8", "convert the input to int8"
    ),
    (
        "cmsis-nn", lambda: max_pool(signed, dilation=(2, 2)), r"dilation of nn.max_pool2d is \(2, 2\); it must be 1",
        "make dilation 1"
    ),
    (
        "cmsis-nn", lambda: quantized_pool(signed, 0.25),
        "qnn.avg_pool2d changes the scale or zero point of its input; both must stay the same",
        "give the result the scale"
    ),
    (
        "cmsis-nn", lambda: real(relay.nn.softmax, image(1, 4, dtype="int8"), 0.1, -128, "int8"),
        "softmax gives a scale of 0.1", "by 1/256 from -128"
    ),
    (
        "bnns", lambda: relay.nn.conv2d(image(1, 4, 8, 8, dtype="float16"), weight(8, 4, 3, 3, dtype="float16")),
        "the input is float16; it must be float32", "convert the input to float32"
    ),
    ("bnns", lambda: conv_f(groups=2), "nn.conv2d has 2 groups", "make groups 1"),
    (
        "bnns", lambda: relay.add(conv_f(), weight(1, 1, 6, dtype="float32")),
        r"the operand added to nn.conv2d is \(1, 1, 6\); it must be a vector of its 8 channels",
        r"add a \(8, 1, 1\) to it"
    ),
    (
        "bnns", lambda: relay.nn.max_pool2d(f4, pool_size=(3, 3), strides=(2, 2), ceil_mode=True),
        "ceil_mode of nn.max_pool2d is True", "make ceil_mode False"
    ),
    (
        "bnns", lambda: relay.nn.max_pool2d(f4, pool_size=(2, 2), dilation=(2, 2)), "dilation of nn.max_pool2d",
        "make dilation 1"
    ),
    (
        "bnns", lambda: relay.nn.instance_norm(f4, weight(8, dtype="float32"), weight(8, dtype="float32"), axis=2),
        "axis of nn.instance_norm is 2", "make axis 1"
    ),
]


@pytest.mark.parametrize(("target", "make", "rule", "edit"), REFUSED, ids=[f"{t}: {r}"[:60] for t, _, r, _ in REFUSED])
def test_what_rules_say(target: str, make: Callable[[], Any], rule: str, edit: str) -> None:
    """No row takes it, and one says this of it."""
    mod = transform.InferType()(IRModule.from_expr(make()))
    table = get_pattern_table(target)
    assert table is not None
    said = []
    for row in table:
        for e in post_order(mod["main"].body):
            if row[1].match(e) and isinstance(
                found := row[2](e), Refusal
            ) and re.search(rule, found.rule) and re.search(edit, found.edit):
                said.append(row[0])
    assert said
    assert not set(said) & set(composites(partition_for(target, mod)))


def test_edits_that_a_program_makes_keep_their_rule() -> None:
    """The match with the edit is typed, and the rule that it broke is kept."""
    made = 0
    for target, make, rule, _ in REFUSED:
        mod = transform.InferType()(IRModule.from_expr(make()))
        table = get_pattern_table(target)
        assert table is not None
        for row, e in ((row, e) for row in table for e in post_order(mod["main"].body) if row[1].match(e)):
            found = row[2](e)
            if isinstance(found, Refusal) and found.change is not None and re.search(rule, found.rule):
                again = row[2](transform.InferType()(IRModule.from_expr(found.change(e)))["main"].body)
                assert again is True or (again.rule != found.rule and not re.search(rule, again.rule))
                made += 1
    assert made >= 13


def test_the_functions_of_the_field() -> None:
    mod = IRModule.from_expr(conv(x8))
    for f in (partition_for_ethosn, partition_for_ethosn77, partition_for_ethosn78):
        (name,) = (n for n in f(mod) if n != "main")
        assert name == "tvmgen_default_ethos_n_main_0"
    (f,) = (f for n, f in partition_for_ethosn78(mod, mod_name="net", tops=4, ple_ratio=2).items() if n != "main")
    assert f.attrs["global_symbol"] == "tvmgen_net_ethos_n_main_0"
    assert (f.attrs["ethos-n.variant"], f.attrs["ethos-n.tops"], f.attrs["ethos-n.ple_ratio"]) == ("n78", 4, 2)
    with pytest.raises(OptionError, match="there is no Ethos-N of the variant 'n79'; there are n77 and n78"):
        partition_for_ethosn(mod, variant="n79")
    with pytest.raises(OptionError, match="an Ethos-N77 has no options, and was given tops"):
        partition_for_ethosn77(mod, tops=4)
    w = relay.var("w", shape=(8, 4, 3, 3))
    network = IRModule.from_expr(
        relay.Function([f4, w], relay.nn.relu(relay.nn.conv2d(f4, w, channels=8, kernel_size=(3, 3))))
    )
    assert composites(partition_for_bnns(network)) == [], "a weight that is no constant"
    assert composites(partition_for_bnns(network, {"w": np.ones((8, 4, 3, 3), "float32")})) == ["bnns.conv2d_relu"]
    assert composites(partition_for_cmsisnn(IRModule.from_expr(conv(signed, dtype="int8")))) == ["cmsis-nn.qnn_conv2d"]
    assert relay.op.contrib.bnns.partition_for_bnns is partition_for_bnns


def test_partition_by_the_name_of_a_target() -> None:
    mod = IRModule.from_expr(relay.nn.relu(f4))
    with pytest.raises(
        OptionError,
        match=r"there is no target 'bnn' to partition for; did you mean 'bnns'.*known targets: arm_compute_lib, "
        r"bnns, cmsis-nn, compute-library, dnnl, ethos-n"
    ):
        partition_for("bnn", mod)
    seen: list[Any] = []

    def partitioned(mod: IRModule, params: Any, **options: Any) -> IRModule:
        seen.append((params, options))
        return mod

    register_partitioner("test_npu", partitioned)
    assert partition_for("test_npu", mod, {"a": 1}, size=3) is mod
    assert seen == [({"a": 1}, {"size": 3})]
    assert "ethos-n" in FIELD_TARGETS
    assert [
        f.attrs["Compiler"] for n,
        f in partition_for("compute-library", IRModule.from_expr(dense_f())).items() if n != "main"
    ] == ["arm_compute_lib"]
