"""References against another implementation: PyTorch where numpy would only repeat the reference, onnxruntime for
resizing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.relay.op import (
    broadcast,
    elementwise,
    fixed_point,
    image,
    indexing,
    nn,
    reduction,
    scans,
    sorting,
    transform,
)
from tilewright.relay.op.blocks import DepthToSpace, SpaceToDepth
from tilewright.relay.op.registry import Op

pytest.importorskip("torch")
import torch

F = torch.nn.functional
Array = np.ndarray[Any, Any]
_random = np.random.default_rng(11)


def real(*shape: int, low: float = -2, high: float = 2) -> Array:
    return _random.uniform(low, high, shape).astype("float32")


def check(op: Op, theirs: Callable[..., Any], *inputs: Array, tolerance: float = 2e-5) -> None:
    found = op.reference(*inputs)
    wanted = theirs(*map(torch.from_numpy, inputs)).numpy()
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


POINTWISE = [
    (elementwise.Exp, "exp"), (elementwise.Log, "log"), (elementwise.Log2, "log2"), (elementwise.Sqrt, "sqrt"),
    (elementwise.Rsqrt, "rsqrt"),
    (elementwise.Tanh, "tanh"), (elementwise.Sigmoid, "sigmoid"), (elementwise.Erf, "erf"), (elementwise.Sin, "sin"),
    (elementwise.Cos, "cos"),
    (elementwise.Tan, "tan"), (elementwise.Asin, "asin"), (elementwise.Acos, "acos"), (elementwise.Atan, "atan"),
    (elementwise.Sinh, "sinh"),
    (elementwise.Cosh, "cosh"), (elementwise.Asinh, "asinh"), (elementwise.Acosh, "acosh"),
    (elementwise.Atanh, "atanh"), (elementwise.Floor, "floor"),
    (elementwise.Ceil, "ceil"), (elementwise.Trunc, "trunc"), (elementwise.Round, "round"), (elementwise.Abs, "abs"),
    (elementwise.Negative, "neg"),
    (elementwise.Sign, "sign"), (elementwise.IsNan, "isnan"), (elementwise.IsInf, "isinf"),
    (elementwise.IsFinite, "isfinite"), (nn.Relu, "relu"),
]


@pytest.mark.parametrize(("cls", "name"), POINTWISE, ids=lambda p: p if isinstance(p, str) else "")
def test_pointwise(cls: type[Op], name: str) -> None:
    points = np.asarray([-2.5, -1.5, -0.5, -0.0, 0.25, 0.5, 1.0, 1.5, 2.5, 3.75, np.inf, -np.inf, np.nan], "float32")
    found, wanted = cls().reference(points), getattr(torch, name)(torch.from_numpy(points)).numpy()
    if found.dtype == bool:
        np.testing.assert_array_equal(found, wanted)
    elif name == "sign":
        np.testing.assert_array_equal(found[:-1], wanted[:-1])
        assert np.isnan(found[-1])
    else:
        np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("op", "mode"), [(broadcast.Divide(), "trunc"), (broadcast.FloorDivide(), "floor")], ids=["trunc", "floor"]
)
def test_integer_division(op: Op, mode: str) -> None:
    a, b = np.meshgrid(np.arange(-9, 10), [-4, -3, -1, 1, 2, 5])
    for dtype in ("int8", "int32", "int64"):
        x, y = a.astype(dtype), b.astype(dtype)
        np.testing.assert_array_equal(
            op.reference(x, y), torch.div(torch.from_numpy(x), torch.from_numpy(y), rounding_mode=mode).numpy()
        )


@pytest.mark.parametrize(
    ("op", "name"), [(broadcast.Mod(), "fmod"), (broadcast.FloorMod(), "remainder")], ids=["fmod", "remainder"]
)
def test_remainders(op: Op, name: str) -> None:
    a, b = np.meshgrid(np.arange(-9, 10), [-4, -3, -1, 1, 2, 5])
    for dtype in ("int32", "float32"):
        x, y = a.astype(dtype), b.astype(dtype)
        np.testing.assert_array_equal(
            op.reference(x, y), getattr(torch, name)(torch.from_numpy(x), torch.from_numpy(y)).numpy()
        )


@pytest.mark.parametrize(
    ("stride", "pad", "dilation", "groups"),
    [(1, 0, 1, 1), (2, 1, 1, 1), (1, 2, 2, 2), (3, 1, 1, 4), ((1, 2), (2, 0), (2, 1), 1)]
)
def test_conv2d(stride: Any, pad: Any, dilation: Any, groups: int) -> None:
    x, w = real(2, 4, 11, 9), real(8, 4 // groups, 3, 3)
    check(
        nn.Conv2d(stride, pad, dilation, groups), lambda a, b: F.conv2d(a, b, None, stride, pad, dilation, groups), x, w
    )
    last = nn.Conv2d(stride, pad, dilation, groups, data_layout="NHWC", kernel_layout="HWIO")
    wanted = nn.Conv2d(stride, pad, dilation, groups).reference(x, w).transpose(0, 2, 3, 1)
    found = last.reference(np.ascontiguousarray(x.transpose(0, 2, 3, 1)), np.ascontiguousarray(w.transpose(2, 3, 1, 0)))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_conv_of_other_ranks() -> None:
    check(nn.Conv1d((2,), (3,), (2,), 2), lambda a, b: F.conv1d(a, b, None, 2, 3, 2, 2), real(2, 4, 17), real(6, 2, 3))
    check(nn.Conv3d((2,), (1,)), lambda a, b: F.conv3d(a, b, None, 2, 1), real(1, 2, 5, 6, 7), real(3, 2, 3, 3, 3))


def test_integer_convolution_is_exact() -> None:
    x, w = _random.integers(
        -128, 128, (1, 16, 9, 9)
    ).astype("int8"), _random.integers(-128, 128, (4, 16, 3, 3)).astype("int8")
    wanted = F.conv2d(
        torch.from_numpy(x.astype("float64")), torch.from_numpy(w.astype("float64"))
    ).numpy().astype("int32")
    np.testing.assert_array_equal(nn.Conv2d(out_dtype="int32").reference(x, w), wanted)
    np.testing.assert_array_equal(nn.Conv2d().reference(x, w), wanted.astype("int8"))


@pytest.mark.parametrize(
    ("stride", "pad", "more", "dilation", "groups"),
    [(1, 0, 0, 1, 1), (2, 1, 1, 1, 1), ((2, 3), (1, 0), (1, 2), 1, 2), (2, 2, 1, 2, 1)]
)
def test_conv2d_transpose(stride: Any, pad: Any, more: Any, dilation: Any, groups: int) -> None:
    op = nn.Conv2dTranspose(stride, pad, dilation, groups, output_padding=more)
    check(
        op, lambda a, b: F.conv_transpose2d(a, b, None, stride, pad, more, groups, dilation), real(2, 4, 5, 6),
        real(4, 3, 3, 3)
    )


def test_conv_transpose_of_other_ranks() -> None:
    check(
        nn.Conv1dTranspose((3,), (1,)), lambda a, b: F.conv_transpose1d(a, b, None, 3, 1), real(1, 4, 7), real(4, 2, 4)
    )
    check(
        nn.Conv3dTranspose((2,)), lambda a, b: F.conv_transpose3d(a, b, None, 2), real(1, 2, 2, 3, 4),
        real(2, 3, 3, 2, 2)
    )


@pytest.mark.parametrize(
    ("k", "stride", "pad", "ceil"),
    [(2, 2, 0, False), (3, 2, 1, False), (3, 2, 1, True), ((2, 3), (3, 2), (1, 0), True), (5, 4, 2, True)]
)
def test_pools(k: Any, stride: Any, pad: Any, ceil: bool) -> None:
    x = real(2, 3, 12, 13)
    check(nn.MaxPool2d(k, stride, (1,), pad, ceil_mode=ceil), lambda a: F.max_pool2d(a, k, stride, pad, 1, ceil), x)
    for counted in (False, True):
        op = nn.AvgPool2d(k, stride, (1,), pad, ceil_mode=ceil, count_include_pad=counted)
        check(op, lambda a, counted=counted: F.avg_pool2d(a, k, stride, pad, ceil, counted), x)


def test_pools_of_other_ranks() -> None:
    check(nn.MaxPool1d((3,), (2,), (2,), (1,)), lambda a: F.max_pool1d(a, 3, 2, 1, 2), real(1, 2, 15))
    check(nn.AvgPool1d((3,), (2,), (1,), (1,)), lambda a: F.avg_pool1d(a, 3, 2, 1, False, False), real(1, 2, 15))
    check(nn.MaxPool3d((2,), (2,)), lambda a: F.max_pool3d(a, 2, 2), real(1, 2, 6, 7, 8))
    op = nn.AvgPool3d((3,), (2,), (1,), (1,), count_include_pad=True)
    check(op, lambda a: F.avg_pool3d(a, 3, 2, 1), real(1, 2, 6, 7, 8))


def test_adaptive_and_global_pools() -> None:
    x = real(1, 3, 7, 10)
    for size in ((1, 1), (3, 4), (7, 10), (5, 3)):
        check(nn.AdaptiveAvgPool2d(size), lambda a, size=size: F.adaptive_avg_pool2d(a, size), x)
        check(nn.AdaptiveMaxPool2d(size), lambda a, size=size: F.adaptive_max_pool2d(a, size), x)
    check(nn.GlobalAvgPool2d(), lambda a: a.mean((2, 3), keepdim=True), x)
    check(nn.GlobalMaxPool2d(), lambda a: a.amax((2, 3), keepdim=True), x)


def test_normalisations() -> None:
    x, g, b, m, v = real(2, 6, 5, 4), real(6), real(6), real(6), real(6, low=0.1)
    for found, wanted in zip(
        nn.BatchNorm(epsilon=1e-3).reference(x, g, b, m, v),
        (F.batch_norm(*map(torch.from_numpy, (x, m, v, g, b)), eps=1e-3).numpy(), m, v), strict=True,
    ):
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)
    check(nn.InstanceNorm(), lambda a, s, t: F.instance_norm(a, None, None, s, t), x, g, b)
    check(nn.GroupNorm(3, epsilon=1e-4), lambda a, s, t: F.group_norm(a, 3, s, t, 1e-4), x, g, b)
    check(nn.LayerNorm(), lambda a, s, t: F.layer_norm(a, (6,), s, t), real(2, 3, 6), g, b)
    check(nn.Softmax(1), lambda a: F.softmax(a, 1), x)
    check(nn.LogSoftmax(), lambda a: F.log_softmax(a, -1), x)
    check(nn.L2Normalize(1e-12, (1,)), F.normalize, x)
    check(nn.LRN(5, alpha=0.3, beta=0.6, bias=1), lambda a: F.local_response_norm(a, 5, 0.3, 0.6, 1), x)
    check(nn.LRN(4, alpha=0.3, beta=0.6, bias=1), lambda a: F.local_response_norm(a.flip(1), 4, 0.3, 0.6, 1).flip(1), x)


def test_activations() -> None:
    x = real(2, 3, 4)
    check(nn.LeakyRelu(0.2), lambda a: F.leaky_relu(a, 0.2), x)
    check(nn.PRelu(), F.prelu, x, real(3))
    check(elementwise.Clip(-1, 1), lambda a: a.clamp(-1, 1), x)


def test_products() -> None:
    check(nn.Dense(), F.linear, real(2, 3, 5), real(4, 5))
    check(nn.Matmul(), torch.matmul, real(3, 5), real(5, 4))
    check(nn.BatchMatmul(), lambda a, b: a @ b.transpose(1, 2), real(3, 4, 5), real(1, 6, 5))
    check(nn.BiasAdd(), lambda a, b: a + b[:, None, None], real(2, 3, 4, 5), real(3))


def test_reductions() -> None:
    x = real(3, 4, 5)
    check(reduction.Mean((0, 2), True), lambda a: a.mean((0, 2), keepdim=True), x)
    check(reduction.Sum(1, exclude=True), lambda a: a.sum((0, 2)), x)
    for unbiased in (False, True):
        check(
            reduction.Variance((1,), unbiased=unbiased), lambda a, m, u=unbiased: a.var(1, unbiased=u), x,
            x.mean(1, keepdims=True)
        )


def test_moves() -> None:
    x = real(1, 8, 2, 3)
    check(DepthToSpace(2, mode="CRD"), lambda a: F.pixel_shuffle(a, 2), x)
    np.testing.assert_array_equal(SpaceToDepth(2).reference(DepthToSpace(2).reference(x)), x)
    padded = nn.Pad(((0, 0), (0, 0), (1, 1), (2, 2)), "reflect")
    check(padded, lambda a, v: F.pad(a, (2, 2, 1, 1), mode="reflect"), real(1, 2, 4, 5), np.zeros(1, "float32"))
    data, where = real(4, 5), _random.integers(0, 5, (4, 3))
    check(indexing.Gather(1), lambda a, i: torch.gather(a, 1, i), data, where)
    check(scans.CumSum(1), lambda a: a.cumsum(1), data)
    updates = real(4, 3)
    check(indexing.ScatterElements(1, "add"), lambda a, i, u: a.scatter_add(1, i, u), data, where, updates)
    values, places = sorting.TopK(3).reference(data)
    wanted = torch.from_numpy(data).topk(3)
    np.testing.assert_array_equal(values, wanted.values.numpy())
    np.testing.assert_array_equal(places, wanted.indices.numpy())
    check(transform.Repeat(2, 1), lambda a: a.repeat_interleave(2, 1), data)
    check(transform.Tile((2, 3)), lambda a: a.tile(2, 3), data)


def test_fixed_point_multiply_rounds_half_up() -> None:
    x = np.asarray([-5, -4, -3, -1, 0, 1, 3, 4, 5], "int32")
    np.testing.assert_array_equal(fixed_point.FixedPointMultiply(1 << 30, 0).reference(x), np.floor(x * 0.5 + 0.5))
    np.testing.assert_array_equal(fixed_point.FixedPointMultiply(1 << 30, 2).reference(x), x * 2)


def _resize_in_onnxruntime(x: Array, attributes: dict[str, Any], roi: Any, scales: Any, sizes: Any) -> Array:
    onnx, ort = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    h = onnx.helper
    initial = [
        onnx.numpy_helper.from_array(np.asarray(roi, "float32"), "roi"),
        onnx.numpy_helper.from_array(np.asarray(scales, "float32"), "scales")
    ]
    names = ["x", "roi", "scales"]
    if sizes is not None:
        initial.append(onnx.numpy_helper.from_array(np.asarray(sizes, "int64"), "sizes"))
        names = ["x", "roi", "", "sizes"]
    node = h.make_node("Resize", names, ["y"], **attributes)
    kind = onnx.TensorProto.FLOAT
    graph = h.make_graph(
        [node], "g", [h.make_tensor_value_info("x", kind, x.shape)], [h.make_tensor_value_info("y", kind, None)],
        initial
    )
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 19)], ir_version=9)
    return np.asarray(
        ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    )


RESIZES = [
    *[
        ("linear", m, "", s) for m in ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")
        for s in ((8, 10), (7, 9), (2, 3), (1, 1))
    ],
    *[("cubic", m, "", s) for m in ("half_pixel", "align_corners", "asymmetric") for s in ((8, 10), (7, 9), (2, 3))],
    *[
        ("nearest", m, r, s) for m in ("half_pixel", "asymmetric")
        for r in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil") for s in ((8, 10), (2, 3))
    ],
]


@pytest.mark.parametrize(("method", "mode", "rounding", "size"), RESIZES)
def test_resize(method: str, mode: str, rounding: str, size: tuple[int, int]) -> None:
    x = real(1, 2, 4, 5)
    attributes = {
        "mode": method, "coordinate_transformation_mode": mode, "cubic_coeff_a": -0.75,
        **({"nearest_mode": rounding} if rounding else {})
    }
    wanted = _resize_in_onnxruntime(x, attributes, [], [], (1, 2, *size))
    ours = {"nearest": "nearest_neighbor"}.get(method, method)
    op = image.Resize2d(
        size, method=ours, coordinate_transformation_mode=mode, rounding_method=rounding, cubic_alpha=-0.75
    )
    np.testing.assert_allclose(op.reference(x), wanted, rtol=1e-5, atol=1e-5)


def test_resize_by_scales_that_do_not_fit() -> None:
    x = real(1, 1, 4, 7)
    wanted = _resize_in_onnxruntime(x, {"mode": "linear"}, [], [1, 1, 0.6, 0.6], None)
    np.testing.assert_allclose(image.Resize2d((2, 4), scales=(0.6, 0.6)).reference(x), wanted, rtol=1e-5, atol=1e-5)


def test_resize_crops() -> None:
    x = real(1, 1, 6, 6)
    attributes = {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 5.0}
    wanted = _resize_in_onnxruntime(x, attributes, [0, 0, 0.25, 0.5, 1, 1, 0.75, 1.5], [], (1, 1, 3, 4))
    op = image.Resize2d(
        (3, 4), (0.25, 0.5, 0.75, 1.5), coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=5
    )
    np.testing.assert_allclose(op.reference(x), wanted, rtol=1e-5, atol=1e-5)
