"""Operators that put overlapping windows back together."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.onnx.node import Array, Node
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import dtype_of, reshape, slice_axis, transpose


@converter("Col2Im", since=18)
def col2im(
    x: Expr, image_shape: Expr, block_shape: Expr, *, dilations: tuple[int, ...] | None = None, pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None, node: Node,
) -> Expr:
    """Columns (batch, channels * elements of a block, blocks) as an image: what lies on one another is added up."""
    image, block = node.ints(image_shape, "image_shape"), node.ints(block_shape, "block_shape")
    batch, rows, columns = node.static(x, "input")
    d = len(image)
    steps, apart, around = strides or (1,) * d, dilations or (1,) * d, pads or (0,) * (2 * d)
    padded = [n + around[k] + around[k + d] for k, n in enumerate(image)]
    counts = [(p - a * (b - 1) - 1) // s + 1 for p, a, b, s in zip(padded, apart, block, steps, strict=True)]
    if columns != math.prod(counts) or rows % math.prod(block):
        node.refuse(f"its input has {rows} rows and {columns} columns; blocks {block} of an image {image} need a multiple of {math.prod(block)} "
                    f"rows, and {math.prod(counts)} columns")
    channels = rows // math.prod(block)
    values = reshape(transpose(reshape(x, (batch, channels, -1)), (2, 0, 1)), (-1, batch * channels))
    empty = op.full(Constant(np.zeros((), dtype_of(x).numpy())), shape=(math.prod(padded), batch * channels), dtype=dtype_of(x))
    whole = op.scatter_nd(empty, Constant(_places(padded, block, counts, steps, apart)[None]), values, mode="add")
    result = reshape(transpose(whole, (1, 0)), (batch, channels, *padded))
    for k, n in enumerate(image):
        if padded[k] != n:
            result = slice_axis(result, k + 2, around[k], around[k] + n)
    return result


def _places(padded: Sequence[int], block: Sequence[int], counts: Sequence[int], steps: Sequence[int], apart: Sequence[int]) -> Array:
    """Where in the padded image each element of each block lies: block elements first, then blocks."""
    grid = np.indices((*block, *counts)).reshape(2 * len(block), -1)
    where = [a * inside + s * at for a, s, inside, at in zip(apart, steps, grid[: len(block)], grid[len(block) :], strict=True)]
    return np.asarray(np.ravel_multi_index(where, tuple(padded)), np.int64)
