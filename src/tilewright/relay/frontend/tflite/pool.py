"""Pools, channels last. The mean of integers is rounded with halves away from zero, and windows count only what is inside of the image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast
from tilewright.relay.frontend.tflite.node import Node, Value, constant
from tilewright.relay.frontend.tflite.registry import converter
from tilewright.relay.frontend.tflite.rescale import activate
from tilewright.relay.frontend.tflite.windows import padding_of


@dataclass(frozen=True, slots=True)
class _Windows:
    """Windows of a pool: their size, how far they are apart, and what is added before and behind both dimensions."""

    size: tuple[int, int]
    strides: tuple[int, int]
    padding: tuple[int, ...]

    def attributes(self) -> dict[str, Any]:
        return {"pool_size": self.size, "strides": self.strides, "padding": self.padding, "layout": "NHWC"}


def _windows(x: Value, padding: int, strides: tuple[int, int], size: tuple[int, int], node: Node) -> _Windows:
    if x.rank != 4:
        node.refuse(f"its input has {x.rank} dimensions, and must have 4")
    return _Windows(size, strides, padding_of(padding, x.shape[1:3], size, strides, (1, 1), node))


@converter("AVERAGE_POOL_2D")
def average_pool_2d(
    x: Value, *, padding: int = 0, stride_w: int = 0, stride_h: int = 0, filter_width: int = 0, filter_height: int = 0,
    fused_activation_function: int = 0, node: Node,
) -> Expr:
    windows = _windows(x, padding, (stride_h, stride_w), (filter_height, filter_width), node)
    if not x.is_quantized:
        found: Expr = op.nn.avg_pool2d(x.expr, count_include_pad=False, **windows.attributes())
    else:
        found = _integer_mean(x, windows)
    return activate(found, fused_activation_function, node)


def _integer_mean(x: Value, windows: _Windows) -> Expr:
    """The sum of each window divided by how many elements of the image are in it."""
    height, width = x.shape[1:3]
    top, left, bottom, right = windows.padding
    ones = np.pad(np.ones((height, width), np.int32), ((top, bottom), (left, right)))
    each = np.lib.stride_tricks.sliding_window_view(ones, windows.size)
    counts = each[:: windows.strides[0], :: windows.strides[1]].sum((2, 3), dtype=np.int32)
    total = _sums(cast(x.expr, "int32"), windows)
    number = Constant(counts.reshape(1, *counts.shape, 1)) if counts.min() != counts.max() else constant(counts.flat[0], "int32")
    half = Constant(number.value // 2)
    moved = op.where(op.greater(total, constant(0, "int32")), op.add(total, half), op.subtract(total, half))
    return cast(_truncated_quotient(moved, number), x.dtype)


def _truncated_quotient(x: Expr, n: Constant) -> Expr:
    """The quotient of int32 numbers, rounded towards zero."""
    size = op.floor_divide(op.abs(x), n)
    return op.where(op.less(x, constant(0, "int32")), op.negative(size), size)


def _sums(x: Expr, windows: _Windows) -> Expr:
    """The sums of windows of int32 numbers, padding zero: a depthwise convolution with ones."""
    _, height, width, channels = x.tensor_type.shape
    if not any(windows.padding) and windows.size == (height, width):
        return op.sum(x, axis=(1, 2), keepdims=True)
    return op.nn.conv2d(
        x, Constant(np.ones((*windows.size, 1, channels), np.int32)), strides=windows.strides, padding=windows.padding, groups=channels, channels=channels,
        kernel_size=windows.size, data_layout="NHWC", kernel_layout="HWIO", out_dtype="int32",
    )


@converter("MAX_POOL_2D")
def max_pool_2d(
    x: Value, *, padding: int = 0, stride_w: int = 0, stride_h: int = 0, filter_width: int = 0, filter_height: int = 0,
    fused_activation_function: int = 0, node: Node,
) -> Expr:
    windows = _windows(x, padding, (stride_h, stride_w), (filter_height, filter_width), node)
    return activate(op.nn.max_pool2d(x.expr, **windows.attributes()), fused_activation_function, node)


@converter("L2_POOL_2D")
def l2_pool_2d(
    x: Value, *, padding: int = 0, stride_w: int = 0, stride_h: int = 0, filter_width: int = 0, filter_height: int = 0,
    fused_activation_function: int = 0, node: Node,
) -> Expr:
    windows = _windows(x, padding, (stride_h, stride_w), (filter_height, filter_width), node)
    found = op.sqrt(op.nn.avg_pool2d(op.multiply(x.expr, x.expr), count_include_pad=False, **windows.attributes()))
    return activate(found, fused_activation_function, node)
