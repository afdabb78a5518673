"""Neural network layers: convolutions, normalizations, embeddings, softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.types import FLOAT32
from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend import shaping
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.pytorch.node import Node
from tilewright.relay.frontend.pytorch.promotion import dtype_named
from tilewright.relay.frontend.pytorch.reduce import vector_norm
from tilewright.relay.frontend.pytorch.registry import converter, writer
from tilewright.relay.frontend.shaping import axis_of, cast, per_channel, reshape
from tilewright.relay.types_of import dtype_of, rank, scalar, shape_of

_CONV: Final = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}
_TRANSPOSED: Final = {1: op.nn.conv1d_transpose, 2: op.nn.conv2d_transpose, 3: op.nn.conv3d_transpose}


def on_axes(value: Any, count: int) -> tuple[int, ...]:
    """A setting for each of `count` spatial dimensions, from one number or one per dimension."""
    given = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    return given * count if len(given) == 1 else given


# Convolutions


@converter("_convolution", "convolution")
def convolution(
    input: Expr, weight: Expr, bias: Expr | None, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int, node: Node,
) -> Expr:
    n = rank(weight) - 2
    if rank(input) == n + 1:  # without a batch
        whole = reshape(input, (1, *shape_of(input)))
        found = convolution(whole, weight, bias, stride, padding, dilation, transposed, output_padding, groups, node)
        return reshape(found, shape_of(found)[1:])
    if n not in _CONV:
        node.refuse(f"the weight has {n} spatial dimensions; it must have 1 to 3")
    strides, dilations = on_axes(stride, n), on_axes(dilation, n)
    kernel = node.static(weight, "weight")[2:]
    pads = on_axes(padding, n)
    if transposed:
        y = _TRANSPOSED[n](
            input, weight, strides=strides, padding=(*pads, *pads), dilation=dilations, groups=groups,
            channels=shape_of(weight)[1] * groups, kernel_size=kernel, output_padding=on_axes(output_padding, n))
    else:
        y = _CONV[n](input, weight, strides=strides, padding=(*pads, *pads), dilation=dilations, groups=groups,
                     channels=shape_of(weight)[0], kernel_size=kernel)
    return y if bias is None else op.nn.bias_add(y, bias, axis=1)


@converter("conv1d", "conv2d", "conv3d")
def conv(input: Expr, weight: Expr, node: Node, bias: Expr | None = None, stride: Any = 1, padding: Any = 0,
         dilation: Any = 1, groups: int = 1) -> Expr:
    if isinstance(padding, str):
        return conv_mode(input, weight, node, bias, stride, padding, dilation, groups)
    return convolution(input, weight, bias, stride, padding, dilation, False, 0, groups, node)


@converter("_convolution_mode")
def conv_mode(input: Expr, weight: Expr, node: Node, bias: Expr | None = None, stride: Any = 1, padding: str = "valid",
              dilation: Any = 1, groups: int = 1) -> Expr:
    """Convolution with padding by name; an odd total of "same" pads one more at the end."""
    n = rank(weight) - 2
    if padding == "valid":
        return convolution(input, weight, bias, stride, 0, dilation, False, 0, groups, node)
    dilations = on_axes(dilation, n)
    total = [d * (k - 1) for d, k in zip(dilations, node.static(weight, "weight")[2:], strict=True)]
    before, after = [t // 2 for t in total], [t - t // 2 for t in total]
    x = input
    if before != after:
        x = shaping.pad(input, [(0, 0)] * (rank(input) - n) + [(0, b - a) for a, b in zip(before, after, strict=True)])
    return convolution(x, weight, bias, stride, before, dilation, False, 0, groups, node)


@converter("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transpose(
    input: Expr, weight: Expr, node: Node, bias: Expr | None = None, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
) -> Expr:
    return convolution(input, weight, bias, stride, padding, dilation, True, output_padding, groups, node)


@converter("conv_tbc")
def conv_tbc(self: Expr, weight: Expr, bias: Expr, node: Node, pad: int = 0) -> Expr:
    x, w = shaping.transpose(self, (1, 2, 0)), shaping.transpose(weight, (2, 1, 0))
    return shaping.transpose(convolution(x, w, bias, 1, pad, 1, False, 0, 1, node), (2, 0, 1))


@converter("im2col")
def im2col(self: Expr, kernel_size: Any, node: Node, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Expr:
    """Windows as columns: (batch, channels * window, positions)."""
    kernel, apart, pads, steps = (on_axes(v, 2) for v in (kernel_size, dilation, padding, stride))
    x = shaping.pad(self, [(0, 0)] * (rank(self) - 2) + [(p, p) for p in pads])
    *lead, height, width = node.static(x, "self")
    rows, columns = (
        np.arange(0, size - d * (k - 1), s)[None, :] + np.arange(k)[:, None] * d
        for size, k, d, s in zip((height, width), kernel, apart, steps, strict=True))
    places = rows[:, None, :, None] * width + columns[None, :, None, :]
    flat = reshape(x, (*lead, height * width))
    found = op.take(flat, Constant(places.reshape(-1)), axis=rank(x) - 2)
    return reshape(found, (*lead[:-1], lead[-1] * kernel[0] * kernel[1], places.shape[2] * places.shape[3]))


@converter("col2im")
def col2im(self: Expr, output_size: Any, kernel_size: Any, node: Node, dilation: Any = 1, padding: Any = 0,
           stride: Any = 1) -> Expr:
    """Sum windows, given as columns, into an image."""
    kernel, apart, pads, steps = (on_axes(v, 2) for v in (kernel_size, dilation, padding, stride))
    height, width = (n + 2 * p for n, p in zip(output_size, pads, strict=True))
    rows, columns = (
        np.arange(0, size - d * (k - 1), s)[None, :] + np.arange(k)[:, None] * d
        for size, k, d, s in zip((height, width), kernel, apart, steps, strict=True))
    places = (rows[:, None, :, None] * width + columns[None, :, None, :]).reshape(-1)
    batch, depth, _ = node.static(self, "self") if rank(self) == 3 else (1, *node.static(self, "self"))
    channels = depth // (kernel[0] * kernel[1])
    flat = reshape(self, (batch * channels, places.size))
    empty = Constant(np.zeros((batch * channels, height * width), dtype_of(self).numpy()))
    spread = Constant(np.broadcast_to(places, (batch * channels, places.size)).copy())
    whole = reshape(op.scatter_elements(empty, spread, flat, axis=1, reduction="add"), (batch, channels, height, width))
    for axis, (p, n) in enumerate(zip(pads, output_size, strict=True), 2):
        whole = shaping.slice_axis(whole, axis, p, p + n) if p else whole
    return whole if rank(self) == 3 else reshape(whole, shape_of(whole)[1:])


# Normalizations


@converter("batch_norm", "cudnn_batch_norm", "native_batch_norm", "_native_batch_norm_legit",
           "_native_batch_norm_legit_no_training")
def batch_norm(
    input: Expr, weight: Expr | None, bias: Expr | None, running_mean: Expr | None, running_var: Expr | None,
    node: Node, training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
) -> Any:
    size = shape_of(input)[1]
    if training or running_mean is None or running_var is None:
        y = _normalized(input, (0, *range(2, rank(input))), eps)
        y = y if weight is None else op.multiply(y, per_channel(weight, rank(input)))
        y = y if bias is None else op.add(y, per_channel(bias, rank(input)))
    else:
        kind = dtype_of(running_mean).numpy()
        gamma = Constant(np.ones(size, kind)) if weight is None else weight
        beta = Constant(np.zeros(size, kind)) if bias is None else bias
        y = op.nn.batch_norm(input, gamma, beta, running_mean, running_var, axis=1, epsilon=float(eps))[0]
    if node.name in ("batch_norm", "cudnn_batch_norm"):
        return y
    if training:
        return y, *_statistics(input, (0, *range(2, rank(input))), eps)
    nothing = Constant(np.zeros((0,), np.float32))
    return y, nothing, nothing


@converter("_batch_norm_with_update")
def batch_norm_with_update(
    input: Expr, weight: Expr | None, bias: Expr | None, running_mean: Expr, running_var: Expr, node: Node,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Any:
    found = batch_norm(input, weight, bias, running_mean, running_var, node, True, momentum, eps)
    return *found, Constant(np.zeros((0,), np.uint8))


@writer("batch_norm", "cudnn_batch_norm", "native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update",
        "instance_norm")
def running_statistics(
    node: Node, input: Expr, running_mean: Expr | None = None, running_var: Expr | None = None, training: bool = True,
    use_input_stats: bool = True, momentum: float = 0.1, **others: Any,
) -> dict[str, Expr]:
    """Running means and variances, moved by `momentum` towards those of the batch; `instance_norm` averages over
    images.
    """
    if not training or not use_input_stats or running_mean is None or running_var is None:
        return {}
    apart = (0,) if node.name == "instance_norm" else ()
    axes = tuple(k for k in range(rank(input)) if k != 1 and k not in apart)
    dims = node.static(input, "input")
    count = math.prod(dims[k] for k in axes)
    centred = op.subtract(input, op.mean(input, axis=axes, keepdims=True))
    found = op.mean(input, axis=axes), op.divide(op.sum(op.multiply(centred, centred), axis=axes),
                                                 scalar(max(count - 1, 0), input))
    new: dict[str, Expr] = {}
    for name, before, value in zip(("running_mean", "running_var"), (running_mean, running_var), found, strict=True):
        one = cast(op.mean(value, axis=apart) if apart else value, dtype_of(before))
        new[name] = op.add(op.multiply(before, scalar(1 - momentum, before)),
                           op.multiply(one, scalar(momentum, before)))
    return new


def _statistics(x: Expr, axes: Sequence[int], eps: float) -> tuple[Expr, Expr]:
    """The mean, and the reciprocal of the standard deviation, along `axes`."""
    mean = op.mean(x, axis=tuple(axes), keepdims=True)
    centred = op.subtract(x, mean)
    variance = op.mean(op.multiply(centred, centred), axis=tuple(axes), keepdims=False)
    return op.squeeze(mean, axis=tuple(axes)), op.rsqrt(op.add(variance, scalar(eps, x)))


def _normalized(x: Expr, axes: Sequence[int], eps: float) -> Expr:
    mean = op.mean(x, axis=tuple(axes), keepdims=True)
    centred = op.subtract(x, mean)
    variance = op.mean(op.multiply(centred, centred), axis=tuple(axes), keepdims=True)
    return op.multiply(centred, op.rsqrt(op.add(variance, scalar(eps, x))))


@converter("instance_norm")
def instance_norm(
    input: Expr, node: Node, weight: Expr | None = None, bias: Expr | None = None, running_mean: Expr | None = None,
    running_var: Expr | None = None, use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> Expr:
    if not use_input_stats:
        found: Expr = batch_norm(input, weight, bias, running_mean, running_var, node.renamed("batch_norm"), False,
                                 momentum, eps)
        return found
    channels = shape_of(input)[1]
    ones, zeros = (Constant(np.full(channels, v, dtype_of(input).numpy())) for v in (1, 0))
    return op.nn.instance_norm(input, ones if weight is None else weight, zeros if bias is None else bias, axis=1,
                               epsilon=float(eps))


@converter("layer_norm", "native_layer_norm")
def layer_norm(input: Expr, normalized_shape: Any, node: Node, weight: Expr | None = None, bias: Expr | None = None,
               eps: float = 1e-5) -> Any:
    count, ndim = len(normalized_shape), rank(input)
    kind = dtype_of(input).numpy()
    if count == 1 and isinstance(shape_of(input)[-1], int):
        gamma = Constant(np.ones(normalized_shape[0], kind)) if weight is None else weight
        beta = Constant(np.zeros(normalized_shape[0], kind)) if bias is None else bias
        y: Expr = op.nn.layer_norm(input, gamma, beta, axis=-1, epsilon=float(eps))
    else:
        y = _normalized(input, range(ndim - count, ndim), eps)
        y = y if weight is None else op.multiply(y, weight)
        y = y if bias is None else op.add(y, bias)
    if node.name == "layer_norm":
        return y
    axes = tuple(range(ndim - count, ndim))
    mean = op.mean(input, axis=axes, keepdims=True)
    centred = op.subtract(input, mean)
    return y, mean, op.rsqrt(op.add(op.mean(op.multiply(centred, centred), axis=axes, keepdims=True),
                                    scalar(eps, input)))


@converter("rms_norm", "_fused_rms_norm")
def rms_norm(input: Expr, normalized_shape: Any, node: Node, weight: Expr | None = None,
             eps: float | None = None) -> Any:
    axes = tuple(range(rank(input) - len(normalized_shape), rank(input)))
    wide = cast(input, FLOAT32)
    least = float(np.finfo(np.float32).eps) if eps is None else eps
    factor = op.rsqrt(op.add(op.mean(op.multiply(wide, wide), axis=axes, keepdims=True), scalar(least, wide)))
    y = cast(op.multiply(wide, factor), dtype_of(input))
    y = y if weight is None else op.multiply(y, weight)
    return (y, factor) if node.name.startswith("_") else y


@converter("group_norm", "native_group_norm")
def group_norm(
    input: Expr, node: Node, num_groups: int | None = None, weight: Expr | None = None, bias: Expr | None = None,
    eps: float = 1e-5, group: int | None = None, N: Any = None, C: Any = None, HxW: Any = None,
) -> Any:
    groups = num_groups if num_groups is not None else group or 1
    channels = node.static(input, "input")[1] if isinstance(shape_of(input)[1], int) else shape_of(input)[1]
    ones, zeros = (Constant(np.full(channels, v, dtype_of(input).numpy())) for v in (1, 0))
    y = op.nn.group_norm(input, ones if weight is None else weight, zeros if bias is None else bias, num_groups=groups,
                         axis=1, epsilon=float(eps))
    if node.name == "group_norm":
        return y
    shape = node.static(input, "input")
    rows = reshape(input, (shape[0], groups, math.prod(shape[1:]) // groups))
    return y, *_statistics(rows, (2,), eps)


@converter("local_response_norm")
def local_response_norm(input: Expr, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Expr:
    return op.nn.lrn(input, size=size, axis=1, alpha=alpha, beta=beta, bias=k)


@converter("normalize")
def normalize(input: Expr, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Expr:
    length = op.sqrt(op.sum(op.multiply(input, input), axis=(dim,), keepdims=True))
    return op.divide(input, op.maximum(length, scalar(eps, input)))


# Softmax


@converter("softmax", "_softmax", "log_softmax", "_log_softmax", "special_softmax", "special_log_softmax",
           "_safe_softmax")
def softmax(self: Expr, dim: int, node: Node, dtype: Any = None, half_to_float: bool = False) -> Expr:
    x = (cast(self, dtype_named(dtype, node)) if dtype is not None else cast(self, FLOAT32) if half_to_float
         or not dtype_of(self).is_float else self)
    if not rank(x):
        return reshape(softmax(reshape(x, (1,)), 0, node), ())
    axis = axis_of(dim, rank(x), node)
    if "log" in node.name:
        return op.nn.log_softmax(x, axis=axis)
    found = op.nn.softmax(x, axis=axis)
    if node.name != "_safe_softmax":
        return found
    masked = op.equal(op.max(x, axis=(axis,), keepdims=True), scalar(-math.inf, x))
    return op.where(masked, scalar(0, x), found)


@converter("softmin")
def softmin(self: Expr, dim: int, node: Node) -> Expr:
    return softmax(op.negative(self), dim, node)


# Embeddings


@converter("embedding")
def embedding(weight: Expr, indices: Expr, padding_idx: Any = -1) -> Expr:
    return op.take(weight, indices, axis=0)


@converter("embedding_bag", "_embedding_bag_forward_only", "_embedding_bag")
def embedding_bag(
    weight: Expr, indices: Expr, offsets: Expr, node: Node, mode: int = 0, per_sample_weights: Expr | None = None,
    include_last_offset: bool = False, padding_idx: Any = None,
) -> tuple[Expr, ...]:
    """Sums, means or maxima of bags of rows that start at `offsets`; `padding_idx` is skipped, empty bags are zero."""
    count, width = node.static(indices, "indices")[0], shape_of(weight)[1]
    bags = node.static(offsets, "offsets")[0] - bool(include_last_offset)
    rows = op.take(weight, indices, axis=0)
    if per_sample_weights is not None:
        rows = op.multiply(rows, reshape(per_sample_weights, (count, 1)))
    # A negative index counts from the end in `embedding_bag`, and means no padding in the internal variants.
    if node.name == "embedding_bag" and padding_idx is not None and padding_idx < 0:
        padding_idx += shape_of(weight)[0]
    places = Constant(np.arange(count, dtype=dtype_of(offsets).numpy()))
    bag = node.settled(op.subtract(op.searchsorted(offsets, places, right=True, dtype="int64"), shaping.number(1)))
    if padding_idx is not None and padding_idx >= 0:
        bag = op.where(op.equal(indices, scalar(padding_idx, indices)), shaping.number(bags), bag)
    nothing = shaping.number(np.zeros(0))
    return _reduced_bags(rows, bag, bags, _BAG_MODES[mode], (count, width)), nothing, nothing, nothing


_BAG_MODES: Final = ("sum", "mean", "max")


def _reduced_bags(rows: Expr, bag: Expr, bags: int, mode: str, shape: tuple[int, int]) -> Expr:
    """Reduce the rows of each bag to one row. Rows with bag number `bags` are ignored."""
    count, width = shape
    kind = dtype_of(rows).numpy()
    if not count or not bags:
        return Constant(np.zeros((bags, width), kind))
    into = op.broadcast_to(reshape(bag, (count, 1)), shape=shape)
    begun = Constant(np.full((bags + 1, width), -math.inf if mode == "max" else 0, kind))
    found = shaping.slice_axis(op.scatter_elements(begun, into, rows, axis=0, reduction="max" if mode == "max"
                                                   else "add"), 0, 0, bags)
    if mode == "sum":
        return found
    ones = Constant(np.ones(count, kind))
    counted = op.scatter_elements(Constant(np.zeros(bags + 1, kind)), bag, ones, axis=0, reduction="add")
    sizes = reshape(shaping.slice_axis(counted, 0, 0, bags), (bags, 1))
    if mode == "mean":
        return op.divide(found, op.maximum(sizes, scalar(1, sizes)))
    return op.where(op.equal(sizes, scalar(0, sizes)), scalar(0, found), found)


@converter("embedding_renorm")
def embedding_renorm(self: Expr, indices: Expr, max_norm: float, norm_type: float, node: Node) -> Expr:
    """Scale the rows named by `indices` to `max_norm` if their norm exceeds it."""
    rows, count = node.static(self, "self")[0], math.prod(node.static(indices, "indices"))
    used = op.scatter_elements(Constant(np.zeros(rows, bool)), reshape(indices, (count,)),
                               Constant(np.ones(count, bool)), axis=0)
    length = vector_norm(self, node, norm_type, None, [1], True)
    scale = op.divide(scalar(max_norm, self), op.add(length, scalar(1e-7, self)))
    too_long = op.logical_and(reshape(used, (rows, 1)), op.greater(length, scalar(max_norm, self)))
    return op.where(too_long, op.multiply(self, scale), self)


@converter("one_hot")
def one_hot(self: Expr, node: Node, num_classes: int = -1) -> Expr:
    if num_classes < 0:
        num_classes = int(node.value(self, "self").max()) + 1
    on, off = Constant(np.ones((), np.int64)), Constant(np.zeros((), np.int64))
    return op.one_hot(self, on, off, depth=num_classes, axis=-1, dtype="int64")
