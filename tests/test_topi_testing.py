"""`topi.testing` gives the results of operators; each is compared with PyTorch or with a sum written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, topi
from tilewright.base.errors import ShapeError
from tilewright.topi.nn.utils import get_pad_tuple, get_pad_tuple1d, get_pad_tuple3d, infer_pad

torch = pytest.importorskip("torch")
F = torch.nn.functional
ref = topi.testing
RNG = np.random.default_rng(3)


def random(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype("float32")


def same(found: Any, wanted: Any) -> None:
    wanted = wanted.numpy() if isinstance(wanted, torch.Tensor) else wanted
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def t(x: Any) -> Any:
    return torch.from_numpy(np.ascontiguousarray(x))


def test_convolutions() -> None:
    x, w = random(2, 4, 9, 8), random(6, 2, 3, 2)
    wanted = F.conv2d(t(x), t(w), stride=(2, 1), padding=(1, 2), groups=2)
    same(ref.conv2d_nchw_python(x, w, (2, 1), (1, 2), groups=2), wanted)
    same(ref.conv2d_nhwc_python(x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0), (2, 1), (1, 2), groups=2),
         wanted.permute(0, 2, 3, 1))
    w = random(6, 4, 3, 3)
    same(ref.conv2d_hwcn_python(x.transpose(2, 3, 1, 0), w.transpose(2, 3, 1, 0), 1, "SAME"),
         F.conv2d(t(x), t(w), padding=1).permute(2, 3, 1, 0))
    same(ref.conv2d_nchw_python(x, w, 1, "VALID"), F.conv2d(t(x), t(w)))
    x1, w1 = random(2, 4, 11), random(6, 2, 3)
    same(ref.group_conv1d_ncw_python(x1, w1, 2, 1, 2, 2), F.conv1d(t(x1), t(w1), None, 2, 1, 2, 2))
    same(ref.conv1d_ncw_python(x1, random(5, 4, 3) * 0, 1, 0, 1), np.zeros((2, 5, 9), "float32"))
    x3, w3 = random(1, 2, 5, 6, 4), random(4, 1, 3, 2, 3)
    wanted = F.conv3d(t(x3), t(w3), None, (1, 2, 1), (1, 0, 1), 1, 2)
    same(ref.conv3d_ncdhw_python(x3, w3, (1, 2, 1), (1, 0, 1), groups=2), wanted)
    same(ref.conv3d_ndhwc_python(x3.transpose(0, 2, 3, 4, 1), w3.transpose(2, 3, 4, 1, 0), (1, 2, 1), (1, 0, 1), 2),
         wanted.permute(0, 2, 3, 4, 1))


def test_depthwise_convolutions() -> None:
    x, w = random(2, 4, 7, 6), random(4, 2, 3, 3)
    wanted = F.conv2d(t(x), t(w.reshape(8, 1, 3, 3)), stride=2, padding=1, groups=4)
    same(ref.depthwise_conv2d_python_nchw(x, w, 2, 1), wanted)
    same(ref.depthwise_conv2d_python_nhwc(x.transpose(0, 2, 3, 1), w.transpose(2, 3, 0, 1), 2, 1),
         wanted.permute(0, 2, 3, 1))
    blocks = random(2, 2, 7, 6, 2), random(1, 1, 3, 3, 1, 4)
    x = blocks[0].transpose(0, 1, 4, 2, 3).reshape(2, 4, 7, 6)
    w = blocks[1].transpose(0, 5, 1, 4, 2, 3).reshape(4, 1, 3, 3)
    wanted = F.conv2d(t(x), t(w), padding=1, groups=4).reshape(2, 1, 4, 7, 6).permute(0, 1, 3, 4, 2)
    same(ref.depthwise_conv2d_python_nchwc(*blocks, 1, 1), wanted)


def test_transposed_and_dilated() -> None:
    x, w = random(2, 4, 5, 6), random(4, 3, 3, 3)
    wanted = F.conv_transpose2d(t(x), t(w), None, 2, 1, 1)
    same(ref.conv2d_transpose_nchw_python(x, w, 2, 1, (1, 1)), wanted)
    same(ref.conv2d_transpose_nhwc_python(x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0), "HWOI", 2, 1, (1, 1)),
         wanted.permute(0, 2, 3, 1))
    x1, w1 = random(2, 4, 5), random(4, 3, 3)
    same(ref.conv1d_transpose_ncw_python(x1, w1, 2, 1, 1), F.conv_transpose1d(t(x1), t(w1), None, 2, 1, 1))
    x3, w3 = random(1, 2, 3, 4, 3), random(2, 3, 2, 3, 2)
    same(ref.conv3d_transpose_ncdhw_python(x3, w3, 2, 0, 0), F.conv_transpose3d(t(x3), t(w3), None, 2))
    assert ref.dilate_python(np.array([[1, 2]], "float32"), (1, 3)).tolist() == [[1, 0, 0, 2]]
    assert ref.dilate_python(np.array([[1, 2]], "float32"), (1, 2), 9.0, "int32").tolist() == [[1, 9, 2]]
    assert ref.dilate_np(np.array([[[1, 2]]], "float32"), 2).tolist() == [[[1, 0, 2]]]


def test_pools_and_resizes() -> None:
    x = random(1, 3, 9, 7)
    same(ref.poolnd_python(x, (3, 2), (2, 1), (1, 1), (1, 1), (1, 1), "max", False), F.max_pool2d(
        F.pad(t(x), (0, 0, 0, 0)), (3, 2), (2, 1), (1, 1)))
    same(ref.poolnd_python(x, (3, 3), (2, 2), (1, 1), (1, 1), (1, 1), "avg", count_include_pad=False),
         F.avg_pool2d(t(x), 3, 2, 1, count_include_pad=False))
    row = np.array([[[-2, -1, -3, -4]]], "float32")
    same(ref.poolnd_python(row, (2,), (2,), (1,), (3,), (1,), "max"), np.array([[[0, 0, -1, 0]]], "float32"))
    same(ref.poolnd_python(row, (2,), (2,), (1,), (1,), (1,), "max", False), np.array([[[-2, -1, -4]]], "float32"))
    same(ref.poolnd_python(row.transpose(0, 2, 1), (2,), (2,), (1,), (2,), (0,), "max", layout="NWC"),
         np.array([[[0], [-1], [-3]]], "float32"))
    same(ref.adaptive_pool(x, (4, 3), "avg", "NCHW"), F.adaptive_avg_pool2d(t(x), (4, 3)))
    same(ref.adaptive_pool(x.transpose(0, 2, 3, 1), 2, "max", "NHWC"),
         F.adaptive_max_pool2d(t(x), 2).permute(0, 2, 3, 1))
    same(ref.resize2d_python(x, (2, 2), "NCHW", "linear", "align_corners"),
         F.interpolate(t(x), scale_factor=2, mode="bilinear", align_corners=True))
    same(ref.resize2d_python(x, (2, 3), "NCHW", "nearest_neighbor", "asymmetric"),
         x.repeat(2, axis=2).repeat(3, axis=3))
    same(ref.resize1d_python(x[0], 2, "NCW", "linear", "half_pixel"),
         F.interpolate(t(x[0]), scale_factor=2, mode="linear", align_corners=False))
    x3 = random(1, 2, 3, 4, 3)
    same(ref.resize3d_python(x3, (2, 2, 2), "NCDHW", "linear", "align_corners"),
         F.interpolate(t(x3), scale_factor=2, mode="trilinear", align_corners=True))


def test_samples_and_regions() -> None:
    x, grid = random(2, 3, 6, 5), RNG.uniform(-1.2, 1.2, (2, 2, 4, 4)).astype("float32")
    wanted = F.grid_sample(t(x), t(grid.transpose(0, 2, 3, 1)), align_corners=True)
    same(ref.grid_sample_python(x, grid), wanted)
    same(ref.grid_sample_nchw_python(x, grid), wanted)
    theta = random(2, 2, 3)
    same(ref.affine_grid_python(theta, (4, 5)),
         F.affine_grid(t(theta), (2, 1, 4, 5), align_corners=True).permute(0, 3, 1, 2))
    ones = np.ones((1, 2, 8, 8), "float32")
    rois = np.array([[0, 1, 1, 6, 6]], "float32")
    same(ref.roi_align_nchw_python(ones, rois, 3, 1.0, 2), np.ones((1, 2, 3, 3), "float32"))
    varied = random(1, 2, 8, 8)
    for number, name in enumerate(("avg", "max")):
        same(ref.roi_align_nchw_python(varied, rois, 3, 1.0, 2, number),
             ref.roi_align_nchw_python(varied, rois, 3, 1.0, 2, name))
    same(ref.roi_align_nhwc_python(ones.transpose(0, 2, 3, 1), rois, 3, 1.0, 2, b"max"),
         np.ones((1, 3, 3, 2), "float32"))
    x = random(1, 2, 8, 8)
    for number, mode in enumerate((b"avg", b"max")):
        same(ref.roi_align_nchw_python(x, rois, 3, 1.0, 2, number), ref.roi_align_nchw_python(x, rois, 3, 1.0, 2, mode))
    same(ref.roi_pool_nchw_python(ones, rois, (2, 3), 1.0), np.ones((1, 2, 2, 3), "float32"))
    image, box = ones.transpose(0, 2, 3, 1), np.array([[0, 0, 1, 1]], "float32")
    same(ref.crop_and_resize_python(image, box, np.array([0]), (4, 4), "NHWC"), np.ones((1, 4, 4, 2), "float32"))
    assert ref.reorg_python(random(1, 4, 4, 6), 2).shape == (1, 16, 2, 3)
    offset = np.zeros((1, 18, 6, 6), "float32")
    x, w = random(1, 2, 8, 8), random(3, 2, 3, 3)
    wanted = F.conv2d(t(x), t(w))
    same(ref.deformable_conv2d_nchw_python(x, offset, w, 1, 0, 1, 1, 1), wanted)
    same(ref.deformable_conv2d_nhwc_python(
        x.transpose(0, 2, 3, 1), offset.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0), 1, 0, 1, 1, 1),
        wanted.permute(0, 2, 3, 1))
    same(ref.correlation_nchw_python(x, x, 1, 0, 1, 1, 0, True), (x * x).mean(1, keepdims=True))


def test_products_and_norms() -> None:
    x, y, b = random(3, 4), random(5, 4), random(5)
    same(ref.dense(x, y, None), x @ y.T)
    same(ref.dense(x, y, b, use_bias=True, use_relu=True), np.maximum(x @ y.T + b, 0))
    p, q = random(1, 3, 4), random(2, 5, 4)
    same(ref.batch_matmul(p, q), p @ q.transpose(0, 2, 1))
    same(ref.batch_matmul(p.transpose(0, 2, 1), q.transpose(0, 2, 1), trans_x=True, trans_y=False),
         p @ q.transpose(0, 2, 1))
    x, g, b = random(2, 6, 4, 3), random(6), random(6)
    same(ref.group_norm_python(x, g, b, 2, 1, [2, 3]), F.group_norm(t(x), 2, t(g), t(b)))
    same(ref.instance_norm_python(x, g, b, (2, 3)), F.instance_norm(t(x), weight=t(g), bias=t(b)))
    whole = random(4, 3)
    same(ref.instance_norm_python(x, whole, whole, (2, 3)), F.layer_norm(t(x), (4, 3), t(whole), t(whole)))
    same(ref.layer_norm_python(x, random(3) * 0 + 1, random(3) * 0, 3), F.layer_norm(t(x), (3,)))
    mean, var = random(6), abs(random(6))
    same(ref.batch_norm(x, g, b, mean, var, 1, 1e-5, True, True, False, 0.1)[0],
         F.batch_norm(t(x), t(mean), t(var), t(g), t(b)))
    trained = ref.batch_norm(x, g, b, mean, var, 1, 1e-5, False, False, True, 1.0)
    same(trained[1], x.mean((0, 2, 3)))
    same(ref.l2_normalize_python(x, 1e-12, (1,)), F.normalize(t(x), dim=1))
    same(ref.lrn_python(x, 3, 1, 1.0, 0.3, 0.75), F.local_response_norm(t(x), 3, 0.3, 0.75, 1.0))
    same(ref.softmax_python(x[0, 0]), F.softmax(t(x[0, 0]), 1))
    same(ref.log_softmax_python(x, 2), F.log_softmax(t(x), 2))
    scores, classes, weights = random(4, 3), np.array([0, 2, 1, 1]), abs(random(3))
    same(np.asarray(ref.nll_loss(scores, classes, weights)), F.nll_loss(t(scores), t(classes), t(weights)).numpy())


def test_moves_of_elements() -> None:
    x = random(2, 8, 4, 6)
    same(ref.space_to_depth_python(ref.depth_to_space_python(x, 2), 2), x)
    same(ref.depth_to_space_python(x, 2, "CRD"), F.pixel_shuffle(t(x), 2))
    y = random(2, 4, 6, 3)
    same(ref.batch_to_space_nd_python(ref.space_to_batch_nd_python(y, (2, 3), (0, 0), (0, 0)), (2, 3), (0, 0), (0, 0)),
         y)
    indices = RNG.integers(0, 4, (2, 8, 3, 6))
    same(ref.gather_python(x, 2, indices), np.take_along_axis(x, indices, 2))
    same(ref.gather_nd_python(x, np.array([[0, 1], [3, 2]])), x[[0, 1], [3, 2]])
    square = random(4, 4)
    wanted = square.copy()
    np.fill_diagonal(wanted, 7)
    same(ref.matrix_set_diag(square, np.full(4, 7, "float32")), wanted)
    assert ref.one_hot(np.array([1, 0]), 5, 2, 3, -1, "int32").tolist() == [[2, 5, 2], [5, 2, 2]]
    assert ref.one_hot(np.array([1, 0]), 5, 2, 3, 0, "int32").tolist() == [[2, 5], [5, 2], [2, 2]]
    assert ref.searchsorted_ref(np.array([1, 2, 2, 3]), np.array([2, 0]), True, "int32").tolist() == [3, 0]
    assert ref.searchsorted_ref(np.array([[1, 2], [5, 6]]), np.array([[2], [7]]), False, "int64").tolist() == [[1], [2]]
    masked = ref.sequence_mask(np.ones((3, 2), "float32"), np.array([1, 3], "int32"), 0.5, 0)
    assert masked.tolist() == [[1, 1], [0.5, 1], [0.5, 1]]
    same(ref.slice_axis_python(x, -1, 1, -1), x[..., 1:-1])
    same(ref.strided_slice_python(x, [1, 6], [2, 0], [1, -2]), x[1:2, 6:0:-2])
    same(ref.strided_slice_python(x, [1, 2], [1, -1], 1, "size"), x[1:2, 2:])
    same(ref.strided_slice_python(x, [1], [3], [1], axes=[2]), x[:, :, 1:3])
    wanted = x.copy()
    wanted[0:1, 1:7:2] = 3
    same(ref.strided_set_python(x, np.float32(3), [0, 1], [1, 7], [1, 2]), wanted)
    wanted = x.copy()
    wanted[1:, :1] = 3
    same(ref.strided_set_python(x, np.float32(3), [1], [9, 1]), wanted)


def test_schedules_by_target() -> None:
    assert ref.dispatch("llvm", {"generic": 1, "cpu": 2}) == 2
    assert ref.dispatch(tvm.target.Target("c"), {"generic": 1, "cuda": 2}) == 1
    x = random(3, 5)
    ref.compare_numpy_tvm([x], np.exp(x), "llvm", tvm.cpu(0), topi.exp, ref.get_injective_schedule("llvm"))
    ref.compare_numpy_tvm([x], x.sum(1), "llvm", tvm.cpu(0), lambda a: topi.sum(a, 1), ref.get_reduce_schedule("llvm"))
    with pytest.raises(AssertionError):
        ref.compare_numpy_tvm([x], x, "llvm", tvm.cpu(0), topi.exp, ref.get_elemwise_schedule("llvm"))
    compute, schedule = ref.get_conv2d_nchw_implement("llvm")
    data, weight = te.placeholder((1, 2, 6, 6), name="x"), te.placeholder((3, 2, 3, 3), name="w")
    found = compute(data, weight, 1, 1, 1)
    assert isinstance(schedule([found]), te.Schedule) and ref.get_broadcast_schedule is ref.get_injective_schedule


def test_paddings() -> None:
    assert get_pad_tuple("SAME", (3, 4)) == (1, 2, 1, 1) and get_pad_tuple("VALID", (3, 4)) == (0, 0, 0, 0)
    assert get_pad_tuple(2, (3, 3)) == get_pad_tuple((2, 2), (3, 3)) == (2, 2, 2, 2)
    assert get_pad_tuple((0, 1, 2, 3), (3, 3)) == (0, 1, 2, 3)
    assert get_pad_tuple1d(1, (3,)) == (1, 1) and get_pad_tuple3d("SAME", (2, 3, 4)) == (1, 1, 2, 0, 1, 1)
    with pytest.raises(ShapeError, match=r"padding \(1, 2, 3\) has 3 numbers; 2 axes need 2 or 4"):
        get_pad_tuple((1, 2, 3), (3, 3))
    with pytest.raises(ShapeError, match="unknown padding 'FULL'; it is 'VALID', 'SAME' or integers"):
        get_pad_tuple("FULL", (3, 3))
    x = te.placeholder((1, 2, 6, 8))
    assert infer_pad(x, None) == (0, 0)
    assert [int(p) for p in infer_pad(x, topi.nn.pad(x, (0, 0, 1, 2), (0, 0, 1, 2)))] == [1, 2]
