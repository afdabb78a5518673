"""Pools, channels last. The mean of integers is rounded with halves away from zero, and windows count only what is inside of the image."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast
from tilewright.relay.frontend.tflite.node import Node, Value, constant
from tilewright.relay.frontend.tflite.registry import converter
from tilewright.relay.frontend.tflite.rescale import activate
from tilewright.relay.frontend.tflite.windows import padding_of

Pool = Callable[..., Expr]


def _attributes(x: Value, padding: int, strides: tuple[int, int], window: tuple[int, int], node: Node) -> dict[str, object]:
    if x.rank != 4:
        node.refuse(f"its input has {x.rank} dimensions, and must have 4")
    around = padding_of(padding, x.shape[1:3], window, strides, (1, 1), node)
    return {"pool_size": window, "strides": strides, "padding": around, "layout": "NHWC"}


@converter("AVERAGE_POOL_2D")
def average_pool_2d(
    x: Value, *, padding: int = 0, stride_w: int = 0, stride_h: int = 0, filter_width: int = 0, filter_height: int = 0,
    fused_activation_function: int = 0, node: Node,
) -> Expr:
    attrs = _attributes(x, padding, (stride_h, stride_w), (filter_height, filter_width), node)
    if not x.is_quantized:
        found: Expr = op.nn.avg_pool2d(x.expr, count_include_pad=False, **attrs)
    else:
        found = _integer_mean(x, attrs, (filter_height, filter_width))
    return activate(found, fused_activation_function, node)


def _integer_mean(x: Value, attrs: dict[str, object], window: tuple[int, int]) -> Expr:
    """The sum of each window divided by how many elements of the image are in it."""
    height, width = x.shape[1:3]
    top, left, bottom, right = attrs["padding"]  # type: ignore[misc]
    (rows, columns), (down, across) = attrs["strides"], window  # type: ignore[misc]
    ones = np.pad(np.ones((height, width), np.int32), ((top, bottom), (left, right)))
    counts = np.lib.stride_tricks.sliding_window_view(ones, (down, across))[::rows, ::columns].sum((2, 3), dtype=np.int32)
    total = _sums(cast(x.expr, "int32"), attrs, window)
    number = Constant(counts.reshape(1, *counts.shape, 1)) if counts.min() != counts.max() else constant(counts.flat[0], "int32")
    half = Constant(number.value // 2)
    moved = op.where(op.greater(total, constant(0, "int32")), op.add(total, half), op.subtract(total, half))
    return cast(_truncated_quotient(moved, number), x.dtype)


def _truncated_quotient(x: Expr, n: Constant) -> Expr:
    """The quotient of int32 numbers, rounded towards zero."""
    size = op.floor_divide(op.abs(x), n)
    return op.where(op.less(x, constant(0, "int32")), op.negative(size), size)


def _sums(x: Expr, attrs: dict[str, object], window: tuple[int, int]) -> Expr:
    """The sums of windows of int32 numbers, padding zero: a depthwise convolution with ones."""
    channels = x.tensor_type.shape[3]
    (top, left, bottom, right) = attrs["padding"]  # type: ignore[misc]
    height, width = x.tensor_type.shape[1:3]
    if (top, left, bottom, right) == (0, 0, 0, 0) and window == (height, width):
        return op.sum(x, axis=(1, 2), keepdims=True)
    return op.nn.conv2d(
        x, Constant(np.ones((*window, 1, channels), np.int32)), strides=attrs["strides"], padding=attrs["padding"], groups=channels, channels=channels,
        kernel_size=window, data_layout="NHWC", kernel_layout="HWIO", out_dtype="int32",
    )


@converter("MAX_POOL_2D")
def max_pool_2d(
    x: Value, *, padding: int = 0, stride_w: int = 0, stride_h: int = 0, filter_width: int = 0, filter_height: int = 0,
    fused_activation_function: int = 0, node: Node,
) -> Expr:
    attrs = _attributes(x, padding, (stride_h, stride_w), (filter_height, filter_width), node)
    return activate(op.nn.max_pool2d(x.expr, **attrs), fused_activation_function, node)


@converter("L2_POOL_2D")
def l2_pool_2d(
    x: Value, *, padding: int = 0, stride_w: int = 0, stride_h: int = 0, filter_width: int = 0, filter_height: int = 0,
    fused_activation_function: int = 0, node: Node,
) -> Expr:
    attrs = _attributes(x, padding, (stride_h, stride_w), (filter_height, filter_width), node)
    found = op.sqrt(op.nn.avg_pool2d(op.multiply(x.expr, x.expr), count_include_pad=False, **attrs))
    return activate(found, fused_activation_function, node)
