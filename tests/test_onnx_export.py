"""ONNX files of Relay functions: they mean the same when they are read again, and what ONNX lacks is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.base.errors import CompileError, OptionError
from tilewright.compat.contrib.target.onnx import to_onnx
from tilewright.relay.onnx_export.writers import WRITERS

RNG = np.random.default_rng(0)
IMAGE = (1, 4, 8, 6)
F32 = "float32"


def f(*shape: int) -> Any:
    return relay.const(RNG.uniform(0.5, 2, shape).astype(F32))


CASES: dict[str, Callable[[Any], Any]] = {
    "conv2d": lambda x: relay.nn.conv2d(x, f(6, 2, 3, 3), padding=(1, 0, 2, 1), strides=(2, 1), groups=2),
    "conv2d_transpose": lambda x: relay.nn.conv2d_transpose(x, f(4, 2, 3, 3), strides=(2, 2), output_padding=(1, 0)),
    "max_pool2d": lambda x: relay.nn.max_pool2d(x, (3, 2), (2, 2), padding=(1, 0), ceil_mode=True),
    "avg_pool2d": lambda x: relay.nn.avg_pool2d(x, (3, 2), (2, 2), padding=(1, 0), count_include_pad=True),
    "global_avg_pool2d": relay.nn.global_avg_pool2d,
    "batch_norm": lambda x: relay.nn.batch_norm(x, f(4), f(4), f(4), f(4))[0],
    "batch_norm of the last axis": lambda x: relay.nn.batch_norm(x, f(6), f(6), f(6), f(6), axis=3, scale=False)[0],
    "bias_add": lambda x: relay.nn.bias_add(x, f(4)),
    "bias_add of the last axis": lambda x: relay.nn.bias_add(x, f(6), axis=-1),
    "reshape": lambda x: relay.reshape(x, (4, -1)),
    "squeeze": relay.squeeze,
    "expand_dims": lambda x: relay.expand_dims(x, 1, 2),
    "batch_flatten": relay.nn.batch_flatten,
    "dense": lambda x: relay.nn.dense(relay.nn.batch_flatten(x), f(3, 192)),
    "batch_matmul": lambda x: relay.nn.batch_matmul(
        relay.squeeze(x), f(4, 8, 5), transpose_a=True, transpose_b=False),
    "transpose": lambda x: relay.transpose(x, (0, -1, 1, 2)),
    "transpose of all axes": relay.transpose,
    "layout_transform": lambda x: relay.layout_transform(x, "NCHW", "NHWC"),
    "pad": lambda x: relay.nn.pad(x, ((0, 0), (1, 0), (0, 2), (1, 1)), 3.0),
    "pad by reflection": lambda x: relay.nn.pad(x, ((0, 0), (0, 0), (1, 2), (1, 1)), pad_mode="reflect"),
    "softmax": lambda x: relay.nn.softmax(x, axis=1),
    "log_softmax": relay.nn.log_softmax,
    "mean": lambda x: relay.mean(x, axis=(1, 3)),
    "sum without axes": lambda x: relay.sum(x, axis=1, exclude=True, keepdims=True),
    "max": relay.max,
    "argmax": lambda x: relay.argmax(x, axis=2),
    "concatenate": lambda x: relay.concatenate([x, relay.exp(x), x], axis=-2),
    "stack": lambda x: relay.stack([x, relay.exp(x)], axis=-1),
    "strided_slice": lambda x: relay.strided_slice(x, (0, 3, 1), (1, -5, 9), (1, -1, 3)),
    "strided_slice with sizes": lambda x: relay.strided_slice(x, (0, 1, 2), (1, 2, -1), slice_mode="size"),
    "strided_slice with fewer steps": lambda x: relay.strided_slice(x, (0, 1, 0), (1, 3, 6), (1, 2)),
    "cast": lambda x: relay.cast(x * relay.const(9.0), "int8"),
    "clip": lambda x: relay.clip(x, 0.7, 1.2),
    "leaky_relu": lambda x: relay.nn.leaky_relu(x - relay.const(1.0), 0.3),
    "prelu": lambda x: relay.nn.prelu(x - relay.const(1.0), f(4)),
    "lrn": lambda x: relay.nn.lrn(x, size=3, alpha=0.1),
    "rsqrt": relay.rsqrt,
    "take": lambda x: relay.take(x, relay.const(np.array([[2, 0], [1, 1]], "int16")), axis=1),
    "broadcast_to": lambda x: relay.broadcast_to(x, (3, *IMAGE[1:])),
    "zeros_like": lambda x: relay.zeros_like(x) + x,
    "ones": lambda x: relay.ones(IMAGE, F32) + x,
    "resize2d": lambda x: relay.image.resize2d(
        x, (5, 9), method="linear", coordinate_transformation_mode="align_corners"),
    "resize2d to the nearest": lambda x: relay.image.resize2d(
        x, (5, 9), method="nearest_neighbor", coordinate_transformation_mode="asymmetric", rounding_method="floor"),
    "where": lambda x: relay.where(relay.greater(x, relay.const(1.0)), relay.sqrt(x), relay.negative(x)),
    "dropout": relay.nn.dropout,
    "a constant": lambda x: f(2, 3),
    "a parameter": lambda x: x,
}


def value(function: Any, *args: Any) -> list[Any]:
    found = relay.create_executor("debug", tvm.IRModule.from_expr(function)).evaluate()(*args)
    return [v.numpy() for v in (found if isinstance(found, (tuple, list)) else [found])]


@pytest.mark.parametrize("name", CASES)
def test_a_file_means_the_same(name: str) -> None:
    x = relay.var("x", shape=IMAGE)
    function = relay.Function([x], CASES[name](x))
    model = to_onnx(function)
    again, params = relay.frontend.from_onnx(model)
    assert not params
    data = RNG.uniform(0.5, 2, IMAGE).astype(F32)
    wanted, got = value(function, data), value(again["main"], data)
    for a, b in zip(wanted, got, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("parts", [2, [1, 3]])
def test_several_results_and_parameters(parts: Any, tmp_path: Path) -> None:
    x, w, unused = relay.var("x", shape=(4, 6)), relay.var("w", shape=(6,)), relay.var("unused", shape=(2,))
    whole = relay.split(x * w, parts, axis=1)
    function = relay.Function([x, w, unused], relay.Tuple([whole[1], whole[0], whole[1], x]))
    weight = RNG.uniform(size=6).astype(F32)
    path = tmp_path / "model.onnx"
    to_onnx(tvm.IRModule.from_expr(function), {"w": tvm.nd.array(weight)}, "net", 12, path)
    model = onnx.load(path)
    assert (model.graph.name, [v.name for v in model.graph.input]) == ("net", ["x", "unused"])
    assert model.opset_import[0].version == 12
    again, _ = relay.frontend.from_onnx(model)
    data, rest = RNG.uniform(size=(4, 6)).astype(F32), np.zeros(2, F32)
    for a, b in zip(value(function, data, weight, rest), value(again["main"], data, rest), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-6)


def test_sizes_that_are_unknown() -> None:
    x = relay.var("x", shape=(relay.Any(), 4))
    model = to_onnx(relay.Function([x], relay.nn.relu(x)))
    assert [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim] == [0, 4]
    with pytest.raises(CompileError, match=r"the size '.*' is written as a number in ONNX, but it is symbolic"):
        to_onnx(relay.Function([x], relay.reshape(x, (4, -1))))


def test_what_is_refused() -> None:
    x = relay.var("x", shape=IMAGE)
    refused = {
        "the operator 'image.grid_sample' is not written to ONNX": relay.image.grid_sample(x, f(1, 2, 3, 3)),
        "nn.max_pool2d with the layout NHWC is not written to ONNX; convert it to NCHW":
            relay.nn.max_pool2d(x, (2, 2), layout="NHWC"),
        "nn.conv2d with the kernel layout HWIO is not written": relay.nn.conv2d(x, f(3, 3, 4, 2), kernel_layout="HWIO"),
        "layout_transform with the layouts NCHW and NCHW2c": relay.layout_transform(x, "NCHW", "NCHW2c"),
        "nn.lrn with axis 3": relay.nn.lrn(x, axis=3),
        "take with a flat index or batch dimensions": relay.take(x, relay.const(1)),
        "If has no form in ONNX here": relay.If(relay.const(True), x, x),
    }
    for message, body in refused.items():
        with pytest.raises(CompileError, match=message):
            to_onnx(relay.Function([x], body))
    with pytest.raises(OptionError, match=r"version 17 of ONNX's operators is not written; use one of 11, 12"):
        to_onnx(relay.Function([x], x), opset_version=17)


def test_each_writer_is_of_an_operator() -> None:
    assert all(relay.op.get(name).name == name for name in WRITERS)
