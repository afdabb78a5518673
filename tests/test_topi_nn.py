"""`topi.nn`, built with plain loops and with the schedules for processors, against the meaning of the same operators in
numpy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tilewright import topi
from tilewright.relay.op import nn as N
from tilewright.topi.winograd import matrices
from topi_cases import Array, Case, case, real, whole
from topi_native import check

nn = topi.nn


def convolutions() -> list[Case]:
    x1, w1 = real(2, 3, 9), real(5, 3, 3)
    x2, w2 = real(1, 3, 7, 9), real(5, 3, 3, 2)
    x3, w3 = real(1, 2, 4, 5, 6), real(3, 2, 2, 3, 2)
    plain1, plain2 = N.Conv1d(strides=(2,), padding=(1, 1)).reference, N.Conv2d(
        strides=(2, 1), padding=(1, 0, 2, 1), dilation=(1, 2)
    ).reference
    last = N.Conv2d(padding=(1, 1), data_layout="NHWC", kernel_layout="HWIO").reference
    grouped = N.Conv2d(padding=(1, 1), groups=2).reference
    same = N.Conv2d(padding=(1, 0, 1, 0)).reference
    found = [
        case("conv1d", lambda x, w: nn.conv1d(x, w, 2, 1), plain1, x1, w1),
        case("conv1d_ncw", lambda x, w: nn.conv1d_ncw(x, w, 2, 1), plain1, x1, w1),
        case(
            "conv1d_nwc", nn.conv1d_nwc, N.Conv1d(data_layout="NWC", kernel_layout="WIO").reference, real(2, 9, 3),
            real(3, 3, 5)
        ),
        case(
            "group_conv1d_ncw", lambda x, w: nn.group_conv1d_ncw(x, w, groups=2), N.Conv1d(groups=2).reference,
            real(2, 4, 9), real(6, 2, 3)
        ),
        case(
            "group_conv1d_nwc", lambda x, w: nn.group_conv1d_nwc(x, w, groups=2),
            N.Conv1d(groups=2, data_layout="NWC", kernel_layout="WIO").reference, real(2, 9, 4), real(3, 2, 6)
        ),
        case("conv2d", lambda x, w: nn.conv2d(x, w, (2, 1), (1, 0, 2, 1), (1, 2)), plain2, x2, w2),
        case("conv2d-nhwc", lambda x, w: nn.conv2d(x, w, 1, 1, 1, "NHWC"), last, real(2, 5, 6, 3), real(3, 3, 3, 5)),
        case("conv2d_nchw", lambda x, w: nn.conv2d_nchw(x, w, (2, 1), (1, 0, 2, 1), (1, 2)), plain2, x2, w2),
        case("conv2d_nchw-same", lambda x, w: nn.conv2d_nchw(x, w, 1, "SAME", 1), same, x2, real(5, 3, 3, 1)),
        case("conv2d_nhwc", lambda x, w: nn.conv2d_nhwc(x, w, 1, 1, 1), last, real(1, 5, 6, 3), real(3, 3, 3, 5)),
        case(
            "conv2d_hwcn", lambda x, w: nn.conv2d_hwcn(x, w, 1, 0, 1),
            N.Conv2d(data_layout="HWCN", kernel_layout="HWIO").reference, real(5, 6, 3, 2), real(3, 3, 3, 5)
        ),
        case(
            "group_conv2d_nchw", lambda x, w: nn.group_conv2d_nchw(x, w, 1, 1, 1, 2), grouped, real(1, 4, 5, 6),
            real(6, 2, 3, 3)
        ),
        case(
            "group_conv2d_nhwc", lambda x, w: nn.group_conv2d_nhwc(x, w, 1, 1, 1, 2),
            N.Conv2d(padding=(1, 1), groups=2, data_layout="NHWC", kernel_layout="HWIO").reference, real(1, 5, 6, 4),
            real(3, 3, 2, 6)
        ),
        case(
            "conv3d_ncdhw", lambda x, w: nn.conv3d_ncdhw(x, w, 1, 1, 1), N.Conv3d(padding=(1, 1, 1)).reference, x3, w3
        ),
        case(
            "conv3d_ndhwc", lambda x, w: nn.conv3d_ndhwc(x, w, 2, 0, 1),
            N.Conv3d(strides=(2, 2, 2), data_layout="NDHWC", kernel_layout="DHWIO").reference, real(1, 4, 5, 6, 2),
            real(2, 3, 2, 2, 3)
        ),
        case("conv", lambda x, w: nn.conv(x, w, 1, 0, 1, 1, "NCHW"), N.Conv2d().reference, x2, w2),
        case(
            "conv2d-int8", lambda x, w: nn.conv2d_nchw(x, w, 1, 0, 1, "int32"), N.Conv2d(out_dtype="int32").reference,
            whole(1, 3, 5, 6, dtype="int8"), whole(4, 3, 3, 3, dtype="int8")
        ),
    ]
    found += [
        case(
            "conv1d_transpose_ncw", lambda x, w: nn.conv1d_transpose_ncw(x, w, 2, 1, "float32", 1),
            N.Conv1dTranspose(strides=(2,), padding=(1, 1), output_padding=(1,)).reference, real(1, 3, 5), real(3, 4, 3)
        ),
        case(
            "conv2d_transpose_nchw", lambda x, w: nn.conv2d_transpose_nchw(x, w, 2, 1, "float32", 0),
            N.Conv2dTranspose(strides=(2, 2), padding=(1, 1)).reference, real(1, 3, 4, 5), real(3, 4, 3, 3)
        ),
        case(
            "group_conv2d_transpose_nchw", lambda x, w: nn.group_conv2d_transpose_nchw(x, w, 2, 0, "float32", 0, 2),
            N.Conv2dTranspose(strides=(2, 2), groups=2).reference, real(1, 4, 4, 5), real(4, 3, 2, 2)
        ),
        case(
            "conv3d_transpose_ncdhw", lambda x, w: nn.conv3d_transpose_ncdhw(x, w, 2, 0, "float32", 0),
            N.Conv3dTranspose(strides=(2, 2, 2)).reference, real(1, 2, 2, 3, 3), real(2, 3, 2, 3, 2)
        ),
        case(
            "group_conv1d_transpose_ncw", lambda x, w: nn.group_conv1d_transpose_ncw(x, w, 1, 0, "float32", 0, 2),
            N.Conv1dTranspose(groups=2).reference, real(1, 4, 5), real(4, 3, 3)
        ),
        case(
            "group_conv3d_transpose_ncdhw", lambda x, w: nn.group_conv3d_transpose_ncdhw(x, w, 1, 0, "float32", 0, 2),
            N.Conv3dTranspose(groups=2).reference, real(1, 2, 2, 3, 3), real(2, 3, 2, 3, 2)
        ),
    ]
    return found


def depthwise() -> list[Case]:
    def first(x: Array, w: Array) -> Array:
        c, m = w.shape[:2]
        return N.Conv2d(padding=(1, 1), groups=c).reference(x, w.reshape(c * m, 1, *w.shape[2:]))

    def last(x: Array, w: Array) -> Array:
        return first(x.transpose(0, 3, 1, 2), w.transpose(2, 3, 0, 1)).transpose(0, 2, 3, 1)

    x, w = real(1, 5, 6, 3), real(3, 3, 3, 2)
    grads = real(1, 5, 6, 6)

    def by_data(w: Array, g: Array) -> Array:
        out = np.zeros((1, 7, 8, 3), "float32")
        for y, at, c, m in itertools.product(range(5), range(6), range(3), range(2)):
            out[0, y : y + 3, at : at + 3, c] += g[0, y, at, c * 2 + m] * w[:, :, c, m]
        return out[:, 1:-1, 1:-1]

    def by_kernel(x: Array, g: Array) -> Array:
        padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        out = np.zeros((3, 3, 3, 2), "float32")
        for y, at, c, m in itertools.product(range(3), range(3), range(3), range(2)):
            out[y, at, c, m] = (padded[0, y : y + 5, at : at + 6, c] * g[0, :, :, c * 2 + m]).sum()
        return out

    return [
        case(
            "depthwise_conv2d_nchw", lambda x, w: nn.depthwise_conv2d_nchw(x, w, 1, 1, 1), first, real(2, 3, 5, 6),
            real(3, 2, 3, 3)
        ),
        case("depthwise_conv2d_nhwc", lambda x, w: nn.depthwise_conv2d_nhwc(x, w, 1, 1, 1), last, x, w),
        case(
            "backward_input",
            lambda w, g: nn.depthwise_conv2d_backward_input_nhwc(w, g, (1, 5, 6, 6), (1, 5, 6, 3), 1, 1), by_data, w,
            grads
        ),
        case(
            "backward_weight",
            lambda x, g: nn.depthwise_conv2d_backward_weight_nhwc(x, g, (1, 5, 6, 6), (3, 3, 3, 2), 1, 1), by_kernel, x,
            grads
        ),
    ]


def blocked(x: Array, size: int) -> Array:
    n, c, *rest = x.shape
    return x.reshape(n, c // size, size, *rest).transpose(0, 1, 3, 4, 2)


def channel_blocks() -> list[Case]:
    def plain(x: Array, w: Array, **attrs: Any) -> Array:
        data = x.transpose(0, 1, 4, 2, 3).reshape(x.shape[0], -1, *x.shape[2:4])
        kernel = w.transpose(0, 5, 1, 4, 2, 3).reshape(w.shape[0] * w.shape[5], -1, *w.shape[2:4])
        return blocked(N.Conv2d(padding=(1, 1), **attrs).reference(data, kernel), w.shape[5])

    def together(x: Array, w: Array) -> Array:
        flat = w.transpose(0, 1, 2, 3, 4, 6, 5).reshape(*w.shape[:4], w.shape[4] * w.shape[6], w.shape[5])
        return plain(x, flat, out_dtype="int32")

    return [
        case(
            "conv2d_NCHWc", lambda x, w: nn.conv2d_NCHWc(x, w, 1, 1, 1, "NCHW2c", "NCHW4c"), plain, real(1, 3, 5, 6, 2),
            real(2, 3, 3, 3, 2, 4)
        ),
        case(
            "conv2d_NCHWc-groups", lambda x, w: nn.conv2d_NCHWc(x, w, 1, 1, 1, "NCHW2c", "NCHW4c"),
            lambda x, w: plain(x, w, groups=2), real(1, 4, 5, 6, 2), real(2, 2, 3, 3, 2, 4)
        ),
        case(
            "conv2d_NCHWc_int8", lambda x, w: nn.conv2d_NCHWc_int8(x, w, 1, 1, 1, "NCHW8c", "NCHW4c"), together,
            whole(1, 1, 5, 6, 8, dtype="int8"), whole(2, 1, 3, 3, 2, 4, 4, dtype="int8")
        ),
        case(
            "depthwise_conv2d_NCHWc", lambda x, w: nn.depthwise_conv2d_NCHWc(x, w, 1, 1, 1, "NCHW2c", "NCHW2c"),
            lambda x, w: plain(x, w, groups=6), real(1, 3, 5, 6, 2), real(3, 1, 3, 3, 1, 2)
        ),
        case(
            "unpack", lambda x: nn.unpack_NCHWc_to_nchw(x, "float32"),
            lambda x: x.transpose(0, 1, 4, 2, 3).reshape(1, 6, 5, 4), real(1, 2, 5, 4, 3)
        ),
    ]


def winograd() -> list[Case]:
    x, w = real(1, 3, 7, 9), real(5, 3, 3, 3)
    first, last = N.Conv2d(padding=(1, 1)).reference, N.Conv2d(
        padding=(1, 1), data_layout="NHWC", kernel_layout="HWIO"
    ).reference

    def transformed(x: Any, w: Any) -> Any:
        return nn.conv2d_winograd_nhwc_without_weight_transform(
            x, nn.conv2d_winograd_weight_transform(w, 2), 1, 1, 1, "float32"
        )

    def turned(x: Any, w: Any) -> Any:
        packed = topi.transpose(nn.conv2d_winograd_weight_transform(w, 4), (0, 1, 3, 2))
        return nn.conv2d_winograd_nchw_without_weight_transform(x, packed, 1, 1, 1, "float32")

    def blocks(w: Array) -> Array:
        flat = np.zeros((18, 8), "float32")
        flat[:, :7] = w.reshape(18, 7)
        padded = np.zeros((20, 8), "float32")
        padded[:18] = flat
        return padded.reshape(5, 4, 2, 4).transpose(2, 0, 3, 1)

    def cubes(w: Array) -> Array:
        g = np.asarray([[float(v) for v in row] for row in matrices(2).weights], "float32")
        result: Array = np.einsum("oizyx,az,by,cx->abcoi", w, g, g, g)
        return result

    return [
        case(
            "conv2d_winograd_nhwc", lambda x, w: nn.conv2d_winograd_nhwc(x, w, 1, 1, 1, "float32"), last,
            x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0), tolerance=2e-4
        ),
        case(
            "conv2d_winograd_nchw", lambda x, w: nn.conv2d_winograd_nchw(x, w, 1, 1, 1, "float32"), first, x, w,
            tolerance=2e-4
        ),
        case(
            "without_weight_transform", transformed, lambda x, w: last(x, w.transpose(2, 3, 1, 0)),
            x.transpose(0, 2, 3, 1), w, tolerance=2e-4
        ),
        case("without_weight_transform-nchw", turned, first, x, w, tolerance=2e-4),
        case(
            "conv3d_winograd_weight_transform", lambda w: nn.conv3d_winograd_weight_transform(w, 2), cubes,
            real(2, 3, 3, 3, 3)
        ),
        case(
            "conv2d_gemm_weight_transform", lambda w: nn.conv2d_gemm_weight_transform(w, 4, 4), blocks, real(3, 3, 2, 7)
        ),
    ]


def deformed(x: Array, offset: Array, w: Array) -> Array:
    """NCHW, padding 1, stride 1, one group, read pixel by pixel."""
    n, channels, height, width = x.shape
    out = np.zeros((n, w.shape[0], height, width), "float32")

    def pixel(b: int, c: int, y: int, at: int) -> float:
        return float(x[b, c, y, at]) if 0 <= y < height and 0 <= at < width else 0.0

    for b, c, y, at, ky, kx in itertools.product(
        range(n), range(channels), range(height), range(width), range(3), range(3)
    ):
        dy, dx = (offset[b, (c // (channels // 2)) * 18 + (ky * 3 + kx) * 2 + k, y, at] for k in (0, 1))
        py, px = y - 1 + ky + dy, at - 1 + kx + dx
        y0, x0 = int(np.floor(py)), int(np.floor(px))
        fy, fx = py - y0, px - x0
        seen = sum(
            (fy if i else 1 - fy) * (fx if j else 1 - fx) * pixel(b, c, y0 + i, x0 + j) for i in (0, 1) for j in (0, 1)
        )
        out[b, :, y, at] += w[:, c, ky, kx] * seen
    return out


def deformable() -> list[Case]:
    x, offset, w = real(1, 4, 4, 5), real(1, 36, 4, 5, low=-1, high=1), real(3, 4, 3, 3)
    last = x.transpose(0, 2, 3, 1), offset.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0)
    return [
        case(
            "deformable_conv2d_nchw", lambda x, o, w: nn.deformable_conv2d_nchw(x, o, w, 1, 1, 1, 2, 1, "float32"),
            deformed, x, offset, w, tolerance=1e-4
        ),
        case(
            "deformable_conv2d_nhwc", lambda x, o, w: nn.deformable_conv2d_nhwc(x, o, w, 1, 1, 1, 2, 1, "float32"),
            deformed(x, offset, w).transpose(0, 2, 3, 1), *last, tolerance=1e-4
        ),
    ]


CASES = [*convolutions(), *depthwise(), *channel_blocks(), *winograd(), *deformable()]


@pytest.mark.sampled(18)
@pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])
def test_convolutions_equal_numpy(case: Case) -> None:
    check(case)


