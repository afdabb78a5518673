"""The converters: parameters before the star are inputs, those after it are attributes."""

from __future__ import annotations

from tilewright.relay.expr import Expr
from tilewright.relay.frontend.core.node import Node
from tilewright.relay.frontend.core.registry import Converters
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import fields

CONVERTERS = Converters("json", "json_frontend.register_converter")
converter = register_converter = CONVERTERS.converter


@converter("dense")
def dense(x: Expr, weight: Expr, bias: Expr | None = None) -> Expr:
    """x @ weight.T + bias."""
    product = op.nn.dense(x, weight)
    return product if bias is None else op.nn.bias_add(product, bias)


@converter("relu")
def relu(x: Expr) -> Expr:
    return op.nn.relu(x)


@converter("add")
def add(a: Expr, b: Expr) -> Expr:
    return op.add(a, b)


@converter("softmax")
def softmax(x: Expr, *, axis: int = -1) -> Expr:
    return op.nn.softmax(x, axis=axis)


@converter("conv2d")
def conv2d(x: Expr, weight: Expr, *, strides: tuple[int, ...] = (1, 1), padding: tuple[int, ...] = (0, 0)) -> Expr:
    """A convolution of images (n, channels, height, width)."""
    return op.nn.conv2d(x, weight, strides=strides, padding=padding)


@converter("reshape")
def reshape(x: Expr, shape: Expr, *, node: Node) -> Expr:
    """`shape` is a tensor. Where the network computes it, the node is converted when its value is known."""
    return op.reshape(x, newshape=node.ints(shape, "shape"))


@converter("split")
def split(x: Expr, *, parts: int, axis: int = 0, node: Node) -> tuple[Expr, ...]:
    """Equal parts along an axis, one for each output."""
    if parts != len(node.outputs):
        node.refuse(f"it has {len(node.outputs)} outputs and splits its input into {parts} parts; both must be equal")
    return fields(op.split(x, indices_or_sections=parts, axis=axis), parts)
