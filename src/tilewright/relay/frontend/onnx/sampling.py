"""Sampling and signal operators: regions of interest, sampling grids, spectrograms."""

from __future__ import annotations

import importlib.util
import math

import numpy as np
from onnx import TensorProto

from tilewright.base.types import OpenSize
from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.onnx.node import Node
from tilewright.relay.frontend.onnx.reading import element_type
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.regions import roi_align as sampled_regions
from tilewright.relay.frontend.shaping import axis_of, cast, fields, reshape, slice_axis, transpose
from tilewright.relay.types_of import dtype_of, rank, scalar, shape_of
from tilewright.topi.shapes import differ


@converter("RoiAlign", since=10)
def roi_align_of_pixels(
    x: Expr, rois: Expr, batch_indices: Expr, *, mode: str = "avg", output_height: int = 1, output_width: int = 1,
    sampling_ratio: int = 0, spatial_scale: float = 1.0, node: Node,
) -> Expr:
    return _roi_align(x, rois, batch_indices, mode, (output_height, output_width), sampling_ratio, spatial_scale,
                      "output_half_pixel", node)


@converter("RoiAlign", since=16)
def roi_align(
    x: Expr, rois: Expr, batch_indices: Expr, *, coordinate_transformation_mode: str = "half_pixel", mode: str = "avg",
    output_height: int = 1, output_width: int = 1, sampling_ratio: int = 0, spatial_scale: float = 1.0, node: Node,
) -> Expr:
    size = output_height, output_width
    return _roi_align(x, rois, batch_indices, mode, size, sampling_ratio, spatial_scale, coordinate_transformation_mode,
                      node)


def _roi_align(
    x: Expr, rois: Expr, images: Expr, mode: str, size: tuple[int, int], ratio: int, scale: float, coordinates: str,
    node: Node,
) -> Expr:
    if mode not in ("avg", "max"):
        node.refuse(f"mode is {mode!r}; it must be 'avg' or 'max'")
    if coordinates not in ("half_pixel", "output_half_pixel"):
        node.refuse(
            f"coordinate_transformation_mode is {coordinates!r}; it must be 'half_pixel' or 'output_half_pixel'")
    which = reshape(cast(images, dtype_of(rois)), (shape_of(rois)[0], 1))
    regions = op.concatenate((which, rois), axis=1)
    how = "max_taps" if mode == "max" else "avg"
    return sampled_regions(x, regions, size, scale, ratio or -1, how, coordinates == "half_pixel")


@converter("MaxRoiPool")
def max_roi_pool(x: Expr, rois: Expr, *, pooled_shape: tuple[int, ...], spatial_scale: float = 1.0) -> Expr:
    return op.vision.roi_pool(x, rois, pooled_size=pooled_shape, spatial_scale=spatial_scale)


_METHODS = {"linear": "bilinear", "bilinear": "bilinear", "nearest": "nearest", "cubic": "bicubic",
            "bicubic": "bicubic"}


@converter("GridSample", since=16)
def grid_sample_of_images(x: Expr, grid: Expr, *, align_corners: int = 0, mode: str = "bilinear",
                          padding_mode: str = "zeros", node: Node) -> Expr:
    return grid_sample(x, grid, align_corners=align_corners, mode=mode, padding_mode=padding_mode, node=node)


@converter("GridSample", since=20)
def grid_sample(x: Expr, grid: Expr, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros",
                node: Node) -> Expr:
    if mode not in _METHODS:
        node.refuse(f"mode is {mode!r}; it must be one of {', '.join(_METHODS)}")
    ndim = rank(x)
    if ndim not in (4, 5) or (ndim == 5 and _METHODS[mode] == "bicubic"):
        node.refuse(f"data of {ndim} dimensions cannot be sampled by mode {mode!r}; give 4 dimensions, or 5 if the "
                    "mode is not cubic")
    points = transpose(grid, (0, ndim - 1, *range(1, ndim - 1)))
    if _METHODS[mode] == "nearest" and padding_mode == "reflection":
        points = _at_pixels(points, x, bool(align_corners))
    layout = "NCHW" if ndim == 4 else "NCDHW"
    return op.image.grid_sample(x, points, method=_METHODS[mode], layout=layout, padding_mode=padding_mode,
                                align_corners=bool(align_corners))


def _at_pixels(points: Expr, x: Expr, align_corners: bool) -> Expr:
    """Move points of a grid to the nearest pixel, halves to even ones: ONNX rounds coordinates before they are
    reflected, and `image.grid_sample` after."""
    spatial = np.arange(rank(x) - 1, 1, -1)
    axes = op.take(op.shape_of(x, dtype="int64"), Constant(spatial), axis=0)
    size = cast(reshape(axes, (1, len(spatial), *[1] * len(spatial))), dtype_of(points))
    one, two = scalar(1, points), scalar(2, points)
    last = op.subtract(size, one)
    if align_corners:
        pixels = op.round(op.multiply(op.divide(op.add(points, one), two), last))
        return op.subtract(op.divide(op.multiply(pixels, two), op.maximum(last, one)), one)
    pixels = op.round(op.divide(op.subtract(op.multiply(op.add(points, one), size), one), two))
    return op.subtract(op.divide(op.add(op.multiply(pixels, two), one), size), one)


@converter("AffineGrid", since=20)
def affine_grid(theta: Expr, size: Expr, *, align_corners: int = 0, node: Node) -> Expr:
    target = node.sizes(size, "size")[2:]
    grid = op.image.affine_grid(theta, target_shape=target, align_corners=bool(align_corners))
    return transpose(grid, (0, *range(2, len(target) + 2), 1))


@converter("ImageDecoder", since=20)
def image_decoder(encoded_stream: Expr, *, pixel_format: str = "RGB", node: Node) -> Expr:
    if importlib.util.find_spec("PIL") is None:
        node.refuse("decoding images needs Pillow, which is not installed; install it (pip install pillow), or decode "
                    "before the model")
    return op.image.decode(encoded_stream, pixel_format=pixel_format)


@converter("MelWeightMatrix", since=17)
def mel_weight_matrix(
    num_mel_bins: Expr, dft_length: Expr, sample_rate: Expr, lower_edge_hertz: Expr, upper_edge_hertz: Expr, *,
    output_datatype: int = TensorProto.FLOAT, node: Node,
) -> Expr:
    """The matrix of mel filters: one triangular column per bin, over the frequencies of a spectrum."""
    bins, length, rate = (int(node.scalar(x, n)) for x, n in ((num_mel_bins, "num_mel_bins"),
        (dft_length, "dft_length"), (sample_rate, "sample_rate")))
    node.check_table(bins, length)
    low, high = (2595 * math.log10(1 + float(node.scalar(x, n)) / 700)
                 for x, n in ((lower_edge_hertz, "lower_edge_hertz"), (upper_edge_hertz, "upper_edge_hertz")))
    mels = low + np.arange(bins + 2) * ((high - low) / (bins + 2))
    corners = np.floor((length + 1) * 700 * (10 ** (mels / 2595) - 1) / rate).astype(np.int64)
    j = np.arange(length // 2 + 1)[:, None]
    left, middle, right = corners[:-2], corners[1:-1], corners[2:]
    with np.errstate(divide="ignore", invalid="ignore"):
        rising = np.where(left == middle, j == middle,
                          np.where((left <= j) & (j <= middle), (j - left) / (middle - left), 0))
        weights = np.where((middle <= j) & (j < right), (right - j) / (right - middle), rising)
    return Constant(weights.astype(element_type(output_datatype, "attribute 'output_datatype'", node.origin).numpy()))


@converter("DFT", since=17)
def dft_along_attribute(x: Expr, dft_length: Expr | None = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0,
                        node: Node) -> Expr:
    return _dft(x, dft_length, axis, inverse, onesided, node)


@converter("DFT", since=20)
def dft(x: Expr, dft_length: Expr | None = None, axis: Expr | None = None, *, inverse: int = 0, onesided: int = 0,
        node: Node) -> Expr:
    return _dft(x, dft_length, int(node.scalar(axis, "axis", -2)), inverse, onesided, node)


def _dft(x: Expr, length: Expr | None, axis: int, inverse: int, onesided: int, node: Node) -> Expr:
    """The DFT along `axis`, cut or zero-padded to `length`; the last dimension holds real or complex values."""
    ndim = rank(x)
    along = axis_of(axis, ndim, node)
    if along == ndim - 1:
        node.refuse(f"axis is {axis}, which has the real and imaginary parts; transform another axis")
    size = node.static(x, "input")[along]
    if onesided and inverse:
        n = 2 * (size - 1) if length is None else int(node.scalar(length, "dft_length"))
        x, size, length = _completed(x, along, n, node), n, None
    n = size if length is None else int(node.scalar(length, "dft_length"))
    if n < 1:
        node.refuse(f"it transforms {n} numbers along axis {axis}; give at least 1, or set dft_length")
    node.check_table(n)
    if n is size:
        pass
    elif n < size:
        x = slice_axis(x, along, 0, n)
    elif n > size:
        x = op.nn.pad(x, scalar(0, x), pad_width=tuple((0, n - size if d == along else 0) for d in range(ndim)))
    if isinstance(shape_of(x)[-1], OpenSize):
        differ(shape_of(x)[-1], 2)
    if shape_of(x)[-1] not in (1, 2):
        node.refuse("the last dimension of its input must have size 1 (real) or 2 (real and imaginary part), but the "
                    f"shape is {shape_of(x)}")
    order = [*(d for d in range(ndim - 1) if d != along), along]
    parts = [transpose(reshape(slice_axis(x, ndim - 1, k, k + 1), shape_of(x)[:-1]), order)
             for k in range(shape_of(x)[-1])]
    real = parts[0]
    imaginary = parts[1] if len(parts) > 1 else op.zeros_like(real)
    found = [op.expand_dims(transpose(p, [order.index(d) for d in range(ndim - 1)]), axis=ndim - 1)
             for p in fields(op.dft(real, imaginary, inverse=bool(inverse)), 2)]
    whole = op.concatenate(tuple(found), axis=ndim - 1)
    if onesided:
        return slice_axis(whole, ndim - 1, 0, 1) if inverse else slice_axis(whole, along, 0, n // 2 + 1)
    return whole


def _completed(x: Expr, along: int, n: int, node: Node) -> Expr:
    """Complete half of a spectrum of `n` frequencies; the other half is its conjugate in reverse order."""
    shape = node.static(x, "input")
    if isinstance(shape[-1], OpenSize):
        differ(shape[-1], 2)
    if shape[-1] != 2 or shape[along] < n // 2 + 1:
        node.refuse(f"half of a spectrum of {n} frequencies has {n // 2 + 1} complex numbers, but its input has the "
                    f"shape {shape}")
    if isinstance(n, OpenSize) or isinstance(shape[along], OpenSize):
        half = n // 2 + 1
        rest = op.reverse(slice_axis(x, along, 1, n - half + 1), axis=along)
        conjugate = op.multiply(rest, Constant(np.array([1, -1], dtype_of(x).numpy())))
        return op.concatenate((slice_axis(x, along, 0, half), conjugate), axis=along)
    k = np.arange(n)
    mirrored = k > n // 2
    whole = op.take(x, Constant(np.where(mirrored, n - k, k)), axis=along)
    signs = np.where(mirrored[:, None], [1, -1], 1).reshape([n if d == along else 2 if d == len(shape) - 1 else 1
        for d in range(len(shape))])
    return op.multiply(whole, Constant(signs.astype(dtype_of(x).numpy())))


@converter("STFT", since=17)
def stft(signal: Expr, frame_step: Expr, window: Expr | None = None, frame_length: Expr | None = None, *,
         onesided: int = 1, node: Node) -> Expr:
    shape = node.static(signal, "signal")
    step = int(node.scalar(frame_step, "frame_step"))
    if frame_length is not None:
        n = int(node.scalar(frame_length, "frame_length"))
    elif window is not None:
        n = node.static(window, "window")[0]
    else:
        node.refuse("neither window nor frame_length is given; give one of them, the length of a frame")
    if step < 1 or n < 1:
        node.refuse(f"frame_step is {step} and the frame length {n}; both must be 1 or more")
    node.check_table(n)
    if len(shape) == 3 and shape[2] == 2:
        return _complex_stft(signal, step, window, n, bool(onesided), node)
    rows = reshape(signal, shape[:2])
    weights = Constant(np.ones(n, dtype_of(signal).numpy())) if window is None else window
    width = node.static(weights, "window")[0]
    found = op.stft(rows, weights, n_fft=n, hop_length=step, win_length=width, normalized=False,
                    onesided=bool(onesided))
    return transpose(found, (0, 2, 1, 3))


def _complex_stft(signal: Expr, step: int, window: Expr | None, n: int, onesided: bool, node: Node) -> Expr:
    """The STFT of a complex signal: gather frames, multiply by the window, transform."""
    if onesided:
        node.refuse("onesided=1 needs a real signal, and this one is complex; set onesided=0")
    batch, length, _ = node.static(signal, "signal")
    frames = (length - n) // step + 1
    node.check_table(frames, n)
    where = Constant((np.arange(frames)[:, None] * step + np.arange(n)).astype(np.int64))
    parts = [op.take(reshape(slice_axis(signal, 2, k, k + 1), (batch, length)), where, axis=1) for k in (0, 1)]
    if window is not None:
        parts = [op.multiply(p, window) for p in parts]
    found = [op.expand_dims(p, axis=3) for p in fields(op.dft(parts[0], parts[1]), 2)]
    return op.concatenate(tuple(found), axis=3)
