"""Pooling with channels last. Averages count only elements inside the image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.relay.expr import Expr
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.tflite.node import Node, Value, parameters_of
from tilewright.relay.frontend.tflite.registry import converter
from tilewright.relay.frontend.tflite.rescale import activate
from tilewright.relay.frontend.tflite.windows import padding_of


@dataclass(frozen=True, slots=True)
class _Windows:
    """Windows of pooling: their size, strides, and padding before and after both dimensions."""

    size: tuple[int, int]
    strides: tuple[int, int]
    padding: tuple[int, ...]

    def attributes(self) -> dict[str, Any]:
        return {"pool_size": self.size, "strides": self.strides, "padding": self.padding, "layout": "NHWC"}


def _windows(x: Value, padding: int, strides: tuple[int, int], size: tuple[int, int], node: Node) -> _Windows:
    if x.rank != 4:
        node.refuse(f"its input has {x.rank} dimensions, but must have 4")
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
        parameters = parameters_of(x.tensor)
        found = op.qnn.avg_pool2d(x.expr, *parameters, *parameters, count_include_pad=False, **windows.attributes())
    return activate(found, fused_activation_function, node)


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
