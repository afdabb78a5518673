"""`topi.nn` beyond convolutions: pools, norms, products, blocks, bits, sparse matrices, sequences; against numpy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tilewright import te, topi
from tilewright.compat.testing import topi as ref
from tilewright.relay.op import image as I
from tilewright.relay.op import nn as N
from topi_cases import Array, Case, case, real, whole
from topi_native import check

nn = topi.nn


def trained_norms() -> list[Case]:
    """Batch normalization by the statistics of the data, which move the running ones."""

    def expected(x: Array, g: Array, b: Array, mean: Array, var: Array, axis: int) -> list[Array]:
        return ref.batch_norm(x, g, b, mean, var, axis, 0.01, True, True, True, 0.3)

    return [
        case(
            f"batch_norm-training-{axis}",
            lambda x, g, b, m, v, axis=axis: nn.batch_norm(x, g, b, m, v, axis, 0.01, True, True, True, 0.3),
            lambda x, g, b, m, v, axis=axis: expected(x, g, b, m, v, axis), real(3, 4, 5), real(n), real(n), real(n),
            real(n, low=0.5)
        ) for axis, n in ((0, 3), (1, 4), (2, 5))
    ]


def losses() -> list[Case]:
    scores, one = real(4, 3, 2), real(3)
    kinds = np.asarray([[0, 1], [2, 2], [1, 0], [1, 2]], "int32")
    share = real(3, low=0.1)
    return [
        *(case(
            f"nll_loss-{how}-{ignored}", lambda p, t, w, how=how, ignored=ignored: nn.nll_loss(p, t, w, how, ignored),
            lambda p, t, w, how=how, ignored=ignored: ref.nll_loss(p, t, w, how, ignored), scores, kinds, share
        ) for how in ("mean", "sum", "none") for ignored in (-100, 1)),
        case(
            "nll_loss-one", lambda p, t, w: nn.nll_loss(p, t, w, "mean", -100), lambda p, t, w: -p[t], one,
            np.asarray(2, "int32"), share
        ),
    ]


def pools() -> list[Case]:
    x = real(1, 3, 7, 8)
    last = x.transpose(0, 2, 3, 1)
    found = [
        case(
            "pool1d", lambda x: nn.pool1d(x, 3, 2, 1, 1, "max"), N.MaxPool1d((3,), (2,), (1,), (1, 1)).reference,
            real(2, 3, 9)
        ),
        case(
            "pool2d-max", lambda x: nn.pool2d(x, 3, 2, 1, 1, "max"),
            N.MaxPool2d((3, 3), (2, 2), (1, 1), (1, 1)).reference, x
        ),
        case(
            "pool2d-avg", lambda x: nn.pool2d(x, (3, 2), 2, 1, (1, 0, 1, 1), "avg"),
            N.AvgPool2d((3, 2), (2, 2), (1, 1), (1, 0, 1, 1), count_include_pad=True).reference, x
        ),
        case(
            "pool2d-ceil", lambda x: nn.pool2d(x, 2, 2, 1, 0, "avg", True, "NHWC", False),
            N.AvgPool2d((2, 2), (2, 2), (1, 1), (0, 0), "NHWC", ceil_mode=True).reference, last
        ),
        case(
            "pool_grad-past-the-data", lambda g, x: nn.pool_grad(g, x, 2, 3, (0, 0, 2, 2), "max", True),
            lambda g, x: np.where(x == x.max((2, 3), keepdims=True), g[:, :, :1, :1], np.float32(0)),
            real(1, 2, 2, 2), real(1, 2, 2, 2)
        ),
        case(
            "pool1d-ceil-past-the-data", lambda x: nn.pool1d(x, 2, 3, 1, (0, 2), "max", True),
            lambda x: np.stack([x[..., :2].max(-1), np.full(x.shape[:-1], -np.inf, "float32")], -1), real(1, 2, 2)
        ),
        case(
            "pool3d", lambda x: nn.pool3d(x, 2, 2, 1, 0, "avg"), N.AvgPool3d((2, 2, 2), (2, 2, 2)).reference,
            real(1, 2, 4, 5, 6)
        ),
        case("global_pool", lambda x: nn.global_pool(x, "avg"), lambda x: x.mean((2, 3), keepdims=True), x),
        case(
            "global_pool-max", lambda x: nn.global_pool(x, "max", "NHWC"), lambda x: x.max((1, 2), keepdims=True), last
        ),
        case("adaptive_pool", lambda x: nn.adaptive_pool(x, (3, 5), "avg"), N.AdaptiveAvgPool2d((3, 5)).reference, x),
        case("adaptive_pool-max", lambda x: nn.adaptive_pool(x, 3, "max"), N.AdaptiveMaxPool2d((3, 3)).reference, x),
        case(
            "adaptive_pool1d", lambda x: nn.adaptive_pool1d(x, 3, "avg"), lambda x: x.reshape(2, 3, 3, 3).mean(-1),
            real(2, 3, 9)
        ),
        case(
            "adaptive_pool3d", lambda x: nn.adaptive_pool3d(x, 1, "max"), lambda x: x.max((2, 3, 4), keepdims=True),
            real(1, 2, 3, 4, 5)
        ),
    ]

    def max_grad(g: Array, x: Array) -> Array:
        out = np.zeros_like(x)
        for c, i, j in itertools.product(range(3), range(3), range(4)):
            window = x[0, c, 2 * i : 2 * i + 3, 2 * j : 2 * j + 2]
            y, at = np.unravel_index(window.argmax(), window.shape)
            out[0, c, 2 * i + y, 2 * j + at] += g[0, c, i, j]
        return out

    def avg_grad(g: Array, x: Array) -> Array:
        out = np.zeros((1, 3, 9, 10), "float32")
        for c, i, j in itertools.product(range(3), range(4), range(4)):
            rows, columns = slice(2 * i, 2 * i + 3), slice(2 * j, 2 * j + 3)
            count = np.pad(np.ones((7, 8)), 1)[rows, columns].sum()
            out[0, c, rows, columns] += g[0, c, i, j] / count
        return out[:, :, 1:-1, 1:-1]

    found += [
        case("pool_grad-max", lambda g, x: nn.pool_grad(g, x, (3, 2), 2, 0, "max"), max_grad, real(1, 3, 3, 4), x)
    ]
    found += [
        case(
            "pool_grad-avg", lambda g, x: nn.pool_grad(g, x, 3, 2, 1, "avg", count_include_pad=False), avg_grad,
            real(1, 3, 4, 4), x
        )
    ]
    return found


def norms() -> list[Case]:
    x, c = real(2, 6, 4, 5), real(6)
    moments = real(6), real(6, low=0.5, high=2)

    def normal(x: Array, axes: tuple[int, ...]) -> Array:
        result: Array = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)
        return result

    def batch(x: Array, g: Array, b: Array, m: Array, v: Array) -> tuple[Array, ...]:
        return N.BatchNorm().reference(x, g, b, m, v)

    return [
        case("softmax", nn.softmax, N.Softmax().reference, real(3, 17)),
        case("softmax-1", lambda x: nn.softmax(x, 1), N.Softmax(1).reference, x),
        case("fast_softmax", nn.fast_softmax, N.Softmax().reference, real(3, 17)),
        case("log_softmax", nn.log_softmax, N.LogSoftmax().reference, real(3, 17)),
        case("batch_norm", nn.batch_norm, batch, x, c, real(6), *moments),
        case("layer_norm", lambda x, g, b: nn.layer_norm(x, g, b, -1), N.LayerNorm().reference, x, real(5), real(5)),
        case(
            "layer_norm-2", lambda x, g, b: nn.layer_norm(x, g, b, (2, 3)), lambda x, g, b: normal(x, (2, 3)) * g + b,
            x, real(4, 5), real(4, 5)
        ),
        case(
            "instance_norm", lambda x, g, b: nn.instance_norm(x, g, b, (2, 3)),
            lambda x, g, b: normal(x, (2, 3)) * g + b, x, real(4, 5), real(4, 5)
        ),
        case(
            "instance_norm-channels", lambda x, g, b: nn.group_norm(x, g, b, 6, 1, (2, 3)), N.InstanceNorm().reference,
            x, c, real(6)
        ),
        *trained_norms(),
        *losses(),
        case(
            "group_norm", lambda x, g, b: nn.group_norm(x, g, b, 3, 1, (2, 3)), N.GroupNorm(3).reference, x, c, real(6)
        ),
        case(
            "rms_norm", lambda x, w: nn.rms_norm(x, w, -1),
            lambda x, w: x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-5)) * w, x, real(5)
        ),
        case("l2_normalize", lambda x: nn.l2_normalize(x, 1e-6, (1,)), N.L2Normalize(1e-6, (1,)).reference, x),
        case("lrn", lambda x: nn.lrn(x, 3, 1, 0.01, 0.5, 1), N.LRN(3, 1, 1, 0.01, 0.5).reference, x),
    ]


def products() -> list[Case]:
    x, w, b = real(3, 7), real(9, 7), real(9)
    packed = real(3, 7, 4)

    def panels(x: Array, w: Array) -> Array:
        return x @ w.transpose(1, 0, 2).reshape(7, 12)

    return [
        case("dense", nn.dense, lambda x, w: x @ w.T, x, w),
        case("dense-bias", nn.dense, lambda x, w, b: x @ w.T + b, x, w, b),
        case("dense_pack", nn.dense_pack, panels, x, packed),
        case("nn.matmul", lambda a, b: nn.matmul(a, b, None, None, True), lambda a, b: a.T @ b, real(7, 3), real(7, 5)),
        case("nn.matmul-bias", nn.matmul, lambda a, b, c: a @ b + c, real(3, 7), real(7, 5), real(5)),
        case("batch_matmul", nn.batch_matmul, lambda a, b: a @ b.transpose(0, 2, 1), real(2, 3, 7), real(2, 5, 7)),
        case(
            "batch_matmul-ab", lambda a, b: nn.batch_matmul(a, b, (2, 3, 5), None, True, False),
            lambda a, b: a.transpose(0, 2, 1) @ b, real(2, 7, 3), real(1, 7, 5)
        ),
    ]


def activations() -> list[Case]:
    x, blocked = real(2, 3, 4, 5), real(1, 2, 3, 4, 5)
    last = x.transpose(0, 2, 3, 1)
    return [
        case("relu", nn.relu, N.Relu().reference, x),
        case("leaky_relu", lambda x: nn.leaky_relu(x, 0.1), N.LeakyRelu(0.1).reference, x),
        case("prelu", nn.prelu, N.PRelu().reference, x, real(3)),
        case("bias_add", nn.bias_add, N.BiasAdd().reference, x, real(3)),
        case(
            "scale_shift_nchw", nn.scale_shift_nchw, lambda x, s, b: x * s[:, None, None] + b[:, None, None], x,
            real(3), real(3)
        ),
        case("scale_shift_nhwc", nn.scale_shift_nhwc, lambda x, s, b: x * s + b, last, real(3), real(3)),
        case(
            "scale_shift_nchwc", nn.scale_shift_nchwc, lambda x, s, b: x * s[:, None, None, :] + b[:, None, None, :],
            blocked, real(2, 5), real(2, 5)
        ),
    ]


def blocks() -> list[Case]:
    x, image = real(3, 5), real(1, 4, 4, 6)

    def dilated(x: Array) -> Array:
        out = np.full((5, 13), 7, "float32")
        out[::2, ::3] = x
        return out

    def to_batch(x: Array) -> Array:
        padded = np.pad(x, ((0, 0), (1, 1), (0, 1), (0, 0)))
        n, h, w, c = padded.shape
        return padded.reshape(n, h // 2, 2, w // 3, 3, c).transpose(2, 4, 0, 1, 3, 5).reshape(n * 6, h // 2, w // 3, c)

    def to_space(x: Array) -> Array:
        n, h, w, c = x.shape
        return x.reshape(2, 3, n // 6, h, w, c).transpose(2, 3, 0, 4, 1, 5).reshape(n // 6, h * 2, w * 3, c)[:, 1:, :-2]

    return [
        case(
            "pad", lambda x: nn.pad(x, (1, 0), (0, 2), 9), lambda x: np.pad(x, ((1, 0), (0, 2)), constant_values=9), x
        ),
        case(
            "mirror_pad", lambda x: nn.mirror_pad(x, (2, 1), (3, 5)),
            lambda x: np.pad(x, ((2, 3), (1, 5)), mode="symmetric"), x
        ),
        case(
            "mirror_pad-reflect", lambda x: nn.mirror_pad(x, (2, 1), (1, 4), "REFLECT"),
            lambda x: np.pad(x, ((2, 1), (1, 4)), mode="reflect"), x
        ),
        case("dilate", lambda x: nn.dilate(x, (2, 3), 7), dilated, x),
        case("flatten", nn.flatten, lambda x: x.reshape(1, -1), image),
        case("space_to_depth", lambda x: nn.space_to_depth(x, 2), N.SpaceToDepth(2).reference, image),
        case(
            "depth_to_space", lambda x: nn.depth_to_space(x, 2, mode="CRD"), N.DepthToSpace(2, mode="CRD").reference,
            image
        ),
        case(
            "space_to_batch_nd", lambda x: nn.space_to_batch_nd(x, (2, 3), (1, 0), (1, 1)), to_batch, real(2, 4, 5, 3)
        ),
        case(
            "batch_to_space_nd", lambda x: nn.batch_to_space_nd(x, (2, 3), (1, 0), (0, 2)), to_space, real(12, 3, 2, 3)
        ),
        case("upsampling", lambda x: nn.upsampling(x, 2, 3), lambda x: x.repeat(2, 2).repeat(3, 3), image),
        case(
            "upsampling-bilinear", lambda x: nn.upsampling(x, 2, 2, "NHWC", "bilinear"),
            I.Resize2d((8, 8), layout="NHWC", coordinate_transformation_mode="asymmetric").reference, real(1, 4, 4, 3)
        ),
        case(
            "upsampling-fraction", lambda x: nn.upsampling(x, 1.3, 1.75, "NHWC", "bilinear"),
            I.Resize2d((5, 9), layout="NHWC", coordinate_transformation_mode="asymmetric").reference, real(1, 4, 5, 3)
        ),
        case(
            "upsampling-corners", lambda x: nn.upsampling(x, 2, 2, "NCHW", "bilinear", True),
            I.Resize2d((8, 12), coordinate_transformation_mode="align_corners").reference, image
        ),
        case(
            "upsampling3d", lambda x: nn.upsampling3d(x, 2, 2, 2), lambda x: x.repeat(2, 2).repeat(2, 3).repeat(2, 4),
            real(1, 2, 2, 3, 3)
        ),
    ]


def bits() -> list[Case]:
    x, w = whole(3, 16, low=0, high=4), whole(5, 16, low=0, high=2)
    image, kernel = whole(1, 8, 5, 6, low=0, high=4), whole(3, 8, 3, 3, low=0, high=2)

    def packed(x: Array) -> Array:
        planes = np.stack([(x >> b) & 1 for b in range(2)], 1).reshape(3, 2, 2, 8)
        result: Array = (planes << np.arange(7, -1, -1)).sum(-1).astype("uint8")
        return result

    def signed(w: Array) -> Array:
        return 2 * w - 1

    def conv(x: Array, w: Array, **layouts: Any) -> Array:
        return N.Conv2d(padding=(1, 1), out_dtype="int32", **layouts).reference(x, w).astype("int16")

    last, hwio = image.transpose(0, 2, 3, 1), kernel.transpose(2, 3, 1, 0)
    signs = real(3, 64), real(5, 64)

    def words(x: Array) -> Array:
        signs = (x >= 0).reshape(x.shape[0], -1, 32).astype("uint64")
        result: Array = (signs << np.arange(31, -1, -1, dtype="uint64")).sum(-1).astype("uint32")
        return result

    return [
        case("bitpack", lambda x: nn.bitpack(x, 2, 1, 1, "uint8"), packed, x),
        case(
            "bitserial_dense", lambda x, w: nn.bitserial_dense(x, w, 2, 1, "uint8"),
            lambda x, w: (x @ signed(w).T).astype("int16"), x, w
        ),
        case(
            "bitserial_dense-bipolar", lambda x, w: nn.bitserial_dense(x, w, 2, 2, "uint16", "int32", False),
            lambda x, w: x @ w.T, x, whole(5, 16, low=0, high=4)
        ),
        case(
            "bitserial_conv2d_nchw", lambda x, w: nn.bitserial_conv2d_nchw(x, w, 1, 1, 2, 1, "uint8"),
            lambda x, w: conv(x, signed(w)), image, kernel
        ),
        case(
            "bitserial_conv2d_nhwc", lambda x, w: nn.bitserial_conv2d_nhwc(x, w, 1, 1, 2, 1, "uint8", "int16", False),
            lambda x, w: conv(x, w, data_layout="NHWC", kernel_layout="HWIO"), last, hwio
        ),
        case(
            "bitserial_conv2d_nhwc-32", lambda x, w: nn.bitserial_conv2d_nhwc(x, w, 1, 0, 1, 1),
            lambda x, w: (x @ signed(w)[0, 0]).astype("int16"), whole(1, 2, 3, 64, low=0, high=2),
            whole(1, 1, 64, 3, low=0, high=2)
        ),
        case("binarize_pack", nn.binarize_pack, words, signs[0]),
        case(
            "binary_dense", lambda x, w: nn.binary_dense(nn.binarize_pack(x), nn.binarize_pack(w)),
            lambda x, w: (np.sign(x) @ np.sign(w).T).astype("float32"), *signs
        ),
        case(
            "binary_dense-64", lambda x: nn.bitpack(x, 1, 1, 1, "uint64"),
            lambda x: np.packbits(
                x.astype("uint8"), axis=1
            ).reshape(2, 1, 1, 8)[..., ::-1].copy().view("uint64").reshape(2, 1, 1), whole(2, 64, low=0, high=2)
        ),
    ]


def compressed(w: Array, block: tuple[int, int] | None = None) -> tuple[Array, ...]:
    """Rows of values, or of blocks, their columns, and where each row starts."""
    r, c = block or (1, 1)
    cells = w.reshape(w.shape[0] // r, r, w.shape[1] // c, c).transpose(0, 2, 1, 3)
    used = np.abs(cells).max((2, 3)) > 0
    starts = np.concatenate([[0], np.cumsum(used.sum(1))]).astype("int32")
    values = cells[used]
    return (values if block else values.reshape(-1)), np.nonzero(used)[1].astype("int32"), starts


def sparse() -> list[Case]:
    x, w = real(3, 8), real(6, 8) * (whole(6, 8, low=0, high=3) > 1)
    w[2] = 0
    blocks = np.kron(whole(3, 4, low=0, high=2), np.ones((2, 2))).astype("float32") * w[:6]
    square = real(5, 5) * (whole(5, 5, low=0, high=3) > 1)
    image, wide = real(1, 3, 4, 8), real(5, 72) * (whole(5, 72, low=0, high=4) > 2)

    def conv(x: Array, *_: Array) -> Array:
        return N.Conv2d(padding=(1, 1), data_layout="NHWC", kernel_layout="OHWI").reference(x, wide.reshape(5, 3, 3, 8))

    return [
        case("sparse_dense", nn.sparse_dense, lambda x, *_: x @ w.T, x, *compressed(w)),
        case(
            "sparse_dense-lhs", lambda x, *s: nn.sparse_dense(x, *s, sparse_lhs=True), lambda x, *_: w @ x.T, x,
            *compressed(w)
        ),
        case(
            "sparse_dense_sp_rhs-blocks", nn.sparse_dense_sp_rhs, lambda x, *_: x @ blocks.T, x,
            *compressed(blocks, (2, 2))
        ),
        case(
            "sparse_dense_sp_lhs-blocks", nn.sparse_dense_sp_lhs, lambda d, i, p, x: blocks @ x.T,
            *compressed(blocks, (2, 2)), x
        ),
        case(
            "sparse_transpose", nn.sparse_transpose, lambda *_: compressed(np.ascontiguousarray(square.T)),
            *compressed(square)
        ),
        case("sparse_add", nn.sparse_add, lambda x, *_: x + square, real(5, 5), *compressed(square)),
        case("sparse_conv2d", nn.sparse_conv2d, lambda x, *_: x @ w.T, image, *compressed(w)),
        case(
            "sparse_conv2d-nchw", lambda x, *s: nn.sparse_conv2d(x, *s, layout="NCHW"),
            lambda x, *_: np.einsum("nchw,oc->nohw", x, w), image.transpose(0, 3, 1, 2).copy(), *compressed(w)
        ),
        case("sparse_conv2d-3x3", lambda x, *s: nn.sparse_conv2d(x, *s, kernel_size=3), conv, image, *compressed(wide)),
    ]


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def recurrence(
    xs: Array, wi: Array, wh: Array, bi: Array, bh: Array, h: Array, c: Array, *more: Array, proj: Array | None = None,
    order: str = "IFGO"
) -> tuple[Array, Array]:
    hs, cs = [], []
    p = more or (0.0, 0.0, 0.0)
    for x in xs:
        gates = dict(zip(order, np.split(x @ wi.T + h @ wh.T + bi + bh, 4, axis=1), strict=True))
        c = sigmoid(gates["F"] + p[1] * c) * c + sigmoid(gates["I"] + p[0] * c) * np.tanh(gates["G"])
        h = sigmoid(gates["O"] + p[2] * c) * np.tanh(c)
        h = h if proj is None else h @ proj.T
        hs.append(h)
        cs.append(c)
    return np.stack(hs), np.stack(cs)


def sequences() -> list[Case]:
    xs, weights = real(4, 2, 3), (real(20, 3), real(20, 5), real(20), real(20), real(2, 5), real(2, 5))
    none = np.zeros((), "float32")
    projected = real(20, 3), real(20, 4), real(4, 5)
    scales, zeros = real(5, low=0.1, high=0.2), whole(5, low=-9, high=9)

    def quantized(x: Array, s: Array, z: Array) -> Array:
        result: Array = np.clip(np.rint(x / s) + z.astype("float32"), -128, 127).astype("float32")
        return result

    def peepholes(xs: Any, wi: Any, wh: Any, *rest: Any) -> Any:
        return nn.lstm(xs, wi, wh, *rest[:4], None, *rest[4:])

    return [
        case("lstm", nn.lstm, recurrence, xs, *weights),
        case("lstm-peepholes", peepholes, recurrence, xs, *weights, real(2, 5), real(2, 5), real(2, 5)),
        case(
            "lstm-plain", nn.lstm,
            lambda x, a, b: recurrence(x, a, b, none, none, np.zeros((2, 5), "float32"), np.zeros((2, 5), "float32")),
            xs, *weights[:2]
        ),
        case(
            "lstm-reverse", lambda x, a, b: nn.lstm(x, a, b, reverse=True, weight_layout="OGIF"),
            lambda x, a, b: recurrence(
                x[::-1], a, b, none, none, np.zeros((2, 5), "float32"), np.zeros((2, 5), "float32"), order="OGIF"
            ), xs, *weights[:2]
        ),
        case(
            "lstm-projected", lambda x, a, b, p: nn.lstm(x, a, b, proj=p),
            lambda x, a, b, p: recurrence(
                x, a, b, none, none, np.zeros((2, 4), "float32"), np.zeros((2, 5), "float32"), proj=p
            ), xs, *projected
        ),
        case(
            "simulated_quantize", lambda x, s, z: nn.simulated_quantize(x, "int8", s, z), quantized,
            real(3, 5, low=-40, high=40), scales, zeros
        ),
        case(
            "simulated_quantize-code", nn.simulated_quantize,
            lambda x, c, s, z: np.clip(np.rint(x / s) + z, 0, 255).astype("float32"), real(3, 5),
            np.asarray(2, "int32"), np.asarray(0.1, "float32"), np.asarray(3, "int32")
        ),
        case("simulated_quantize-off", lambda x: nn.simulated_quantize(x, "disable"), lambda x: x, real(3, 5)),
        case(
            "simulated_dequantize", lambda x, s, z: nn.simulated_dequantize(x, "int8", s, z),
            lambda x, s, z: ((x - z) * s).astype("float32"), real(3, 5), scales, zeros
        ),
    ]


def correlated(a: Array, b: Array) -> Array:
    """Patches of 3, displacements of up to 2 in steps of 1, padding 3."""
    a, b = (np.pad(x, ((0, 0), (0, 0), (3, 3), (3, 3))) for x in (a, b))
    size = a.shape[2] - 6
    out = np.zeros((1, 25, size, a.shape[3] - 6), "float32")
    for q, y, x in itertools.product(range(25), range(size), range(a.shape[3] - 6)):
        dy, dx = q // 5 - 2, q % 5 - 2
        one, other = a[0, :, y + 2 : y + 5, x + 2 : x + 5], b[0, :, y + 2 + dy : y + 5 + dy, x + 2 + dx : x + 5 + dx]
        out[0, q, y, x] = (one * other).mean()
    return out


def displacements() -> list[Case]:
    a, b = real(1, 2, 5, 6), real(1, 2, 5, 6)
    return [
        case("correlation_nchw", lambda a, b: nn.correlation_nchw(a, b, 3, 2, 1, 1, 3, True), correlated, a, b),
        case(
            "correlation_nchw-difference", lambda a, b: nn.correlation_nchw(a, b, 1, 0, 1, 1, 0, False),
            lambda a, b: np.abs(a - b).mean(1, keepdims=True), a, b
        ),
        case(
            "fifo_buffer", lambda x, b: nn.fifo_buffer(x, b, 1), lambda x, b: np.concatenate([b, x], 1)[:, -5:],
            real(2, 2), real(2, 5)
        ),
        case(
            "fifo_buffer-long", lambda x, b: nn.fifo_buffer(x, b, 0), lambda x, b: np.concatenate([b, x])[-3:], real(4),
            real(3)
        ),
    ]


CASES = [*pools(), *norms(), *products(), *activations(), *blocks(), *bits(), *sparse(), *sequences(), *displacements()]


@pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])
def test_layers_equal_numpy(case: Case) -> None:
    check(case)


def test_a_padded_tensor_is_one_named_computation() -> None:
    x = te.placeholder((4, 4), name="x")
    padded = nn.pad(x, (1, 0), (0, 2), 9, name="padded", attrs={"a": 1})
    assert (padded.op.name, padded.op.attrs["a"], list(padded.op.inputs)) == ("padded", 1, [x])
    assert nn.mirror_pad(x, (1, 1), name="mirrored").op.name == "mirrored"
