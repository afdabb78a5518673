"""Fold padding into the convolution or the pool that reads it.

    nn.conv2d(nn.pad(%x, 0f, pad_width=((0, 0), (0, 0), (1, 1), (1, 1))), w) -> nn.conv2d(%x, w, padding=(1, 1, 1, 1))
    qnn.conv2d(nn.pad(%x, 7f, …), w, 7, …) -> qnn.conv2d(%x, w, 7, …, padding=(1, 1, 1, 1))
    nn.max_pool2d(nn.pad(%x, -inff, …), pool_size=[2, 2]) -> nn.max_pool2d(%x, pool_size=[2, 2], padding=(1, 1, 1, 1))
    nn.avg_pool2d(nn.pad(%x, 0f, …)) -> nn.avg_pool2d(%x, padding=(1, 1, 1, 1), count_include_pad=True)

A convolution pads with zero or with the zero point of its data, a maximum with the least value of the data type. A mean
counts padding by `nn.pad`, so its own padding must be empty or counted. The maximum of a window without data is then
that of an empty window.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import ml_dtypes

from tilewright.base.errors import ShapeError
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.expr import Call, Constant, Expr, Function
from tilewright.relay.op.nn_conv import Conv1d, Conv2d, Conv3d
from tilewright.relay.op.nn_pool import AvgPool, MaxPool
from tilewright.relay.op.transform import Pad
from tilewright.relay.qnn.products import QnnConv2d
from tilewright.relay.visitor import rewrite
from tilewright.scalar.expr import min_value, number_of


@dataclass(frozen=True)
class FoldExplicitPadding(FunctionPass):
    """Fold constant padding of the spatial axes into convolutions and pools: by zero, by the zero point of quantized
    data, or for maxima by the least value. Needs known types.
    """

    kind: ClassVar[type] = Function
    required: ClassVar[tuple[str, ...]] = ("InferType",)
    opt_level: ClassVar[int] = 1

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        return rewrite(function, fold_padding)


def fold_padding(e: Expr) -> Expr | None:
    """A convolution or a pool of a padded value -> one with more padding."""
    if not (isinstance(e, Call) and isinstance(e.op, (Conv1d, Conv2d, Conv3d, MaxPool, AvgPool))):
        return None
    pad = e.args[0]
    if not (isinstance(pad, Call) and isinstance(pad.op, Pad) and pad.op.pad_mode == "constant"):
        return None
    if isinstance(e.op, (MaxPool, AvgPool)):
        fits, layout = _pads_like_pool(pad, e.op), e.op.layout
    else:
        fits, layout = _pads_zero(pad, e), e.op.data_layout
    width = pad.op.pad_width
    if not fits:
        return None
    if not layout.isupper() or any(tuple(width[layout.index(c)]) != (0, 0) for c in "NC"):
        return None
    spatial = [width[k] for k, c in enumerate(layout) if c not in "NC"]
    if any(int(n) < 0 for pair in spatial for n in pair):
        return None
    before, after = both_sides(e.op.padding, len(spatial))
    total = (*(int(p[0]) + b for p, b in zip(spatial, before, strict=True)),
             *(int(p[1]) + a for p, a in zip(spatial, after, strict=True)))
    if isinstance(e.op, MaxPool) and not (_is_identity(pad) or _sees_data(e.op, total)):
        return None
    attributes = {**e.op.attributes(), "padding": total}
    if isinstance(e.op, AvgPool):
        attributes["count_include_pad"] = True
    try:
        folded = Call(type(e.op)(**attributes), [pad.args[0], *e.args[1:]], span=e.span)
    except ShapeError:
        return None
    return folded if folded.known_type() == e.known_type() else None  # with ceil_mode, no window starts in padding


def _pads_like_pool(pad: Call, pool: MaxPool | AvgPool) -> bool:
    """Return whether the pool ignores the padding, or counts it as the zeros that its own padding would be."""
    number = _padding_of(pad)
    if number is None:
        return False
    if isinstance(pool, AvgPool):
        return number == 0 and (pool.count_include_pad or not any(pool.padding))
    dtype = pad.tensor_type.dtype
    if dtype.is_float:
        return bool(number <= float(ml_dtypes.finfo(dtype.numpy()).min))  # type: ignore[no-untyped-call]
    return number == number_of(min_value(dtype))


def _padding_of(pad: Call) -> float | int | None:
    """Return the value of constant padding; None if it is computed."""
    value = pad.args[1] if len(pad.args) > 1 else None
    if value is None:
        return 0
    return value.value.item() if isinstance(value, Constant) and value.value.size == 1 else None


def _is_identity(pad: Call) -> bool:
    """Return whether the padding is the maximum of no elements, which the pool has for a window in the padding."""
    return not pad.tensor_type.dtype.is_float or _padding_of(pad) == -math.inf


def _sees_data(pool: MaxPool, total: Sequence[int]) -> bool:
    """Return whether each window of a pool with this padding contains an element of the data."""
    sides = [*both_sides(tuple(total), len(pool.pool_size))]
    return all(d == 1 for d in pool.dilation) and not pool.ceil_mode and all(
        p < k for side in sides for p, k in zip(side, pool.pool_size, strict=True))


def _pads_zero(pad: Call, conv: Call) -> bool:
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
