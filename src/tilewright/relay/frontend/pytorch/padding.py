"""Padding."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend import shaping
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.pytorch.node import Node
from tilewright.relay.frontend.pytorch.promotion import tensor
from tilewright.relay.frontend.pytorch.references import spread
from tilewright.relay.frontend.pytorch.registry import converter
from tilewright.relay.frontend.shaping import slice_axis
from tilewright.relay.types_of import dtype_of, rank, shape_of


@converter("pad")
def pad_by_mode(self: Expr, pad: Any, node: Node, mode: str = "constant", value: float | None = None) -> Expr:
    widths = [(0, 0)] * (rank(self) - len(pad) // 2) + [(pad[k], pad[k + 1]) for k in range(len(pad) - 2, -1, -2)]
    if mode not in ("constant", "reflect", "replicate", "circular"):
        node.refuse(f"mode is {mode!r}; it must be constant, reflect, replicate or circular")
    if mode in ("reflect", "replicate") and any(w < 0 for pair in widths for w in pair):
        return _taken(self, widths, mode, node)
    cut = [(min(a, 0), min(b, 0)) for a, b in widths]
    x = self
    for axis, (a, b) in enumerate(cut):
        if a or b:
            x = slice_axis(x, axis, -a, shape_of(x)[axis] + b)
    widths = [(max(a, 0), max(b, 0)) for a, b in widths]
    if mode == "constant" and 0 in shape_of(x):
        shape = tuple(d + a + b for d, (a, b) in zip(shape_of(x), widths, strict=True))
        return spread(tensor(0 if value is None else value, dtype_of(x)), shape)
    if mode == "constant":
        return shaping.pad(x, widths, tensor(0 if value is None else value, dtype_of(x)))
    if mode == "circular":
        for axis, (a, b) in enumerate(widths):
            if a or b:
                size = node.static(x, "self")[axis]
                x = op.take(x, Constant(np.arange(-a, size + b) % size), axis=axis)
        return x
    return shaping.pad(x, widths, 0, "reflect" if mode == "reflect" else "edge")


def _taken(x: Expr, widths: list[tuple[int, int]], mode: str, node: Node) -> Expr:
    """`x` padded and cropped; outside elements are mirrored or repeated, also from cropped parts."""
    shape = node.static(x, "self")
    for axis, (a, b) in enumerate(widths):
        if not (a or b):
            continue
        size = shape[axis]
        if size + a + b < 1 or (mode == "reflect" and max(a, b) >= size):
            node.refuse(f"pad is ({a}, {b}) at a dimension of size {size}, which leaves no element or mirrors more "
                        "elements than it has; pad by less")
        place = np.arange(-a, size + b)
        place = np.clip(place, 0, size - 1) if mode == "replicate" else size - 1 - np.abs(size - 1 - np.abs(place))
        x = op.take(x, Constant(place), axis=axis)
    return x


@converter("constant_pad_nd")
def constant_pad(self: Expr, pad: Any, node: Node, value: float = 0) -> Expr:
    return pad_by_mode(self, pad, node, "constant", value)


def _register_pad(name: str, mode: str) -> None:
    @converter(name)
    def padded(self: Expr, padding: Any, node: Node) -> Expr:
        return pad_by_mode(self, padding, node, mode)


for _n in (1, 2, 3):
    _register_pad(f"reflection_pad{_n}d", "reflect")
    _register_pad(f"replication_pad{_n}d", "replicate")
