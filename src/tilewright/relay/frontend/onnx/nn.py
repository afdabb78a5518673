"""Convolution, pooling and normalization."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.types import OpenSize
from tilewright.relay.expr import Expr, TupleGetItem
from tilewright.relay.frontend.onnx.node import Node
from tilewright.relay.frontend.onnx.pooling import max_and_where
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast, pad, slice_axis
from tilewright.relay.types_of import dtype_of, rank, scalar, shape_of
from tilewright.topi.shapes import at_least, differ, is_multiple

_CONV: Final = {1: (op.nn.conv1d, "NCW", "OIW"), 2: (op.nn.conv2d, "NCHW", "OIHW"), 3: (op.nn.conv3d, "NCDHW", "OIDHW")}
_CONV_TRANSPOSE: Final = {
    1: (op.nn.conv1d_transpose, "NCW", "IOW"), 2: (op.nn.conv2d_transpose, "NCHW", "IOHW"),
    3: (op.nn.conv3d_transpose, "NCDHW", "IODHW"),
}
_MAX_POOL: Final = {1: op.nn.max_pool1d, 2: op.nn.max_pool2d, 3: op.nn.max_pool3d}
_AVG_POOL: Final = {1: op.nn.avg_pool1d, 2: op.nn.avg_pool2d, 3: op.nn.avg_pool3d}
_LAYOUT: Final = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


def _spatial(x: Expr, table: dict[int, Any], node: Node) -> int:
    n = rank(x) - 2
    if n not in table:
        node.refuse(f"an input of {rank(x)} dimensions is not supported; it must have "
                    f"{', '.join(str(k + 2) for k in table)}")
    return n


def _check_window(x: Expr, node: Node, **given: Sequence[int]) -> None:
    """Refuse window attributes that do not have one number for each spatial dimension."""
    n = rank(x) - 2
    if any(len(v) != n for v in given.values()):
        shown = [f"{name} {tuple(v)}" for name, v in given.items()]
        node.refuse(f"its window has {', '.join(shown[:-1])} and {shown[-1]}; each must have {n} numbers, one for each "
                    f"dimension of its input {x.checked_type!r} except the first two")


def _check_groups(group: int, node: Node, **channels: object) -> None:
    """Refuse a group count that does not divide the known channel counts, given by input name."""
    for name, count in channels.items():
        if group < 1 or not is_multiple(count, group):
            node.refuse(f"group is {group}; it must be 1 or more and divide the {count} channels of {name}")


def paddings(
    x: Expr, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], auto_pad: str,
    pads: Sequence[int] | None, node: Node,
) -> tuple[int, ...]:
    """Padding of the spatial dimensions: `(*before, *after)`, as in ONNX and Relay."""
    n = len(kernel)
    _check_window(x, node, kernel_shape=kernel, strides=strides, dilations=dilations)
    if auto_pad in ("NOTSET", ""):
        given = tuple(pads) if pads is not None else (0,) * 2 * n
        if len(given) != 2 * n:
            node.refuse(f"pads has {len(given)} numbers; {2 * n} are needed, before and after each of {n} dimensions")
        return given
    if auto_pad == "VALID":
        return (0,) * 2 * n
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        node.refuse(f"auto_pad is {auto_pad!r}; it must be NOTSET, SAME_UPPER, SAME_LOWER or VALID")
    if all(s == 1 for s in strides):
        totals = [(k - 1) * d for k, d in zip(kernel, dilations, strict=True)]
    else:
        sizes = node.static(x, "X")[2:]
        totals = [at_least((-(-size // s) - 1) * s + (k - 1) * d + 1 - size, 0)
                  for size, k, s, d in zip(sizes, kernel, strides, dilations, strict=True)]
    small, large = [t // 2 for t in totals], [t - t // 2 for t in totals]
    return (*small, *large) if auto_pad == "SAME_UPPER" else (*large, *small)


@converter("Conv")
def conv(
    x: Expr, w: Expr, b: Expr | None = None, *, auto_pad: str = "NOTSET", dilations: tuple[int, ...] | None = None,
    group: int = 1, kernel_shape: tuple[int, ...] | None = None, pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None, node: Node,
) -> Expr:
    n = _spatial(x, _CONV, node)
    build, layout, kernel_layout = _CONV[n]
    kernel = kernel_shape or node.static(w, "W")[2:]
    strides, dilations = strides or (1,) * n, dilations or (1,) * n
    padding = paddings(x, kernel, strides, dilations, auto_pad, pads, node)
    _check_groups(group, node, X=shape_of(x)[1], W=shape_of(w)[0])
    y = build(x, w, strides=strides, padding=padding, dilation=dilations, groups=group, channels=shape_of(w)[0],
              kernel_size=tuple(kernel),
              data_layout=layout, kernel_layout=kernel_layout)
    if any(isinstance(d, int) and not d for d in shape_of(w)[1:]):  # sums over no elements
        y = op.zeros(shape=shape_of(y), dtype=dtype_of(y))
    return y if b is None else op.nn.bias_add(y, b, axis=1)


@converter("CausalConvWithState", since=27)
def causal_conv_with_state(
    x: Expr, weight: Expr, bias: Expr | None = None, past_state: Expr | None = None, *, activation: str = "none",
    node: Node,
) -> tuple[Expr, Expr]:
    """A convolution of each channel over its past, which is zero or `past_state`, and the last elements as state."""
    (_, channels, length), (_, _, kernel) = node.static(x, "input"), node.static(weight, "weight")
    if activation not in ("none", "silu", "swish"):
        node.refuse(f"activation is {activation!r}; it must be none, silu or swish")
    if past_state is None:
        x = pad(x, ((0, 0), (0, 0), (kernel - 1, 0)))
    elif differ(node.static(past_state, "past_state")[2], kernel - 1):
        node.refuse(f"past_state has {shape_of(past_state)[2]} elements; a kernel of {kernel} takes {kernel - 1}")
    else:
        x = op.concatenate((past_state, x), axis=2)
    if isinstance(channels, OpenSize) or isinstance(kernel, OpenSize):
        windows = op.sliding_window(x, axis=2, window_shape=(kernel,), strides=(1,))
        y: Expr = op.sum(op.multiply(windows, weight), axis=(3,))
    else:
        y = op.nn.conv1d(
            x, weight, channels=channels, kernel_size=(kernel,), groups=channels, data_layout="NCW",
            kernel_layout="OIW")
    if bias is not None:
        y = op.nn.bias_add(y, bias, axis=1)
    if activation != "none":
        wide = cast(y, "float32")
        y = cast(op.multiply(wide, op.sigmoid(wide)), dtype_of(y))
    return y, slice_axis(x, 2, length, length + kernel - 1)


@converter("ConvTranspose")
def conv_transpose(
    x: Expr, w: Expr, b: Expr | None = None, *, auto_pad: str = "NOTSET", dilations: tuple[int, ...] | None = None,
    group: int = 1, kernel_shape: tuple[int, ...] | None = None, output_padding: tuple[int, ...] | None = None,
    output_shape: tuple[int, ...] | None = None, pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None, node: Node,
) -> Expr:
    n = _spatial(x, _CONV_TRANSPOSE, node)
    build, layout, kernel_layout = _CONV_TRANSPOSE[n]
    kernel = kernel_shape or node.static(w, "W")[2:]
    _check_groups(group, node, X=shape_of(x)[1], W=shape_of(w)[0])
    strides, dilations, extra = strides or (1,) * n, dilations or (1,) * n, output_padding or (0,) * n
    sized = {"output_shape": output_shape[-n:]} if output_shape else {}
    _check_window(x, node, kernel_shape=kernel, strides=strides, dilations=dilations, output_padding=extra, **sized)
    if output_shape is None and auto_pad in ("NOTSET", "VALID", ""):
        padding = tuple(pads) if pads and auto_pad != "VALID" else (0,) * 2 * n
    else:
        sizes = node.static(x, "X")[2:]
        wanted = output_shape[-n:] if output_shape else tuple(size * s for size, s in zip(sizes, strides, strict=True))
        full = [s * (size - 1) + e + (k - 1) * d + 1 for size, s, e, k, d in zip(sizes, strides, extra, kernel,
            dilations, strict=True)]
        totals = [f - size for f, size in zip(full, wanted, strict=True)]
        extra = tuple(e + at_least(-t, 0) for e, t in zip(extra, totals, strict=True))
        small = [at_least(t, 0) // 2 for t in totals]
        large = [at_least(t, 0) - s for t, s in zip(totals, small, strict=True)]
        padding = (*small, *large) if auto_pad == "SAME_UPPER" else (*large, *small)
    y = build(x, w, strides=strides, padding=padding, dilation=dilations, groups=group, channels=shape_of(w)[1] * group,
              kernel_size=tuple(kernel),
              output_padding=extra, data_layout=layout, kernel_layout=kernel_layout)
    return y if b is None else op.nn.bias_add(y, b, axis=1)


@converter("MaxPool")
def max_pool(
    x: Expr, *, auto_pad: str = "NOTSET", ceil_mode: int = 0, dilations: tuple[int, ...] | None = None,
    kernel_shape: tuple[int, ...], pads: tuple[int, ...] | None = None, storage_order: int = 0,
    strides: tuple[int, ...] | None = None, node: Node,
) -> tuple[Expr, ...]:
    n = _spatial(x, _MAX_POOL, node)
    strides, dilations = strides or (1,) * n, dilations or (1,) * n
    padding = paddings(x, kernel_shape, strides, dilations, auto_pad, pads, node)
    ceil, padding = _ceil(x, kernel_shape, strides, dilations, padding, bool(ceil_mode))
    if any(node.outputs[1:]):
        return max_and_where(x, kernel_shape, strides, dilations, padding, ceil, bool(storage_order), node)
    return (_MAX_POOL[n](x, pool_size=kernel_shape, strides=strides, dilation=dilations, padding=padding,
                         layout=_LAYOUT[n], ceil_mode=ceil),)


def _ceil(
    x: Expr, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], padding: tuple[int, ...],
    ceil_mode: bool,
) -> tuple[bool, tuple[int, ...]]:
    """Simplify `ceil_mode` to False if rounding up changes nothing, since plain pooling is easier to compute."""
    dims, n = shape_of(x)[2:], len(kernel)
    if not ceil_mode or not all(isinstance(d, int) for d in dims):
        return ceil_mode, padding
    left = [(dims[k] + padding[k] + padding[k + n] - (kernel[k] - 1) * dilations[k] - 1) % strides[k] for k in range(n)]
    return any(left), padding


@converter("AveragePool")
def average_pool(
    x: Expr, *, auto_pad: str = "NOTSET", ceil_mode: int = 0, count_include_pad: int = 0,
    dilations: tuple[int, ...] | None = None, kernel_shape: tuple[int, ...], pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None, node: Node,
) -> Expr:
    n = _spatial(x, _AVG_POOL, node)
    strides, dilations = strides or (1,) * n, dilations or (1,) * n
    padding = paddings(x, kernel_shape, strides, dilations, auto_pad, pads, node)
    ceil, padding = _ceil(x, kernel_shape, strides, dilations, padding, bool(ceil_mode))
    return _AVG_POOL[n](x, pool_size=kernel_shape, strides=strides, dilation=dilations, padding=padding,
                        layout=_LAYOUT[n], ceil_mode=ceil,
                        count_include_pad=bool(count_include_pad and any(padding)))


def _to_the_last_window(
    dims: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int],
    padding: Sequence[int],
) -> tuple[int, ...]:
    """Padding with which rounding down gives the windows of rounding up; no window starts after the end."""
    n, after = len(kernel), list[int]()
    for k in range(n):
        window = (kernel[k] - 1) * dilations[k] + 1
        last = -(-(dims[k] + padding[k] + padding[k + n] - window) // strides[k])
        if last * strides[k] >= dims[k] + padding[k]:
            last -= 1
        after.append(max(padding[k + n], last * strides[k] + window - dims[k] - padding[k]))
    return (*padding[:n], *after)


def _check_norm(p: int, node: Node) -> None:
    if p < 1:
        node.refuse(f"p (the order of the norm) is {p}; it must be 1 or more")


@converter("LpPool")
def lp_pool(
    x: Expr, *, auto_pad: str = "NOTSET", ceil_mode: int = 0, dilations: tuple[int, ...] | None = None,
    kernel_shape: tuple[int, ...], p: int = 2, pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None, node: Node,
) -> Expr:
    """(sum |x|^p)^(1/p), as an average that counts the padding times the window size."""
    _check_norm(p, node)
    powered = op.power(op.abs(x), scalar(p, x))
    n = _spatial(x, _AVG_POOL, node)
    strides, dilations = strides or (1,) * n, dilations or (1,) * n
    padding = paddings(x, kernel_shape, strides, dilations, auto_pad, pads, node)
    if ceil_mode:
        padding = _to_the_last_window(node.static(x, "X")[2:], kernel_shape, strides, dilations, padding)
    padded = pad(powered, [(0, 0), (0, 0), *[(padding[k], padding[k + n]) for k in range(n)]])
    mean = _AVG_POOL[n](padded, pool_size=kernel_shape, strides=strides, dilation=dilations, padding=(0,) * 2 * n,
                        layout=_LAYOUT[n])
    return op.power(op.multiply(mean, scalar(math.prod(kernel_shape), x)), scalar(1 / p, x))


def _over_space(build: Callable[..., Expr], x: Expr) -> Expr:
    return build(x, axis=tuple(range(2, rank(x))), keepdims=True)


@converter("GlobalAveragePool")
def global_average_pool(x: Expr) -> Expr:
    return op.nn.global_avg_pool2d(x, layout="NCHW") if rank(x) == 4 else _over_space(op.mean, x)


@converter("GlobalMaxPool")
def global_max_pool(x: Expr) -> Expr:
    return op.nn.global_max_pool2d(x, layout="NCHW") if rank(x) == 4 else _over_space(op.max, x)


@converter("GlobalLpPool")
def global_lp_pool(x: Expr, *, p: int = 2, node: Node) -> Expr:
    _check_norm(p, node)
    return op.power(_over_space(op.sum, op.power(op.abs(x), scalar(p, x))), scalar(1 / p, x))


@converter("BatchNormalization")
def batch_norm_first(
    x: Expr, scale: Expr, b: Expr, mean: Expr, var: Expr, *, epsilon: float = 1e-5, momentum: float = 0.9,
    spatial: int = 1, is_test: int = 0,
) -> tuple[Expr, ...]:
    """Batch normalization; with spatial=0, statistics are per position instead of per channel."""
    if spatial:
        return (_batch_norm(x, scale, b, mean, var, epsilon),)
    inverse = op.rsqrt(op.add(var, scalar(epsilon, var)))
    return (op.add(op.multiply(op.multiply(op.subtract(x, mean), inverse), scale), b),)


@converter("BatchNormalization", since=9)
def batch_norm(
    x: Expr, scale: Expr, b: Expr, input_mean: Expr, input_var: Expr, *, epsilon: float = 1e-5, momentum: float = 0.9,
    training_mode: int = 0,
) -> tuple[Expr, ...]:
    if not training_mode:
        return (_batch_norm(x, scale, b, input_mean, input_var, epsilon),)
    axes = (0, *range(2, rank(x)))
    mean = op.mean(x, axis=axes)
    var = op.variance(x, op.mean(x, axis=axes, keepdims=True), axis=axes)
    running = [op.add(op.multiply(old, scalar(momentum, old)), op.multiply(new, scalar(1 - momentum, new)))
               for old, new in ((input_mean, mean), (input_var, var))]
    return (_batch_norm(x, scale, b, mean, var, epsilon), *running)


def _batch_norm(x: Expr, scale: Expr, b: Expr, mean: Expr, var: Expr, epsilon: float) -> Expr:
    return TupleGetItem(op.nn.batch_norm(x, *(cast(v, dtype_of(x)) for v in (scale, b, mean, var)), axis=1,
                                         epsilon=epsilon), 0)


@converter("InstanceNormalization")
def instance_norm(x: Expr, scale: Expr, b: Expr, *, epsilon: float = 1e-5) -> Expr:
    return op.nn.instance_norm(x, scale, b, axis=1, epsilon=epsilon)


@converter("LayerNormalization")
def layer_norm(x: Expr, scale: Expr, b: Expr | None = None, *, axis: int = -1, epsilon: float = 1e-5,
               stash_type: int = 1, node: Node) -> tuple[Expr, ...]:
    ndim = rank(x)
    axis %= ndim
    if axis == ndim - 1 and rank(scale) == 1 and not any(node.outputs[1:]):
        bias = scalar(np.zeros(node.static(scale, "Scale")), x) if b is None else b
        return (op.nn.layer_norm(x, scale, bias, axis=-1, epsilon=epsilon),)
    axes = tuple(range(axis, ndim))
    wide = cast(x, "float32") if stash_type == 1 else x
    mean = op.mean(wide, axis=axes, keepdims=True)
    centred = op.subtract(wide, mean)
    variance = op.mean(op.multiply(centred, centred), axis=axes, keepdims=True)
    inverse = op.rsqrt(op.add(variance, scalar(epsilon, wide)))
    y = op.multiply(cast(op.multiply(centred, inverse), dtype_of(x)), scale)
    return (y if b is None else op.add(y, b)), mean, inverse


@converter("GroupNormalization")
def group_norm_by_group(x: Expr, scale: Expr, bias: Expr, *, epsilon: float = 1e-5, num_groups: int,
                        node: Node) -> Expr:
    """Group normalization of opset 18, where scale and bias have one number per group."""
    each = node.static(x, "X")[1] // num_groups
    return op.nn.group_norm(x, op.repeat(scale, repeats=each, axis=0), op.repeat(bias, repeats=each, axis=0),
                            num_groups=num_groups, axis=1, epsilon=epsilon)


@converter("GroupNormalization", since=21)
def group_norm(x: Expr, scale: Expr, bias: Expr, *, epsilon: float = 1e-5, num_groups: int,
               stash_type: int = 1) -> Expr:
    return op.nn.group_norm(x, scale, bias, num_groups=num_groups, axis=1, epsilon=epsilon)


@converter("LRN")
def lrn(x: Expr, *, alpha: float = 0.0001, beta: float = 0.75, bias: float = 1.0, size: int) -> Expr:
    return op.nn.lrn(x, size=size, axis=1, alpha=alpha, beta=beta, bias=bias)
