"""Operators on tensors in numpy: products, norms, softmax, slices and gathers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.base.array_bytes import Array
from tilewright.compat.testing.topi.reference import reference
from tilewright.relay import op
from tilewright.relay.op import nn


def _one(build: Any, *arrays: Any) -> Array:
    found: Array = reference(build, *arrays)
    return found


def batch_matmul(
    x: Array, y: Array, out_dtype: str | None = None, trans_x: bool = False, trans_y: bool = True
) -> Array:
    """Return products of matrices; a batch of 1 goes with every other."""
    return _one(
        lambda a, b: nn.batch_matmul(a, b, transpose_a=trans_x, transpose_b=trans_y, out_dtype=out_dtype or ""), x, y)


def dense(
    x: Array, y: Array, bias: Array | None, use_bias: bool = False, use_relu: bool = False,
    out_dtype: str | None = None,
) -> Array:
    """Return `x` times the transpose of `y`, with a bias and a rectifier if wanted."""
    found = _one(lambda a, b: nn.dense(a, b, out_dtype=out_dtype or ""), x, y)
    if use_bias:
        assert bias is not None
        found = found + bias
    return np.maximum(found, 0).astype(found.dtype) if use_relu else found


def batch_norm(
    x: Array, gamma: Array, beta: Array, moving_mean: Array, moving_var: Array, axis: int, epsilon: float,
    center: bool, scale: bool, training: bool, momentum: float,
) -> list[Array]:
    """Return the normalized data, the mean and the variance: the given ones, or with `training` those moved toward the
    ones of the data."""
    axes = tuple(k for k in range(x.ndim) if k != axis % x.ndim)
    shape = tuple(-1 if k == axis % x.ndim else 1 for k in range(x.ndim))
    mean, var = (x.mean(axes), x.var(axes)) if training else (moving_mean, moving_var)
    found = (x - mean.reshape(shape)) / np.sqrt(var.reshape(shape) + epsilon)
    if scale:
        found = found * gamma.reshape(shape)
    if center:
        found = found + beta.reshape(shape)
    if training:
        moving_mean = (1 - momentum) * moving_mean + momentum * mean
        moving_var = (1 - momentum) * moving_var + momentum * var
    return [found, moving_mean, moving_var]


def layer_norm_python(
    data: Array, gamma: Array, beta: Array, axis: int | Sequence[int], epsilon: float = 1e-5
) -> Array:
    """Return data normalized over axes."""
    return _normalized(data, gamma, beta, axis, epsilon)


def instance_norm_python(
    data: Array, gamma: Array, beta: Array, axis: int | Sequence[int], epsilon: float = 1e-5
) -> Array:
    """Return data normalized over `axis`; gamma and beta have the shape of these axes, or of the channels (axis 1)."""
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    scaled = axes if gamma.shape == tuple(data.shape[a] for a in axes) else (1,)
    shape = [n if d in [a % data.ndim for a in scaled] else 1 for d, n in enumerate(data.shape)]
    return _normalized(data, gamma.reshape(shape), beta.reshape(shape), axis, epsilon)


def _normalized(data: Array, gamma: Array, beta: Array, axis: int | Sequence[int], epsilon: float) -> Array:
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    wide = data.astype("float32") if data.dtype == "float16" else data
    mean, var = wide.mean(axes, keepdims=True), wide.var(axes, keepdims=True)
    found: Array = ((wide - mean) / np.sqrt(var + epsilon)).astype(data.dtype)
    if gamma is not None:
        found = found * gamma
    return (found if beta is None else found + beta).astype(data.dtype)


def group_norm_python(
    data: Array, gamma: Array, beta: Array, num_groups: int, channel_axis: int, axes: Sequence[int],
    epsilon: float = 1e-5,
) -> Array:
    """Return data normalized over `axes` and the channels of each group."""
    channel = channel_axis % data.ndim
    shape = list(data.shape)
    grouped = data.reshape(*shape[:channel], num_groups, shape[channel] // num_groups, *shape[channel + 1:])
    over = [channel + 1, *(a + (a % data.ndim > channel) for a in (a % data.ndim for a in axes))]
    found = _normalized(grouped, np.array(1, data.dtype), np.array(0, data.dtype), over, epsilon).reshape(shape)
    wide = [1] * data.ndim
    wide[channel] = -1
    return (found * gamma.reshape(wide) + beta.reshape(wide)).astype(data.dtype)


def l2_normalize_python(a_np: Array, eps: float, axis: Sequence[int] | int | None = None) -> Array:
    """Return data divided by the norm over axes."""
    axes = tuple(range(a_np.ndim)) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
    return _one(lambda x: nn.l2_normalize(x, eps=eps, axis=axes), a_np)


def lrn_python(a_np: Array, size: int, axis: int, bias: float, alpha: float, beta: float) -> Array:
    """Return local response normalization."""
    return _one(lambda x: nn.lrn(x, size=size, axis=axis, bias=bias, alpha=alpha, beta=beta), a_np)


def softmax_python(a_np: Array, axis: int = 1) -> Array:
    """Return softmax along an axis."""
    return _one(lambda x: nn.softmax(x, axis=axis), a_np)


def log_softmax_python(a_np: Array, axis: int = 1) -> Array:
    """Return the logarithm of softmax along an axis."""
    return _one(lambda x: nn.log_softmax(x, axis=axis), a_np)


def nll_loss(
    predictions: Array, targets: Array, weights: Array, reduction: str = "mean", ignore_index: int = -100
) -> Array:
    """Return the negative log likelihood loss."""
    return _one(
        lambda p, t, w: nn.nll_loss(p, t, w, reduction=reduction, ignore_index=ignore_index), predictions, targets,
        weights)


def depth_to_space_python(data: Array, block_size: int, mode: str = "DCR") -> Array:
    """Return NCHW data whose blocks of channels become blocks of pixels."""
    return _one(lambda x: nn.depth_to_space(x, block_size=block_size, mode=mode), data)


def space_to_depth_python(data: Array, block_size: int) -> Array:
    """Return NCHW data whose blocks of pixels become channels."""
    return _one(lambda x: nn.space_to_depth(x, block_size=block_size), data)


def batch_to_space_nd_python(
    data: Array, block_shape: Sequence[int], crop_begin_list: Sequence[int], crop_end_list: Sequence[int]
) -> Array:
    """Return data whose batch is spread over blocks of the spatial axes, which are then cropped."""
    crops = tuple(zip(crop_begin_list, crop_end_list, strict=True))
    return _one(lambda x: nn.batch_to_space_nd(x, block_shape=tuple(block_shape), crops=crops), data)


def space_to_batch_nd_python(
    data: Array, block_shape: Sequence[int], pad_before: Sequence[int], pad_after: Sequence[int], pad_value: float = 0
) -> Array:
    """Return padded data whose blocks of the spatial axes become the batch."""
    paddings = tuple(zip(pad_before, pad_after, strict=True))
    return _one(
        lambda x: nn.space_to_batch_nd(x, block_shape=tuple(block_shape), paddings=paddings, pad_value=pad_value), data)


def gather_python(data: Array, axis: int, indices: Array) -> Array:
    """Return the elements of `data` along an axis at indices."""
    return _one(lambda x, i: op.gather(x, axis, i), data, indices)


def gather_nd_python(a_np: Array, indices_np: Array) -> Array:
    """Return the elements or slices of `a_np` at tuples of indices, which are the columns of `indices_np`."""
    return _one(op.gather_nd, a_np, indices_np.astype(np.int32))


def matrix_set_diag(input_np: Array, diagonal: Array, k: int | tuple[int, int] = 0, align: str = "RIGHT_LEFT") -> Array:
    """Return matrices with diagonals replaced."""
    return _one(lambda x, d: op.matrix_set_diag(x, d, k, align), input_np, diagonal)


def one_hot(indices: Array, on_value: float, off_value: float, depth: int, axis: int, dtype: str) -> Array:
    """Return a new axis of `depth` elements with `on_value` at the index, and `off_value` elsewhere."""
    where = indices.ndim if axis < 0 else axis
    counts = np.arange(depth).reshape([-1 if k == where else 1 for k in range(indices.ndim + 1)])
    return np.where(np.expand_dims(indices, where) == counts, on_value, off_value).astype(dtype)


def searchsorted_ref(sorted_sequence: Array, values: Array, right: bool, out_dtype: str) -> Array:
    """Return the places of values in sorted rows."""
    side: Any = "right" if right else "left"
    if sorted_sequence.ndim == 1:
        return np.searchsorted(sorted_sequence, values, side).astype(out_dtype)
    rows = sorted_sequence.reshape(-1, sorted_sequence.shape[-1])
    wanted = values.reshape(-1, values.shape[-1])
    found = [np.searchsorted(r, v, side) for r, v in zip(rows, wanted, strict=True)]
    return np.stack(found).reshape(values.shape).astype(out_dtype)


def sequence_mask(data: Array, valid_length: Array, mask_value: float, axis: int) -> Array:
    """Return sequences of shape (time, batch, …) for axis 0 or (batch, time, …) for axis 1, with a value from each
    length on."""
    return _one(lambda x, n: op.sequence_mask(x, n, mask_value=mask_value, axis=axis), data, valid_length)


def slice_axis_python(data: Array, axis: int, begin: int, end: int | None = None) -> Array:
    """Return the slice `begin:end` of an axis."""
    return data[(slice(None),) * (axis % data.ndim) + (slice(begin, end),)]


def strided_slice_python(
    data: Array, begin: Sequence[int], end: Sequence[int], strides: Sequence[int] | int | None, slice_mode: str = "end",
    axes: Sequence[int] | None = None,
) -> Array:
    """Return a slice; with `slice_mode="size"`, `end` has sizes, -1 for all that follow."""
    steps = (strides,) * len(begin) if isinstance(strides, int) else () if strides is None else tuple(strides)
    cuts = [slice(None)] * data.ndim
    for k, axis in enumerate(range(len(begin)) if axes is None else axes):
        start, step = begin[k], steps[k] if k < len(steps) and slice_mode == "end" else 1
        stop: int | None = end[k] if k < len(end) else None
        if slice_mode == "size" and stop is not None:
            stop = None if stop < 0 else start + stop
        cuts[axis] = slice(start, stop, step)
    return data[tuple(cuts)]


def strided_set_python(
    data: Array, v: Array, begin: Sequence[int], end: Sequence[int], strides: Sequence[int] | None = None
) -> Array:
    """Return data with a slice replaced; missing numbers of a dimension are those of the whole dimension."""
    found = data.copy()
    cuts = itertools.zip_longest(begin, end, () if strides is None else strides)
    found[tuple(slice(b, e, s) for b, e, s in cuts)] = v
    return found
