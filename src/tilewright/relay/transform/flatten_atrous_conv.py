"""Recover dilated convolutions that were exported as space-to-batch, convolution and batch-to-space.

    %0 = nn.space_to_batch_nd(%x, block_shape=[2, 2], paddings=…); %1 = nn.conv2d(%0, w);
    nn.batch_to_space_nd(%1, block_shape=[2, 2], crops=…)
    -> nn.conv2d(%x, w, dilation=[2, 2], padding=…)

Quantized convolutions are converted as well, if the batches are padded with the zero point of the data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.base.errors import ShapeError
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.expr import Call, Constant, Expr, Function
from tilewright.relay.op.blocks import BatchToSpaceNd, SpaceToBatchNd
from tilewright.relay.op.nn_conv import Conv2d
from tilewright.relay.qnn.products import QnnConv2d
from tilewright.relay.visitor import rewrite


@dataclass(frozen=True)
class FlattenAtrousConv(FunctionPass):
    """Replace space-to-batch, convolution of stride 1 and batch-to-space by an equivalent dilated convolution. NHWC
    images only."""

    kind: ClassVar[type] = Function
    required: ClassVar[tuple[str, ...]] = ("InferType",)
    opt_level: ClassVar[int] = 3

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        return rewrite(function, flatten)


def flatten(e: Expr) -> Expr | None:
    """batch_to_space_nd(conv2d(space_to_batch_nd(x))) -> conv2d(x, dilation=block_shape)"""
    if not (isinstance(e, Call) and isinstance(e.op, BatchToSpaceNd) and isinstance(e.args[0], Call)
            and isinstance(e.args[0].op, Conv2d)):
        return None
    conv = e.args[0]
    split = conv.args[0]
    if (not (isinstance(split, Call) and isinstance(split.op, SpaceToBatchNd))
            or split.op.block_shape != e.op.block_shape or not _pads_with_zero(split.op, conv)):
        return None
    how, block = conv.attrs, split.op.block_shape
    if (how.data_layout != "NHWC" or how.out_layout not in ("", "NHWC") or len(block) != 2
            or {*how.strides, *how.dilation} != {1}):
        return None
    (top, bottom), (left, right) = split.op.paddings
    (cut_top, cut_bottom), (cut_left, cut_right) = e.op.crops
    inner = how.padding
    before = (top + inner[0] * block[0] - cut_top, left + inner[1] * block[1] - cut_left)
    after = (bottom + inner[2] * block[0] - cut_bottom, right + inner[3] * block[1] - cut_right)
    if min(*before, *after) < 0:
        return None
    made = type(how)(**{**how.attributes(), "dilation": block, "padding": (*before, *after)})
    try:
        flat = Call(made, [split.args[0], *conv.args[1:]], span=conv.span)
    except ShapeError:
        return None
    return flat if flat.known_type() == e.known_type() else None


def _pads_with_zero(split: SpaceToBatchNd, conv: Call) -> bool:
    """Return whether `split` pads with the value with which the convolution pads: 0, or the zero point of the data."""
    if not isinstance(conv.op, QnnConv2d):
        return not split.pad_value
    zero = conv.args[2]
    return isinstance(zero, Constant) and zero.value.size == 1 and zero.value.item() == split.pad_value
