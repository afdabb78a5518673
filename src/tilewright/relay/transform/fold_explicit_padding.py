"""Fold padding by zero, or by the zero point, into the convolution that reads it.

    nn.conv2d(nn.pad(%x, 0f, pad_width=((0, 0), (0, 0), (1, 1), (1, 1))), w) -> nn.conv2d(%x, w, padding=(1, 1, 1, 1))
    qnn.conv2d(nn.pad(%x, 7f, …), w, 7, …) -> qnn.conv2d(%x, w, 7, …, padding=(1, 1, 1, 1))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.expr import Call, Constant, Expr, Function
from tilewright.relay.op.nn_conv import Conv1d, Conv2d, Conv3d
from tilewright.relay.op.transform import Pad
from tilewright.relay.qnn.products import QnnConv2d
from tilewright.relay.visitor import rewrite


@dataclass(frozen=True)
class FoldExplicitPadding(FunctionPass):
    """Fold constant padding of the spatial axes, by zero or by the zero point of quantized data, into convolutions.
    Needs known types.
    """

    kind: ClassVar[type] = Function
    required: ClassVar[tuple[str, ...]] = ("InferType",)
    opt_level: ClassVar[int] = 1

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        return rewrite(function, fold_padding)


def fold_padding(e: Expr) -> Expr | None:
    """A convolution of a padded value -> one with more padding."""
    if not (isinstance(e, Call) and isinstance(e.op, (Conv1d, Conv2d, Conv3d))):
        return None
    pad = e.args[0]
    if not (isinstance(pad, Call) and isinstance(pad.op, Pad) and _pads_zero(pad, e)):
        return None
    layout, width = e.op.data_layout, pad.op.pad_width
    if not layout.isupper() or any(tuple(width[layout.index(c)]) != (0, 0) for c in "NC"):
        return None
    spatial = [width[k] for k, c in enumerate(layout) if c not in "NC"]
    if any(int(n) < 0 for pair in spatial for n in pair):
        return None
    before, after = both_sides(e.op.padding, len(spatial))
    total = (*(int(p[0]) + b for p, b in zip(spatial, before, strict=True)),
             *(int(p[1]) + a for p, a in zip(spatial, after, strict=True)))
    attributes = {**e.op.attributes(), "padding": total}
    return Call(type(e.op)(**attributes), [pad.args[0], *e.args[1:]], span=e.span)


def _pads_zero(pad: Call, conv: Call) -> bool:
    if pad.attrs.pad_mode != "constant":
        return False
    value = pad.args[1] if len(pad.args) > 1 else None
    zero = conv.args[2] if isinstance(conv.op, QnnConv2d) else None
    if zero is None:
        return value is None or (isinstance(value, Constant) and not value.value.any())
    return isinstance(zero, Constant) and zero.value.size == 1 and (
        not zero.value.any() if value is None else isinstance(value, Constant)
        and value.value.item() == zero.value.item())


def both_sides(padding: int | Sequence[int], rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the padding before and after each spatial axis, given in any short form."""
    p = (padding,) * rank if isinstance(padding, int) else tuple(padding)
    p = p * rank if len(p) == 1 else p
    return (p, p) if len(p) == rank else (p[:rank], p[rank:])
