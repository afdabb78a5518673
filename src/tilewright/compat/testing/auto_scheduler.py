"""TVM's `tvm.testing.auto_scheduler`: small computations for tests of the search, registered as workloads."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tilewright import te, topi
from tilewright.scalar.expr import min_value
from tilewright.search import auto_scheduler
from tilewright.search.auto_scheduler.sketch_rules import CONSTANT_INDICES
from tilewright.te import Tensor
from tilewright.topi.utils import const_matrix
from tilewright.topi.winograd import matrices

_TILE: Final = 4
"""Results along each side of a tile of Winograd's algorithm."""

__all__ = [
    "conv2d_nchw_bn_relu_auto_scheduler_test", "conv2d_winograd_nhwc_auto_scheduler_test",
    "double_matmul_auto_scheduler_test", "get_tiled_matmul",
    "invalid_compute_definition", "matmul_auto_scheduler_test", "matmul_auto_scheduler_test_rename_0",
    "max_pool2d_auto_scheduler_test", "min_nm_auto_scheduler_test", "parallel_matmul_auto_scheduler_test",
    "softmax_abcd_auto_scheduler_test", "softmax_nm_auto_scheduler_test", "zero_rank_compute_auto_scheduler_test",
    "zero_rank_reduce_auto_scheduler_test",
]


def _product(a: Tensor, b: Tensor, name: str, axis: str = "k") -> Tensor:
    k = te.reduce_axis((0, a.shape[1]), axis)
    return te.compute((a.shape[0], b.shape[1]), lambda i, j: te.sum(a[i, k] * b[k, j], axis=[k]), name=name)


def _padded(data: Tensor, width: int, value: Any = 0.0) -> Tensor:
    """Return an image (NCHW) with values around it; the image itself without any."""
    return topi.nn.pad(data, (0, 0, width, width), pad_value=value, name="pad_temp") if width else data


def _convolution(data: Tensor, kernel: Tensor, stride: int, dilation: int) -> Tensor:
    """Return a convolution (NCHW, OIHW) of a padded image."""
    n, channels, height, width = data.extents
    out, _, tall, wide = kernel.extents
    rows, columns = ((s - (k - 1) * dilation - 1) // stride + 1 for s, k in ((height, tall), (width, wide)))
    c, p, q = te.reduce_axis((0, channels), "rc"), te.reduce_axis((0, tall), "ry"), te.reduce_axis((0, wide), "rx")
    return te.compute(
        (n, out, rows, columns),
        lambda i, o, y, x: te.sum(
            data[i, c, y * stride + p * dilation, x * stride + q * dilation] * kernel[o, c, p, q], axis=[c, p, q]),
        name="conv2d_nchw")


def _square(n: int, name: str) -> Tensor:
    return te.placeholder((n, n), name=name)


@auto_scheduler.register_workload
def matmul_auto_scheduler_test(N: int, M: int, K: int) -> list[Tensor]:
    """A product of N x K and K x M: [A, B, C]."""
    a, b = te.placeholder((N, K), name="A"), te.placeholder((K, M), name="B")
    return [a, b, _product(a, b, "C")]


def matmul_auto_scheduler_test_rename_0(N: int, M: int, K: int) -> list[Tensor]:
    """The same product, registered under another name."""
    found: list[Tensor] = matmul_auto_scheduler_test(N, M, K)
    return found


auto_scheduler.register_workload("matmul_auto_scheduler_test_rename_1", matmul_auto_scheduler_test_rename_0)


@auto_scheduler.register_workload
def double_matmul_auto_scheduler_test(N: int) -> list[Tensor]:
    """A product of a product: [A, B, C, (A B) C], all N x N."""
    a, b, c = (_square(N, name) for name in "ABC")
    return [a, b, c, _product(_product(a, b, "D"), c, "E")]


@auto_scheduler.register_workload
def parallel_matmul_auto_scheduler_test(N: int) -> list[Tensor]:
    """Two products of one matrix: [A, B, C, A B, A C], all N x N."""
    a, b, c = (_square(N, name) for name in "ABC")
    return [a, b, c, _product(a, b, "D", "k1"), _product(a, c, "E", "k2")]


@auto_scheduler.register_workload
def conv2d_nchw_bn_relu_auto_scheduler_test(
    N: int, H: int, W: int, CI: int, CO: int, kernel_size: int, strides: int, padding: int, dilation: int = 1
) -> list[Tensor]:
    """A convolution with bias, scale, offset and ReLU: [data, kernel, bias, offset, scale, result]."""
    data = te.placeholder((N, CI, H, W), name="Data")
    kernel = te.placeholder((CO, CI, kernel_size, kernel_size), name="Kernel")
    bias, scale, offset = (te.placeholder((CO, 1, 1), name=name) for name in ("Bias", "Bn_scale", "Bn_offset"))
    found = _convolution(_padded(data, padding), kernel, strides, dilation)
    normal = topi.add(topi.multiply(topi.add(found, bias), scale), offset)
    return [data, kernel, bias, offset, scale, topi.nn.relu(normal)]


@auto_scheduler.register_workload
def conv2d_winograd_nhwc_auto_scheduler_test(
    N: int, H: int, W: int, CI: int, CO: int, kernel_size: int = 3, stride: int = 1, padding: int = 0, dilation: int = 1
) -> list[Tensor]:
    """A convolution 3x3 by Winograd's algorithm with a transformed kernel: [data, kernel, result]."""
    taps, size = kernel_size, _TILE + kernel_size - 1
    rows, columns = ((n + 2 * padding - taps) // stride + 1 for n in (H, W))
    tall, wide = -(-rows // _TILE), -(-columns // _TILE)
    found = matrices(_TILE)
    to_data, to_results = (const_matrix(np.asarray(m, np.float32)) for m in (found.inputs, found.outputs))
    data = te.placeholder((N, H, W, CI), name="inputs")
    kernel = te.placeholder((size, size, CI, CO), name="weight")
    after = [0, tall * _TILE + taps - 1 - H - padding, wide * _TILE + taps - 1 - W - padding, 0]
    padded = topi.nn.pad(data, (0, padding, padding, 0), after, name="data_pad")
    a, b = (te.reduce_axis((0, size), name) for name in "ab")
    c, d = (te.reduce_axis((0, size), name) for name in "cd")
    k = te.reduce_axis((0, CI), name="ci")

    def element(y: Any, x: Any, p: Any, i: Any) -> Any:
        top, left = te.indexmod(te.indexdiv(p, wide), tall) * _TILE, te.indexmod(p, wide) * _TILE
        return padded[te.indexdiv(p, tall * wide), top + y, left + x, i]

    tiles = te.compute((size, size, N * tall * wide, CI), element, name="input_tile")
    packed = te.compute(
        tiles.shape, lambda y, x, p, i: te.sum(tiles[a, b, p, i] * to_data[y, a] * to_data[x, b], axis=[a, b]),
        name="data_pack", attrs={CONSTANT_INDICES: ["y", "x", "a", "b"]})
    products = te.compute(
        (size, size, N * tall * wide, CO), lambda y, x, p, o: te.sum(packed[y, x, p, k] * kernel[y, x, k, o], axis=[k]),
        name="bgemm")
    results = te.compute(
        (_TILE, _TILE, N * tall * wide, CO),
        lambda y, x, p, o: te.sum(products[c, d, p, o] * to_results[y, c] * to_results[x, d], axis=[c, d]),
        name="inverse", attrs={CONSTANT_INDICES: ["y", "x", "c", "d"]})

    def result(n: Any, y: Any, x: Any, o: Any) -> Any:
        place = n * tall * wide + te.indexdiv(y, _TILE) * wide + te.indexdiv(x, _TILE)
        return results[te.indexmod(y, _TILE), te.indexmod(x, _TILE), place, o]

    return [data, kernel, te.compute((N, rows, columns, CO), result, name="conv2d_winograd")]


@auto_scheduler.register_workload
def max_pool2d_auto_scheduler_test(N: int, H: int, W: int, CI: int, padding: int) -> list[Tensor]:
    """The largest of each 2x2 window: [data, result]."""
    data = te.placeholder((N, CI, H, W), name="Data")
    padded = _padded(data, padding, min_value("float32"))
    rows, columns = (n + 2 * padding - 1 for n in (H, W))
    p, q = te.reduce_axis((0, 2), "p"), te.reduce_axis((0, 2), "q")
    return [data, te.compute(
        (N, CI, rows, columns), lambda n, c, y, x: te.max(padded[n, c, y + p, x + q], axis=[p, q]), name="pool")]


@auto_scheduler.register_workload
def min_nm_auto_scheduler_test(N: int, M: int) -> list[Tensor]:
    """The least element of each row: [A, B]."""
    a = te.placeholder((N, M), name="A")
    return [a, topi.min(a, axis=-1)]


@auto_scheduler.register_workload
def softmax_nm_auto_scheduler_test(N: int, M: int) -> list[Tensor]:
    """The softmax of each row: [A, B]."""
    a = te.placeholder((N, M), name="A")
    return [a, topi.nn.softmax(a, axis=1)]


@auto_scheduler.register_workload
def softmax_abcd_auto_scheduler_test(a: int, b: int, c: int, d: int) -> list[Tensor]:
    """The softmax along the last of four axes: [A, B]."""
    data = te.placeholder((a, b, c, d), name="A")
    return [data, topi.nn.softmax(data, axis=-1)]


@auto_scheduler.register_workload
def zero_rank_reduce_auto_scheduler_test(N: int) -> list[Tensor]:
    """The sum of a vector, without axes: [A, B]."""
    a, k = te.placeholder((N,), name="A"), te.reduce_axis((0, N), name="k")
    return [a, te.compute((), lambda: te.sum(a[k], axis=[k]), name="B")]


@auto_scheduler.register_workload
def zero_rank_compute_auto_scheduler_test(N: int) -> list[Tensor]:
    """The sum of a vector plus one, both without axes: [A, B]."""
    a, total = zero_rank_reduce_auto_scheduler_test(N)
    return [a, te.compute((), lambda: total() + 1.0, name="C")]


def invalid_compute_definition() -> list[Tensor]:
    """A tensor that reads a reduction within another expression, which no schedule can have: [A, B]."""
    a, k = te.placeholder((10, 10), name="A"), te.reduce_axis((0, 10), name="k")
    return [a, te.compute((10,), lambda i: te.sum(a[i, k], axis=[k]) + 1.0, name="B")]


def get_tiled_matmul() -> tuple[Any, Any]:
    """A graph of a product of 512 x 512, and a state of it with three levels of tiles."""
    dag = auto_scheduler.ComputeDAG(matmul_auto_scheduler_test(512, 512, 512))
    state = dag.get_init_state()
    c = state.stage_ops[2]
    i, j, k = state[c].iters
    i0, i1, i2, i3 = state.split(c, i, [16, 8, 8])
    j0, j1, j2, j3 = state.split(c, j, [8, 4, 4])
    k0, k1 = state.split(c, k, [2])
    state.reorder(c, [i0, j0, i1, j1, k0, i2, j2, k1, i3, j3])
    return dag, state
