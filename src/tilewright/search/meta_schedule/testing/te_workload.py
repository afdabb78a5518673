"""Computations in `te` for tests of tuners, with the sizes of Ansor's evaluation (Zheng et al., OSDI 2020).

    mod = create_te_workload("C2D", 0)          the function of the first size of the two-dimensional convolution
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tilewright import te
from tilewright.base.errors import OptionError
from tilewright.scalar.expr import LE, PrimExpr, compare
from tilewright.te.tensor import Tensor
from tilewright.tir.stmt import PrimFunc
from tilewright.topi.nn.activation import relu

Tensors = tuple[Tensor, ...]


def _padded(data: Tensor, before: Sequence[int]) -> Tensor:
    """Return the data with zeros on both sides of each dimension."""
    shape = [n + 2 * p for n, p in zip(data.shape, before, strict=True)]

    def element(*i: PrimExpr) -> PrimExpr:
        inside = [c for k, n, p in zip(i, data.shape, before, strict=True) if p for c in (compare(LE, p, k), k < n + p)]
        value = data(*(k - p if p else k for k, p in zip(i, before, strict=True)))
        return te.if_then_else(te.all(*inside), value, te.const(0, data.dtype)) if inside else value

    return te.compute(shape, element, name="PadInput")


def _reduced(names: str, *extents: int) -> list[te.IterVar]:
    return [te.reduce_axis((0, n), name=name) for n, name in zip(extents, names.split(), strict=True)]


def _spanned(size: int, kernel: int, stride: int, padding: int, dilation: int = 1) -> int:
    """Return the size of the output of a convolution."""
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


# Products.
def matmul(n: int, m: int, k: int, in_dtype: str = "float32", out_dtype: str = "float32") -> Tensors:
    """Return A (n, k), B (k, m) and their product (n, m)."""
    a, b = te.placeholder((n, k), name="A", dtype=in_dtype), te.placeholder((k, m), name="B", dtype=in_dtype)
    (at,) = _reduced("k", k)
    product = te.compute(
        (n, m), lambda i, j: te.sum(a[i, at].astype(out_dtype) * b[at, j].astype(out_dtype), axis=[at]), name="C")
    return a, b, product


def matmul_relu(n: int, m: int, k: int, in_dtype: str = "float32", out_dtype: str = "float32") -> Tensors:
    """Return A (n, k), B (k, m) and max(0, A B) of shape (n, m)."""
    a, b, product = matmul(n, m, k, in_dtype, out_dtype)
    return a, b, relu(product)


def batch_matmul_nkkm(
    B: int, N: int, M: int, K: int, in_dtype: str = "float32", out_dtype: str = "float32"
) -> Tensors:
    """Return X (B, N, K), Y (B, K, M) and the product of each pair (B, N, M)."""
    x, y = te.placeholder((B, N, K), name="X", dtype=in_dtype), te.placeholder((B, K, M), name="Y", dtype=in_dtype)
    (at,) = _reduced("k", K)
    product = te.compute(
        (B, N, M),
        lambda b, i, j: te.sum(x[b, i, at].astype(out_dtype) * y[b, at, j].astype(out_dtype), axis=[at]), name="Z")
    return x, y, product


def transpose_batch_matmul(
    batch: int, seq_len: int, n_head: int, n_dim: int, in_dtype: str = "float32", out_dtype: str = "float32"
) -> Tensors:
    """Return query and value (batch, seq_len, n_head, n_dim), and the products of their transposes (batch, n_head,
    seq_len, seq_len): the scores of attention."""
    query, value = (
        te.placeholder((batch, seq_len, n_head, n_dim), name=name, dtype=in_dtype) for name in ("query", "value"))
    queries = te.compute(
        (batch, n_head, seq_len, n_dim), lambda b, h, s, d: query[b, s, h, d], name="query_T")
    values = te.compute(
        (batch, n_head, n_dim, seq_len), lambda b, h, d, s: value[b, s, h, d], name="value_T")
    (k,) = _reduced("k", n_dim)
    scores = te.compute(
        (batch, n_head, seq_len, seq_len),
        lambda b, h, i, j: te.sum(
            queries[b, h, i, k].astype(out_dtype) * values[b, h, k, j].astype(out_dtype), axis=[k]),
        name="C")
    return query, value, scores


# Convolutions.
def _convolution(
    name: str, axes: str, batch: int, sizes: Sequence[int], channels: tuple[int, int], kernel_size: int, stride: int,
    padding: int, dilation: int, groups: int, in_dtype: str, out_dtype: str,
) -> Tensors:
    """Return inputs, weight and the convolution along spatial axes with these names and sizes, channels last."""
    given, made = channels
    inputs = te.placeholder((batch, *sizes, given), name="inputs", dtype=in_dtype)
    taps = (kernel_size,) * len(sizes)
    weight = te.placeholder((*taps, given // groups, made), name="weight", dtype=in_dtype)
    padded = _padded(inputs, (0, *(padding for _ in sizes), 0))
    *window, rc = _reduced(" ".join(f"r{axis}" for axis in (*axes, "c")), *taps, given // groups)

    def element(*i: PrimExpr) -> PrimExpr:
        n, *at, co = i
        places = [x * stride + tap * dilation for x, tap in zip(at, window, strict=True)]
        value = padded[(n, *places, co // (made // groups) * (given // groups) + rc)]
        return te.sum(
            value.astype(out_dtype) * weight[(*window, rc, co)].astype(out_dtype), axis=[*window, rc])

    shape = (batch, *(_spanned(n, kernel_size, stride, padding, dilation) for n in sizes), made)
    return inputs, weight, te.compute(shape, element, name=name, axis_names=("n", *axes, "co"))


def conv1d_nlc(
    N: int, L: int, CI: int, CO: int, kernel_size: int, stride: int = 1, padding: int = 0, dilation: int = 1,
    groups: int = 1, in_dtype: str = "float32", out_dtype: str = "float32",
) -> Tensors:
    """Return inputs (N, L, CI), weight (kernel_size, CI / groups, CO) and the convolution (N, L', CO)."""
    return _convolution(
        "conv1d_nlc", "l", N, (L,), (CI, CO), kernel_size, stride, padding, dilation, groups, in_dtype, out_dtype)


def conv2d_nhwc(
    N: int, H: int, W: int, CI: int, CO: int, kernel_size: int, stride: int = 1, padding: int = 0, dilation: int = 1,
    groups: int = 1, in_dtype: str = "float32", out_dtype: str = "float32",
) -> Tensors:
    """Return inputs (N, H, W, CI), weight (kernel_size, kernel_size, CI / groups, CO) and the convolution (N, H', W',
    CO)."""
    return _convolution(
        "conv2d_nhwc", "hw", N, (H, W), (CI, CO), kernel_size, stride, padding, dilation, groups, in_dtype, out_dtype)


def conv3d_ndhwc(
    N: int, D: int, H: int, W: int, CI: int, CO: int, kernel_size: int, stride: int = 1, padding: int = 0,
    dilation: int = 1, groups: int = 1, in_dtype: str = "float32", out_dtype: str = "float32",
) -> Tensors:
    """Return inputs (N, D, H, W, CI), weight (three times kernel_size, CI / groups, CO) and the convolution (N, D', H',
    W', CO)."""
    return _convolution(
        "conv3d_ndhwc", "dhw", N, (D, H, W), (CI, CO), kernel_size, stride, padding, dilation, groups, in_dtype,
        out_dtype)


def depthwise_conv2d_nhwc(
    N: int, H: int, W: int, C: int, kernel_size: int, stride: int = 1, padding: int = 0, dilation: int = 1,
    factor: int = 1, in_dtype: str = "float32", out_dtype: str = "float32",
) -> Tensors:
    """Return data (N, H, W, C), weight (factor, kernel_size, kernel_size, C) and the depthwise convolution (N, H', W',
    factor * C)."""
    inputs = te.placeholder((N, H, W, C), dtype=in_dtype)
    weight = te.placeholder((factor, kernel_size, kernel_size, C), dtype=in_dtype)
    if C % factor:
        raise OptionError(f"the number of channels {C} must be a multiple of factor={factor}", code="TW1104")
    padded = _padded(inputs, (0, padding, padding, 0))
    rh, rw = _reduced("rh rw", kernel_size, kernel_size)
    shape = (N, *(_spanned(n, kernel_size, stride, padding, dilation) for n in (H, W)), factor * C)
    output = te.compute(
        shape,
        lambda n, h, w, c: te.sum(
            padded[n, h * stride + rh * dilation, w * stride + rw * dilation, c // factor].astype(out_dtype)
            * weight[c % factor, rh, rw, c // factor].astype(out_dtype), axis=[rh, rw]),
        name="depth_conv2d_nhwc")
    return inputs, weight, output


def conv2d_transpose_nhwc(
    N: int, H: int, W: int, CI: int, CO: int, kernel_size: int, stride: int = 1, padding: int = 0,
    in_dtype: str = "float32", out_dtype: str = "float32",
) -> Tensors:
    """Return inputs (N, H, W, CI), weight (kernel_size, kernel_size, CI, CO) and the transposed convolution (N, H', W',
    CO). The inputs are spread by the stride and convolved with the reversed weight."""
    inputs = te.placeholder((N, H, W, CI), name="inputs", dtype=in_dtype)
    weight = te.placeholder((kernel_size, kernel_size, CI, CO), name="weight", dtype=in_dtype)
    around = kernel_size - 1 - padding
    width = -(-around // stride)
    shift = width * stride - around
    padded = _padded(inputs, (0, width, width, 0))
    rh, rw, rc = _reduced("rh rw rc", kernel_size, kernel_size, CI)
    shape = (N, *((n - 1) * stride + kernel_size - 2 * padding for n in (H, W)), CO)

    def spread(n: PrimExpr, h: PrimExpr, w: PrimExpr, c: PrimExpr) -> PrimExpr:
        value = padded[n, te.indexdiv(h, stride), te.indexdiv(w, stride), c]
        on_grid = te.all(te.indexmod(h, stride).equal(0), te.indexmod(w, stride).equal(0))
        return te.if_then_else(on_grid, value, te.const(0, in_dtype)) if stride > 1 else value

    last = kernel_size - 1
    output = te.compute(
        shape,
        lambda n, h, w, co: te.sum(
            spread(n, h + rh + shift, w + rw + shift, rc).astype(out_dtype)
            * weight[last - rh, last - rw, rc, co].astype(out_dtype), axis=[rh, rw, rc]),
        name="conv2d_transpose_nhwc")
    return inputs, weight, output


def conv2d_capsule_nhwijc(
    N: int, H: int, W: int, CI: int, CO: int, kernel_size: int, stride: int = 1, padding: int = 0,
    capsule_size: int = 4, in_dtype: str = "float32", out_dtype: str = "float32",
) -> Tensors:
    """Return inputs (N, H, W, capsule, capsule, CI), weight (kernel_size, kernel_size, capsule, capsule, CI, CO) and
    the convolution of matrices (N, H', W', capsule, capsule, CO)."""
    inputs = te.placeholder((N, H, W, capsule_size, capsule_size, CI), name="inputs", dtype=in_dtype)
    weight = te.placeholder(
        (kernel_size, kernel_size, capsule_size, capsule_size, CI, CO), name="weight", dtype=in_dtype)
    padded = _padded(inputs, (0, padding, padding, 0, 0, 0))
    rh, rw, cap_k, rc = _reduced("rh rw cap_k rc", kernel_size, kernel_size, capsule_size, CI)
    shape = (N, *(_spanned(n, kernel_size, stride, padding) for n in (H, W)), capsule_size, capsule_size, CO)
    output = te.compute(
        shape,
        lambda n, h, w, cap_i, cap_j, co: te.sum(
            padded[n, h * stride + rh, w * stride + rw, cap_i, cap_k, rc].astype(out_dtype)
            * weight[rh, rw, cap_k, cap_j, rc, co].astype(out_dtype), axis=[rh, rw, cap_k, rc]),
        name="conv2d_capsule_nhwijc")
    return inputs, weight, output


def conv2d_nhwc_bn_relu(
    N: int, H: int, W: int, CI: int, CO: int, kernel_size: int, strides: int, padding: int, dilation: int = 1,
    in_dtype: str = "float32", out_dtype: str = "float32",
) -> Tensors:
    """Return data (N, H, W, CI), kernel (kernel_size, kernel_size, CI, CO), bias, offset and scale (CO), and
    `max(0, (convolution + bias) * scale + offset)` (N, H', W', CO)."""
    data = te.placeholder((N, H, W, CI), name="data", dtype=in_dtype)
    kernel = te.placeholder((kernel_size, kernel_size, CI, CO), name="kernel", dtype=in_dtype)
    bias, scale, offset = (te.placeholder((CO,), name=name) for name in ("bias", "bn_scale", "bn_offset"))
    padded = _padded(data, (0, padding, padding, 0))
    ry, rx, rc = _reduced("ry rx rc", kernel_size, kernel_size, CI)
    shape = (N, *(_spanned(n, kernel_size, strides, padding, dilation) for n in (H, W)), CO)
    convolved = te.compute(
        shape,
        lambda nn, yy, xx, ff: te.sum(
            padded[nn, yy * strides + ry * dilation, xx * strides + rx * dilation, rc].astype(out_dtype)
            * kernel[ry, rx, rc, ff].astype(out_dtype), axis=[ry, rx, rc]),
        name="Conv2dOutput")
    biased = te.compute(shape, lambda *i: convolved(*i) + bias[i[3]], name="bias_add")
    scaled = te.compute(shape, lambda *i: biased(*i) * scale[i[3]], name="bn_mul")
    moved = te.compute(shape, lambda *i: scaled(*i) + offset[i[3]], name="bn_add")
    return data, kernel, bias, offset, scale, relu(moved)


# Reductions.
def norm_bmn(B: int, M: int, N: int) -> Tensors:
    """Return A (B, M, N) and the norm of each matrix (B)."""
    a = te.placeholder((B, M, N), name="A")
    i, j = _reduced("i j", M, N)
    squares = te.compute((B,), lambda b: te.sum(a[b, i, j] * a[b, i, j], axis=[i, j]), name="C")
    return a, te.compute((B,), lambda b: te.sqrt(squares[b]), name="D")


def softmax_mn(m: int, n: int) -> Tensors:
    """Return A (m, n) and the softmax of its rows."""
    a = te.placeholder((m, n), name="A")
    (of_largest,), (of_sum,) = _reduced("k", n), _reduced("k", n)
    largest = te.compute((m,), lambda i0: te.max(a[i0, of_largest], axis=of_largest), name="T_softmax_maxelem")
    powers = te.compute((m, n), lambda i0, i1: te.exp(a[i0, i1] - largest[i0]), name="T_softmax_exp")
    total = te.compute((m,), lambda i0: te.sum(powers[i0, of_sum], axis=of_sum), name="T_softmax_expsum")
    return a, te.compute(
        (m, n), lambda i0, i1: powers[i0, i1] / total[i0], name="T_softmax_norm", attrs={"axis": 1})


CONFIGS: Final[dict[str, tuple[Callable[..., Tensors], list[tuple[int, ...]]]]] = {
    "C1D": (conv1d_nlc, [(1, 256, 64, 128, 3, 2, 1), (1, 128, 128, 256, 1, 2, 0), (1, 64, 256, 256, 5, 1, 2),
                         (1, 32, 512, 512, 3, 1, 1)]),
    "C2D": (conv2d_nhwc, [(1, 224, 224, 3, 64, 7, 2, 3), (1, 56, 56, 64, 64, 1, 1, 0), (1, 14, 14, 256, 256, 3, 1, 1),
                          (1, 7, 7, 512, 512, 3, 1, 1)]),
    "C3D": (conv3d_ndhwc, [(1, 16, 224, 224, 3, 64, 7, 2, 3), (1, 16, 56, 56, 64, 64, 1, 1, 0),
                           (1, 16, 14, 14, 256, 256, 3, 1, 1), (1, 16, 7, 7, 512, 512, 3, 1, 1)]),
    "GMM": (batch_matmul_nkkm, [(1, 128, 128, 128), (1, 512, 32, 512), (1, 512, 512, 512), (1, 1024, 1024, 1024)]),
    "GRP": (conv2d_nhwc, [(1, 56, 56, 64, 128, 3, 2, 1, 1, 4), (1, 56, 56, 64, 64, 1, 1, 0, 1, 4),
                          (1, 14, 14, 256, 256, 3, 1, 1, 1, 4), (1, 7, 7, 512, 512, 3, 1, 1, 1, 4)]),
    "DIL": (conv2d_nhwc, [(1, 224, 224, 3, 64, 7, 2, 3, 2), (1, 56, 56, 64, 64, 1, 1, 0, 2),
                          (1, 14, 14, 256, 256, 3, 1, 1, 2), (1, 7, 7, 512, 512, 3, 1, 1, 2)]),
    "DEP": (depthwise_conv2d_nhwc, [(1, 112, 112, 32, 3, 1, 1), (1, 112, 112, 64, 3, 2, 1), (1, 14, 14, 512, 3, 2, 1),
                                    (1, 7, 7, 1024, 3, 1, 1)]),
    "T2D": (conv2d_transpose_nhwc, [(1, 4, 4, 512, 256, 4, 2, 1), (1, 8, 8, 256, 128, 4, 2, 1),
                                    (1, 16, 16, 128, 64, 4, 2, 1), (1, 32, 32, 64, 3, 4, 2, 1)]),
    "CAP": (conv2d_capsule_nhwijc, [(1, 16, 16, 32, 32, 3, 2, 1), (1, 8, 8, 32, 32, 3, 1, 1),
                                    (1, 16, 16, 8, 16, 3, 2, 1), (1, 8, 8, 16, 16, 3, 1, 1)]),
    "NRM": (norm_bmn, [(1, 256, 256), (1, 512, 512), (1, 1024, 1024), (1, 4096, 1024)]),
    "SFM": (softmax_mn, [(256, 256), (512, 512), (1024, 1024), (2048, 2048)]),
    "CBR": (conv2d_nhwc_bn_relu, [(1, 224, 224, 3, 64, 7, 2, 3), (1, 56, 56, 64, 64, 1, 1, 0),
                                  (1, 14, 14, 256, 256, 3, 1, 1), (1, 7, 7, 512, 512, 3, 1, 1)]),
    "TBG": (transpose_batch_matmul, [(1, 128, 12, 64), (1, 128, 16, 64), (1, 64, 12, 128), (1, 128, 12, 128)]),
}
"""The functions and the sizes of the workloads."""


def create_te_workload(name: str, idx: int) -> PrimFunc:
    """Return the function of a workload's size `idx`. Raises `OptionError` for an unknown workload or size."""
    if name not in CONFIGS or not 0 <= idx < len(CONFIGS[name][1]):
        raise OptionError(
            f"there is no size {idx} of the workload '{name}'; there are sizes 0 to 3 of {', '.join(CONFIGS)}",
            code="TW1103")
    make, sizes = CONFIGS[name]
    return te.create_prim_func(make(*sizes[idx]))
