"""com.microsoft: operators fused by ONNX Runtime's optimizer, expanded so that Tilewright's own fusion applies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from tilewright.relay.expr import Expr, Tuple
from tilewright.relay.frontend.onnx import linear, nn, sampling, transform
from tilewright.relay.frontend.onnx import math as elementwise
from tilewright.relay.frontend.onnx.node import Node
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import axis_of, cast, number, reshape, slice_axis, transpose
from tilewright.relay.types_of import dtype_of, rank, scalar, shape_of

MICROSOFT: Final = "com.microsoft"


def _hard_sigmoid(x: Expr, p: Sequence[float]) -> Expr:
    return op.clip(op.add(op.multiply(x, scalar(p[0], x)), scalar(p[1], x)), a_min=0.0, a_max=1.0)


_ACTIVATIONS: Final[dict[str, tuple[int, Callable[[Expr, Sequence[float]], Expr]]]] = {
    "": (0, lambda x, p: x),
    "Relu": (0, lambda x, p: op.nn.relu(x)),
    "Tanh": (0, lambda x, p: op.tanh(x)),
    "Sigmoid": (0, lambda x, p: op.sigmoid(x)),
    "LeakyRelu": (1, lambda x, p: op.nn.leaky_relu(x, alpha=p[0])),
    "Clip": (2, lambda x, p: op.clip(x, a_min=p[0], a_max=p[1])),
    "HardSigmoid": (2, _hard_sigmoid),
}


def activated(x: Expr, name: str, parameters: Sequence[float], node: Node) -> Expr:
    """Apply the activation called `name` to `x`."""
    if name not in _ACTIVATIONS:
        node.refuse(f"activation is {name!r}; it must be one of {', '.join(a for a in _ACTIVATIONS if a)}")
    count, build = _ACTIVATIONS[name]
    if len(parameters) < count:
        node.refuse(f"{name} needs {count} parameters, but {len(parameters)} are given")
    return build(x, parameters)


def last_first(x: Expr) -> Expr:
    """Move channels from the last dimension to the second."""
    return transpose(x, (0, rank(x) - 1, *range(1, rank(x) - 1)))


def first_last(x: Expr) -> Expr:
    """Move channels from the second dimension to the last."""
    return transpose(x, (0, *range(2, rank(x)), 1))


@converter("FusedConv", domain=MICROSOFT)
def fused_conv(
    x: Expr, w: Expr, b: Expr | None = None, z: Expr | None = None, *, activation: str = "",
    activation_params: tuple[float, ...] = (), auto_pad: str = "NOTSET", dilations: tuple[int, ...] | None = None,
    group: int = 1, kernel_shape: tuple[int, ...] | None = None, pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None, node: Node,
) -> Expr:
    y = nn.conv(x, w, b, auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape, pads=pads,
                strides=strides, node=node)
    return activated(y if z is None else op.add(y, z), activation, activation_params, node)


@converter("NhwcConv", "NhwcFusedConv", domain=MICROSOFT)
def nhwc_conv(x: Expr, w: Expr, b: Expr | None = None, z: Expr | None = None, *, node: Node, auto_pad: str = "NOTSET",
              activation: str = "",
              activation_params: tuple[float, ...] = (), dilations: tuple[int, ...] | None = None, group: int = 1,
              kernel_shape: tuple[int, ...] | None = None, pads: tuple[int, ...] | None = None,
              strides: tuple[int, ...] | None = None) -> Expr:
    """Convolution with channels last in data and result; weights are (out, in, spatial…)."""
    y = fused_conv(last_first(x), w, b, None if z is None else last_first(z), activation=activation,
                   activation_params=activation_params,
                   auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape, pads=pads,
                   strides=strides, node=node)
    return first_last(y)


@converter("NhwcMaxPool", domain=MICROSOFT)
def nhwc_max_pool(
    x: Expr, *, auto_pad: str = "NOTSET", ceil_mode: int = 0, dilations: tuple[int, ...] | None = None,
    kernel_shape: tuple[int, ...], pads: tuple[int, ...] | None = None, strides: tuple[int, ...] | None = None,
    node: Node,
) -> Expr:
    return first_last(nn.max_pool(last_first(x), auto_pad=auto_pad, ceil_mode=ceil_mode, dilations=dilations,
                                  kernel_shape=kernel_shape,
                                  pads=pads, strides=strides, node=node)[0])


@converter("ConvTransposeWithDynamicPads", domain=MICROSOFT)
def conv_transpose_with_dynamic_pads(
    x: Expr, w: Expr, pads: Expr | None = None, b: Expr | None = None, *, auto_pad: str = "NOTSET",
    dilations: tuple[int, ...] | None = None, group: int = 1, kernel_shape: tuple[int, ...] | None = None,
    output_padding: tuple[int, ...] | None = None, strides: tuple[int, ...] | None = None, node: Node,
) -> Expr:
    return nn.conv_transpose(x, w, b, auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape,
                             strides=strides,
                             output_padding=output_padding, pads=None if pads is None else node.ints(pads, "Pads"),
                             node=node)


@converter("FusedGemm", domain=MICROSOFT)
def fused_gemm(
    a: Expr, b: Expr, c: Expr | None = None, *, activation: str = "", activation_alpha: float = 0.0,
    activation_beta: float = 0.0, activation_gamma: float = 0.0, alpha: float = 1.0, beta: float = 1.0, transA: int = 0,
    transB: int = 0, node: Node,
) -> Expr:
    y = linear.gemm(a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)
    return activated(y, activation, (activation_alpha, activation_beta, activation_gamma), node)


@converter("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(
    a: Expr, b: Expr, *, alpha: float = 1.0, transA: int = 0, transB: int = 0, transBatchA: int = 0,
    transBatchB: int = 0, node: Node,
) -> Expr:
    """alpha * a @ b; trans* exchange the last two dimensions, transBatch* move the first before the last two."""
    y = linear.matmul(_laid(a, transA, transBatchA), _laid(b, transB, transBatchB), node=node)
    return y if alpha == 1 else op.multiply(y, scalar(alpha, y))


def _laid(x: Expr, exchanged: int, batch: int) -> Expr:
    n = rank(x)
    axes = list(range(n))
    if batch and n > 2:
        axes = [*axes[1 : n - 1], axes[0], axes[n - 1]]
    if exchanged and n > 1:
        axes[-1], axes[-2] = axes[-2], axes[-1]
    return transpose(x, axes)


@converter("GemmFastGelu", domain=MICROSOFT)
def gemm_fast_gelu(x: Expr, w: Expr, bias: Expr | None = None, *, node: Node) -> Expr:
    return fast_gelu(linear.matmul(x, w, node=node), bias, node=node)


@converter("Gelu", domain=MICROSOFT)
def gelu(x: Expr, *, node: Node) -> Expr:
    return elementwise.gelu(x, node=node)


@converter("FastGelu", domain=MICROSOFT)
def fast_gelu(x: Expr, bias: Expr | None = None, *, node: Node) -> Expr:
    return elementwise.gelu(x if bias is None else op.add(x, bias), approximate="tanh", node=node)


@converter("BiasGelu", domain=MICROSOFT)
def bias_gelu(a: Expr, b: Expr, *, node: Node) -> Expr:
    return elementwise.gelu(op.add(a, b), node=node)


@converter("QuickGelu", domain=MICROSOFT)
def quick_gelu(x: Expr, *, alpha: float = 1.702) -> Expr:
    return elementwise.swish(x, alpha=alpha)


@converter("BiasSplitGelu", domain=MICROSOFT)
def bias_split_gelu(x: Expr, bias: Expr, *, node: Node) -> Expr:
    """The first half of the last dimension times the GELU of the second half."""
    y = op.add(x, bias)
    half = node.static(x, "X")[-1] // 2
    return op.multiply(slice_axis(y, rank(y) - 1, 0, half), elementwise.gelu(slice_axis(y, rank(y) - 1, half, 2 * half),
        node=node))


@converter("BiasAdd", domain=MICROSOFT)
def bias_add(x: Expr, bias: Expr, skip: Expr) -> Expr:
    return op.add(op.add(x, bias), skip)


@converter("BiasSoftmax", domain=MICROSOFT)
def bias_softmax(data: Expr, bias: Expr, *, axis: int = 1, is_inner_broadcast: int, node: Node) -> Expr:
    """Softmax of data + bias over the dimensions from `axis` on; the bias repeats along inner or outer dimensions."""
    dims, axis = shape_of(data), axis_of(axis, rank(data), node)
    if not is_inner_broadcast and rank(bias) < rank(data):
        bias = reshape(bias, (*[1] * (rank(data) - rank(bias)), *shape_of(bias)))
    total = op.add(data, bias)
    return reshape(op.nn.softmax(reshape(total, (*dims[:axis], -1)), axis=-1), dims)


@converter("SimplifiedLayerNormalization", domain=MICROSOFT)
@converter("SimplifiedLayerNormalization")
def simplified_layer_norm(
    x: Expr, scale: Expr, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1, node: Node,
) -> tuple[Expr, ...]:
    """x / sqrt(mean(x^2) + epsilon) * scale, over the dimensions from `axis` on; and 1 / sqrt(…)."""
    axes = tuple(range(axis_of(axis, rank(x), node), rank(x)))
    wide = cast(x, "float32") if stash_type == 1 and dtype_of(x) != "float64" else x
    inverse = op.rsqrt(op.add(op.mean(op.multiply(wide, wide), axis=axes, keepdims=True), scalar(epsilon, wide)))
    return op.multiply(cast(op.multiply(wide, inverse), dtype_of(x)), scale), inverse


def _skipped(x: Expr, skip: Expr, bias: Expr | None) -> Expr:
    total = op.add(x, skip)
    return total if bias is None else op.add(total, bias)


@converter("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_norm(
    input: Expr, skip: Expr, gamma: Expr, beta: Expr | None = None, bias: Expr | None = None, *, epsilon: float = 1e-12,
    node: Node,
) -> tuple[Expr, ...]:
    """Layer normalization of input + skip + bias; the fourth result is the sum. Mean and deviation are not supported.
    """
    total = _skipped(input, skip, bias)
    return _normed(total, gamma, beta, epsilon, node), _no_statistics(node), _no_statistics(node), total


@converter("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_simplified_layer_norm(
    input: Expr, skip: Expr, gamma: Expr, bias: Expr | None = None, *, epsilon: float = 1e-12, node: Node,
) -> tuple[Expr, ...]:
    total = _skipped(input, skip, bias)
    return simplified_layer_norm(total, gamma, epsilon=epsilon,
                                 node=node)[0], _no_statistics(node), _no_statistics(node), total


def _no_statistics(node: Node) -> Expr:
    if any(node.outputs[1:3]):
        node.refuse("its outputs mean and deviation are for training and are not supported; export the model for "
                    "inference")
    return Tuple(())


def _normed(x: Expr, gamma: Expr, beta: Expr | None, epsilon: float, node: Node) -> Expr:
    zeros = scalar(np.zeros(node.static(gamma, "gamma")), x)
    return op.nn.layer_norm(x, gamma, zeros if beta is None else beta, axis=-1, epsilon=epsilon)


@converter("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_norm(
    input_ids: Expr, segment_ids: Expr | None, word_embedding: Expr, position_embedding: Expr,
    segment_embedding: Expr | None, gamma: Expr, beta: Expr, mask: Expr | None = None, position_ids: Expr | None = None,
    *, epsilon: float = 1e-12, mask_index_type: int = 0, node: Node,
) -> tuple[Expr, ...]:
    """Layer normalization of the summed embeddings, the number of set elements in each row of the mask, and the sum."""
    batch = shape_of(input_ids)[0]
    if position_ids is None:
        places: Expr = op.expand_dims(slice_axis(position_embedding, 0, 0, node.static(input_ids, "input_ids")[1]),
                                      axis=0)
    else:
        places = op.take(position_embedding, position_ids, axis=0)
    total: Expr = op.add(op.take(word_embedding, input_ids, axis=0), places)
    if segment_ids is not None and segment_embedding is not None:
        total = op.add(total, op.take(segment_embedding, segment_ids, axis=0))
    count = (op.sum(cast(mask, "int32"), axis=(1,)) if mask is not None and mask_index_type
             else op.full(number(0, "int32"), shape=(batch,), dtype="int32"))
    return _normed(total, gamma, beta, epsilon, node), count, total


@converter("GroupNorm", domain=MICROSOFT)
def group_norm(
    x: Expr, gamma: Expr, beta: Expr, *, activation: int, channels_last: int = 1, epsilon: float = 1e-5, groups: int,
) -> Expr:
    y = op.nn.group_norm(last_first(x) if channels_last else x, cast(gamma, dtype_of(x)), cast(beta, dtype_of(x)),
                         num_groups=groups, axis=1, epsilon=epsilon)
    found = first_last(y) if channels_last else y
    return elementwise.swish(found) if activation else found


@converter("ExpandDims", domain=MICROSOFT)
def expand_dims(x: Expr, axis: Expr, *, node: Node) -> Expr:
    return op.expand_dims(x, axis=node.scalar(axis, "axis"))


@converter("Pad", domain=MICROSOFT)
def pad(data: Expr, pads: Expr, value: Expr | None = None, *, mode: str = "constant", node: Node) -> Expr:
    return transform.pad_by_inputs(data, pads, value, mode=mode, node=node)


@converter("GatherND", domain=MICROSOFT)
def gather_nd(data: Expr, indices: Expr, *, node: Node) -> Expr:
    return transform.gather_nd(data, indices, node=node)


@converter("GridSample", domain=MICROSOFT)
def grid_sample(x: Expr, grid: Expr, *, align_corners: int = 0, mode: str = "bilinear", padding_mode: str = "zeros",
                node: Node) -> Expr:
    return sampling.grid_sample(x, grid, align_corners=align_corners, mode=mode.replace("bilinear",
        "linear").replace("bicubic", "cubic"), padding_mode=padding_mode, node=node)


@converter("CDist", domain=MICROSOFT)
def cdist(a: Expr, b: Expr, *, metric: str = "sqeuclidean", node: Node) -> Expr:
    """The distance between each row of `a` and each row of `b`."""
    if metric not in ("sqeuclidean", "euclidean"):
        node.refuse(f"metric is {metric!r}; it must be sqeuclidean or euclidean")
    difference = op.subtract(op.expand_dims(a, axis=1), op.expand_dims(b, axis=0))
    square = op.sum(op.multiply(difference, difference), axis=(2,))
    return op.sqrt(square) if metric == "euclidean" else square


@converter("CropAndResize", domain=MICROSOFT)
def crop_and_resize(
    x: Expr, rois: Expr, batch_indices: Expr, crop_size: Expr, *, extrapolation_value: float = 0.0,
    mode: str = "bilinear", node: Node,
) -> Expr:
    how = {"bilinear": "bilinear", "nearest": "nearest_neighbor"}.get(mode)
    if how is None:
        node.refuse(f"mode is {mode!r}; it must be bilinear or nearest")
    return op.image.crop_and_resize(x, rois, batch_indices, crop_size=node.ints(crop_size, "crop_size"), layout="NCHW",
                                    method=how, extrapolation_value=extrapolation_value)


@converter("IsAllFinite", domain=MICROSOFT)
def is_all_finite(*input: Expr, isinf_only: int = 0, isnan_only: int = 0) -> Expr:
    found = []
    for x in input:
        wrong = op.isinf(x) if isinf_only else op.isnan(x) if isnan_only else op.logical_not(op.isfinite(x))
        found.append(reshape(op.any(reshape(wrong, (-1,)), axis=(0,)), ()))
    total: Any = found[0]
    for more in found[1:]:
        total = op.logical_or(total, more)
    return op.logical_not(total)
