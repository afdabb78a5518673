"""Resizing of images with channels last. Integers use fixed-point weights with 10 fractional bits."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from tilewright.base.types import DataType
from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast
from tilewright.relay.frontend.tflite.node import Node, Value, constant
from tilewright.relay.frontend.tflite.registry import converter

Array = np.ndarray[Any, Any]

_BITS: Final = 10
_MOST_POINTS: Final = 1 << 27


def _sizes(x: Value, size: Value, node: Node) -> tuple[int, int]:
    wanted = node.ints(size)
    if x.rank != 4 or len(wanted) != 2 or min(wanted) < 1:
        node.refuse(f"an image of shape {x.shape} is to be resized to {wanted}; it must have 4 dimensions, and get a "
                    "height and a width")
    if math.prod(wanted) > _MOST_POINTS:
        node.refuse(f"its result has {wanted[0]} x {wanted[1]} points, and at most {_MOST_POINTS} are supported; "
                    "resize to fewer")
    return wanted[0], wanted[1]


@converter("RESIZE_NEAREST_NEIGHBOR")
def resize_nearest_neighbor(x: Value, size: Value, *, align_corners: bool = False, half_pixel_centers: bool = False,
                            node: Node) -> Expr:
    found = x.expr
    for axis, (old, new) in enumerate(zip(x.shape[1:3], _sizes(x, size, node), strict=True), start=1):
        found = op.take(found, Constant(_nearest(old, new, align_corners, half_pixel_centers)), axis=axis, mode="fast")
    return found


def _nearest(old: int, new: int, align: bool, centers: bool) -> Array:
    """The source index of each new position, computed in float32."""
    scale = np.float32(old - 1) / np.float32(new - 1) if align and new > 1 else np.float32(old) / np.float32(new)
    at = (np.arange(new, dtype=np.float32) + np.float32(0.5 if centers else 0)) * scale
    whole = np.floor(at + np.float32(0.5)) if align else np.floor(at)
    found: Array = np.clip(whole, 0, old - 1).astype(np.int32)
    return found


@converter("RESIZE_BILINEAR")
def resize_bilinear(x: Value, size: Value, *, align_corners: bool = False, half_pixel_centers: bool = False,
                    node: Node) -> Expr:
    wanted = _sizes(x, size, node)
    if DataType(x.dtype).is_float:
        mode = "half_pixel" if half_pixel_centers else "align_corners" if align_corners else "asymmetric"
        return op.image.resize2d(x.expr, size=wanted, layout="NHWC", method="linear",
                                 coordinate_transformation_mode=mode)
    if x.dtype == "uint8":
        return _bilinear_bytes(x, wanted, align_corners, half_pixel_centers)
    return _integer_bilinear(x, wanted, align_corners, half_pixel_centers)


def _bilinear_bytes(x: Value, wanted: tuple[int, int], align: bool, centers: bool) -> Expr:
    """Bilinear resize of uint8 in float32, in the kernels' order of operations, rounded half up."""
    data = cast(x.expr, "float32")
    rows, columns = (_float_taps(old, new, align, centers) for old, new in zip(x.shape[1:3], wanted, strict=True))
    total: Expr | None = None
    for column, across in columns:
        for row, down in rows:
            part = op.take(op.take(data, Constant(row), axis=1, mode="fast"), Constant(column), axis=2, mode="fast")
            part = op.multiply(op.multiply(part, Constant(down.reshape(1, -1, 1, 1))),
                               Constant(across.reshape(1, 1, -1, 1)))
            total = part if total is None else op.add(total, part)
    assert total is not None
    return cast(op.floor(op.add(total, constant(0.5, "float32"))), x.dtype)


def _float_taps(old: int, new: int, align: bool, centers: bool) -> list[tuple[Array, Array]]:
    """The lower and upper source index of each new position, with their float32 weights."""
    single = np.float32
    scale = single(old - 1) / single(new - 1) if align and new > 1 else single(old) / single(new)
    at = np.arange(new, dtype=single)
    at = (at + single(0.5)) * scale - single(0.5) if centers else at * scale
    low = np.maximum(np.floor(at).astype(np.int32), 0)
    high = np.minimum(np.ceil(at).astype(np.int32), old - 1)
    share = at - low.astype(single)
    return [(low, single(1) - share), (high, share)]


def _integer_bilinear(x: Value, wanted: tuple[int, int], align: bool, centers: bool) -> Expr:
    """Bilinear resize of integers with 10-bit weights; results are rounded, halves away from zero."""
    kind = "int64"
    rows, columns = (_taps(old, new, align, centers) for old, new in zip(x.shape[1:3], wanted, strict=True))
    data = cast(x.expr, kind)
    total: Expr | None = None
    for row, row_weight in rows:
        line = op.take(data, Constant(row), axis=1, mode="fast")
        for column, column_weight in columns:
            weight = Constant(row_weight.reshape(1, -1, 1, 1) * column_weight.reshape(1, 1, -1, 1))
            part = op.multiply(op.take(line, Constant(column), axis=2, mode="fast"), weight)
            total = part if total is None else op.add(total, part)
    assert total is not None
    half, unit = constant(1 << (2 * _BITS - 1), kind), constant(2 * _BITS, kind)
    size = op.right_shift(op.add(op.abs(total), half), unit)
    return cast(op.where(op.less(total, constant(0, kind)), op.negative(size), size), x.dtype)


def _taps(old: int, new: int, align: bool, centers: bool) -> list[tuple[Array, Array]]:
    """The lower and upper source index of each new position, with their fixed-point weights."""
    one = 1 << _BITS
    scale = ((one * (old - 1) + (new - 1) // 2) // (new - 1)) if align and new > 1 else (one * old + new // 2) // new
    at = np.arange(new, dtype=np.int64) * scale
    if centers:
        at = at + scale // 2 - one // 2
    low = np.maximum(at >> _BITS, 0)
    high = np.minimum((at + one - 1) >> _BITS, old - 1)
    share = at - (low << _BITS)
    return [(np.minimum(low, old - 1).astype(np.int32), one - share), (np.maximum(high, 0).astype(np.int32), share)]
