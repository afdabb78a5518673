"""Scale the weights of a 1x1 convolution instead of its input image, where the weights are smaller.

    nn.conv2d(multiply(%x, %gate), w) -> nn.conv2d(%x, multiply(w, reshape(%gate, (1, 1, -1, 1))))

The gate of a squeeze-and-excite block is known only at run time. With a batch of one, scaling the columns of the
product equals scaling the channels of the image. The weights are packed for the kernel anyway, so scaling them is
cheap. The image has left the caches when the gate is known; now the convolution reads it once, and it is not written
again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from tilewright.base.types import TensorType
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.expr import Call, Constant, Expr, Function
from tilewright.relay.op.broadcast import Multiply
from tilewright.relay.op.nn_conv import Conv
from tilewright.relay.transform.fold_scale_axis import input_axes
from tilewright.relay.transform.permutations import reshaped
from tilewright.relay.visitor import operands, post_order, rewrite

_WORTH: Final = 2
"""Least ratio of image bytes to weight bytes for which the rewrite pays."""


@dataclass(frozen=True)
class FoldGate(FunctionPass):
    """Move the gate of a squeeze-and-excite block from the image to the weights of the following 1x1 convolution.

    Applies to float32, static shapes, a batch of one, and products with a single consumer. Switch:
    `relay.FoldGate.enabled`.
    """

    kind: ClassVar[type] = Function
    opt_level: ClassVar[int] = 2

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        if not context.get("relay.FoldGate.enabled"):
            return function
        uses: dict[Expr, int] = {}
        for e in post_order(function):
            for o in operands(e):
                uses[o] = uses.get(o, 0) + 1
        rule = _Rule(uses)
        return rewrite(function, rule.apply, origin=rule.origin)


class _Rule:
    def __init__(self, uses: dict[Expr, int]) -> None:
        self.uses = uses
        self.origin: dict[Expr, Expr] = {}

    def apply(self, e: Expr) -> Expr | None:
        if (not isinstance(e, Call) or not isinstance(e.op, Conv) or not isinstance(e.args[1], Constant)
                or not e.op.reads_once(1)):
            return None
        product, weight = e.args
        axes, kind = input_axes(e.op), product.known_type()
        if (axes is None or not isinstance(product, Call) or not isinstance(product.op, Multiply)
                or not isinstance(kind, TensorType)):
            return None
        if not kind.is_static or kind.dtype != "float32" or self.uses.get(self.origin.get(product, product), 1) > 1:
            return None
        if kind.shape[e.op.data_layout.index("N")] != 1 or kind.nbytes < _WORTH * weight.tensor_type.nbytes:
            return None
        for x, gate in (product.args, reversed(product.args)):
            if x.known_type() == kind and _is_per_channel(gate, axes.channel % kind.ndim, kind):
                order = [1] * kind.ndim
                order[axes.weight] = kind.shape[axes.channel]
                scaled = Call(product.op, [weight, reshaped(gate, order)], span=product.span)
                return Call(e.op, [x, scaled], span=e.span)
        return None


def _is_per_channel(gate: Expr, channel: int, image: TensorType) -> bool:
    """Return whether a value known only at run time has one element per channel."""
    found = gate.known_type()
    if isinstance(gate, Constant) or not isinstance(found, TensorType) or found.ndim > image.ndim:
        return False
    shape = (1,) * (image.ndim - found.ndim) + found.shape
    return all(d == (image.shape[k] if k == channel else 1) for k, d in enumerate(shape))
