"""Choose the layers to quantize, and the values to store as bytes for them.

    conv2d(max_pool2d(relu(add(conv2d(%x, w0), %y))), w1)
        layers: both convolutions     values: %x, conv2d(%x, w0), %y, relu(…)

A single sweep from the result backward. The data of a layer are wanted in bytes. If an operator that only moves
elements has a wanted result, its argument is wanted instead. The parts of a wanted concatenation are wanted too, with a
common scale. So are both operands of a wanted sum, and the argument of a global average.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Final

from tilewright.base.types import FLOAT32, TensorType
from tilewright.relay.expr import Call, Constant, Expr, Function, Tuple
from tilewright.relay.op.broadcast import Add
from tilewright.relay.op.elementwise import Clip, Relu
from tilewright.relay.op.nn_conv import Conv2d
from tilewright.relay.op.nn_matmul import Dense
from tilewright.relay.op.nn_pool import GlobalAvgPool2d, MaxPool1d, MaxPool2d, MaxPool3d
from tilewright.relay.op.registry import Op
from tilewright.relay.op.shaping import BatchFlatten, ExpandDims, Reshape, Squeeze
from tilewright.relay.op.transform import Concatenate, StridedSlice, Transpose
from tilewright.relay.visitor import post_order

LAYERS: Final = (Conv2d, Dense)
MOVING: Final = (MaxPool1d, MaxPool2d, MaxPool3d, Reshape, Squeeze, ExpandDims, BatchFlatten, Transpose, StridedSlice)
Choice = Callable[[Call], bool]


@dataclass(eq=False)
class Selection:
    """The `layers`, and the `values` stored as bytes, in the order of computation.

    `scales` maps each value in bytes, and values made of them by moving elements, to a representative of all with the
    same scale.
    """

    layers: list[Call] = field(default_factory=list)
    values: dict[Expr, None] = field(default_factory=dict)
    scales: dict[Expr, Expr] = field(default_factory=dict)


def is_layer(e: Expr) -> bool:
    """Whether `e` is a convolution or product of float data and constant weights."""
    if not isinstance(e, Call) or not isinstance(e.op, LAYERS) or not isinstance(e.args[1], Constant):
        return False
    plain: Any = e.op
    return (_is_float(e.args[0]) and _is_float(e.args[1]) and plain.out_dtype in ("", "float32")
            and not (isinstance(plain, Conv2d) and plain.blocked))


def layers(function: Function) -> list[Call]:
    """All quantizable layers."""
    return [e for e in post_order(function.body, inside=False) if isinstance(e, Call) and is_layer(e)]


def select(function: Function, chosen: Choice, enabled: Collection[str] | None = None) -> Selection:
    """Select the layers that `chosen` accepts and their byte values; only `enabled` operators (None: all) propagate
    bytes.
    """
    order = post_order(function.body, inside=False)
    wanted: dict[Expr, None] = {}
    passing: set[Expr] = set()
    same = _Ties()
    found = Selection()

    def want(e: Expr) -> None:
        if not isinstance(e, Constant):
            wanted[e] = None

    for e in reversed(order):
        if not isinstance(e, Call) or not isinstance(e.op, Op):
            continue
        if is_layer(e) and chosen(e):
            found.layers.append(e)
            want(e.args[0])
        if e not in wanted or not (enabled is None or e.op.name in enabled):
            continue
        total = e.args[0] if isinstance(e.op, (Relu, Clip)) else e
        if isinstance(e.op, MOVING):
            want(e.args[0])
            same.tie(e.args[0], e)
            passing.add(e)
        elif isinstance(e.op, Concatenate):
            parts = e.args[0].fields if isinstance(e.args[0], Tuple) else ()
            if parts and all(_is_float(p) and not isinstance(p, Constant) for p in parts):
                for p in parts:
                    want(p)
                    same.tie(p, e)
                passing.add(e)
        elif isinstance(e.op, GlobalAvgPool2d):
            want(e.args[0])
        elif isinstance(total, Call) and isinstance(total.op, Add) and all(_is_float(a)
                and a.known_type() == total.known_type() for a in total.args):
            want(total.args[0])
            want(total.args[1])
    found.layers.reverse()
    found.values = {e: None for e in order if e in wanted and e not in passing}
    found.scales = {e: same.root(e) for e in wanted}
    return found


class _Ties:
    """Values that share a scale, as a union-find forest."""

    def __init__(self) -> None:
        self.parents: dict[Expr, Expr] = {}

    def root(self, e: Expr) -> Expr:
        while e in self.parents:
            e = self.parents[e]
        return e

    def tie(self, a: Expr, b: Expr) -> None:
        a, b = self.root(a), self.root(b)
        if a is not b:
            self.parents[a] = b


def _is_float(e: Expr) -> bool:
    kind = e.known_type()
    return isinstance(kind, TensorType) and kind.dtype is FLOAT32
